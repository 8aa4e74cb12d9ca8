"""What a training is made of: numbers of classes and samples, what the seed decides, verdicts, and what cannot go together."""

import dataclasses

import numpy as np
import pytest
import torch
from learn.training.small_training import same
from likewise.types import Embedded, LikewiseError, Relabelling


def test_samples_and_classes_are_numbered_from_0(items, make):
    state = make(items, noise="Uniform(share=0.3)")
    assert state.samples.rows.tolist() == list(range(144, 288)) and state.samples.position[144:].tolist() == list(
        range(144)
    )
    assert (state.samples.position[:144] == -1).all()
    assert state.samples.class_names == tuple(items.class_name[12:]) and state.components.facts["classes"] == 12
    assert (state.samples.labels + 12).tolist() == state.samples.items.y[144:].tolist()
    assert (state.samples.clean + 12).tolist() == items.y[144:].tolist()
    assert (
        state.monitor.noisy.numpy() == (state.samples.items.y != items.y)[144:]
    ).all() and state.monitor.noisy.sum() == 43
    assert np.array_equal(state.samples.loaded.y, items.y) and np.array_equal(
        state.samples.items.y[:144], items.y[:144]
    )


def test_a_class_that_no_label_names_has_no_number(items, make):
    """How many classes there are must not tell of true labels."""
    y = np.where(items.y == 15, 16, items.y)
    state = make(dataclasses.replace(items, y=y, y_clean=items.y))
    assert state.components.facts["classes"] == 11 and "15" not in state.samples.class_names
    assert (state.samples.clean == -1).sum() == 12 and state.monitor.noisy.sum() == 12


def test_a_verdict_changes_labels_and_who_is_drawn(items, make):
    state = make(items, confidence="LabelPosterior()")
    state.sampler.step = 4
    y, w = torch.as_tensor(state.samples.labels).clone(), torch.ones(144)
    y[0], w[20:30] = 3, 0.0
    state.relabel(Relabelling(y, w))
    assert state.sampler.step == 4 and state.y[0] == 3 and state.samples.labels[0] == 0
    assert set(state.kept.tolist()) == set(range(144)) - set(range(20, 30))
    assert state.kept_position[state.kept].tolist() == list(range(134))
    drawn = {int(state.kept[i]) for number in range(30) for b in state.sampler.epoch_batches(number) for i in b}
    assert drawn == set(state.kept.tolist())
    assert state.sampler.labels[0] == 3


def test_a_verdict_that_leaves_too_little_says_whose_it_was(items, make):
    state = make(items, confidence="LabelPosterior()")
    verdict = Relabelling(
        torch.as_tensor(state.samples.labels), torch.as_tensor((state.samples.labels < 3).astype(np.float32))
    )
    with pytest.raises(LikewiseError, match=r"after LabelPosterior\(.*smaller --batch-size"):
        state.relabel(verdict)


@pytest.mark.parametrize(
    "changes",
    [
        {"confidence": "ProcSim(threshold='mean')", "terms": ("SelfDistillation()",)},
        {"confidence": "CoTeaching(share=0.2)", "loss": "NormSoftmax()"},
        {"confidence": "LabelPosterior()"},
        {"record_losses": True},
    ],
)
def test_the_state_is_everything(items, make, changes):
    """Stored as plain tensors; restored into other parts, all of it is back, verdict and watch included."""
    state, other = (
        make(items, **changes, noise="Uniform(share=0.3)"),
        make(items, **changes, noise="Uniform(share=0.3)"),
    )
    with torch.no_grad():
        for part in state.components.modules().values():
            for name, t in part.state_dict().items():
                if name == "cluster":  # one cluster of all samples could not be divided into folds
                    t.copy_(torch.arange(len(t)))
                else:
                    t.logical_not_() if t.dtype == torch.bool else t.add_(1)
    state.step = 7
    state.monitor.last[0] = torch.arange(144.0)
    state.monitor.add("weight", torch.tensor(0.5))
    if state.history:
        for _ in range(2):
            state.history.add_batch(torch.arange(3.0), torch.tensor([0, 5, 9]))
            state.history.end_epoch(6)
    if state.plan.relabel_every:
        x = torch.as_tensor(state.samples.items.x[state.samples.rows])
        state.relabel(
            state.components.confidence.relabel(Embedded(x, torch.as_tensor(state.samples.labels), torch.arange(144)))
        )
        assert len(state.kept) < 144
    other.load_state_dict(state.state_dict(), "state.pt")
    assert same(state, other) and other.step == 7
    assert torch.equal(state.y, other.y) and np.array_equal(state.kept, other.kept)
    assert torch.equal(state.monitor.last.nan_to_num(), other.monitor.last.nan_to_num())
    assert {name: float(n) for name, n in other.monitor.take_sums().items()} == {
        "sum of weight": 0.5,
        "count of weight": 1.0,
    }
    assert bool(other.history) == bool(changes.get("record_losses"))
    if state.history:
        assert other.history.step == [6] and torch.equal(other.history.loss[0].isnan(), state.history.sums[1] == 0)
        assert other.history.sums[:, [0, 5, 9]].tolist() == [[0, 1, 2], [1, 1, 1]]


def test_random_numbers_depend_on_seed_step_and_purpose_alone(items, make):
    """So that a training which goes on needs none of those drawn before."""
    drawn = {}
    for seed in (0, 1):
        state = make(items, seed=seed)
        for state.step in (0, 1, 2):
            for what in (0, 1):
                state.seed(what)
                drawn[seed, state.step, what] = float(torch.rand(()))
    assert len(set(drawn.values())) == 12
    again = make(items, seed=1)
    torch.rand(9)
    again.step = 2
    again.seed(1)
    assert float(torch.rand(())) == drawn[1, 2, 1]
