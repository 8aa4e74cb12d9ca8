"""What can be scored is known before the work begins, and what rounding decides is noted."""

import numpy as np
import pytest
import torch
from likewise.config import Train
from likewise.protocols import UnseenClasses
from likewise.types import Items, LikewiseError
from score.by_hand import score, some

from likewise.learn.training.fit import train
from likewise.score.checks import check_length, rows_of
from likewise.score.score_table import show_scores


def test_an_embedding_that_points_nowhere_has_no_cosine(tmp_path):
    x, y = some()
    x[[7, 9]] = 0
    np.savez(tmp_path / "z.npz", x=x, label=y)
    with pytest.raises(LikewiseError, match=r"2 of 60 .*row 7.*euclidean"):
        score(tmp_path / "z.npz")
    assert score(tmp_path / "z.npz", similarity="euclidean")["length"][0] == 0


def test_a_test_part_where_groups_leave_nothing_to_find_is_told_before_training(settings, tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 6)
    np.savez(tmp_path / "grouped.npz", x=rng.normal(size=(48, 4)), label=y, group=y)
    with pytest.raises(LikewiseError, match="no query has a relevant .*group"):
        train(Train(**settings | {"data": str(tmp_path / "grouped.npz"), "sampler": None}))
    assert not (tmp_path / "run").exists()


def test_rows_of_a_part_must_be_there():
    items = Items("toy", np.arange(4) // 2, ("a", "b"), split=np.array(["train", "train", "test", "test"]))
    assert rows_of(UnseenClasses(), items, "test").tolist() == [2, 3]
    with pytest.raises(LikewiseError, match="val split .* empty.*--split train"):
        rows_of(UnseenClasses(), items, "val")


def test_the_shortest_and_the_longest_embedding():
    z = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]])
    assert check_length(z, False) == [0.0, 5.0]
    with pytest.raises(LikewiseError, match="1 of 3 are .first: row 1"):
        check_length(z, True)


def test_the_cause_of_a_test_split_without_relevant_rows_is_named_before_training(settings, tmp_path):
    """Labels of one sample each leave no test split; low values no relevant row; one set of labels no wrong row."""
    x, split = np.random.default_rng(0).normal(size=(40, 4)), np.repeat(["train", "test"], 20)
    pairs = "\n".join(["a,b,value", *(f"{a},{a + 1},0" for a in range(39) if a != 19)])
    (tmp_path / "zero.csv").write_text(pairs)
    alone, same = np.array([f"u{n}|v{n}" for n in range(40)]), np.full(40, "red|bag")
    listed = {"relevance": f"ListedPairs(file='{tmp_path / 'zero.csv'}')", "loss": "Contrastive()"}
    for columns, more, error in (
        (
            {"labels": alone},
            {},
            "the test split of 'x' is empty by StratifiedLabels.*: a class or label with one sample",
        ),
        (
            {"label": np.zeros(40, int), "split": split},
            listed,
            r"no query has a relevant .* by ListedPairs\(.*0.5 or more",
        ),
        ({"labels": same, "split": split}, {}, "train: a query must have irrelevant gallery rows, but all of them are"),
    ):
        np.savez(tmp_path / "x.npz", x=x, **columns)
        with pytest.raises(LikewiseError, match=error):
            train(Train(**settings | {"data": str(tmp_path / "x.npz"), "sampler": None, "protocol": None} | more))


@pytest.mark.parametrize(("offset", "noted"), [(0, False), (100, False), (1000, True), (10_000, True)])
def test_embeddings_of_one_direction_are_noted(tmp_path, capsys, offset, noted):
    """A common component of `offset` times the spread of a coordinate: the order of cosines is rounding from about 1e4 on."""
    rng, y = np.random.default_rng(0), np.arange(120) % 12
    x = rng.normal(size=(12, 16))[y] + 0.1 * rng.normal(size=(120, 16)) + offset
    np.savez(tmp_path / "z.npz", x=x.astype(np.float32), label=y)
    found = score(tmp_path / "z.npz")
    assert ("note" in found) == noted and "note" not in score(tmp_path / "z.npz", similarity="euclidean")
    if noted:
        show_scores({"test split": found})
        assert "nearly one direction" in capsys.readouterr().out
