"""Fixtures of the tests that open the review page in a browser."""

import pytest
from review_page import Server, picture, write_audit


@pytest.fixture
def audited(tmp_path):
    """The folder of the audit that is served; test modules write another one by a fixture of this name."""
    write_audit(tmp_path)
    return tmp_path


@pytest.fixture
def serve():
    """A function that serves an audit until the test ends."""
    made = []

    def serve(folder, images=picture, **how):
        made.append(Server(folder, images, **how))
        return made[-1]

    yield serve
    [one.stop() for one in made]


@pytest.fixture
def server(audited, serve):
    return serve(audited)


@pytest.fixture
def visit(browser):
    """A browser of its own for each reviewer, who has said who they are; with `name=""` the page asks."""
    opened, wrong = [], []

    def visit(address, name, **how):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, "accept_downloads": True, **how})
        context.set_default_timeout(10_000)
        if name:
            context.add_init_script(f"localStorage.getItem('reviewer') || localStorage.setItem('reviewer', '{name}')")
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        own = (address.partition("?")[0], "data:", "blob:")
        page.on("request", lambda asked: asked.url.startswith(own) or wrong.append(asked.url))
        page.goto(address)
        page.wait_for_selector("#actions button")
        opened.append(context)
        return page

    yield visit
    [context.close() for context in opened]
    assert wrong == []  # no script failed, and nothing was asked of another server


@pytest.fixture
def enter(visit, server):
    return lambda name, **how: visit(server.address, name, **how)
