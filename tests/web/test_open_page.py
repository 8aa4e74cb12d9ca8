"""A browser is shown a page by a file, so that no command line has the token."""

import os
import stat
import threading

import pytest

from likewise.web import open_page as module
from likewise.web.open_page import has_display, open_page, redirect_file

ADDRESS = "http://127.0.0.1:8017/?token=a&b"


def test_the_browser_opens_a_private_file_that_leads_to_the_page(tmp_path, monkeypatch):
    opened, there = [], threading.Event()
    monkeypatch.setattr(module.webbrowser, "open", lambda address: (opened.append(address), there.set()))
    with redirect_file(tmp_path) as file:
        open_page(ADDRESS, file)
        assert there.wait(60) and opened == [file.resolve().as_uri()] and "token" not in opened[0]
        assert "url=http://127.0.0.1:8017/?token=a&amp;b" in file.read_text()
        assert os.name != "posix" or stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.exists()


def test_a_folder_that_cannot_be_written_opens_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "show", lambda address: pytest.fail("nothing to show"))
    with redirect_file(tmp_path / "nowhere") as file:
        open_page(ADDRESS, file)


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
