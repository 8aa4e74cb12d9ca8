"""What a report finds where it is pointed at: a run, evaluated or not, finished or not, or a file of embeddings."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int

from likewise.config import Evaluate, Report, Train
from likewise.contracts import Protocol
from likewise.data.features import read_embeddings
from likewise.evaluation.evaluate import check_length, evaluate_run, judge, must_be_its_data
from likewise.evaluation.scoring import answers_for, findable
from likewise.metrics import reach
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.runs.artifacts import PerQuery, find_target, origin, read_per_query, rows_in
from likewise.runs.folder import Run
from likewise.runs.open import choose_device, load_items, make_protocol, marked, read_config
from likewise.types import Embedded, Items, LikewiseError

UNTESTED = "all of its data trained, so there is nothing to score"

MOVED = "if it has moved, say where it is: --data, --root"


@dataclass(frozen=True, eq=False)
class Opened:
    """A run or a file of embeddings, as far as there is something to show.

    `items` are the samples it was scored on, with their embeddings in `x` where these are known; `row` says where they stand in
    the data. `data` is the whole of the data, where it is still there.
    """

    name: str
    run: Run | None = None
    settings: Train | None = None
    data: Items | None = None
    items: Items | None = None
    row: Int[np.ndarray, "N"] | None = None
    part: str = "test"
    similarity: str = "cosine"
    queries: PerQuery | None = None
    scores: dict = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def sides(self) -> tuple[Bool[np.ndarray, "N"], Bool[np.ndarray, "N"]]:
        """Which samples ask, and which answer."""
        assert self.items is not None
        return protocol_of(self.items).sides(self.items, np.arange(len(self.items)))


def protocol_of(items: Items) -> QueryGallery | UnseenClasses:
    return QueryGallery() if marked(items) else UnseenClasses()


def as_asked(items: Items, one: Opened, row: Int[np.ndarray, "N"]) -> Items:
    """Samples of a run, marked by who asked and who answered in it; marks of the data that its protocol passed over are gone."""
    assert one.settings is not None
    try:
        protocol = make_protocol(one.settings)
    except LikewiseError:
        return items  # it may not be imported: as they were saved
    if one.data is not None:
        asks, answers = protocol.sides(one.data, row)
    elif type(protocol).sides is Protocol.sides:
        asks, answers = protocol.sides(items, row)
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
    return open_run(Run(path), name, config, known, say) if path.is_dir() else open_file(path, name, config)


def open_run(run: Run, name: str, config: Report, known: dict[tuple, Items], say) -> Opened:
    moved = {key: value for key in ("data", "root") if (value := getattr(config, key))}
    settings = read_config(run, allow_imports=config.allow_imports, **moved)
    notes = [] if run.done else ["this run is not finished: what is shown is how far it has come"]
    data = None
    try:
        data = data_of(run, settings, config, known, say)
    except LikewiseError as error:
        notes.append(f"its data could not be opened ({error}); {MOVED}")
    one = Opened(name, run, settings, data)
    file, asked = run.path / "embeddings.npz", run.path / "per_query.parquet"
    has_network = (run.path / run.network("best")).exists()
    if not file.exists() and run.done and data is not None and has_network and is_tested(settings):
        try:
            evaluate_run(
                run, config=settings, items=data, metrics=settings.metrics, device=choose_device(config.device),
                workers=config.workers, quiet=config.quiet, known=True,
            )  # fmt: skip
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


def is_tested(settings: Train) -> bool:
    """Whether the run's protocol leaves a test part; one that may not be imported is taken to."""
    try:
        return make_protocol(settings).tests
    except LikewiseError:
        return True


def data_of(run: Run, settings: Train, config: Report, known: dict[tuple, Items], say) -> Items:
    """The run's data, opened once for all runs of it."""
    key = (settings.data, settings.root, settings.skip_bad)
    if key not in known:
        how = {"skip_bad": settings.skip_bad, "workers": config.workers, "quiet": config.quiet, "say": say}
        how |= {"allow_imports": config.allow_imports, "fetch": bool(config.data)}
        known[key] = load_items(settings.data, settings.root, **how)
    must_be_its_data(run, known[key], settings.data)
    return known[key]


def open_file(file: Path, name: str, config: Report) -> Opened:
    return with_embeddings(Opened(name), file, config)


