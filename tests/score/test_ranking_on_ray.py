"""Scores by a Ray of two nodes equal those of one process, bit for bit, also if a process of the cluster is killed."""

import dataclasses

import numpy as np
import pytest
import torch
from block_work import KillingBlocks
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.types import Items, LikewiseError
from score.by_hand import assert_scores, by_hand, score, some
from score.several_labels import embedded
from score.several_labels import random_items as labelled
from score.test_tree_levels import random_items as in_a_tree

from likewise.core.block_executors import LocalBlocks, executing, using
from likewise.score import retrieve as module
from likewise.score.retrieve import Scoring
from likewise.score.scoring import score as measure

NAMES = ("R@1", "MAP@R", "mAP", "NDCG@10")


class ManySlots:
    """This process as if it were a cluster: blocks are smaller."""

    slots, map_blocks = 7, LocalBlocks.map_blocks


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "MIN_BLOCK_QUERIES", 16)


def gallery_and_queries():
    x, y = some(300, 20)
    asks = np.arange(300) % 3 == 0
    return Items("toy", y, tuple(map(str, range(20))), x=x, query=asks, gallery=~asks)


CASES = {
    "plain": lambda: (in_a_tree(), {"metrics": NAMES}),
    "Euclidean": lambda: (in_a_tree(), {"metrics": NAMES, "similarity": "euclidean"}),
    "levels": lambda: (in_a_tree(), {"metrics": ("R@1", "MAP@R:level1", "mAP:level1", "severity", "tree-NDCG@5")}),
    "label sets": lambda: (labelled()[0], {"metrics": NAMES}),
    "excluded pairs": lambda: (
        dataclasses.replace(in_a_tree(), group=None),
        {"metrics": NAMES, "exclude": np.array([[0, 9], [3, 200], [17, 18]])},
    ),
    "gallery": lambda: (gallery_and_queries(), {"metrics": NAMES, "protocol": QueryGallery()}),
}


def assert_equal_with(executor, case):
    items, settings = CASES[case]()
    settings = {"protocol": UnseenClasses(), "quiet": True} | settings
    here, ranking = measure(embedded(items), Scoring(items, **settings))
    with using(executor):
        there, other = measure(embedded(items), Scoring(items, **settings))
    for name, values in here.each.items():
        np.testing.assert_array_equal(there.each[name], values, err_msg=name)
    np.testing.assert_array_equal(there.query, here.query)
    for field in dataclasses.fields(ranking):
        one, two = getattr(ranking, field.name), getattr(other, field.name)
        assert (one is None) == (two is None), field.name
        if one is not None:
            torch.testing.assert_close(two, one, rtol=0, atol=0, equal_nan=True, msg=field.name)


@pytest.mark.parametrize("case", CASES)
def test_blocks_of_queries_change_nothing(case, small_blocks):
    assert_equal_with(ManySlots(), case)


@pytest.mark.slow
@pytest.mark.process
def test_a_cluster_ranks_alike_after_a_kill(two_nodes, small_blocks, subtests, tmp_path):
    with executing("evaluate", "ray") as ray:
        for number, case in enumerate(CASES):
            with subtests.test(case):
                folder = tmp_path / str(number)
                folder.mkdir()
                killing = KillingBlocks(ray.ray, "evaluate", folder)
                assert_equal_with(killing, case)
                assert set(killing.calls) == {"rank_block"}


@pytest.mark.slow
@pytest.mark.process
def test_the_command_on_a_cluster(two_nodes, small_blocks, tmp_path):
    x, y = some(200, 10)
    np.savez(tmp_path / "z.npz", x=x, label=y)
    here = score(tmp_path / "z.npz", per_query=str(tmp_path / "here.parquet"))
    there = score(tmp_path / "z.npz", per_query=str(tmp_path / "there.parquet"), executor="ray")
    assert there == here
    assert (tmp_path / "there.parquet").read_bytes() == (tmp_path / "here.parquet").read_bytes()
    assert_scores(there, by_hand(x, y)[0])


def test_an_executor_that_does_not_exist(tmp_path):
    x, y = some()
    np.savez(tmp_path / "z.npz", x=x, label=y)
    with pytest.raises(LikewiseError, match='evaluate: --executor must be "ray" or "ray://HOST:PORT", got "spark"'):
        score(tmp_path / "z.npz", executor="spark")
    with pytest.raises(
        LikewiseError, match=r"evaluate: no Ray cluster answers at 'ray://127\.0\.0\.1:1' .*drop --executor"
    ):
        score(tmp_path / "z.npz", executor="ray://127.0.0.1:1")
