"""Retrieval errors of an audit, and the training samples that cause them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.contracts import Loss
from likewise.core.progress import bar
from likewise.core.settings import Audit
from likewise.core.types import Embedded
from likewise.curate.audit.deep_influence import deep_influence, deep_repairs
from likewise.curate.audit.hessian import (
    LissaDiverged,
    along,
    empirical,
    fisher_factor,
    gradients,
    kronecker,
    lissa,
    lissa_note,
)
from likewise.curate.audit.influence import (
    balanced_batches,
    compares_samples,
    embedding_gradients,
    influence,
    repairs,
    strongest,
)
from likewise.curate.audit.intervention import summary, verify
from likewise.curate.audit.records import Causes, Errors, ExplainedErrors, RetrievalErrors, Subject, to_device
from likewise.curate.audit.retrieval_errors import find_pairs, group_by_class
from likewise.data.loader import batches, in_order
from likewise.score.retrieve import hidden_groups

LISSA_BATCH_SIZE = 32
"""Samples in a step of LiSSA for a loss that compares samples."""

MAX_DENSE_ERRORS = 32
"""Errors at a time for methods that hold a matrix, or all parameters, for every error."""

INFLUENCE_BLOCK_SIZE = 2**25
"""Maximum number of influence values (errors x training samples) that are held in memory at a time."""

INFLUENCE_METHODS = {
    "first": "first order: product of the gradients by the head's weights (identity in place of the Hessian)",
    "finite": "finite step: the head is moved until the error is repaired; influence is the change of each sample's loss",
    "kronecker": "influence function by the head's weights, Hessian as a Kronecker product (empirical Fisher)",
    "lissa": "influence function by the head's weights, Hessian by LiSSA over the training set",
    "deep": "first order through all layers, by forward-mode differentiation",
}
"""Value of `--influence` -> description of the method, for the summary and the page."""


def explain(subject: Subject, config: Audit) -> ExplainedErrors:
    """Find the retrieval errors of the test split, and the training samples that cause the worst errors and classes.

    Causes are computed only for a loss that is known and a linear head, or with `--influence deep`.
    """
    test = subject.test.e
    group = hidden_groups(subject.items)
    group = None if group is None else group[test.row].to(subject.device)
    found = find_pairs(test.z.to(subject.device), test.y.to(subject.device), group)
    found = RetrievalErrors(*(type(p)(*(t.cpu() for t in p)) for p in found))
    errors = choose_errors(found, subject, config)
    if config.influence == "lissa" and subject.loss is not None and errors.name:
        subject.notes.extend(describe_lissa(subject.loss, subject.splits["train"].e))
    if subject.loss is None or not (subject.linear or config.influence == "deep"):
        return ExplainedErrors(found, errors)
    g = embedding_gradients(subject.loss, to_device(subject.splits["train"].e, subject.device))
    if not errors.name:
        return ExplainedErrors(found, errors, g)
    strongest_blocks, all_scores, pull = [], [], torch.zeros(len(g), device=subject.device, dtype=torch.float64)
    is_group = torch.tensor([kind == "group" for _, kind in errors.name])
    for low, scores in influences(subject, errors, config.influence, g, config):
        strongest_blocks.append(strongest(scores, min(config.k, scores.shape[1])))
        counted = is_group[low : low + len(scores)].to(scores.device) if is_group.any() else slice(None)
        pull += scores[counted].double().abs().sum(0)
        all_scores += [scores] if config.verify else []
    columns = zip(*(vars(block).values() for block in strongest_blocks), strict=True)
    causes = Causes(*(torch.cat(column).cpu() for column in columns))
    verified = (
        verify_causes(subject, errors, g, torch.cat(all_scores), config) if config.verify and subject.linear else None
    )
    return ExplainedErrors(found, errors, g, causes, pull.cpu(), verified)


def choose_errors(found: RetrievalErrors, subject: Subject, config: Audit) -> Errors:
    """Return the worst pairs of each type, and one error per test class with the most errors."""
    row, pair, sign, error, name = subject.test.e.row.tolist(), [], [], [], []
    for kind, direction, pairs in (("confusion", 1.0, found.confusion), ("mis-similar", -1.0, found.mis_similar)):
        for query, partner in zip(
            pairs.query[: config.max_errors].tolist(), pairs.partner[: config.max_errors].tolist()
        ):
            pair.append((query, partner))
            sign.append(direction)
            error.append(len(name))
            name.append((f"{row[query]}-{row[partner]}", kind))
    if config.max_classes and len(found.confusion.query):
        for group in group_by_class(found.confusion, subject.test.e.y, config.max_classes, by=config.worst_by):
            own = torch.stack([found.confusion.query, found.confusion.partner], 1)[group.member].tolist()
            pair += own
            sign += [1.0] * len(own)
            error += [len(name)] * len(own)
            name.append((subject.test.names[group.label], "group"))
    as_pairs = torch.tensor(pair, dtype=torch.int64).reshape(-1, 2)
    return Errors(as_pairs, torch.tensor(sign), torch.tensor(error, dtype=torch.int64), name)


def influences(
    subject: Subject, errors: Errors, method: str, g: Float[Tensor, "N D"], config: Audit
) -> Iterator[tuple[int, Float[Tensor, "q N"]]]:
    """Yield the number of the first error of a block, and the influence of every training sample on its errors."""
    train, test = (to_device(split.e, subject.device) for split in (subject.splits["train"], subject.test))
    few = method in ("lissa", "deep")  # these hold a matrix, or all parameters, for every error
    step = min(MAX_DENSE_ERRORS if few else len(errors.name), max(1, INFLUENCE_BLOCK_SIZE // len(train.y)))
    with bar("find causes", len(errors.name), quiet=config.quiet) as progress:
        for low in range(0, len(errors.name), step):
            some = errors.some(low, low + step)
            yield low, compute_influences(subject, some, method, g, train, test, config, progress.advance)


def compute_influences(
    subject: Subject, errors: Errors, method: str, g: Tensor, train: Embedded, test: Embedded, config: Audit,
    advance: Callable[[int], None],
) -> Float[Tensor, "q N"]:  # fmt: skip
    """Return the influence of every training sample on some errors, by one method."""
    assert subject.loss is not None and train.f is not None
    of = tuple(t.to(subject.device) for t in (errors.pair, errors.sign, errors.error))
    if method == "finite":
        found = []
        with one_thread():
            for scores in empirical(subject.loss, train, test, *of, heads=config.heads, seed=config.seed):
                found.append(scores.to(g))
                advance(1)
        return torch.stack(found)
    if method == "deep":
        found = compute_deep_influences(subject, errors, g, config)
    else:
        aim = repairs(test, *of, space=subject.loss.input)
        if method == "kronecker":
            aim = kronecker(aim, train.f, fisher_factor(g))
        if method == "lissa":
            rows = lissa_batches(subject.loss, train, config.seed)
            with one_thread():
                found = along(lissa(subject.loss, train, gradients(aim), batches=rows), g, train.f)
        else:
            found = influence(aim, g, train.f)
    advance(len(errors.name))
    return found


def lissa_batches(loss: Loss, train: Embedded, seed: int = 0) -> list[Int[Tensor, "_"]] | None:
    """Return the batches of the steps of LiSSA for a loss that compares samples; None: one sample per step."""
    return balanced_batches(train.y, LISSA_BATCH_SIZE, seed=seed) if compares_samples(loss, train) else None


def describe_lissa(loss: Loss, train: Embedded) -> list[str]:
    """Return notes on a pass of LiSSA: that it runs over batches, and that it ends far from its limit, if it does."""
    batches = lissa_batches(loss, train)
    if batches is None:
        return lissa_note(len(train.y))
    return [
        f"lissa: {type(loss).__name__} compares samples, so one step takes a batch of about {LISSA_BATCH_SIZE} samples; the "
        "method takes one sample per step, which only a loss with proxies permits",
        *lissa_note(len(batches)),
    ]


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one CPU thread: for many small steps, threads would spend more time waiting than computing."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compute_deep_influences(
    subject: Subject, errors: Errors, g: Float[Tensor, "N D"], config: Audit
) -> Float[Tensor, "q N"]:
    """Return the influence through all layers of the network; this reads and decodes the images again."""

    def read(rows: Int[np.ndarray, "n"]) -> Iterator[Tensor]:
        found = batches(
            subject.items, in_order(rows, 64), subject.plain, device=subject.device,
            workers=0 if subject.items.x is not None else config.workers,
        )  # fmt: skip
        return (batch.x for batch in found)

    used, pair = errors.pair.unique(return_inverse=True)
    images = torch.cat(list(read(subject.test.e.row[used].numpy())))
    to = subject.device
    assert subject.loss is not None and subject.embedder is not None
    aim = deep_repairs(
        subject.embedder, images, pair.to(to), errors.sign.to(to), errors.error.to(to), subject.loss.input
    )
    return deep_influence(subject.embedder, read(subject.splits["train"].e.row.numpy()), g, aim)


def verify_causes(
    subject: Subject, errors: Errors, g: Float[Tensor, "N D"], ours: Float[Tensor, "Q N"], config: Audit
) -> dict:
    """Fine-tune the head with samples weighted by their influence, and measure how far the errors are repaired.

    This is the experiment of the paper (empirical influence functions). `ours` is the influence by the configured method; other
    methods are measured for comparison. `g` is the gradient of the loss by each training embedding.
    """
    train, test = (to_device(split.e, subject.device) for split in (subject.splits["train"], subject.test))
    pairs = sum(kind != "group" for _, kind in errors.name)
    rows, sentences, quiet = [], [], dataclasses.replace(config, quiet=True)
    for low, high, grouped in ((0, pairs, False), (pairs, len(errors.name), True)):
        if high - low < 2:
            continue
        some = errors.some(low, high)
        scores = {config.influence: ours[low:high]}
        for method in ("finite", "lissa", "first"):
            if method != config.influence:
                try:
                    scores[method] = torch.cat([block for _, block in influences(subject, some, method, g, quiet)])
                except LissaDiverged as problem:
                    sentences.append(f"lissa is left out ({problem})")
        pair, sign, error = (t.to(subject.device) for t in (some.pair, some.sign, some.error))
        assert subject.loss is not None
        changes = verify(subject.loss, train, test, pair, sign, scores, error, seed=config.seed)
        result = summary(changes, grouped)
        what = "classes" if grouped else "pairs"
        rows += [row | {"method": f"{row['method']}, {what}"} for row in result["rows"]]
        sentences.append(f"over {high - low} {what}: {result['summary']}")
    return {
        "pairs": pairs,
        "rows": rows,
        "summary": "; ".join(sentences) or "there are too few errors for this measurement",
    }
