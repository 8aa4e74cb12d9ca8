"""The scripts of examples/relevance: each runs at toy size, and docs/relevance.md shows the table that it prints."""

import importlib
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "relevance"
PAGE = (ROOT / "docs" / "relevance.md").read_text("utf-8")
NAMES = ("several_labels", "class_tree", "listed_pairs", "judged_pairs", "judged_triplets", "own_loop")


@pytest.fixture
def play(tmp_path, monkeypatch):
    """`play("own_loop")`: the result of the script at toy size."""
    monkeypatch.syspath_prepend(FOLDER)
    before = set(sys.modules)
    yield lambda name: importlib.import_module(name).main(str(tmp_path / name), quick=True)
    for name in (set(sys.modules) - before) & {*NAMES, "relevance_data"}:
        del sys.modules[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_script_trains_and_prints_a_table(play, name):
    result = play(name)
    for scores in result["scores"].values():
        assert all(0 <= value <= 1 for value in scores["metrics"].values())
    lines = [line for line in result["text"].splitlines() if line.startswith("|")]
    assert len(lines) == 4 and lines[0] in PAGE  # the head of the table on the page
    assert f"examples/relevance/{name}.py" in PAGE


def test_all_scripts_are_here():
    assert {file.stem for file in FOLDER.glob("*.py")} == {*NAMES, "relevance_data"}


def test_the_flags_of_the_scripts(play):
    play("own_loop")  # puts the folder on the path
    import relevance_data

    flags = relevance_data.parse(["here", "--quick"])
    assert flags.folder == "here" and flags.quick
