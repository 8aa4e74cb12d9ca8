"""Retrieval errors of an audit as pairs of samples, the training samples that cause them, and a test of these causes.

The test is an intervention: training samples are weighted by their influence, and the head's weights W are trained for one epoch
on cached features. An increase of the signed squared distance of an error's pairs is a repair.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from likewise.core.contracts import Loss
from likewise.core.progress import bar
from likewise.core.retrieval import integer_scores
from likewise.core.retrieval.ranking import nearest
from likewise.core.settings import Audit
from likewise.core.similarity import full_precision_matmul, squared_distance
from likewise.core.types import Embedded, LikewiseError
from likewise.curate.audit.influence import (
    Batches,
    LissaDiverged,
    along,
    balanced_batches,
    compares_samples,
    embedding_gradients,
    empirical,
    head_inputs,
    lissa,
    lissa_note,
    loss_input,
    pair_distances,
    repairs,
    strongest,
)
from likewise.curate.audit.records import (
    Causes,
    Errors,
    ExplainedErrors,
    RetrievalErrors,
    Subject,
    WrongPairs,
    to_device,
)
from likewise.curate.audit.single_scores import check_labelled
from likewise.score.error_overlap import most_wrong
from likewise.score.intervals import t_interval
from likewise.score.retrieve import hidden_groups

SIMILARITY_BLOCK_SIZE = 2**24
"""Maximum number of similarities in memory when the nearest sample of the same class is searched."""

MAX_ERROR_QUERIES = 20_000
"""Maximum number of queries whose retrieval errors are searched; of more samples, some are drawn at random."""

LISSA_BATCH_SIZE = 32
"""Samples in a step of LiSSA for a loss that compares samples."""

MAX_DENSE_ERRORS = 32
"""Errors at a time for LiSSA, which holds a matrix for every error."""

INFLUENCE_BLOCK_SIZE = 2**25
"""Maximum number of influence values (errors x training samples) that are held in memory at a time."""

INFLUENCE_METHODS = {
    "finite": "finite step: the head is moved until the error is repaired; influence is the change of each sample's loss",
    "lissa": "influence function by the head's weights, Hessian by LiSSA over the training set",
}
"""Value of `--influence` -> description of the method, for the summary and the page."""

RANDOM_SIGNS, NO_WEIGHTS = "random signs", "no weights"
"""Names of the two control conditions of the test: shuffled weights, and weight 1 for every sample."""


class HeadTuning(NamedTuple):
    """How heads are fine-tuned.

    Args:
        lr: learning rate of Adam, without decay. Paper: 4e-5.
        clip: bound of the entries of the gradient. Paper: 10.
        budget: bytes for heads that train at once, with their gradients and the two moments of Adam.
    """

    lr: float = 4e-5
    clip: float = 10.0
    budget: int = 2**28


class Gain(NamedTuple):
    """Mean difference in repair between two methods, its interval, and p for "the first is not better"."""

    mean: float
    low: float
    high: float
    p: float | None  # None: fewer than two differences, or all equal


def explain(subject: Subject, config: Audit) -> ExplainedErrors:
    """Return the retrieval errors of the test split, and the training samples that cause the worst errors and classes.

    Causes are computed only for a loss that is known and a linear head.
    """
    found = find_errors(subject, config)
    errors, g = found.errors, found.g
    if not errors.name or g is None or subject.loss is None:
        return found
    if config.influence == "lissa":
        subject.notes.extend(describe_lissa(subject.loss, subject.splits["train"].e))
    strongest_blocks, all_scores, pull = [], [], torch.zeros(len(g), device=subject.device, dtype=torch.float64)
    is_group = torch.tensor([kind == "group" for _, kind in errors.name])
    for low, scores in influences(subject, errors, config.influence, g, config):
        strongest_blocks.append(strongest(scores, min(config.k, scores.shape[1])))
        counted = is_group[low : low + len(scores)].to(scores.device) if is_group.any() else slice(None)
        pull += scores[counted].double().abs().sum(0)
        all_scores += [scores] if config.verify else []
    columns = zip(*(vars(block).values() for block in strongest_blocks), strict=True)
    causes = Causes(*(torch.cat(column).cpu() for column in columns))
    verified = verify_causes(subject, errors, g, torch.cat(all_scores), config) if config.verify else None
    return replace(found, causes=causes, pull=pull.cpu(), verified=verified)


def find_errors(subject: Subject, config: Audit) -> ExplainedErrors:
    """Return the retrieval errors of the test split, those to explain, and the gradients that an explanation needs."""
    test = subject.test.e
    group = hidden_groups(subject.items)
    group = None if group is None else group[test.row].to(subject.device)
    rows = drawn_queries(len(test.y), config.seed)
    if len(rows) < len(test.y):
        subject.notes.append(
            f"retrieval errors are those of {len(rows):,} random queries of {len(test.y):,}, each ranked against all samples"
        )
    z, y, queries = (tensor.to(subject.device) for tensor in (test.z, test.y, rows))
    with bar("find errors", 100, quiet=config.quiet) as progress:
        found = find_pairs(z, y, group, queries, progress.reach)
    found = RetrievalErrors(*(type(p)(*(t.cpu() for t in p)) for p in found))
    errors, g = choose_errors(found, subject, config, rows), None
    if subject.loss is not None and subject.linear:
        g = embedding_gradients(subject.loss, to_device(subject.splits["train"].e, subject.device))
    return ExplainedErrors(found, errors, g, queries=rows)


def drawn_queries(count: int, seed: int) -> Int[Tensor, "Q"]:
    """Return the rows whose errors are searched: all, or `MAX_ERROR_QUERIES` random ones, in ascending order."""
    if count <= MAX_ERROR_QUERIES:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:MAX_ERROR_QUERIES].sort().values


@torch.no_grad()
def find_pairs(
    z: Float[Tensor, "N D"], y: Int[Tensor, "N"], group: Int[Tensor, "N kinds"] | None = None,
    rows: Int[Tensor, "Q"] | None = None, progress: Callable[[float], None] | None = None,
) -> RetrievalErrors:  # fmt: skip
    """Return all errors of Recall@1 as pairs, from both sides; by cosine, each query against all others.

    Args:
        group: kinds of groups; a sample is not compared with samples that share one of its groups (-1: no group).
        rows: queries; None: every sample.
        progress: called with the share of the queries that are ranked.
    """
    check_labelled("find_pairs", z, y)
    group = y.new_empty((len(y), 0)) if group is None else group
    rows = torch.arange(len(z), device=z.device) if rows is None else rows
    row, sim = nearest(z[rows], z, 1, own=rows, group=group[rows], gallery_group=group, progress=progress)
    wrong = row[:, 0]
    at = ((y[wrong] != y[rows]) & (wrong >= 0)).nonzero()[:, 0]
    query, wrong, sim = rows[at], wrong[at], sim[at, 0]
    mate, near = _nearest_same_class(z, y, group, query)
    first = sim.argsort(descending=True, stable=True)
    last = near.argsort(stable=True)
    last = last[mate[last] >= 0]
    confusion = WrongPairs(query, wrong, wrong, mate, squared_distance(sim))
    mis_similar = WrongPairs(query, mate, wrong, mate, squared_distance(near))
    return RetrievalErrors(*(WrongPairs(*(t[o] for t in p)) for p, o in ((confusion, first), (mis_similar, last))))


def _nearest_same_class(
    z: Float[Tensor, "N D"], y: Int[Tensor, "N"], group: Int[Tensor, "N kinds"], query: Int[Tensor, "Q"]
) -> tuple[Int[Tensor, "Q"], Float[Tensor, "Q"]]:
    """Return the nearest sample of the query's class (of ties the lowest row) and its cosine; -1 and NaN if there is none.

    Samples that share a group with the query are left out.

    Rows are sorted by class, so a block of queries is compared only with the rows of their classes.
    """
    order = y.argsort(stable=True)
    at = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))[query].sort().values
    side, y, group = integer_scores.prepare(z[order], z.device, None, "z"), y[order], group[order]
    start, end = torch.searchsorted(y, y[at]), torch.searchsorted(y, y[at], right=True)
    mate, near = torch.full_like(y, -1, dtype=torch.int64), torch.full_like(y, torch.nan, dtype=torch.float64)
    for block in integer_scores.row_slices(len(at), min(256, SIMILARITY_BLOCK_SIZE // len(y))):
        some = at[block]
        band = torch.arange(int(start[block][0]), int(end[block][-1]), device=y.device)
        key = side.whole(some) @ side.whole(slice(int(band[0]), int(band[-1]) + 1)).T
        hidden = (y[some, None] != y[band]) | (some[:, None] == band)
        for kind in group.T:
            hidden |= (kind[some, None] == kind[band]) & (kind[band] >= 0)
        key = key.masked_fill(hidden, -torch.inf)
        best = key.amax(1, keepdim=True)
        found = order[band.where(key == best, len(y)).amin(1)]
        mate[order[some]] = found.where(best[:, 0] > -torch.inf, -1)
        near[order[some]] = integer_scores.readable(best, side, some)[:, 0]
    return mate[query], near[query]


def choose_errors(
    found: RetrievalErrors, subject: Subject, config: Audit, rows: Int[Tensor, "Q"] | None = None
) -> Errors:
    """Return the worst pairs of each type, and one error per test class with the most errors.

    Args:
        rows: queries whose errors were searched; None: all test samples.
    """
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
        both = torch.stack([found.confusion.query, found.confusion.partner], 1)
        for label, member in worst_classes(
            found.confusion, subject.test.e.y, config.max_classes, config.worst_by, rows
        ):
            own = both[member].tolist()
            pair += own
            sign += [1.0] * len(own)
            error += [len(name)] * len(own)
            name.append((subject.test.names[label], "group"))
    as_pairs = torch.tensor(pair, dtype=torch.int64).reshape(-1, 2)
    return Errors(as_pairs, torch.tensor(sign), torch.tensor(error, dtype=torch.int64), name)


def worst_classes(
    pairs: WrongPairs, y: Int[Tensor, "N"], top: int, by: str = "count", rows: Int[Tensor, "Q"] | None = None
) -> list[tuple[int, Int[Tensor, "M"]]]:
    """Return the classes with the most errors, the worst first, and the positions of the pairs whose queries they have.

    Differs: the paper's text takes all pairs of a class, as here; its code takes those with the most frequently confused classes
        that together have more than half of its errors, at most ten classes.

    Args:
        y: labels of all samples; pairs are positions in it.
        by: "count" or "rate", as in `most_wrong`.
        rows: queries; None: all samples.
    """
    failed = torch.zeros_like(y, dtype=torch.bool)
    failed[pairs.query] = True
    rows = torch.arange(len(y)) if rows is None else rows
    worst = most_wrong(failed[rows], y[rows], top, by)
    return [(label, (y[pairs.query] == label).nonzero()[:, 0]) for label in worst.tolist()]


def influences(
    subject: Subject, errors: Errors, method: str, g: Float[Tensor, "N D"], config: Audit
) -> Iterator[tuple[int, Float[Tensor, "q N"]]]:
    """Yield the number of the first error of a block, and the influence of every training sample on its errors.

    Args:
        method: a key of `INFLUENCE_METHODS`.
        g: `embedding_gradients` of the training split.
    """
    loss = subject.loss
    train, test = (to_device(split.e, subject.device) for split in (subject.splits["train"], subject.test))
    assert loss is not None and train.f is not None
    step = min(
        MAX_DENSE_ERRORS if method == "lissa" else len(errors.name), max(1, INFLUENCE_BLOCK_SIZE // len(train.y))
    )
    with bar("find causes", len(errors.name), quiet=config.quiet) as progress:
        for low in range(0, len(errors.name), step):
            some = errors.some(low, low + step)
            of = tuple(t.to(subject.device) for t in (some.pair, some.sign, some.error))
            with one_thread():
                if method == "finite":
                    each = empirical(loss, train, test, *of, heads=config.heads, seed=config.seed)
                    found = torch.stack([scores.to(g) for scores in reporting(each, progress.advance)])
                else:
                    v = repairs(test, *of, space=loss.input)
                    found = along(lissa(loss, train, v, batches=lissa_batches(loss, train, config.seed)), g, train.f)
                    progress.advance(len(some.name))
            yield low, found


def reporting(values: Iterable[Tensor], advance: Callable[[int], None]) -> Iterator[Tensor]:
    """Yield the values, and report each to the progress bar."""
    for value in values:
        advance(1)
        yield value


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


def verify_causes(
    subject: Subject, errors: Errors, g: Float[Tensor, "N D"], ours: Float[Tensor, "Q N"], config: Audit
) -> dict:
    """Fine-tune the head with samples weighted by their influence, and measure how far the errors are repaired.

    This is the experiment of the paper (empirical influence functions). `ours` is the influence by the configured method; other
    methods are measured for comparison. `g` is the gradient of the loss by each training embedding.
    """
    train, test = (to_device(split.e, subject.device) for split in (subject.splits["train"], subject.test))
    pairs = sum(kind != "group" for _, kind in errors.name)
    rows, sentences, quiet = [], [], replace(config, quiet=True)
    for low, high, grouped in ((0, pairs, False), (pairs, len(errors.name), True)):
        if high - low < 2:
            continue
        some = errors.some(low, high)
        scores = {config.influence: ours[low:high]}
        for method in INFLUENCE_METHODS:
            if method != config.influence:
                try:
                    scores[method] = torch.cat([block for _, block in influences(subject, some, method, g, quiet)])
                except LissaDiverged as problem:
                    sentences.append(f"lissa is left out ({problem})")
        pair, sign, error = (t.to(subject.device) for t in (some.pair, some.sign, some.error))
        assert subject.loss is not None
        changes = verify(subject.loss, train, test, pair, sign, scores, error, seed=config.seed)
        result = describe_repairs(changes, grouped)
        what = "classes" if grouped else "pairs"
        rows += [row | {"method": f"{row['method']}, {what}"} for row in result["rows"]]
        sentences.append(f"over {high - low} {what}: {result['summary']}")
    return {
        "pairs": pairs,
        "rows": rows,
        "summary": "; ".join(sentences) or "there are too few errors for this measurement",
    }


def verify(
    loss: Loss,
    train: Embedded,
    test: Embedded,
    pair: Int[Tensor, "P 2"],
    sign: Float[Tensor, "P"],
    scores: dict[str, Float[Tensor, "Q N"]],
    group: Int[Tensor, "P"] | None = None,
    *,
    seed: int = 0,
    **how,
) -> dict[str, Float[np.ndarray, "Q"]]:
    """Return the repair of every error for each of several influences, for random ones, and without weights.

    Paper: the training experiment of the empirical influence function for debugging metric learning.
    Differs: random signs and no weights are added as controls: fine-tuning alone moves pairs too.

    Args:
        pair, sign, group: the errors, as in `repairs`.
        scores: method -> influence of every sample on every error; values above 0 are harmful. Random signs have as many helpful
            samples per error as the first method.
        seed: seed of the batches and of the random signs; all methods use the same batches.
        how: other arguments of `gains`.
    """
    weights = {way: 1 - score.sign() for way, score in scores.items()}
    first = next(iter(weights.values()))
    draw = torch.Generator().manual_seed(seed)
    mixed = torch.stack([torch.randperm(first.shape[1], generator=draw) for _ in first]).to(first.device)
    weights |= {RANDOM_SIGNS: first.gather(1, mixed), NO_WEIGHTS: torch.ones_like(first[:1])}
    return {
        way: gains(loss, train, test, pair, sign, weight, group, seed=seed, **how).cpu().numpy()
        for way, weight in weights.items()
    }


def gains(
    loss: Loss,
    train: Embedded,
    test: Embedded,
    pair: Int[Tensor, "P 2"],
    sign: Float[Tensor, "P"],
    weight: Float[Tensor, "H N"],
    group: Int[Tensor, "P"] | None = None,
    *,
    tuning: HeadTuning = HeadTuning(),
    batches: Batches | None = None,
    seed: int = 0,
) -> Float[Tensor, "Q"]:
    """Return how far each error's mean signed squared distance grows when the head trains for one epoch with its weights.

    Differs: an epoch has each sample once, four of a class together, where the paper draws 8 classes times 4. The heads of all
        errors train at once. W itself is not needed: only the change of W is stored.

    Args:
        weight: sample weights in the mean over a batch, one row per error or one row for all errors. For a loss that compares
            samples, they weight the sample as an anchor; as a partner of other samples it still counts fully.
        batches: rows of `train`, one batch per step; None: `balanced_batches` of 32.
    """
    (e, f), (test_e, test_f) = head_inputs("verify", train), head_inputs("verify", test)
    group = torch.arange(len(pair), device=pair.device) if group is None else group
    errors = int(group.max()) + 1
    batches = balanced_batches(train.y, 32, 4, seed) if batches is None else batches
    share = sign.to(test_e).double() / torch.bincount(group)[group].to(test_e)
    found = share.new_empty(errors)
    step = max(1, tuning.budget // (4 * e.element_size() * e.shape[1] * f.shape[1]))
    for first in range(0, len(weight), step):
        moves = fine_tune(loss, train, weight[first : first + step].to(e), batches, tuning, seed)
        for q in range(errors) if len(weight) == 1 else range(first, first + len(moves)):
            ends, own = pair[group == q], share[group == q]
            with full_precision_matmul(test_f):
                shift = test_f[ends] @ moves[q - first if len(weight) > 1 else 0].T
            before = test_e[ends].double()
            now, start = (pair_distances(e, own, loss.input)[0].sum() for e in (before + shift, before))
            found[q] = now - start
    return found


def fine_tune(
    loss: Loss,
    train: Embedded,
    weight: Float[Tensor, "H N"],
    batches: Batches,
    tuning: HeadTuning,
    seed: int,
) -> Float[Tensor, "H D F"]:
    """Return the change of W after one epoch of Adam, for each row of sample weights.

    The parameters of the loss stay fixed.
    """
    assert train.e is not None and train.f is not None
    loss, e = copy.deepcopy(loss).eval(), train.e
    moves = e.new_zeros(len(weight), e.shape[1], train.f.shape[1])
    adam = torch.optim.Adam([moves], lr=tuning.lr, fused=True)

    def value(own: Tensor, w: Tensor, y: Tensor) -> Tensor:
        return (w * loss(loss_input(loss, own), y)).mean()

    slope = torch.func.vmap(torch.func.grad(value), in_dims=(0, 0, None), randomness="same")
    with torch.random.fork_rng([e.device] if e.is_cuda else [], device_type="cuda"), full_precision_matmul(e):
        (torch.cuda.manual_seed if e.is_cuda else torch.default_generator.manual_seed)(seed)
        for rows in batches:
            f = train.f[rows]
            shift = torch.einsum("bf,hdf->hbd", f, moves)
            g = slope(e[rows] + shift, weight[:, rows], train.y[rows])
            moves.grad = (g.mT @ f).clamp_(-tuning.clip, tuning.clip)
            adam.step()
    if not bool(moves.isfinite().all()):
        raise LikewiseError(f"verify: fine-tuning must stay finite, but diverged with lr={tuning.lr:g}; lower lr")
    return moves


def paired(
    ours: Float[np.ndarray, "Q"], other: Float[np.ndarray, "Q"], grouped: bool = False, level: float = 0.95
) -> Gain:
    """Return how much more `ours` repairs the same errors: t interval of the mean difference, and a one-sided test.

    Paper: a paired t-test over pairs, Wilcoxon's signed-rank test over groups.
    """
    gap = ours - other
    mean, low, high, n = t_interval(gap, level)
    if n < 2 or np.ptp(gap) == 0:
        return Gain(mean, low, high, None)
    test = stats.wilcoxon(gap, alternative="greater") if grouped else stats.ttest_1samp(gap, 0, alternative="greater")
    return Gain(mean, low, high, float(test.pvalue))  # pyright: ignore[reportAttributeAccessIssue]


def describe_repairs(changes: dict[str, Float[np.ndarray, "Q"]], grouped: bool = False) -> dict:
    """Return the results of `verify` for the page: the mean repair of each method with its 95 % interval, and a sentence.

    `p` of a method is the p-value of "the first method does not repair more than this one".
    """
    first, ours = next(iter(changes.items()))
    rows, comparisons = [], []
    for way, change in changes.items():
        mean, low, high, _ = t_interval(change)
        gain = None if way == first else paired(ours, change, grouped)
        ends = [None if np.isnan(v) else v for v in (low, high)]
        rows.append({"method": way, "mean": mean, "low": ends[0], "high": ends[1], "p": gain and gain.p})
        if gain:
            by = "" if gain.p is None else f", {gain.low:+.4f} to {gain.high:+.4f}, p = {gain.p:.2g}"
            comparisons.append(f"{gain.mean:+.4f} compared with {way}{by}")
    what = "groups of pairs" if grouped else "pairs"
    sentence = (
        f"with helpful samples counted twice and harmful samples dropped, as chosen by '{first}', the squared distance of "
        f"{len(ours)} {what} improved by {ours.mean():+.4f} in one epoch ({'; '.join(comparisons)})"
    )
    return {"pairs": len(ours), "rows": rows, "summary": sentence}
