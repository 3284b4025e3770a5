"""Which build of torch to install: one for the CPU wherever it can be had, never gigabytes of CUDA by surprise."""

import contextlib
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tools.mishaps import Mishap
from tools.project import Requirement

CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
PROBE_SECONDS = 2.0
CUDA_PREFIXES = ("nvidia-", "cuda-")


class Build(NamedTuple):
    """A torch that pip can install: what to ask pip for, and what that brings."""

    requirement: str
    options: tuple[str, ...]
    is_cuda: bool = False
    size: int | None = None

    def __str__(self) -> str:
        return f"{self.requirement.replace('==', ' ')} ({readable(self.size)} to download)"


Resolve = Callable[[str, tuple[str, ...]], list[dict[str, Any]]]


def choose(torch: Requirement, resolve: Resolve) -> Build:
    """Return the first build that is not CUDA, or the newest CUDA build if there is no other.

    Parameters
    ----------
    torch
        The bounds to keep.
    resolve
        Asks pip what a requirement would install, given pip options; returns the ``install`` list of pip's report.
    """
    if not sys.platform.startswith("linux"):
        # Elsewhere the builds on the usual index are for the CPU.
        return Build(str(torch), ())
    cuda, mishap = None, None
    for requirement, options in candidates(torch):
        try:
            packages = resolve(requirement, options)
        except Mishap as failure:
            mishap = failure
            continue
        build = describe(packages, options)
        if not build.is_cuda:
            return build
        cuda = cuda or build
    if cuda is None:
        raise mishap or Mishap("pip finds no torch.")
    return cuda


def candidates(torch: Requirement) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield what to ask pip for, best first."""
    if answers(CPU_WHEELS + "/torch/"):
        # In place of the usual index, not beside it: beside it a newer CUDA build would win.
        yield str(torch), ("--index-url", CPU_WHEELS)
    yield str(torch), ()
    yield torch.lowest, ()


def describe(packages: list[dict[str, Any]], options: tuple[str, ...]) -> Build:
    """Return the build that pip's report speaks of."""
    names = {
        package["metadata"]["name"].lower().replace("_", "-"): package["metadata"]["version"] for package in packages
    }
    is_cuda = any(name.startswith(CUDA_PREFIXES) or name == "triton" for name in names)
    size = download_size([package["download_info"]["url"] for package in packages])
    return Build(f"torch=={names['torch']}", options, is_cuda, size)


def answers(url: str) -> bool:
    """Tell whether `url` answers soon; a thread holds the wait for a name server, which knows no time limit."""
    found = []

    def ask() -> None:
        with contextlib.suppress(OSError), request(url, PROBE_SECONDS):
            found.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return bool(found)


def request(url: str, timeout: float) -> Any:
    """Open `url` for its headers only."""
    return urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=timeout)


def download_size(urls: list[str]) -> int | None:
    """Return how many bytes the files have together, None where one of them does not tell."""
    with ThreadPoolExecutor(8) as pool:
        sizes = list(pool.map(file_size, urls))
    return None if None in sizes else sum(size for size in sizes if size)


def file_size(url: str) -> int | None:
    """Return the size of one file, on a server or on this disk."""
    try:
        if url.startswith("file:"):
            return Path(url2pathname(urlsplit(url).path)).stat().st_size
        with request(url, 5.0) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def readable(size: int | None) -> str:
    """Return a size for people: ``190 MB``, ``2.8 GB``."""
    if size is None:
        return "an unknown size"
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def accept_cuda(build: Build) -> None:
    """Ask whether a CUDA build may be downloaded; without a terminal, or after a no, stop."""
    size = readable(build.size) if build.size else "several GB"
    news = f"Only a CUDA build of torch can be had here: {size} to download."
    if not sys.stdin.isatty():
        raise Mishap(f"{news} Run it again with --yes to accept that.")
    print(news, "Nothing in the course needs CUDA.")
    try:
        answer = input("Download it? [y/N] ")
    except EOFError:
        print()
        answer = "no"
    if answer.strip().lower() not in ("y", "yes"):
        raise Mishap("Nothing was downloaded. A CPU build of torch needs PyTorch's own package index.")
