"""What the network sees: pictures that are held, batches, and what terms may look at."""

import numpy as np
import pytest
import torch
from learn.training.small_training import CPU, GLYPHS, built
from likewise.config import Train
from torch.nn import functional as F

from likewise.data import load
from likewise.learn.training.fit import train
from likewise.learn.training.inputs import fit_heads, open_inputs, prepare_terms
from likewise.learn.training.loop import Hooks
from likewise.models.heads import PCA


def test_what_is_held_covers_who_trains_validates_and_is_peeked_at(pictures, small, tmp_path):
    asked = []
    config = {"data": str(pictures), "out": str(tmp_path / "run"), "cache": "device", "cache_memory": "2GB", **small}
    given = load(str(pictures))
    for changes, rows in (({"short_side": 9}, 18), ({"test_every": "1e"}, 36)):
        state = built(Train(**config | changes), given)
        inputs = open_inputs(state, hold=lambda *args, **settings: asked.append((args, settings)))
        (_, held, device, keep, side), settings = asked.pop()
        assert sorted(held.tolist()) == list(range(rows)) and (device, keep, side) == (
            CPU,
            "device",
            9 if rows < 36 else None,
        )
        assert settings["budget"] == 2 * 2**30
        assert inputs.augment.side == inputs.plain.side == side


@pytest.mark.parametrize("layer_norm", [False, True])
def test_principal_components_are_those_of_the_training_samples_before_training(items, make, layer_norm):
    state = make(items, head="PCA()", dim=3, layer_norm=layer_norm, steps=0)
    fit_heads(state, open_inputs(state))
    x = torch.as_tensor(items.x[144:])
    own = PCA(x.shape[1], 3)
    own.fit(F.layer_norm(x, x.shape[1:]) if layer_norm else x)
    torch.testing.assert_close(state.components.embedder.head.components, own.components)


def test_a_run_without_training_stores_its_principal_components(pictures, small, tmp_path):
    config = Train(data=str(pictures), out=str(tmp_path / "run"), head="PCA()", **small | {"steps": 0})
    run = train(config)
    components = run.load_tensors("model.safetensors")["embedder.head.components"]
    assert (components != torch.eye(*components.shape)).any()
    torch.testing.assert_close(components @ components.T, torch.eye(len(components)), rtol=0, atol=1e-5)


def test_terms_are_given_the_training_samples_in_order(items, make, tmp_path, monkeypatch):
    from likewise.terms import SelfDistillation

    from likewise.runs.folder import Run

    seen = []
    monkeypatch.setattr(SelfDistillation, "prepare", lambda self, given: seen.append(given))
    state = make(items, terms=("SelfDistillation()",), noise="Uniform(share=0.3)")
    inputs = open_inputs(state)
    prepare_terms(state, inputs, Run(tmp_path))
    (given,) = seen
    x, place = (torch.cat(t) for t in zip(*given.pictures(None)))
    assert place.tolist() == list(range(144)) and torch.equal(x, torch.as_tensor(items.x[144:]))
    assert np.array_equal(given.labels, state.samples.labels) and given.class_names == state.samples.class_names


def test_terms_may_look_at_pictures_with_the_usual_workers(pictures, small, tmp_path, monkeypatch):
    from likewise.terms import SelfDistillation

    from likewise.runs.folder import Run

    seen = []
    monkeypatch.setattr(SelfDistillation, "prepare", lambda self, given: seen.extend(given.pictures(None)))
    given = load(str(pictures))
    config = Train(data=str(pictures), terms=("SelfDistillation()",), **small | {"workers": -1})
    state = built(config, given)
    inputs = open_inputs(state)
    prepare_terms(state, inputs, Run(tmp_path))
    assert [place for _, places in seen for place in places.tolist()] == list(range(18))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_is_chosen_when_the_one_before_was_seen(tmp_path, monkeypatch, workers):
    """Workers read ahead, but not past the end of a pass of a sampler that looks at embeddings; of others, they do."""
    from likewise.samplers import GreedyCoreset, SamplesPerClass

    asked, steps = [], [0]

    def watch(sampler):
        real = sampler.epoch_batches
        monkeypatch.setattr(sampler, "epoch_batches", lambda self, n: asked.append((n, steps[0])) or real(self, n))

    hooks = Hooks(after_step=lambda state: steps.__setitem__(0, state.step))
    watch(GreedyCoreset)
    watch(SamplesPerClass)
    settings = GLYPHS | {"workers": workers, "cache": "files"}
    train(Train(**settings, sampler="GreedyCoreset(batch=8)", out=str(tmp_path / "one")), hooks=hooks)
    assert asked == [(0, 0), (1, 3), (2, 6)]
    asked.clear()
    steps[0] = 0
    train(Train(**settings, sampler="SamplesPerClass(batch=8)", out=str(tmp_path / "two")), hooks=hooks)
    assert [n for n, _ in asked[:3]] == [0, 1, 2] and (asked[1][1] < 3) == (workers > 0)


def test_a_sampler_is_shown_the_embeddings_of_its_own_rows(settings, tmp_path):
    """Training rows that are not the first of the table: what is observed goes to the row it is of."""
    data = load(settings["data"])
    file = str(tmp_path / "late.npz")
    np.savez(file, x=data.x, label=data.y, split=np.where(data.y < 12, "test", "train"))

    def check_rows(state, batch):
        assert (batch.row >= 144).all()
        return batch

    def check_bank(state):
        bank = torch.as_tensor(state.sampler._bank.read())
        with torch.no_grad():
            z = state.components.embedder(torch.as_tensor(data.x[144:])).z
        assert torch.allclose(bank, z, atol=1e-6)  # the network stands still, and has no augmentation

    settings = settings | {"data": file, "sampler": "FrechetMatching(batch=24)", "lr": 0.0, "steps": 7}
    train(Train(**settings | {"evaluate": False}), hooks=Hooks(before_step=check_rows, after_step=check_bank))


def test_sixteen_bit_training_fills_a_float32_bank(settings):
    settings = settings | {"sampler": "GreedyCoreset(batch=24)", "precision": "bf16", "steps": 8, "evaluate": False}
    bank = train(Train(**settings)).load_state()["sampler"]["bank"]
    assert bank.dtype == torch.float32 and bank.norm(dim=1).sub(1).abs().max() < 0.02


def test_two_views_double_the_batch_each_with_its_own_augmentation(tmp_path):
    seen = []

    def look(state, batch):
        seen.append(batch)
        return batch

    settings = GLYPHS | {"steps": 2, "views": 2, "sampler": "SamplesPerClass(batch=8)", "workers": 0}
    train(Train(**settings, augment="crop", out=str(tmp_path / "run")), hooks=Hooks(before_step=look))
    for batch in seen:
        first, second = batch.row.chunk(2)
        assert len(batch.row) == 16 and torch.equal(first, second)
        assert not torch.equal(*batch.x.chunk(2))
