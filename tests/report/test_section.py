"""Sections: the registry, and the example of CONTRIBUTING.md, which is added as the page says and found on a report."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from likewise.config import Report
from page_reader import Reader

from likewise.core.render import html
from likewise.report import sections
from likewise.report.section import Facts, Packing, RunView, Section, load_sections
from likewise.report.write_report import report

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("\n## Add a section to the report\n")[1].split("\n## ")[0]
MODULE, SCRIPT, TEST = re.findall(r"^```(?:python|js)\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A report page made with the example section: its module, its script and its line in the registry."""
    place = tmp_path_factory.mktemp("example")
    (place / "modules").mkdir()
    (place / "modules" / "class_sizes.py").write_text(MODULE)
    shutil.copytree(html.TEMPLATES, place / "templates")
    (place / "templates" / "class_sizes.js").write_text(SCRIPT)
    rng, y = np.random.default_rng(0), np.repeat(np.arange(3), [9, 4, 6])
    np.savez(place / "mine.npz", x=(np.eye(3)[y] + rng.normal(size=(19, 3)) / 5).astype(np.float32), label=y)
    way = {"out": str(place / "page.html"), "map": "none", "quiet": True, "device": "cpu", "workers": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "TEMPLATES", place / "templates")
        patch.setattr(sections, "__path__", [*sections.__path__, str(place / "modules")])
        patch.setattr(sections, "NAMES", (*sections.NAMES[:-1], "class_sizes", "notes"))
        file = report(Report((str(place / "mine.npz"),), **way), lambda line: None).path
    return file


def test_a_new_section_takes_four_files():
    places = re.findall(r"^\d\. `([\w/.]+)`", PAGE, re.M)
    assert places == [
        "src/likewise/report/sections/class_sizes.py", "src/likewise/core/render/templates/class_sizes.js",
        "src/likewise/report/sections/__init__.py", "tests/report/sections/test_class_sizes.py",
    ]  # fmt: skip
    assert [(ROOT / place).exists() for place in places] == [False, False, True, False]


def test_the_example_stands_on_the_page_with_its_data_and_its_code(example):
    text = example.read_text("utf-8")
    page = Reader(text)
    assert "class_sizes" in page.sections() and "Samples per class" in page.text
    assert "#class_sizes" in [a["href"] for tag, a in page.tags if tag == "a"]
    more = json.loads(re.search(r'id="more">(.*?)</script>', text)[1])
    assert more["runs"][0]["class_sizes"] == {"count": [9, 6, 4]} and "drawClassSizes(holder)" in text


def test_the_test_of_the_example_passes(example):
    made = {}
    exec(TEST, made)
    made["test_sizes_by_hand"]()


@pytest.mark.browser
def test_the_example_is_drawn(open_page, example):
    open_page(example).wait_for_selector("#class_sizes .chart path.line", state="attached")


def test_every_module_of_the_package_is_registered_and_its_files_are_there(subtests):
    files = {Path(place).stem for folder in sections.__path__ for place in Path(folder).glob("*.py")} - {"__init__"}
    assert files == set(sections.NAMES) and len(set(sections.NAMES)) == len(sections.NAMES)
    for section, name in zip(load_sections(), sections.NAMES, strict=True):
        with subtests.test(name):
            assert section.name == name and all(
                (html.TEMPLATES / f).exists() for f in (*section.code, section.template)
            )


def test_a_section_is_shown_where_it_found_something_or_where_it_says_so():
    run = RunView("mine", -1, "", {}, {}, "", {"a": 1})
    facts = Facts("x", (run,), (), {"b": 2})
    assert [Section(name, name, name).is_shown(facts) for name in "abc"] == [True, True, False]
    assert not Section("a", "a", "a", shown_if=lambda facts: False).is_shown(facts)
    assert Packing(facts, run).pool is None
    assert Section("a", "a", "a").code == ("a.js",) and Section("a", "a", "a", template="a.html").code == ()
