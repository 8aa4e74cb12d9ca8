"""evaluate: a run or embeddings -> ranked answers -> scores per query and their means, and numbers of the whole set."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.config import Audit, Evaluate, Hierarchy, Train, check
from likewise.config.spec import spec
from likewise.contracts import Part, Protocol
from likewise.data.decoded_cache import Pixels
from likewise.data.features import from_arrays, read_embeddings
from likewise.data.images import fingerprint
from likewise.data.leakage import leaks, say_leaks
from likewise.data.placement import once
from likewise.distributed.process_group import joined, world
from likewise.engine.embed import embed_rows
from likewise.evaluation.scoring import answers_for, as_compared, findable, score, summary
from likewise.io.files import check_out
from likewise.io.progress import bar
from likewise.metrics import measure_set, metric, of_the_set, spectrum
from likewise.metrics.ranking import reach
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.retrieval.ranking import BUDGET
from likewise.runs.artifacts import find_target, origin, read_pairs, save_embeddings, write_per_query
from likewise.runs.folder import Run
from likewise.runs.open import (
    bytes_of,
    choose_device,
    load_items,
    make_protocol,
    marked,
    open_embedder,
    read_config,
    similarity_of,
    spoil,
    transforms,
)  # fmt: skip
from likewise.types import Embedded, Items, LikewiseError, Retrieval, Scores

PEEK = "peek at test "
"""How a line of the log names a metric of the test part, seen on the way."""


def evaluate(config: Evaluate, say=print) -> dict:
    """Score what the config points at. Returns what scores.json holds. Processes that torchrun started share the queries."""
    check(config)
    target = find_target(config.target, "evaluate")
    with joined(choose_device(config.device)) as device:
        return evaluate_target(config, target, device, say)


def evaluate_target(config: Evaluate, target: Path, device: torch.device, say) -> dict:
    if target.is_dir():
        for name in ("labels", "per_query"):
            if getattr(config, name):
                flag = name.replace("_", "-")
                raise LikewiseError(f"evaluate: '{target}' is a run and has {flag} of its own; leave out --{flag}")
        run = Run(target)
        settings, items = find_data(run, config, config.skip_bad, say)
        if not run.done:
            say(f"this run is not finished; its last checkpoint is scored: {run.path}")
        return evaluate_run(
            run, config=settings, items=items, metrics=config.metrics, device=device, part=config.part,
            which=config.which, similarity=config.similarity, workers=config.workers, quiet=config.quiet,
            budget=bytes_of(config.memory), exclude=config.exclude,
        )  # fmt: skip
    return evaluate_embeddings(config, target, device)


def evaluate_embeddings(config: Evaluate, file: Path, device: torch.device) -> dict:
    """Score embeddings that were made elsewhere."""
    out = check_for_embeddings(config, f"'{file}' is a file of embeddings")
    items = read_embeddings(str(file), config.labels)
    similarity = config.similarity or origin(file).get("similarity", "cosine")
    return score_items(config, items, f"'{file}'", similarity, device, out)


def evaluate_arrays(config: Evaluate, z, y) -> dict:
    """Score embeddings (N, D) with their N labels, as a file with these vectors is scored."""
    check(config)
    out = check_for_embeddings(config, "arrays of embeddings were given")
    if config.labels:
        raise LikewiseError(
            f"evaluate: the labels of an array must be an array too, got the file '{config.labels}'; pass evaluate(z, y)"
        )
    items = from_arrays(z, y)
    with joined(choose_device(config.device)) as device:
        return score_items(config, items, "an array", config.similarity or "cosine", device, out)


def check_for_embeddings(config: Evaluate, what: str) -> Path | None:
    """Return the file for scores per query, if any. Settings that only a run has are an error."""
    for name, usual in (("data", None), ("root", None), ("which", "best")):
        if getattr(config, name) != usual:
            raise LikewiseError(f"evaluate: {what}, and --{name} is for a run; leave it out")
    out = check_out(config.per_query, ".parquet", "evaluate", "--per-query") if config.per_query else None
    if out and all(map(of_the_set, config.metrics)):
        raise LikewiseError("evaluate: --per-query takes at least one metric per query; add R@1")
    return out


def score_items(
    config: Evaluate, items: Items, name: str, similarity: str, device: torch.device, out: Path | None
) -> dict:
    """Score the embeddings in `items.x`; scores per query go to `out`."""
    if items.split is None and config.part != "test":
        raise LikewiseError(f"evaluate: {name} has no `split`, so no {config.part} part; add it, or leave out --part")
    if config.part == "test" and (items.split is None or not (items.split != "").any()):
        items = dataclasses.replace(items, split=np.full(len(items), "test"))
    protocol: Protocol = QueryGallery() if marked(items) else UnseenClasses()
    rows = rows_of(protocol, items, config.part)
    assert items.x is not None
    x = items.x if len(rows) == len(items) else items.x[rows]  # all of them may be more than memory holds
    x = x if x.flags.writeable else x.copy()  # torch takes no others
    e = Embedded(torch.as_tensor(x), torch.as_tensor(items.y[rows]), torch.as_tensor(rows))
    how = {"budget": bytes_of(config.memory), "exclude": read_pairs(config.exclude, items)}
    length = check_length(e.z, similarity == "cosine" or any(map(of_the_set, config.metrics)))
    result, scores, found = judge(e, items, protocol, config.metrics, similarity, device, config.quiet, **how)
    if out and world()[0] == 0:
        assert found is not None
        write_per_query(out, scores, found, e, items)
    if config.part == "test" and (items.split == "train").any():
        result["leaks"] = find_leaks(items, protocol, config.quiet)
    return result | {"length": length}


def judge(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    metrics: Sequence[str],
    similarity: str,
    device: torch.device,
    quiet: bool,
    *,
    budget: int = BUDGET,
    exclude: Int[np.ndarray, "M 2"] | None = None,
) -> tuple[dict, Scores, Retrieval | None]:
    """What scores.json holds, and what is behind it. Where galleries have names, each is also asked alone."""
    how = {"budget": budget, "exclude": exclude}
    scores, found = score(e, items, protocol, metrics, similarity, device, quiet, **how)
    result = summary(scores, e, similarity, metrics, device)
    names = protocol.galleries(items, e.row.numpy())
    if found is not None and len(names) > 1:
        asked = [name for name in metrics if not of_the_set(name)]
        alone = {}
        for name in names:
            one = protocol.only(name)
            room = answers_for(*one.sides(items, e.row.numpy()))
            fit = [m for m in asked if reach([m]).k <= room]  # a small gallery has no answer number 10
            if not fit or not findable(items, one, e.row.numpy()).any():
                alone[name] = {"metrics": {}, "queries": 0, "unscored": len(found.query)}
                continue
            some, _ = score(e, items, one, fit, similarity, device, quiet, **how)
            alone[name] = summary(some, e, similarity, fit, device)
        result["galleries"] = alone
    return result, scores, found


def check_length(z: Float[torch.Tensor, "N D"], cosine: bool) -> list[float]:
    """Shortest and longest embedding. One of length zero points nowhere, so it has no cosine, where one is wanted."""
    length = torch.cat([part.double().norm(dim=1) for part in z.split(max(1, 2**20 // z.shape[1]))])
    nowhere = (length == 0).nonzero()[:, 0]
    if cosine and len(nowhere):
        raise LikewiseError(
            f"evaluate: an embedding must not be all zeros to have a cosine, but {len(nowhere)} of {len(z)} are "
            f"(first: row {int(nowhere[0])}); leave them out, or say --similarity euclidean and ask for metrics per query"
        )
    return [float(length.min()), float(length.max())]


def evaluate_run(
    run: Run,
    *,
    config: Train,
    items: Items,
    metrics: Sequence[str],
    device: torch.device,
    part: Part = "test",
    which: str = "best",
    similarity: str | None = None,
    workers: int = -1,
    quiet: bool = False,
    budget: int = BUDGET,
    exclude: str | None = None,
    pixels: Pixels | None = None,
    known: bool = False,
) -> dict:
    """Score a run's network on the test part of its data, or on another.

    What counts as the run's result is written into its folder: the best network on the test part, compared the way its loss
    was written for, with all answers allowed. Where only numbers of the whole set are asked for, nothing is ranked and
    nothing written.

    Args:
        pixels: decoded pictures, where they are at hand.
        known: that these items are the run's.
    """
    if not known:
        must_be_its_data(run, items, config.data)
    protocol, finished = make_protocol(config), run.done
    rows, pairs = rows_of(protocol, items, part), read_pairs(exclude, items)
    embedder = open_embedder(run, config, which, device)
    usual = similarity_of(config)
    similarity = similarity or usual
    _, plain = transforms(config, embedder)
    e = embed_rows(
        embedder, items, rows, plain, device=device, held=once(pixels, rows, device), workers=workers, quiet=quiet,
        title=f"embed {part} part",
    )  # fmt: skip
    e = as_compared(e, similarity)
    result, scores, found = judge(e, items, protocol, metrics, similarity, device, quiet, budget=budget, exclude=pairs)
    result |= {"which": which, "part": part}
    if part == "test":
        result |= {
            "leaks": find_leaks(items, protocol, quiet),
            "best_test_epoch": best_test_epoch(run) if which == "best" else None,
        }
    own = which == "best" and part == "test" and similarity == usual and pairs is None
    if own and found is not None and run.done == finished and world()[0] == 0:  # training did not end meanwhile
        made_by = {"run": run.path, "which": which, "similarity": similarity}
        save_embeddings(run.path / "embeddings.npz", e, items, made_by, part, protocol.sides(items, rows))
        write_per_query(run.path / "per_query.parquet", scores, found, e, items)
        scored = run.scores or {}
        before = {"before": scored["before"]} if "before" in scored else {}  # training does not change it; see `gain`
        run.write_json("scores.json", result | before)
    return result


def find_data(run: Run, config: Evaluate | Hierarchy | Audit, skip_bad: bool, say) -> tuple[Train, Items]:
    """The run's settings, and the data they name, wherever the config says it stands now."""
    moved = {name: value for name in ("data", "root") if (value := getattr(config, name))}
    settings = read_config(run, allow_imports=config.allow_imports, **moved)
    how = {"skip_bad": skip_bad or settings.skip_bad, "workers": config.workers, "quiet": config.quiet, "say": say}
    try:
        return settings, load_items(settings.data, settings.root, **how, fetch=bool(config.data))
    except LikewiseError as error:
        hint = "" if moved else " (if the data of this run has moved, say where it is: --data, --root)"
        raise LikewiseError(f"{error}{hint}") from None


