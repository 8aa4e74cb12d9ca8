"""What a report finds where it is pointed at: a run, evaluated or not, finished or not, or a file of embeddings."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
from jaxtyping import Int

from likewise.config import Report
from likewise.contracts import Protocol
from likewise.data.features import read_embeddings
from likewise.report.opened import Opened
from likewise.report.parts import one_part
from likewise.report.score_now import UNTESTED, is_tested, score_now
from likewise.runs.dataset import make_protocol, marked, protocol_for
from likewise.runs.embeddings import EMBEDDINGS, origin, rows_in
from likewise.runs.folder import Run, find_target
from likewise.runs.open import OpenRun
from likewise.runs.per_query import PER_QUERY, PerQuery, read_per_query
from likewise.types import Items, LikewiseError


def as_asked(items: Items, one: Opened, row: Int[np.ndarray, "N"]) -> Items:
    """Samples of a run, marked by who asked and who answered in it; marks of the data that its protocol passed over are gone."""
    assert one.settings is not None
    try:
        protocol = make_protocol(one.settings)
    except LikewiseError:
        return items  # it may not be imported: as they were saved
    if one.data is not None:
        asks, answers = protocol.query_gallery(one.data, row)
    elif type(protocol).query_gallery is Protocol.query_gallery:
        asks, answers = protocol.query_gallery(items, row)
    else:
        return items
    if asks.all() and answers.all():
        return dataclasses.replace(items, query=None, gallery=None, gallery_name=None)
    name = None if items.gallery_name is None else np.where(answers, items.gallery_name, "")
    return dataclasses.replace(items, query=asks, gallery=answers, gallery_name=name)


def tell_apart(targets: tuple[str, ...]) -> list[str]:
    """A name for each: that of its folder or file, and as much of the path above it as it takes to tell them apart."""
    paths = [find_target(target, "report").resolve() for target in targets]
    twice = [target for target, path in zip(targets, paths) if paths.count(path) > 1]
    if twice:
        raise LikewiseError(f"report: every run must be given once, got '{twice[0]}' twice; leave one out")
    parts = [(*path.parent.parts, path.name if path.is_dir() else path.stem) for path in paths]
    length = [1] * len(parts)
    while True:
        names = ["/".join(own[-n:]) for own, n in zip(parts, length)]
        count = Counter(names)
        longer = [n + (count[name] > 1 and n < len(own)) for own, n, name in zip(parts, length, names)]
        if longer == length:
            return [path.name if count[name] > 1 else name for path, name in zip(paths, names)]
        length = longer


def open_target(target: str, name: str, config: Report, known: dict[tuple, Items], say) -> Opened:
    """Everything there is.

    Args:
        known: data that was opened before, for runs that share it; what is opened here is added.
    """
    path = find_target(target, "report")
    return (
        from_run(Run(path), name, config, known, say) if path.is_dir() else with_embeddings(Opened(name), path, config)
    )


def from_run(run: Run, name: str, config: Report, known: dict[tuple, Items], say) -> Opened:
    """Return what is there of a run: its data, embeddings and queries. A finished run that was not evaluated is evaluated."""
    opened = OpenRun(
        run, device=config.device, data=config.data, root=config.root, allow_imports=config.allow_imports,
        workers=config.workers, quiet=config.quiet, say=say,
    )  # fmt: skip
    settings, data = opened.settings, None
    notes = [] if run.done else ["this run is not finished: what is shown is how far it has come"]
    try:
        data = data_of(opened, known)
    except LikewiseError as error:
        notes.append(f"its data could not be opened ({error})")
    one = Opened(name, run, settings, data)
    file, asked = run.path / EMBEDDINGS, run.path / PER_QUERY
    has_network = (run.path / run.network("best")).exists()
    if not file.exists() and run.done and data is not None and has_network and is_tested(settings):
        from likewise.evaluation.evaluate import evaluate_open

        try:
            evaluate_open(opened, settings.metrics)
        except LikewiseError as error:
            notes.append(f"it could not be evaluated ({error})")
    if file.exists():
        try:
            one = with_embeddings(one, file, config)
        except LikewiseError as error:
            notes.append(f"its embeddings could not be used ({error}); `likewise evaluate` writes them anew")
    if one.items is None and asked.exists():
        one = with_queries(one, read_per_query(asked, "report"))
        notes.append("without embeddings there is no map; `likewise evaluate` writes them")
    elif one.items is None and run.done:
        notes.append("it has no scores yet; `likewise evaluate` finds them" if is_tested(settings) else UNTESTED)
    return dataclasses.replace(one, notes=(*one.notes, *notes))


def data_of(opened: OpenRun, known: dict[tuple, Items]) -> Items:
    """Return the data of a run, loaded once for all runs of it."""
    key = (opened.settings.data, opened.settings.root, opened.settings.skip_bad)
    if key not in known:
        known[key] = opened.load()
    return opened.take(known[key])


def with_embeddings(one: Opened, file: Path, config: Report) -> Opened:
    """With the samples and embeddings in a file, and with their scores: those of the run, or what is found now."""
    items, made_by = read_embeddings(str(file), root=config.root), origin(file)
    notes, n = one.notes, len(items)
    items, row, part = one_part(items, rows_in(made_by, n))
    if len(row) < n:
        notes = (*notes, f"the {part} split of {file.name} is shown: {len(row)} of {n} rows")
    if one.run is not None:
        items = as_asked(items, one, row)
    elif marked(items):
        asks, answers = (int(side.sum()) for side in protocol_for(items).query_gallery(items, np.arange(len(items))))
        notes = (
            *notes,
            f"its columns query and gallery decide: {asks} of {len(items)} samples ask, and {answers} answer",
        )
    one = dataclasses.replace(
        one, items=items, row=row, part=part, similarity=made_by.get("similarity", "cosine"), notes=notes
    )
    if one.run is not None and (one.run.path / PER_QUERY).exists():
        queries = read_per_query(one.run.path / PER_QUERY, "report")
        return dataclasses.replace(one, queries=queries, scores=one.run.scores or {})
    return score_now(one, config)


def with_queries(one: Opened, queries: PerQuery) -> Opened:
    """With what is left of an evaluation without its embeddings: the queries are all samples that are known."""
    names, y = np.unique(queries.class_name.astype(str), return_inverse=True)
    path = None if queries.path is None else tuple(map(str, queries.path))
    root = "" if one.data is None else one.data.root
    assert one.run is not None and one.settings is not None
    items = Items(str(one.settings.data), y.astype(np.int64), tuple(names.tolist()), path, root)
    return dataclasses.replace(one, items=items, row=queries.row, queries=queries, scores=one.run.scores or {})
