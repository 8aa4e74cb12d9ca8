"""Open the targets of a report: runs, evaluated or not, finished or not, and embedding files."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.core.contracts import Protocol, Relevance
from likewise.core.devices import choose_device
from likewise.core.settings import Evaluate, Report, Train
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.core.vectors import in_memory
from likewise.data.dataset import make_protocol, marks_queries, protocol_for
from likewise.data.features import read_embeddings
from likewise.data.images import drop
from likewise.data.label_sets import with_label_sets
from likewise.data.relevance import SharedLabels
from likewise.report.section import PairRelevance, ReportTarget
from likewise.runs.embeddings import ALL_EMBEDDINGS_FILE, EMBEDDINGS_FILE, origin, rows_in
from likewise.runs.folder import Run, find_target, is_folder_of_run
from likewise.runs.network import make_relevance
from likewise.runs.open import OpenRun
from likewise.runs.scores import PER_QUERY, PerQuery, read_per_query
from likewise.score.metrics import reach
from likewise.score.query_sample import USUAL_QUERY_COUNT
from likewise.score.retrieve import Scoring, count_relevant_rows, max_results


def with_query_gallery(items: Items, one: ReportTarget, row: Int[np.ndarray, "N"]) -> Items:
    """Return the samples with the queries and the gallery that the protocol of the run defines.

    Query and gallery columns of the data that the protocol does not use are removed.
    """
    assert one.settings is not None
    try:
        protocol = make_protocol(one.settings)
    except LikewiseError:
        return items  # the protocol may not be imported: keep the saved columns
    if one.data is not None:
        query, gallery = protocol.query_gallery(one.data, row)
    elif type(protocol).query_gallery is Protocol.query_gallery:
        query, gallery = protocol.query_gallery(items, row)
    else:
        return items
    if query.all() and gallery.all():
        return dataclasses.replace(items, query=None, gallery=None, gallery_name=None)
    name = None if items.gallery_name is None else np.where(gallery, items.gallery_name, "")
    return dataclasses.replace(items, query=query, gallery=gallery, gallery_name=name)


def unique_names(targets: tuple[str, ...]) -> list[str]:
    """Return a name for each target: its folder or file, with as many parent folders as make the names distinct."""
    paths = [find_target(target, "report").resolve() for target in targets]
    twice = [target for target, path in zip(targets, paths) if paths.count(path) > 1]
    if twice:
        raise LikewiseError(f"report: every run must be given once, got '{twice[0]}' twice; remove one of the two")
    levels = [(*path.parent.parts, path.name if path.is_dir() else path.stem) for path in paths]
    length = [1] * len(levels)
    while True:
        names = ["/".join(own[-n:]) for own, n in zip(levels, length)]
        count = Counter(names)
        longer = [n + (count[name] > 1 and n < len(own)) for own, n, name in zip(levels, length, names)]
        if longer == length:
            return [path.name if count[name] > 1 else name for path, name in zip(paths, names)]
        length = longer


def open_target(target: str, name: str, config: Report, known: dict[tuple, Items], say) -> ReportTarget:
    """Open a run or an embedding file.

    Args:
        name: its name on the page.
        known: data sets that were loaded before, for runs that share them; newly loaded data is added.
    """
    path = find_target(target, "report")
    return (
        from_run(Run(path), name, config, known, say)
        if is_folder_of_run(path)
        else with_embeddings(ReportTarget(name), path, config)
    )


def from_run(run: Run, name: str, config: Report, known: dict[tuple, Items], say) -> ReportTarget:
    """Return a run with its data, embeddings and queries. A finished run without embeddings is evaluated first."""
    opened = OpenRun(
        run, device=config.device, data=config.data, root=config.root, allow_imports=config.allow_imports,
        workers=config.workers, quiet=config.quiet, say=say,
    )  # fmt: skip
    settings, data = opened.settings, None
    notes = [] if run.done else ["this run is not finished: the page shows its training so far"]
    try:
        data = data_of(opened, known)
    except LikewiseError as error:
        notes.append(f"its data could not be opened ({error})")
    one = ReportTarget(name, run, settings, data)
    file, per_query = run.path / EMBEDDINGS_FILE, run.path / PER_QUERY
    has_network = (run.path / run.network("best")).exists()
    if not file.exists() and run.done and data is not None and has_network and is_tested(settings):
        from likewise.score.evaluate import evaluate_run

        try:
            evaluate_run(opened, Evaluate(str(run.path), metrics=settings.metrics))
        except LikewiseError as error:
            notes.append(f"it could not be evaluated ({error})")
    if not is_tested(settings):
        file = embeddings_of(run.path)
    if file.exists():
        try:
            one = with_embeddings(one, file, config)
        except LikewiseError as error:
            notes.append(f"its embeddings could not be used ({error}); `likewise evaluate` writes them again")
    if one.items is None and per_query.exists():
        one = with_queries(one, read_per_query(per_query, "report"))
        notes.append("without embeddings there is no map; `likewise evaluate` writes them")
    elif one.items is None and run.done:
        notes.append(
            "it has no scores yet; `likewise evaluate` computes them" if is_tested(settings) else NO_TEST_SPLIT_NOTE
        )
    return dataclasses.replace(one, notes=(*one.notes, *notes))


def data_of(opened: OpenRun, known: dict[tuple, Items]) -> Items:
    """Return the data of a run. Runs of the same data set share one copy in `known`."""
    key = (opened.settings.data, opened.settings.root, str(opened.run.skipped))
    if key not in known:
        known[key] = opened.load()
    return opened.take(known[key])


def with_embeddings(one: ReportTarget, file: Path, config: Report) -> ReportTarget:
    """Return the target with the samples and embeddings of a file, and with the scores of the run or newly computed ones."""
    items, made_by = read_embeddings(str(file), root=config.root), origin(file)
    notes, n = one.notes, len(items)
    items, row, split = shown_split(items, rows_in(made_by, n))
    if len(row) < n:
        notes = (*notes, f"the {split} split of {file.name} is shown: {len(row)} of {n} rows")
    if one.run is not None:
        items = with_query_gallery(items, one, row)
    elif marks_queries(items):
        queries, gallery = (int(side.sum()) for side in protocol_for(items).query_gallery(items, np.arange(len(items))))
        notes = (
            *notes,
            f"its columns query and gallery are used: of {len(items)} samples, {queries} are queries and {gallery} gallery",
        )
    one = dataclasses.replace(
        one, items=items, row=row, split=split, similarity=made_by.get("similarity", "cosine"), notes=notes
    )
    if one.run is not None and (one.run.path / PER_QUERY).exists():
        queries = read_per_query(one.run.path / PER_QUERY, "report")
        return dataclasses.replace(one, queries=queries, scores=one.run.scores or {})
    return score_now(one, config)


def with_queries(one: ReportTarget, queries: PerQuery) -> ReportTarget:
    """Return the target with the queries of its evaluation as samples, for a run whose embeddings are missing."""
    names, y = np.unique(queries.class_name.astype(str), return_inverse=True)
    path = None if queries.path is None else tuple(map(str, queries.path))
    root = "" if one.data is None else one.data.root
    assert one.run is not None and one.settings is not None
    items = Items(str(one.settings.data), y.astype(np.int64), tuple(names.tolist()), path, root)
    items = with_label_sets(items) if one.data is not None and one.data.label_sets is not None else items
    return dataclasses.replace(one, items=items, row=queries.row, queries=queries, scores=one.run.scores or {})


def shown_split(items: Items, row: Int[np.ndarray, "N"]) -> tuple[Items, Int[np.ndarray, "n"], str]:
    """Return the samples of the split to show, their rows, and the name of the split.

    This is the test split if the file has several splits with a test split, otherwise all samples; in both cases without junk.
    """
    splits = set() if items.split is None else set(np.unique(items.split).tolist()) - {""}
    tests = len(splits) > 1 and "test" in splits
    name = "test" if tests else next(iter(splits)) if len(splits) == 1 else "all"
    shown = items.split == "test" if tests else np.ones(len(items), bool)
    shown = shown if items.junk is None else shown & ~items.junk
    items = dataclasses.replace(items, split=None)
    if not shown.all():
        items = drop(dataclasses.replace(items, weight=None, y_clean=None), np.flatnonzero(~shown).tolist())
    return items, row[shown], name


def embeddings_of(run: Path) -> Path:
    """Return the file with the embeddings of a run's test split; for a run without one, those of all images if they exist."""
    file, everything = run / EMBEDDINGS_FILE, run / ALL_EMBEDDINGS_FILE
    return everything if everything.exists() and not file.exists() else file