def with_embeddings(one: Opened, file: Path, config: Report) -> Opened:
    """With the samples and embeddings in a file, and with their scores: those of the run, or what is found now."""
    items, made_by = read_embeddings(str(file), root=config.root), origin(file)
    notes, n = one.notes, len(items)
    items, row, part = one_part(items, rows_in(made_by, n))
    if len(row) < n:
        notes = (*notes, f"the {part} part of {file.name} is shown: {len(row)} of {n} rows")
    if one.run is not None:
        items = as_asked(items, one, row)
    elif marked(items):
        asks, answers = (int(side.sum()) for side in protocol_of(items).sides(items, np.arange(len(items))))
        notes = (
            *notes,
            f"its columns query and gallery decide: {asks} of {len(items)} samples ask, and {answers} answer",
        )
    one = dataclasses.replace(
        one, items=items, row=row, part=part, similarity=made_by.get("similarity", "cosine"), notes=notes
    )
    if one.run is not None and (one.run.path / "per_query.parquet").exists():
        queries = read_per_query(one.run.path / "per_query.parquet", "report")
        return dataclasses.replace(one, queries=queries, scores=one.run.scores or {})
    return score_now(one, config)


def one_part(items: Items, row: Int[np.ndarray, "N"]) -> tuple[Items, Int[np.ndarray, "n"], str]:
    """The part that is to be shown: test where there is one, as evaluation has it; else all there is."""
    parts = set() if items.split is None else set(np.unique(items.split).tolist()) - {""}
    if len(parts) < 2 or "test" not in parts:
        return dataclasses.replace(items, split=None), row, parts.pop() if len(parts) == 1 else "all"
    some = np.flatnonzero(items.split == "test")
    columns = {
        name: None if (own := getattr(items, name)) is None else own[some]
        for name in ("x", "query", "gallery", "gallery_name", "group", "box")
    }
    there, columns["y"] = np.unique(items.y[some], return_inverse=True)
    columns["class_name"] = tuple(items.class_name[c] for c in there)
    columns["path"] = None if items.path is None else tuple(items.path[r] for r in some)
    return dataclasses.replace(items, split=None, weight=None, y_clean=None, **columns), row[some], "test"


def score_now(one: Opened, config: Report) -> Opened:
    """With scores of embeddings that bring none, as `likewise evaluate` finds them; where nothing can be found, a note."""
    items, row = one.items, one.row
    assert items is not None and items.x is not None and row is not None
    protocol, place = protocol_of(items), np.arange(len(items))
    if one.settings is not None and not is_tested(one.settings):
        return dataclasses.replace(one, notes=(*one.notes, UNTESTED))
    usual: Any = next(f.default for f in dataclasses.fields(Evaluate) if f.name == "metrics")
    room = answers_for(*one.sides)
    metrics = [name for name in usual if reach([name]).k <= room]
    if not metrics or len(np.unique(items.y)) < 2 or not findable(items, protocol, place).any():
        return dataclasses.replace(one, notes=(*one.notes, "no query has an answer to find, so there are no scores"))
    x = items.x if items.x.flags.writeable else items.x.copy()  # torch takes no others
    e = Embedded(torch.as_tensor(x), torch.as_tensor(items.y), torch.as_tensor(place))
    check_length(e.z, one.similarity == "cosine")
    scores, each, found = judge(e, items, protocol, metrics, one.similarity, choose_device(config.device), config.quiet)
    assert found is not None
    near = found.row.cpu().numpy()
    queries = PerQuery(
        row[each.query], each.label, np.asarray(items.class_name)[each.label], found.relevant.cpu().numpy(), each.each,
        np.where(near >= 0, row[near], -1), found.sim.cpu().double().numpy(),
    )  # fmt: skip
    return dataclasses.replace(one, queries=queries, scores=scores)


def with_queries(one: Opened, queries: PerQuery) -> Opened:
    """With what is left of an evaluation without its embeddings: the queries are all samples that are known."""
    names, y = np.unique(queries.class_name.astype(str), return_inverse=True)
    path = None if queries.path is None else tuple(map(str, queries.path))
    root = "" if one.data is None else one.data.root
    assert one.run is not None and one.settings is not None
    items = Items(str(one.settings.data), y.astype(np.int64), tuple(names.tolist()), path, root)
    return dataclasses.replace(one, items=items, row=queries.row, queries=queries, scores=one.run.scores or {})
