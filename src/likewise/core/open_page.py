"""Show a served page in the user's browser, without the token on a command line."""

from __future__ import annotations

import html
import os
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

REDIRECT_PAGE = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">'
"""Content of the file that the browser opens."""


def has_display() -> bool:
    """Return whether a browser window can appear: on a desktop, or with the program that the variable BROWSER names."""
    if os.environ.get("BROWSER") or sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def page_opener(wanted: bool) -> Iterator[Callable[[str], None] | None]:
    """Yield a function that opens an address in the browser; None if that is not wanted, or without a display."""
    if not wanted or not has_display():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="likewise-") as folder:
        yield partial(open_page, file=Path(folder, "open.html"))


def open_page(address: str, file: Path) -> None:
    """Open an address in the browser by a file that only this account can read.

    Other accounts of the machine can read command lines, so the address, which contains the token, is not on one. Without a
    browser, or if the file cannot be written, nothing happens: the address was printed.
    """
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as text:
            text.write(REDIRECT_PAGE.format(address=html.escape(address)))
    except OSError:
        return
    threading.Thread(target=show, args=(file.resolve().as_uri(),), daemon=True).start()  # a browser may block


def show(address: str) -> None:
    """Show an address in the browser; without a browser nothing happens."""
    with suppress(webbrowser.Error):
        webbrowser.open(address)
