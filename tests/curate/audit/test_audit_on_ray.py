"""An audit by a Ray of two nodes equals that of one process, bit for bit, also if a process of the cluster is killed."""

import dataclasses

import numpy as np
import pytest
import torch
from block_work import KillingBlocks
from likewise.config import Audit

from likewise.core.block_executors import executing, using
from likewise.curate.audit.audit import audit_targets
from likewise.curate.audit.label_probability import class_label_quality
from likewise.labels import candidate_classes, label_noise, neighbour_search, off_topic

EVERY_SET = {
    "_neighbours_of_block", "_fit_without", "_soft_terms_of_pair", "_fit_soft", "_distances_of_block", "_score_block"
}  # fmt: skip
"""The loops over blocks of every audit."""

CALLS = {"all classes": EVERY_SET, "candidates": EVERY_SET | {"_centres_of_block", "_choose_block", "_narrow_block"}}


def shop(classes, rows=900):
    """Return embeddings and labels, of which one in ten is wrong."""
    rng = np.random.default_rng(0)
    true = np.arange(rows) % classes
    x = rng.normal(size=(classes, 16))[true] + 0.5 * rng.normal(size=(rows, 16))
    wrong = rng.random(rows) < 0.1
    return x.astype(np.float32), np.where(wrong, rng.integers(0, classes, rows), true)


@pytest.fixture
def small_blocks(monkeypatch):
    """Limits of the process of the command only: it makes the blocks."""
    monkeypatch.setattr(neighbour_search, "SIMILARITY_BLOCK_SIZE", 2**17)
    monkeypatch.setattr(neighbour_search, "SEARCH_BLOCK_ROWS", 128)
    monkeypatch.setattr(label_noise, "SCORE_BLOCK_SIZE", 2**14)
    monkeypatch.setattr(candidate_classes, "COLUMN_BLOCK_ROWS", 100)


def assert_equal(one, two, name=""):
    """Two results are the same to the bit."""
    if isinstance(one, torch.Tensor):
        torch.testing.assert_close(two, one, rtol=0, atol=0, equal_nan=True, msg=name)
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            assert_equal(getattr(one, field.name), getattr(two, field.name), f"{name}.{field.name}")
    elif isinstance(one, tuple | dict):
        pairs = one.items() if isinstance(one, dict) else enumerate(one)
        for key, value in pairs:
            assert_equal(value, two[key], f"{name}.{key}")
    else:
        assert one == two or one != one, name


def assert_equal_on_ray(folder, found_by):
    """Return the names of the loops that ran on the cluster; in the first of each name a process was killed."""
    here = found_by()
    with executing("audit", "ray") as ray:
        killing = KillingBlocks(ray.ray, "audit", folder)
        with using(killing):
            assert_equal(here, found_by())
    return killing.calls


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("case", CALLS)
def test_a_cluster_finds_the_same_labels_after_kills(two_nodes, small_blocks, tmp_path, monkeypatch, case):
    if case == "candidates":
        for module in (candidate_classes, off_topic):
            monkeypatch.setattr(module, "MAX_DENSE_CLASSES", 40)
        monkeypatch.setattr(candidate_classes, "MAX_DENSE_SCORES", 0)
    x, y = (torch.as_tensor(one) for one in shop(100 if case == "candidates" else 30))
    calls = assert_equal_on_ray(tmp_path, lambda: class_label_quality(x, y))
    assert set(calls) == CALLS[case]


@pytest.mark.slow
@pytest.mark.process
def test_a_cluster_searches_codes(two_nodes, small_blocks, tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(neighbour_search, "MAX_EXACT_PRODUCTS", 0)
    x = torch.nn.functional.normalize(torch.as_tensor(shop(30)[0]))
    calls = assert_equal_on_ray(tmp_path, lambda: neighbour_search.nearest_neighbours(x, 10))
    assert calls == ["_neighbours_of_block", "_search_block"]


@pytest.mark.slow
@pytest.mark.process
def test_the_command_on_a_cluster(two_nodes, small_blocks, tmp_path):
    x, y = shop(30)
    np.savez(tmp_path / "z.npz", x=x, label=y)
    found = []
    for executor in (None, "ray"):
        folder = tmp_path / "audit"
        target = str(tmp_path / "z.npz")
        audit_targets(Audit(targets=(target,), out=str(folder), quiet=True, executor=executor, device="cpu"), say=len)
        found.append({file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()})
        folder.rename(tmp_path / f"audit {len(found)}")
    here, there = found
    assert here["audit.csv"].count(b"\n") == 901
    assert [name for name in here if here[name] != there.get(name)] == [] and set(here) == set(there)
