"""Chromium for the tests that open a page, driven by playwright. They are skipped where either is missing."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    """One chromium per test module. `browser.new_page()` opens a page with cookies and storage of its own."""
    api = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    with api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--enable-unsafe-swiftshader"])
        yield started
        started.close()


def until(page, told, arg=None):
    """Wait until this is true. Playwright's own way evaluates texts inside the page, which pages of ours forbid."""
    for _ in range(3000):
        if page.evaluate(told, arg):
            return
        page.wait_for_timeout(20)
    raise AssertionError(told)


def listen(page):
    """Return two lists that grow: addresses that the page asks for, and what it writes to the console or fails with."""
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    return asked, said
