"""Open the course in JupyterLab: on this machine only, behind its token, until Ctrl-C."""

import http.client
import os
import secrets
import socket
import subprocess
import sys
import time
import webbrowser
from pathlib import Path
from urllib.parse import quote

from tools.mishaps import Mishap
from tools.project import ROOT

HOST = "127.0.0.1"
FIRST_PORT = 8888
PORTS_TRIED = 100
PATIENCE = 60.0  # seconds until JupyterLab has to answer
FIRST_PAGE = "/lab/tree/notebooks/00_start_here.ipynb"
# What `python -m jupyterlab` does, and two things more. A token in a user's own settings would win over JUPYTER_TOKEN,
# so ours becomes an argument, but only here: a command line can be read by every user of the machine.
# And jsonschema does without an optional package that takes 3 s to import and checks a format ("iri") unused here.
START_LAB = (
    "import os, sys; sys.modules['rfc3987_syntax'] = None; from jupyterlab.labapp import main; "
    "sys.exit(main([*sys.argv[1:], '--PasswordIdentityProvider.token=' + os.environ['JUPYTER_TOKEN']]))"
)
# The printed address has to be right whatever a user's own Jupyter settings say.
PLAIN_ADDRESS = {"base_url": "/", "certfile": "", "keyfile": "", "client_ca": "", "ssl_options": "{}", "sock": ""}


def open_course(python: Path, variables: dict[str, str], *, port: int | None = None, browser: bool = True) -> int:
    """Run JupyterLab until it is stopped, and return its exit status.

    Parameters
    ----------
    python
        The Python that has JupyterLab.
    variables
        The environment variables for it.
    port
        The port to use; the first free one from 8888 on if it is None.
    browser
        Whether a browser may be opened.
    """
    port = choose_port(port)
    browser = browser and has_browser()
    token = variables.get("JUPYTER_TOKEN") or secrets.token_hex(24)
    began = time.monotonic()
    command = lab_command(python, port, browser=browser)
    server = subprocess.Popen(command, cwd=ROOT, env=variables | {"JUPYTER_TOKEN": token})
    try:
        wait_until_it_answers(server, port)
        print(f"JupyterLab is ready after {time.monotonic() - began:.1f} s. Ctrl-C in this window stops it.")
        print("If no page opens by itself, open this address:" if browser else "Open this address in a browser:")
        print(f"    http://{HOST}:{port}{FIRST_PAGE}?token={quote(token, safe='')}", flush=True)
        return server.wait()
    except KeyboardInterrupt:
        print("\nStopping JupyterLab.", flush=True)
        return 0
    finally:
        stop(server)


def lab_command(python: Path, port: int, *, browser: bool) -> list[str]:
    """Return the command that starts JupyterLab on the first lesson."""
    command = [
        str(python),
        "-c",
        START_LAB,
        f"--ServerApp.ip={HOST}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.default_url={FIRST_PAGE}",
        "--ServerApp.answer_yes=True",
        "--Application.log_level=WARN",
        *(f"--ServerApp.{name}={value}" for name, value in PLAIN_ADDRESS.items()),
    ]
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return command


def wait_until_it_answers(server: subprocess.Popen[bytes], port: int) -> None:
    """Return once JupyterLab answers, and stop where it ends before that or takes too long."""
    began = time.monotonic()
    while server.poll() is None:
        if answers(port):
            return
        if time.monotonic() - began > PATIENCE:
            raise Mishap(
                f"JupyterLab has not answered for {PATIENCE:.0f} s and was stopped:"
                " run it again, and look at your own Jupyter settings in ~/.jupyter if that does not help."
            )
        time.sleep(0.1)
    raise Mishap("JupyterLab ended before it answered. Its own words stand above.")


def answers(port: int) -> bool:
    """Ask JupyterLab once whether it is there."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/api")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def stop(server: subprocess.Popen[bytes]) -> None:
    """End JupyterLab with its kernels, by force only where it takes long."""
    if os.name != "nt":
        # On Windows this would be force; there JupyterLab has got the Ctrl-C of the window that it shares.
        server.terminate()
    try:
        server.wait(timeout=15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def choose_port(wanted: int | None) -> int:
    """Return the wanted port if it is free, else the first free one from 8888 on."""
    if wanted is not None:
        if not is_free(wanted):
            raise Mishap(f"Port {wanted} is in use or not allowed. Choose another one, or leave --port out.")
        return wanted
    for port in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        if is_free(port):
            if port != FIRST_PORT:
                print(f"Port {FIRST_PORT} is in use, so JupyterLab takes {port}.")
            return port
    raise Mishap(f"No port from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1} is free. Choose one by --port.")


def is_free(port: int) -> bool:
    """Tell whether a server can listen on the port."""
    with socket.socket() as probe:
        if os.name == "posix":
            # As JupyterLab does: a port whose last server has just ended counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
    return port > 0


def has_browser() -> bool:
    """Tell whether a browser window can be opened here."""
    if sys.platform.startswith("linux") and not any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    ):
        # What is found without a screen is a text browser, which would take over the terminal.
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
