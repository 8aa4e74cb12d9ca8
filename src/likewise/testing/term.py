"""Contract checks for terms."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.contracts import Term
from likewise.core.types import Batch, Output, TrainingSetInfo
from likewise.models.heads import Relational
from likewise.testing.confidence import CHECK_LABELS, built_again
from likewise.testing.loss import CHECK_CLASSES, CHECK_DIM, no_device_sync, stored


def check_term(make: Callable[[nn.Module], Term]) -> None:
    """Check a term: one finite value per sample, a gradient, no side effects, exact spec and state.

    `make(network)` returns a new term, before `prepare`. The network embeds small images into `DIM` dimensions; the training set
    has twelve samples with the labels `LABELS`.
    """
    for check in (
        _one_number_each, _leaves_inputs_alone, _gradient_arrives, _network_is_not_its_own, _sixteen_bit,
        _order_does_not_matter, _prepared_again, _spec_and_state, _never_syncs,
    ):  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            check(make, Path(folder))


class Network(nn.Module):
    """Images of 4 by 4 pixels -> a feature of width 6 -> an embedding of four parts."""

    feature_dim = 6

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(48, 6), Relational(6, CHECK_DIM, k=4)

    def forward(self, x: Tensor) -> Output:
        f = self.body(x.float().flatten(1) / 255).tanh().float()
        e, nodes, rec = self.head(f)
        return Output(F.normalize(e, dim=1), e, f, nodes, rec)


def _images() -> Batch:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (12, 3, 4, 4), dtype=torch.uint8, generator=g)
    return Batch(x, torch.as_tensor(CHECK_LABELS), torch.arange(12), torch.zeros(12, dtype=torch.int64))


def _training_set(folder: Path) -> TrainingSetInfo:
    def pictures(transform):
        x = _images().x
        for place in torch.arange(12).split(5):
            yield x[place], place

    names = tuple(f"word {letter}" for letter in ascii_lowercase[:CHECK_CLASSES])
    return TrainingSetInfo(np.array(CHECK_LABELS), names, pictures, folder, torch.device("cpu"), quiet=True)


def _ready(make, folder: Path) -> tuple[Term, Network]:
    """Return a term after one training step, and its network, whose parameters changed since that step."""
    torch.manual_seed(5)
    network = Network()
    term = make(network)
    term.prepare(_training_set(folder))
    term(network(_images().x), _images())
    term.after_step(1)
    _move(network)
    return term, network


def _move(network: Network) -> None:
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in network.parameters():
            p += 0.3 * torch.randn(p.shape, generator=g)


def _subset(all_of: Batch, rows: Tensor) -> Batch:
    return Batch(*(t[rows] for t in all_of if t is not None))


def _value(term: Term, network: Network, batch: Batch, seed: int = 7) -> Tensor:
    torch.manual_seed(seed)  # some terms draw from torch's generator
    return term(network(batch.x), batch)


def _one_number_each(make, folder) -> None:
    term, network = _ready(make, folder)
    for size in (12, 2, 1):
        some = _subset(_images(), torch.arange(size))
        each = term(network(some.x), some)
        assert each.shape == (size,), f"{size} samples must give {size} values, got shape {tuple(each.shape)}"
        assert torch.isfinite(each).all(), f"not finite for a batch of {size}"


def _gradient_arrives(make, folder) -> None:
    term, network = _ready(make, folder)
    out = network(_images().x)
    ends = [t for t in (out.z, out.e, out.f) if t.requires_grad]
    slopes = torch.autograd.grad(term(out, _images()).mean(), ends, allow_unused=True, materialize_grads=True)
    assert all(torch.isfinite(slope).all() for slope in slopes), "gradient not finite"
    assert any(slope.abs().sum() > 0 for slope in slopes), "no gradient reaches the output of the network"


def _network_is_not_its_own(make, folder) -> None:
    term, network = _ready(make, folder)
    theirs = {t.data_ptr() for t in network.state_dict().values()}
    assert not any(t.data_ptr() in theirs for t in term.state_dict().values()), "the network is saved a second time"


def _leaves_inputs_alone(make, folder) -> None:
    term, network = _ready(make, folder)
    given = _images()
    out = Output(*(None if t is None else t.detach().clone() for t in network(given.x)))  # pyright: ignore[reportArgumentType]
    kept, state = copy.deepcopy(out), copy.deepcopy(network.state_dict())
    term(out, given)
    term.after_step(2)
    same = [torch.equal(a, b) for a, b in zip(given, _images(), strict=True) if a is not None and b is not None]
    same += [torch.equal(a, b) for a, b in zip(out[:3], kept[:3], strict=True)]
    assert all(same), "inputs were changed"
    assert all(torch.equal(v, state[k]) for k, v in network.state_dict().items()), "the network was changed"


def _sixteen_bit(make, folder) -> None:
    term, network = _ready(make, folder)
    with torch.autocast("cpu", torch.bfloat16):
        each = term(network(_images().x), _images())
    assert each.dtype == torch.float32 and torch.isfinite(each).all(), "under bfloat16 autocast: not finite float32"


def _order_does_not_matter(make, folder) -> None:
    term, network = _ready(make, folder)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    other = _subset(_images(), order)
    first, second = _value(term, network, _images()), _value(term, network, other)
    if not torch.equal(first, _value(term, network, _images(), seed=8)):
        return  # a random choice: it depends on the order of the samples
    assert torch.allclose(first[order], second, rtol=1e-4, atol=1e-6), "the order of samples matters"


def _prepared_again(make, folder) -> None:
    """Check a second `prepare` in the same folder, as in a resumed training before its state is loaded."""
    term, network = _ready(make, folder)
    first = _value(term, network, _images())
    term.prepare(_training_set(folder))
    assert torch.equal(first, _value(term, network, _images())), "prepared again, it gives other values"


def _spec_and_state(make, folder) -> None:
    term, network = _ready(make, folder)
    torch.manual_seed(6)
    again = built_again(term, Term)
    again.prepare(_training_set(folder))
    again.load_state_dict(stored(term.state_dict()))
    for step in (2, 3, 4):
        one, two = (_value(t, network, _images()) for t in (term, again))
        assert torch.equal(one, two), "restored from its state, it returns other values"
        for t in (term, again):
            t.after_step(step)
        _move(network)


def _never_syncs(make, folder) -> None:
    term, network = _ready(make, folder)
    if term.syncs:
        return
    away = Batch(*(t.to("meta") for t in _images() if t is not None))
    with no_device_sync():
        term.to("meta")(copy.deepcopy(network).to("meta")(away.x), away)