def open_data(run: Run, config: Hierarchy | Audit, say) -> tuple[Train, Items]:
    """The run's settings and its data, known to be the same, with labels as they were given."""
    settings, items = find_data(run, config, False, say)
    must_be_its_data(run, items, settings.data)
    return settings, spoil(items, make_protocol(settings), settings.noise, settings.seed, config.allow_imports)


def must_be_its_data(run: Run, items: Items, data: str) -> None:
    if fingerprint(items) != run.about["data"]:
        raise LikewiseError(
            f"run: the data '{data}' is not what '{run.path}' was trained with (files, labels or splits have "
            "changed); restore it, or embed the new data with `likewise embed` and evaluate that"
        )


def find_leaks(items: Items, protocol: Protocol, quiet: bool) -> str:
    """What train and test share, in a sentence."""
    with bar("look for leaks", 100, quiet=quiet) as shown:
        return say_leaks(leaks(items, protocol, shown.reach))


def best_test_epoch(run: Run) -> dict[str, float] | None:
    """The best value that each metric had on the test part on the way, where training was told to look (`peek_every`).

    Chosen by test labels: for comparison with papers that report this, and for nothing else.
    """
    seen: dict[str, list[float]] = {}
    for line in run.read_log():
        for key, value in line.items():
            if key.startswith(PEEK):
                seen.setdefault(key.removeprefix(PEEK), []).append(value)
    return {name: max(values) for name, values in seen.items()} or None


