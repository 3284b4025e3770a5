"""One build at a time: a lock that the operating system lets go when its holders end, however they end."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


@contextmanager
def only_one(path: Path) -> Iterator[int]:
    """Hold the lock file `path` during the block, and wait for it where another process holds it.

    Yields
    ------
    int
        The file's descriptor. A child process that inherits it holds the lock too, so a pip that
        outlives a killed start.py is waited for.
    """
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        if not acquire(file):
            print("Another start.py is building .venv: waiting for it. (Ctrl-C stops the waiting.)", flush=True)
            while not acquire(file):
                time.sleep(0.2)
        yield file.fileno()


def acquire(file: IO[bytes]) -> bool:
    """Try to take the lock once."""
    try:
        if sys.platform == "win32":
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        # Some network drives know no locks: better no lock there than no course.
        return True
    return True
