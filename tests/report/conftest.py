"""A fixture that opens pages of the report in chromium."""

import pytest
from browser import listen


@pytest.fixture
def open_page(browser):
    """`open_page(file)`: the page in a view of its own. At the end it must have asked for nothing else, and said nothing."""
    opened = []

    def open_page(file, script="", **options):
        view = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce"} | options)
        opened.append((view, file.as_uri(), *listen(view)))
        if script:
            view.add_init_script(script)
        view.goto(file.as_uri())
        return view

    yield open_page
    for view, address, asked, said in opened:
        assert [url for url in asked if not url.startswith("data:")] == [address]
        assert [line for line in said if "GL Driver Message" not in line] == []
        view.close()