def rows_of(protocol: Protocol, items: Items, part: Part) -> Int[np.ndarray, "n"]:
    rows = protocol.rows(items, part)
    if part == "test" and not protocol.tests:
        raise LikewiseError(
            f"evaluate: '{items.name}' has no test part, for all of it trained ({spec(protocol)}), so there is nothing to score; "
            "train without train=1 to learn how good it is"
        )
    if not len(rows):
        parts = [] if items.split is None else [p for p in ("train", "val", "test") if (items.split == p).any()]
        raise LikewiseError(
            f"evaluate: the {part} part of '{items.name}' is empty; check its `split` column"
            + (f", or say --part {parts[0]}" if parts else "")
        )
    return rows


def check_plan(config: Train, items: Items, protocol: Protocol) -> None:
    """What evaluation will refuse must not surface after hours of training."""
    rows, asked = protocol.rows(items, "test"), [name for name in config.metrics if not of_the_set(name)]
    for name in (config.select, *asked):
        metric(name)
    deepest = reach(asked).k
    if not config.evaluate and not config.peek_every:
        return
    if not asked:
        raise LikewiseError("train: evaluating takes at least one metric per query; add R@1, or say --no-evaluate")
    asks, answers = protocol.sides(items, rows)
    classes = len(np.unique(items.y[rows]))
    if classes < 2:
        raise LikewiseError(
            f"train: the test part of '{items.name}' must hold two classes or more, got {classes}; bring more classes, "
            "check the `split` column, or say --no-evaluate"
        )
    room = answers_for(asks, answers)
    if deepest > room:
        raise LikewiseError(
            f"train: the metrics look at {deepest} answers, but the test part has {room} for a query; ask for a smaller k "
            "with --metrics, or say --no-evaluate"
        )
    if not findable(items, protocol, rows).any():
        raise LikewiseError(
            f"train: in the test part of '{items.name}' no query has an answer of its class outside its group; check the columns "
            "`query`, `gallery`, `group` and `split`, or say --no-evaluate"
        )
    most = min(config.dim, len(rows))  # directions there can be
    decay = [name for name in config.metrics if spectrum.knows(name)]
    measure_set(decay, torch.eye(most + 1, most), torch.arange(most + 1))
