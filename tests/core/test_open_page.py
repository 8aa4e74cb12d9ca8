"""A browser is shown a page by a file, so that no command line has the token."""

import os
import stat
import threading
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from likewise.core import http as module
from likewise.core.http import has_display, open_page, page_opener

ADDRESS = "http://127.0.0.1:8017/?token=a&b"


def test_the_browser_opens_a_private_file_that_leads_to_the_page(monkeypatch):
    opened, there = [], threading.Event()
    monkeypatch.setattr(module.webbrowser, "open", lambda address: (opened.append(address), there.set()))
    monkeypatch.setattr(module, "has_display", lambda: True)
    with page_opener(True) as opener:
        opener(ADDRESS)
        assert there.wait(60) and len(opened) == 1 and "token" not in opened[0]
        file = Path(url2pathname(urlsplit(opened[0]).path))
        assert "url=http://127.0.0.1:8017/?token=a&amp;b" in file.read_text()
        assert os.name != "posix" or stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.exists()


@pytest.mark.parametrize(("wanted", "display"), [(False, True), (True, False)])
def test_no_browser_without_a_wish_or_a_display(monkeypatch, wanted, display):
    monkeypatch.setattr(module, "has_display", lambda: display)
    with page_opener(wanted) as opener:
        assert opener is None


def test_a_folder_that_cannot_be_written_opens_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "show", lambda address: pytest.fail("nothing to show"))
    open_page(ADDRESS, tmp_path / "nowhere" / "open.html")


def test_without_a_browser_nothing_happens(monkeypatch):
    def fail(address):
        raise module.webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(module.webbrowser, "open", fail)
    module.show("file:///tmp/a.html")


@pytest.mark.parametrize(
    ("platform", "names", "found"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"BROWSER": "firefox"}, True),
        ("darwin", {}, True),
    ],
)
def test_displays(monkeypatch, platform, names, found):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(module.sys, "platform", platform)
    assert has_display() is found
