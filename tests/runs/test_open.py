"""One way to open a run: settings, data, protocol, network, transform, similarity and device."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from likewise.config import Train
from likewise.protocols import UnseenClasses
from likewise.types import LikewiseError

from likewise.data import load
from likewise.learn.training.fit import train
from likewise.runs.dataset import inject_noise
from likewise.runs.embeddings import EMBEDDINGS_FILE
from likewise.runs.open import OpenRun

CPU = {"device": "cpu", "quiet": True}


def test_an_open_run_has_what_evaluation_used(run):
    opened = OpenRun(run, **CPU)
    with np.load(run.path / EMBEDDINGS_FILE) as saved:
        x, rows = saved["x"], saved["row"]
    assert isinstance(opened.protocol, UnseenClasses) and opened.similarity == "cosine" and opened.transform is None
    assert np.array_equal(opened.protocol.rows(opened.items, "test"), rows) and opened.device == torch.device("cpu")
    assert np.allclose(opened.embed(opened.items, rows).z.numpy(), x, atol=1e-6)
    assert opened.network is opened.network and opened.items is opened.items and not opened.network.training


@pytest.mark.parametrize("checkpoint", ["best", "last", "untrained"])
def test_opening_a_network_leaves_random_numbers_alone(run, checkpoint):
    before = torch.random.get_rng_state()
    _ = OpenRun(run, checkpoint=checkpoint, **CPU).network
    assert torch.equal(torch.random.get_rng_state(), before)


def test_data_is_opened_when_it_is_used_and_must_be_the_same(settings, features, tmp_path):
    file = tmp_path / "mine.npz"
    shutil.copy(features, file)
    run = train(Train(**settings | {"data": str(file), "steps": 1, "evaluate": False}))
    moved = file.rename(tmp_path / "moved.npz")
    opened = OpenRun(run, **CPU)
    assert opened.network.dim == 8 and opened.similarity == "cosine"  # without the data
    with pytest.raises(LikewiseError, match="if the data of this run has moved, give its location: --data, --root"):
        _ = opened.items
    there = OpenRun(run, data=str(moved), **CPU)
    assert len(there.items) == 288
    assert opened.take(there.items) is opened.items
    other = replace(there.items, y=there.items.y[::-1].copy())
    with pytest.raises(LikewiseError, match="must be the data that .* was trained with"):
        OpenRun(run, **CPU).take(other)


def test_noise_is_in_the_labels_that_the_run_trained_with(settings, features):
    noise = "Uniform(share=0.3)"
    run = train(Train(**settings | {"noise": noise, "steps": 1, "evaluate": False}))
    opened, data = OpenRun(run, **CPU), load(features)
    assert np.array_equal(opened.items.y, data.y)
    expected = inject_noise(data, opened.protocol, opened.settings.noise, 0)
    assert np.array_equal(opened.noisy_items.y, expected.y) and (opened.noisy_items.y != data.y).sum() == 43


def test_pictures_come_with_what_the_network_sees_of_them(picture_run):
    opened = OpenRun(picture_run, workers=0, **CPU)
    assert opened.transform is opened.transform and opened.transform.size == 16
    rows = opened.protocol.rows(opened.items, "test")
    assert opened.embed(opened.items, rows, features=True).f.shape == (len(rows), opened.network.feature_dim)