def vectors_of(target: str, config: Report) -> tuple[Float[np.ndarray, "N D"], str]:
    """Return the embeddings of a target that are shown, and their similarity ("cosine" or "euclidean")."""
    path = find_target(target, "report")
    file = embeddings_of(path) if is_folder_of_run(path) else path
    items = read_embeddings(str(file), root=config.root)
    x = shown_split(items, np.arange(len(items)))[0].x
    assert x is not None
    return in_memory(x), origin(file).get("similarity", "cosine")


NO_TEST_SPLIT_NOTE = "it was trained on all data, so there is no test split to score"
"""Note on a run whose protocol has no test split."""


def is_tested(settings: Train) -> bool:
    """Return whether the protocol of a run has a test split; True for a protocol that may not be imported."""
    try:
        return make_protocol(settings).has_test_split
    except LikewiseError:
        return True


def score_now(one: ReportTarget, config: Report) -> ReportTarget:
    """Return the target with the scores and queries that `likewise evaluate` would compute.

    Of more than `USUAL_QUERY_COUNT` queries, a random sample of this many is ranked, as with `--queries`, so that the cost grows
    with the gallery alone. Without a test split or without relevant rows, the target gets a note instead.
    """
    from likewise.score.checks import check_length
    from likewise.score.scoring import score_all

    items, row = one.items, one.row
    assert items is not None and items.x is not None and row is not None
    protocol, place = protocol_for(items), np.arange(len(items))
    if one.settings is not None and not is_tested(one.settings):
        return dataclasses.replace(one, notes=(*one.notes, NO_TEST_SPLIT_NOTE))
    defaults: Any = next(f.default for f in dataclasses.fields(Evaluate) if f.name == "metrics")
    largest_k = max_results(*one.query_gallery)
    metrics = [name for name in defaults if reach([name]).k <= largest_k]
    if not metrics or len(np.unique(items.y)) < 2 or not count_relevant_rows(items, protocol, place).any():
        return dataclasses.replace(
            one, notes=(*one.notes, "no query has a relevant gallery row, so there are no scores")
        )
    e = Embedded(torch.as_tensor(in_memory(items.x)), torch.as_tensor(items.y), torch.as_tensor(place))
    check_length(e.z, one.similarity == "cosine")
    scoring = Scoring(items, protocol, metrics, one.similarity, choose_device(config.device), config.quiet)
    scoring = dataclasses.replace(scoring, sample=USUAL_QUERY_COUNT)
    scores, each, found = score_all(e, scoring)
    assert found is not None
    near = found.row.cpu().numpy()
    queries = PerQuery(
        row[each.query], each.label, np.asarray(items.class_name)[each.label], found.relevant.cpu().numpy(), each.each,
        np.where(near >= 0, row[near], -1), found.sim.cpu().double().numpy(),
        relevance=each.relevance, sample=each.sample and each.sample.facts,
    )  # fmt: skip
    return dataclasses.replace(one, queries=queries, scores=scores)


