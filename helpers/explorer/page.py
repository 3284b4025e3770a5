"""The explorer without a kernel: the same module, inlined in HTML with the settings it begins with."""

import html
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PARTS = ("simulation.js", "words.js", "picture.js", "explorer.js")
MODULE = "\n".join((HERE / name).read_text(encoding="utf-8") for name in PARTS)
"""The one JavaScript module: its parts, one after the other. The last one exports ``render``."""

STYLE = (HERE / "explorer.css").read_text(encoding="utf-8")

START = """
for (const el of document.querySelectorAll("[data-byg-settings]")) {
  const settings = JSON.parse(el.dataset.bygSettings);
  el.removeAttribute("data-byg-settings"); // so no other explorer on this page starts it again
  render({ model: { get: (name) => settings[name], set: (name, value) => (settings[name] = value) }, el });
}
"""

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>:root {{ color-scheme: light dark; }} body {{ max-width: 1100px; margin: 16px auto; padding: 0 16px; }}</style>
<body>
{body}
</body>
</html>
"""


def static_form(settings: dict[str, Any]) -> str:
    """Return HTML that moves without a kernel and asks nothing of the network.

    Parameters
    ----------
    settings : dict
        What ``render`` asks of its model: the traits by name. It must be JSON without NaN.
    """
    told = html.escape(json.dumps(settings, allow_nan=False), quote=True)
    script = f'<script type="module">{MODULE}{START}</script>'
    return f'<div data-byg-settings="{told}"></div>\n<style>{STYLE}</style>\n{script}'


def page(settings: dict[str, Any], title: str) -> str:
    """Return a whole page with the static form."""
    return PAGE.format(title=html.escape(title), body=static_form(settings))
