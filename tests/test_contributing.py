"""CONTRIBUTING.md is performed: its example loss is added to a copy of the tree as the page says, and the tests run there.

The tests are those that a new loss can break: its own, the contract, the house rules about components, the doc pages. The fast
suite chooses a few of each file; a slow test runs the files as a whole.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
COPIED = ("src", "tests", "tools", "docs", "examples", "benchmarks")
TESTS = (
    "tests/learn/losses/test_nca.py", "tests/test_house.py", "tests/test_contracts.py", "tests/test_docs.py",
    "tests/test_arguments.py", "tests/learn/losses/test_hyperbolic.py",
)  # fmt: skip
CHOSEN = "[NCA] or test_nca or a_component_is or rooms_import or component_p or or_a_reason"


def changes() -> dict[str, str]:
    """File -> its text, or the line for it, as the page gives them: a path in the sentence before a Python block."""
    found = re.findall(r"^The \w+(?: in)? `([\w/.]+)`[^\n]*:\n\n```python\n(.*?)^```", PAGE, re.M | re.S)
    return dict(found)


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A copy of the tree with the changes of the page."""
    place = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "site"))
    for file in (*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.yml"), ROOT / "test", ROOT / "likewise"):
        shutil.copy(file, place)
    for name, text in changes().items():
        file = place / name
        if not file.exists():
            file.write_text(text)
            continue
        assert text.count("\n") == 1, "a file that exists gets one line"
        head, imports, rest = re.split(r"((?:^from .*\n)+)", file.read_text("utf-8"), maxsplit=1, flags=re.M)
        file.write_text(head + "".join(sorted([*imports.splitlines(True), text])) + rest)
    return place


def run_there(copy: Path, *words: str) -> str:
    """Run a Python module on the copy, with the copy's own package, and return what it prints."""
    path = os.pathsep.join([str(copy / "src"), *filter(None, sys.path)])
    words = (sys.executable, "-m", *words)
    made = subprocess.run(words, cwd=copy, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout[-6000:] + made.stderr[-2000:]
    return made.stdout


def test_the_page_names_three_files():
    assert list(changes()) == [
        "src/likewise/learn/losses/nca.py", "src/likewise/learn/losses/__init__.py", "tests/learn/losses/test_nca.py",
    ]  # fmt: skip


@pytest.mark.process
@pytest.mark.slow
def test_a_loss_is_a_file_a_line_and_a_test(copy):
    run_there(copy, "pytest", "-q", "-n", "0", *TESTS, "-k", CHOSEN)
    assert "NCA" in run_there(copy, "likewise", "list", "losses")


@pytest.mark.slow
@pytest.mark.process
def test_the_files_that_a_loss_can_break_pass_as_a_whole(copy):
    run_there(copy, "pytest", "-q", "-n", "0", "-m", "not slow", *TESTS)
