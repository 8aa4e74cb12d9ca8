"""Contract checks for miners, samplers, noise models, metrics, data readers and relevances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from likewise.core.contracts import BatchSampler, Metric, Miner, NoiseModel, Relevance, SetMetric
from likewise.core.retrieval.ranking import rank
from likewise.core.similarity import compare
from likewise.core.types import Embedded, Items, LikewiseError, Pairs, Tuples
from likewise.data.fingerprint import fingerprint
from likewise.data.images import check_files, image_of
from likewise.data.own_reader import check_items
from likewise.testing.loss import CHECK_DIM, batch, stored


def check_miner(make: Callable[[], Miner]) -> None:
    """Check a miner: valid pairs only, one shape, no gradient, the same random choices for the same seed.

    Once with all pairs of a batch, and once with some that are neither positive nor negative.
    """
    z, y = batch()
    sim, pairs = compare(z.requires_grad_(), y)
    known = torch.rand(sim.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    for some in (pairs, Pairs(pairs.pos & known, pairs.neg & known, known.to(sim))):
        _check_mined(make, z, sim, some)


def _check_mined(make: Callable[[], Miner], z: Tensor, sim: Tensor, pairs: Pairs) -> None:

    def mine(pairs: Pairs = pairs):
        torch.manual_seed(3)
        miner = make()
        miner.see_teacher(z.detach())
        return miner(sim, pairs, CHECK_DIM, 0.2)

    first, second = mine(), mine()
    assert isinstance(first, Pairs | Tuples), f"a miner must return Pairs or Tuples, got {type(first).__name__}"
    if isinstance(first, Pairs) and isinstance(second, Pairs):
        assert not (first.pos & ~pairs.pos).any(), "a mined positive is no positive"
        assert not (first.neg & ~pairs.neg).any(), "a mined negative is no negative"
        assert torch.equal(first.pos, second.pos) and torch.equal(first.neg, second.neg), (
            "the same seed gave other pairs"
        )
        return
    t = first
    assert isinstance(t, Tuples), "a miner returned pairs at one call and triplets at another"
    assert len({len(v) for v in (t.a, t.p, t.n, t.valid, t.pull)}) == 1, "tuple fields differ in length"
    ok = t.valid
    assert pairs.pos[t.a[ok], t.p[ok]].logical_or(~t.pull[ok]).all(), "a mined positive is no positive"
    assert pairs.neg[t.a[ok], t.n[ok]].logical_or(~t.pull[ok]).all(), "a mined negative is no negative"
    assert ok.any(), "no valid tuple for a batch that has pairs"
    for name in ("a", "p", "n", "valid", "pull"):
        assert torch.equal(getattr(first, name), getattr(second, name)), f"the same seed gave another {name}"
    without_positives = mine(Pairs(torch.zeros_like(pairs.pos), pairs.neg))
    assert isinstance(without_positives, Tuples)
    assert not without_positives.valid.any(), "an anchor without positives must not be valid"


def check_sampler(make: Callable[[np.ndarray, int], BatchSampler], batch: int) -> None:
    """Check a batch sampler: seeded, batches of the right size, existing rows, exact continuation from any step.

    The calls follow a training: start with embeddings, observe the embeddings of every batch, restore the state before the next
    start.

    Args:
        make: (labels, seed) -> a new sampler.
        batch: expected batch size.
    """
    labels = np.repeat(np.arange(6), [4, 5, 6, 7, 8, 9])

    def start(seed: int = 1) -> BatchSampler:
        sampler = make(labels, seed)
        sampler.start(lambda: _embedded(labels))
        return sampler

    sampler = start()
    steps = 2 * len(sampler) + 1
    assert len(sampler.epoch_batches(0)) == len(sampler), "an epoch must have len(sampler) batches"
    stream = _take(sampler, steps)
    assert all(len(b) == batch for b in stream), "a batch has the wrong size"
    assert {r for b in stream for r in b} <= set(range(len(labels))), "a row does not exist"
    assert _take(start(), steps) == stream, "the same seed gave other batches"
    assert _take(start(2), steps) != stream, "another seed gave the same batches"
    for done in (1, len(sampler), len(sampler) + 1):
        first, late = start(), make(labels, 1)
        _take(first, done)
        late.load_state_dict(stored(first.state_dict()))
        late.start(_embedded_again)
        assert _take(late, steps - done) == stream[done:], f"a restored sampler returns other batches after step {done}"


def check_noise(make: Callable[[float], NoiseModel], share: float = 0.3) -> None:
    """Check a noise model: it changes the requested share of labels, to existing other classes, by a seed, and not its input."""
    y = np.random.default_rng(0).integers(0, 10, 2000) * 7 + 3
    before = y.copy()
    noisy = make(share)(y, np.random.default_rng(1))
    assert np.array_equal(y, before), "the labels passed in were changed"
    assert noisy.shape == y.shape and noisy.dtype == y.dtype, "shape or type changed"
    assert set(noisy) <= set(y), "a label that is not among the classes"
    wrong = (noisy != y).mean()
    room = 4 * (share * (1 - share) / len(y)) ** 0.5
    assert abs(wrong - share) <= room, f"{wrong:.3f} of the labels are wrong, must be {share}"
    assert np.array_equal(noisy, make(share)(y, np.random.default_rng(1))), "the same seed gave other labels"
    assert np.array_equal(make(0.0)(y, np.random.default_rng(1)), y), "share=0 changed labels"


def check_label_noise(make: Callable[[float], NoiseModel], share: float = 0.3) -> None:
    """Check a noise model for several labels per sample: it changes the requested share of labels by a seed, and leaves sets.

    A label that is missing counts, and one that is superfluous; one that was replaced counts once.
    """
    rng = np.random.default_rng(0)
    size = rng.integers(1, 6, 500)
    sample = np.repeat(np.arange(500), size)
    label = np.concatenate([np.sort(rng.permutation(20)[:count]) for count in size]) * 7 + 3
    before = sample.copy(), label.copy()
    found = make(share).change_labels(sample, label, np.random.default_rng(1))
    assert np.array_equal(sample, before[0]) and np.array_equal(label, before[1]), "the labels passed in were changed"
    assert len(found[0]) == len(found[1]), "samples and labels differ in length"
    assert set(found[0].tolist()) == set(range(500)), "a sample has no label, or does not exist"
    assert set(found[1].tolist()) <= set(label.tolist()), "a label that is not among the labels"
    old, new = ({*zip(s.tolist(), one.tolist())} for s, one in (before, found))
    assert len(new) == len(found[0]), "a sample has a label twice"
    changed = max(len(old - new), len(new - old)) / len(old)
    room = 4 * (share * (1 - share) / len(old)) ** 0.5
    assert abs(changed - share) <= room, f"{changed:.3f} of the labels are wrong, must be {share}"
    again = make(share).change_labels(sample, label, np.random.default_rng(1))
    assert all(np.array_equal(*pair) for pair in zip(found, again)), "the same seed gave other labels"
    same = make(0.0).change_labels(sample, label, np.random.default_rng(1))
    assert {*zip(same[0].tolist(), same[1].tolist())} == old, "share=0 changed labels"


def check_metric(metric: Metric | SetMetric, best: float = 1.0) -> None:
    """Check a metric per query or of the whole set.

    Per query: NaN without relevant rows, 1 for a perfect ranking, in [0, 1], independent of the order of the gallery.
    Of the whole set: one value, independent of the order of the rows and of the class numbers, inputs unchanged.

    Args:
        best: value of a perfect ranking with one relevant row, for a metric whose divisor includes the query.
    """
    if isinstance(metric, SetMetric):
        return _check_set_metric(metric)
    deep = getattr(metric, "depth", 1)
    settings = {"depth": deep, "all_hits": getattr(metric, "all_hits", False)}
    y = torch.cat([torch.tensor([0, 0, 1, 1, 2, 2]), torch.arange(3, 4 + deep)])  # pairs, and rows alone in their class
    z = F.one_hot(y, len(y)).double()
    perfect = metric(rank(z, y, k=1, **settings))
    assert perfect.shape == y.shape, f"{len(y)} queries must give {len(y)} values, got shape {tuple(perfect.shape)}"
    assert perfect[6:].isnan().all(), "a query without relevant rows must be NaN"
    assert (perfect[:6] == best).all(), f"a perfect ranking must score {best:g}"
    g = torch.Generator().manual_seed(0)
    rows = 40 + deep
    y = torch.randint(0, 4, (rows,), generator=g)
    z = torch.randn(rows, 6, generator=g)
    value = metric(rank(z, y, k=5, **settings))
    assert ((value >= 0) & (value <= 1)).all(), "a value outside [0, 1]"
    order = torch.randperm(rows, generator=g)
    gallery = metric(rank(z, y, z[order], y[order], k=5, own=order.argsort(), **settings))
    assert torch.allclose(gallery, value), "the order of the gallery changed the value"


def _check_set_metric(metric: SetMetric) -> None:
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 4, (40,), generator=g)
    z = F.normalize(torch.randn(40, 6, generator=g), dim=1)
    kept, labels, order = z.clone(), y.clone(), torch.randperm(40, generator=g)
    value = metric(z, y)
    assert isinstance(value, int | float), (
        f"a metric of the whole set must return one number, got a {type(value).__name__}"
    )
    assert torch.equal(z, kept) and torch.equal(y, labels), "inputs were changed"
    for what, again in (
        ("the order of the rows", metric(z[order], y[order])),
        ("the numbering of the classes", metric(z, 3 - y)),
    ):
        assert again == value or abs(again - value) <= 1e-5 * abs(value) or (value != value and again != again), (
            f"{what} changed the value from {value} to {again}"
        )


def check_reader(read: Callable[[], Items]) -> None:
    """Check a data reader: consistent columns, the same data at every call, readable images.

    `read` is called without arguments: `check_reader(lambda: boats("/data/boats"))`.
    """
    first, second = read(), read()
    try:
        check_items(first, "the reader")
        if first.x is None:
            check_files(first)
            image_of(first, 0)
    except LikewiseError as error:
        raise AssertionError(str(error)) from None
    assert fingerprint(first) == fingerprint(second), "called twice, the reader returns different data"


def _take(sampler: BatchSampler, count: int) -> list[list[int]]:
    """Return the next `count` batches, each followed by its step."""
    stream, taken = iter(sampler), []
    for _ in range(count):
        rows = next(stream)
        g = torch.Generator().manual_seed(sampler.step)
        sampler.observe(F.normalize(torch.randn(len(rows), CHECK_DIM, generator=g), dim=1), torch.as_tensor(rows))
        sampler.after_step(sampler.step + 1)
        taken.append(rows)
    return taken


def _embedded(labels: np.ndarray) -> Embedded:
    z = torch.randn(len(labels), CHECK_DIM, generator=torch.Generator().manual_seed(0))
    return Embedded(F.normalize(z, dim=1), torch.as_tensor(labels), torch.arange(len(labels)))


def _embedded_again() -> Embedded:
    raise AssertionError("a restored sampler must use the embeddings in its state, but requested new ones")


MAX_CHECK_IDS = 24
"""Number of ids that the check compares with each other."""


def check_relevance(make: Callable[[], Relevance]) -> None:
    """Check a relevance: values from 0 to 1 or NaN, the same block by block, masks by the threshold, and all that it gives.

    Args:
        make: returns a new relevance; it may be of any number of ids.
    """
    relevance = make()
    assert relevance.ids > 0 and 0 < relevance.threshold <= 1, (
        "ids and threshold must be above 0, the threshold at most 1"
    )
    assert set(relevance.gives) <= {"pairs", "targets", "triplets"} and relevance.gives, (
        "gives has an unknown name, or none"
    )
    assert relevance.by in ("class", "sample"), "by must be class or sample"
    assert not relevance.state_dict(), "buffers must not be persistent: a checkpoint does not store the relevance"
    loose = [name for name, value in vars(relevance).items() if isinstance(value, Tensor)]
    assert not loose, f"tensors must be buffers, so that they move to the device: {', '.join(loose)}"
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randperm(relevance.ids, generator=g)[:MAX_CHECK_IDS] for _ in range(2))
    a = torch.cat([a, a[:1]])  # an id may occur twice
    _check_values(relevance, a, b)
    assert torch.equal(make()(a, b).nan_to_num(2), relevance(a, b).nan_to_num(2)), (
        "two relevances gave different values"
    )
    _check_pairs(relevance, a, b)
    _check_targets(relevance, a)
    _check_triplets(relevance, a)


def _check_values(relevance: Relevance, a: Tensor, b: Tensor) -> None:
    value = relevance(a, b)
    assert value.shape == (len(a), len(b)), f"{len(a)} and {len(b)} ids gave shape {tuple(value.shape)}"
    assert value.is_floating_point() and value.device == a.device, "values must be floats on the device of the ids"
    assert not value.requires_grad, "a relevance has no gradient"
    known = value[~value.isnan()]
    assert ((known >= 0) & (known <= 1)).all(), "a value outside [0, 1]"
    rows = torch.cat([relevance(part, b) for part in a.split(5)])
    columns = torch.cat([relevance(a, part) for part in b.split(5)], 1)
    for name, again in (("rows", rows), ("columns", columns)):
        assert torch.equal(again.nan_to_num(2), value.nan_to_num(2)), (
            f"blocks of {name} gave other values than the whole"
        )
    if relevance.symmetric:
        assert torch.equal(relevance(b, a).T.nan_to_num(2), value.nan_to_num(2)), "it is declared symmetric, but is not"


def _check_pairs(relevance: Relevance, a: Tensor, b: Tensor) -> None:
    value, pairs = relevance(a, b), relevance.pairs(a, b)
    assert pairs.value is not None and not pairs.value.isnan().any(), "Pairs.value must hold numbers"
    assert torch.equal(pairs.pos, value >= relevance.threshold), "positives must be the pairs at or above the threshold"
    assert torch.equal(pairs.neg, value < relevance.threshold), "negatives must be the known pairs below the threshold"


def _check_targets(relevance: Relevance, y: Tensor) -> None:
    if "targets" not in relevance.gives:
        assert relevance.width is None, "width must be None without targets"
        _must_raise(relevance.targets, y, "targets")
        return
    target = relevance.targets(y)
    assert target.shape == (len(y), relevance.width), "targets must have a row per sample and `width` columns"
    assert target.is_floating_point() and ((target >= 0) & (target <= 1)).all(), "a target that is no number in [0, 1]"
    assert torch.equal(torch.cat([relevance.targets(part) for part in y.split(5)]), target), "blocks gave other targets"


def _check_triplets(relevance: Relevance, y: Tensor) -> None:
    if "triplets" not in relevance.gives:
        _must_raise(relevance.triplets, y, "triplets")
        return
    t = relevance.triplets(y)
    assert len({len(v) for v in (t.a, t.p, t.n, t.valid, t.pull)}) == 1, "fields of the triplets differ in length"
    for index in (t.a, t.p, t.n):
        assert ((index >= 0) & (index < len(y))).all(), "a triplet names a row that is not in the batch"
    a, p, n = (y[index[t.valid]] for index in (t.a, t.p, t.n))
    assert ((a != p) & (a != n) & (p != n)).all(), "a triplet must have three different samples"
    other = relevance.triplets(y.flip(0))
    assert len(other.a) == len(t.a), "the number of triplets must not depend on the samples, only on their number"


def _must_raise(give: Callable[[Tensor], object], y: Tensor, name: str) -> None:
    try:
        give(y)
    except LikewiseError:
        return
    raise AssertionError(f"gives does not name {name}, so they must be a LikewiseError")
