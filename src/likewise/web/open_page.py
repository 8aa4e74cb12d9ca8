"""Show a served page in the user's browser, without the token on a command line."""

from __future__ import annotations

import html
import os
import secrets
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

REDIRECT_PAGE = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">'
"""Content of the file that the browser opens."""


def has_display() -> bool:
    """Return whether a browser window can appear: on a desktop, or with the program that the variable BROWSER names."""
    if os.environ.get("BROWSER") or sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def redirect_file(folder: Path) -> Iterator[Path]:
    """Yield the path of a file for `open_page`, and delete the file afterwards."""
    file = folder / f"open-{secrets.token_hex(8)}.html"
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


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
