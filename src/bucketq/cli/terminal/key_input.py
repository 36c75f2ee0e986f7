"""Single keys from a terminal, which is put back as it was on every exit."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_KEYS = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_NAMES = {
    **dict.fromkeys((b"\x1b[A", b"\x1bOA"), "up"),
    **dict.fromkeys((b"\x1b[B", b"\x1bOB"), "down"),
    **dict.fromkeys((b"\r", b"\n"), "enter"),
    b"\x1b": "esc",
}
_READ_BYTES = 1024
_LOCAL, _CONTROLS = 3, 6
"""The places of these in what ``tcgetattr`` returns."""


def decode_keys(data: bytes) -> list[str]:
    """Return the names of the keys that a terminal sent; of those without one, nothing."""
    found = []
    for key in _KEYS.findall(data):
        name = _NAMES.get(key) or (key.decode("ascii", "ignore") if len(key) == 1 else "")
        if name:
            found.append(name)
    return found


@contextmanager
def single_keys(press: Callable[[str], None], gone: Callable[[], None]) -> Iterator[None]:
    """Call ``press`` for every key, without waiting for Enter, and ``gone`` after a hang-up.

    Ctrl-C still interrupts. Ctrl-Z is off: a stopped program would leave the terminal as it is in
    here to the shell.
    """
    place = sys.stdin.fileno()
    before = termios.tcgetattr(place)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            data = os.read(place, _READ_BYTES)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(place)
            gone()
        for key in decode_keys(data):
            press(key)

    try:
        changed = termios.tcgetattr(place)
        changed[_LOCAL] &= ~(termios.ICANON | termios.ECHO)
        changed[_CONTROLS][termios.VSUSP] = b"\0"
        termios.tcsetattr(place, termios.TCSADRAIN, changed)
        loop.add_reader(place, read)
        yield
    finally:
        loop.remove_reader(place)
        termios.tcsetattr(place, termios.TCSAFLUSH, before)
