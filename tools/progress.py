"""Numbered steps with their seconds, one line each, which show life while they run."""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PLAIN_INTERVAL = 15.0


class Progress:
    """Print ``[2/4] Installing torch … 12 s`` for each step.

    A terminal sees one line that is written over. Elsewhere each line is final: the finished step,
    and in a long step one more every 15 seconds.

    Parameters
    ----------
    total
        How many steps there will be.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.number = 0
        self.title = ""
        self.note = ""
        self.began = self.spoke = 0.0
        self.terminal = sys.stdout.isatty()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Time the block and print its line."""
        self.number += 1
        self.title, self.note = title, ""
        self.began = self.spoke = time.monotonic()
        self.show("")
        try:
            yield
        except BaseException:
            if self.terminal:
                print(flush=True)
            raise
        self._write(self._line(self.note), final=True)

    def show(self, doing: str) -> None:
        """Say what the step is doing at this moment."""
        now = time.monotonic()
        if self.terminal:
            self._write(self._line(doing), final=False)
        elif now - self.spoke >= PLAIN_INTERVAL:
            self.spoke = now
            self._write(self._line(doing), final=True)

    def _line(self, rest: str) -> str:
        seconds = round(time.monotonic() - self.began)
        return f"[{self.number}/{self.total}] {self.title} … {seconds} s" + (f", {rest}" if rest else "")

    def _write(self, line: str, *, final: bool) -> None:
        if not self.terminal:
            print(line, flush=True)
            return
        width = shutil.get_terminal_size().columns - 1
        print("\r" + line[:width].ljust(width), end="\n" if final else "", flush=True)