def relevance_of(one: ReportTarget) -> PairRelevance | None:
    """Return the relevance of the classes of a target; None if samples have one label and the run has no other relevance.

    A run that was trained with a relevance of classes, such as `TreeDepth`, is shown with it. A relevance of single samples
    (judged pairs) does not apply to the samples of a test, so it is not shown.
    """
    items = one.items
    if items is None:
        return None
    trained = trained_relevance(one, items)
    if trained is None and items.label_sets is not None:
        trained = SharedLabels(items.label_sets)
    return None if trained is None else by_class(trained)


def trained_relevance(one: ReportTarget, items: Items) -> Relevance | None:
    """Return the relevance that a run was trained with, for the classes of the samples shown; None if it cannot be had."""
    if one.settings is None or getattr(one.settings, "relevance", None) is None:
        return None
    taxonomy = items.taxonomy if one.data is None else one.data.taxonomy
    names, labels = items.class_name, np.arange(items.classes)
    facts = {"taxonomy": taxonomy, "class_names": names, "classes": items.classes, "labels": labels, "sample_names": ()}
    facts |= {} if items.label_sets is None else {"label_sets": items.label_sets}
    try:
        found = make_relevance(one.settings, facts)
    except (LikewiseError, TypeError, ValueError):  # made for other samples, or it may not be imported
        return None
    return found if found is not None and found.by == "class" else None


def by_class(relevance: Relevance) -> PairRelevance:
    """Return a relevance of classes as a function of class numbers."""

    def of(label: int, others: Int[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        with torch.no_grad():
            return relevance(torch.tensor([label]), torch.as_tensor(others))[0].double().numpy()

    return of
