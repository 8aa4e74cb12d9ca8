"""The network and the loss of a run."""

import numpy as np
import pytest
import torch
from likewise.config import Train
from likewise.samplers import SamplesPerClass
from likewise.types import Items, LikewiseError
from torch import nn

from likewise.data import load
from likewise.data.dataset import make_protocol
from likewise.learn.training.defaults import resolve
from likewise.learn.training.fit import train
from likewise.runs.network import (
    facts_of,
    facts_with,
    load_into,
    make_embedder,
    open_embedder,
    open_loss,
    transforms,
)
from likewise.runs.open import read_config


def items(**columns):
    y = np.repeat(np.arange(10), 3)
    return Items(columns.pop("name", "toy"), y, tuple(map(str, range(10))), **columns)


def test_the_seed_alone_decides_a_new_network():
    config = Train(data="x", backbone="conv_small", pretrained=False, dim=4)
    first, same = make_embedder(config, None, reseed=False), make_embedder(config, None, reseed=True)
    other = make_embedder(Train(data="x", backbone="conv_small", pretrained=False, dim=4, seed=1), None, reseed=False)
    for name, value in first.state_dict().items():
        assert torch.equal(value, same.state_dict()[name]), name
    assert not torch.equal(first.head.fc.weight, other.head.fc.weight)


def test_evaluation_sees_the_size_that_training_sees():
    config = resolve(Train(data="glyphs", size=24), items(name="glyphs", path=("a",) * 30))
    from PIL import Image

    train, plain = transforms(config, make_embedder(config, None, reseed=False))
    picture = Image.new("RGB", (50, 70))
    assert train(picture).shape == plain(picture).shape == (3, 24, 24)


def test_what_parts_are_told():
    config = Train(data="x", dim=6, seed=3, epochs=4)
    labels = np.repeat(np.arange(4), 5)
    tree = {"a": ("animal",)}
    data = Items("x", np.append(labels + 1, 0), ("unused", "a", "b", "c", "d"), x=np.zeros((21, 3)), taxonomy=tree)
    facts = facts_of(config, data, np.arange(20))
    assert (facts["classes"], facts["dim"], facts["seed"], facts["class_names"]) == (4, 6, 3, ("a", "b", "c", "d"))
    assert facts["labels"].tolist() == labels.tolist() and facts["taxonomy"] is tree
    assert facts["sample_names"][:2] == ("0", "1") and "label_sets" not in facts


def test_labels_of_training_classes_count_from_0():
    data = Items(
        "x", np.array([2, 0, 1]), ("a|c", "b", "c|d"), x=np.zeros((3, 2)), label_name=("a", "b", "c", "d"),
        label_sets=((0, 2), (1,), (2, 3)),
    )  # fmt: skip
    facts = facts_of(Train(data="x"), data, np.array([0, 1]))  # the training samples have no label b
    assert facts["label_sets"] == ((0, 1), (1, 2))


def test_facts_of_sampler_and_network():
    config, labels = Train(data="x", dim=6, seed=3, epochs=4), np.repeat(np.arange(4), 5)
    sampler = SamplesPerClass(labels, batch=4, per_class=2)
    facts = facts_with(
        config, sampler, make_embedder(Train(data="x", backbone="conv_small", dim=4), None, reseed=False)
    )
    assert facts["per_pass"] == len(sampler) and facts["steps"] == 4 * len(sampler)
    assert facts["largest_class"] == sampler.largest_class == 2 and facts["embedder"].dim == 4


@pytest.mark.parametrize("loss", ["NormSoftmax()", "CrossBatchMemory(loss=MultiSimilarity(), size=32)", "Triplet()"])
def test_the_loss_of_a_run_comes_back(settings, loss):
    """With what it has learned, for the labels that trained, and nobody's random numbers are touched."""
    run = train(Train(**settings | {"loss": loss, "steps": 6, "evaluate": False}))
    config = read_config(run)
    data = load(config.data)
    rows, device = make_protocol(config).rows(data, "train"), torch.device("cpu")
    embedder, before = open_embedder(run, config, "last", device), torch.random.get_rng_state()
    found = open_loss(run, config, data, rows, embedder, "last", device)
    assert torch.equal(torch.random.get_rng_state(), before) and not found.training
    stored = {k: v for k, v in run.load_tensors(run.network("last")).items() if k.startswith("loss.")}
    assert {f"loss.{k}" for k in found.state_dict()} == set(stored)
    for name, value in found.state_dict().items():
        assert torch.equal(value, stored[f"loss.{name}"]), name
    if loss == "NormSoftmax()":  # a proxy for each of twelve classes
        with pytest.raises(LikewiseError, match="another architecture"):
            open_loss(run, config, data, rows[:96], embedder, "last", device)


def test_only_training_reseeds_the_random_numbers_of_its_caller():
    config = Train(data="x", backbone="conv_small", pretrained=False, dim=4, seed=3)
    before = torch.random.get_rng_state()
    make_embedder(config, None, reseed=False)
    assert torch.equal(torch.random.get_rng_state(), before)
    drawn = []
    for _ in range(2):
        torch.rand(3)
        make_embedder(config, None, reseed=True)
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)


def test_a_checkpoint_of_another_architecture_is_told_in_full():
    with pytest.raises(LikewiseError, match=r"bias is missing; odd is unknown; weight is \(2, 3\), not \(4, 3\)"):
        load_into(nn.Linear(3, 4), {"weight": torch.zeros(2, 3), "odd": torch.zeros(1)}, "x")
