"""Test errors of an audit, and the training samples that cause them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.audit.deep_influence import deep_influence, deep_repairs
from likewise.audit.hessian import along, empirical, fisher_factor, gradients, kronecker, lissa
from likewise.audit.influence import balanced_batches, influence, repairs, shares, strongest
from likewise.audit.intervention import summary, verify
from likewise.audit.records import Causes, Errors, Explained, Found, Subject, moved
from likewise.audit.retrieval_errors import find_pairs, group_by_class
from likewise.config import Audit
from likewise.data.loader import batches, in_order
from likewise.io.progress import bar
from likewise.types import Embedded

AT_ONCE = 2**25
"""Influences that are held at a time, a number each for an error and a training sample."""

WAYS = {
    "first": "first order: the product of gradients by the head's weights (the Hessian taken as the identity)",
    "finite": "finite step: the head is moved until the error is repaired, and samples whose loss moves with it are named",
    "kronecker": "influence function, Hessian as a Kronecker product (empirical Fisher), by the head's weights",
    "lissa": "influence function, Hessian by LiSSA over the training set, by the head's weights",
    "deep": "first order through all layers, by forward-mode products",
}


def explain(subject: Subject, config: Audit) -> Explained:
    """Find the errors of the test split, and for the worst of them, and the worst classes, the samples that cause them."""
    test = subject.test.e
    found = find_pairs(test.z.to(subject.device), test.y.to(subject.device))
    found = Found(*(type(p)(*(t.cpu() for t in p)) for p in found))
    errors = choose(found, subject, config)
    if subject.loss is None or not (subject.linear or config.influence == "deep"):
        return Explained(found, errors)
    g = shares(subject.loss, moved(subject.part["train"].e, subject.device))
    if not errors.name:
        return Explained(found, errors, g)
    kept, whole, pull = [], [], torch.zeros(len(g), device=subject.device, dtype=torch.float64)
    groups = torch.tensor([kind == "group" for _, kind in errors.name])
    for low, scores in influences(subject, errors, config.influence, g, config):
        kept.append(strongest(scores, min(config.k, scores.shape[1])))
        own = groups[low : low + len(scores)].to(scores.device) if groups.any() else slice(None)
        pull += scores[own].double().abs().sum(0)
        whole += [scores] if config.verify else []
    causes = Causes(*(torch.cat(part).cpu() for part in zip(*(vars(c).values() for c in kept), strict=True)))
    verified = act(subject, errors, g, torch.cat(whole), config) if config.verify and subject.linear else None
    return Explained(found, errors, g, causes, pull.cpu(), verified)


def choose(found: Found, subject: Subject, config: Audit) -> Errors:
    """The worst pairs of each kind, and the test classes with most errors."""
    row, pair, sign, error, name = subject.test.e.row.tolist(), [], [], [], []
    for kind, way, pairs in (("confusion", 1.0, found.confusion), ("mis-similar", -1.0, found.mis_similar)):
        for query, partner in zip(pairs.query[: config.pairs].tolist(), pairs.partner[: config.pairs].tolist()):
            pair.append((query, partner))
            sign.append(way)
            error.append(len(name))
            name.append((f"{row[query]}-{row[partner]}", kind))
    if config.groups and len(found.confusion.query):
        for group in group_by_class(found.confusion, subject.test.e.y, config.groups, by=config.worst_by):
            own = torch.stack([found.confusion.query, found.confusion.partner], 1)[group.member].tolist()
            pair += own
            sign += [1.0] * len(own)
            error += [len(name)] * len(own)
            name.append((subject.test.names[group.label], "group"))
    as_pairs = torch.tensor(pair, dtype=torch.int64).reshape(-1, 2)
    return Errors(as_pairs, torch.tensor(sign), torch.tensor(error, dtype=torch.int64), name)


def influences(
    subject: Subject, errors: Errors, way: str, g: Float[Tensor, "N D"], config: Audit
) -> Iterator[tuple[int, Float[Tensor, "q N"]]]:
    """What every training sample does to every error, some errors at a time: the first one's number, and the influences."""
    train, test = (moved(part.e, subject.device) for part in (subject.part["train"], subject.test))
    few = 8 if way == "lissa" else 32  # a whole matrix, or a network's parameters, for each
    step = min(few if way in ("lissa", "deep") else len(errors.name), max(1, AT_ONCE // len(train.y)))
    with bar("find causes", len(errors.name), quiet=config.quiet) as progress:
        for low in range(0, len(errors.name), step):
            some = errors.some(low, low + step)
            yield low, one_way(subject, some, way, g, train, test, config, progress.advance)


def one_way(
    subject: Subject, errors: Errors, way: str, g: Tensor, train: Embedded, test: Embedded, config: Audit,
    advance: Callable[[int], None],
) -> Float[Tensor, "q N"]:  # fmt: skip
    assert subject.loss is not None and train.f is not None
    of = tuple(t.to(subject.device) for t in (errors.pair, errors.sign, errors.error))
    if way == "finite":
        found = []
        with one_thread():
            for scores in empirical(subject.loss, train, test, *of, heads=config.heads, seed=config.seed):
                found.append(scores.to(g))
                advance(1)
        return torch.stack(found)
    if way == "deep":
        found = through_all(subject, errors, g, config)
    else:
        aim = repairs(test, *of, space=subject.loss.input)
        if way == "kronecker":
            aim = kronecker(aim, train.f, fisher_factor(g))
        if way == "lissa":
            rows = balanced_batches(train.y, 32, seed=config.seed)
            with one_thread():
                found = along(lissa(subject.loss, train, gradients(aim), batches=rows), g, train.f)
        else:
            found = influence(aim, g, train.f)
    advance(len(errors.name))
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """For many small steps on the CPU: threads would wait for one another longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def through_all(subject: Subject, errors: Errors, g: Float[Tensor, "N D"], config: Audit) -> Float[Tensor, "q N"]:
    """Influence through every layer, for which pictures are read again."""

    def read(rows: Int[np.ndarray, "n"]) -> Iterator[Tensor]:
        found = batches(
            subject.items, in_order(rows, 64), subject.plain, device=subject.device,
            workers=0 if subject.items.x is not None else config.workers,
        )  # fmt: skip
        return (part.x for part in found)

    used, pair = errors.pair.unique(return_inverse=True)
    pictures = torch.cat(list(read(subject.test.e.row[used].numpy())))
    to = subject.device
    assert subject.loss is not None and subject.embedder is not None
    aim = deep_repairs(
        subject.embedder, pictures, pair.to(to), errors.sign.to(to), errors.error.to(to), subject.loss.input
    )
    return deep_influence(subject.embedder, read(subject.part["train"].e.row.numpy()), g, aim)


def act(subject: Subject, errors: Errors, g: Float[Tensor, "N D"], ours: Float[Tensor, "Q N"], config: Audit) -> dict:
    """The paper's experiment: weigh samples by their influence, fine-tune the head, and see how far the errors are repaired.

    `ours` are the influences that causes are told by; other ways are tried beside them.
    """
    train, test = (moved(part.e, subject.device) for part in (subject.part["train"], subject.test))
    pairs = sum(kind != "group" for _, kind in errors.name)
    rows, told, quiet = [], [], dataclasses.replace(config, quiet=True)
    for low, high, grouped in ((0, pairs, False), (pairs, len(errors.name), True)):
        if high - low < 2:
            continue
        some = errors.some(low, high)
        scores = {config.influence: ours[low:high]}
        for way in ("finite", "lissa", "first"):
            if way != config.influence:
                scores[way] = torch.cat([part for _, part in influences(subject, some, way, g, quiet)])
        pair, sign, error = (t.to(subject.device) for t in (some.pair, some.sign, some.error))
        assert subject.loss is not None
        changes = verify(subject.loss, train, test, pair, sign, scores, error, seed=config.seed)
        one = summary(changes, grouped)
        what = "classes" if grouped else "pairs"
        rows += [row | {"way": f"{row['way']}, {what}"} for row in one["rows"]]
        told.append(f"over {high - low} {what}: {one['told']}")
    return {"pairs": pairs, "rows": rows, "told": "; ".join(told) or "there are too few errors to tell"}
