"""What an evaluation writes into the run folder: scores.json, per_query.parquet, and the learned hierarchy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int

from likewise.core.argument_checks import fits, misfit
from likewise.core.files import atomic_write, first_line, read_json, text_cells, text_column, write_csv, write_json
from likewise.core.types import Embedded, Items, LikewiseError, Retrieval, Scores

SCORES_FILE = "scores.json"
REWRITE_HINT = "delete it: the same command writes it again"
"""Advice for a damaged file that evaluation can write again."""


NUMBER_BY_NAME, TEXT_BY_NAME, COUNT_BY_NAME, ENDS_BY_NAME = {str: float}, {str: str}, {str: int}, {str: [float, float]}
SIDE_TYPES = {
    "metrics": NUMBER_BY_NAME, "interval": ENDS_BY_NAME, "no_interval": TEXT_BY_NAME, "interval_over": str,
    "class_mean": NUMBER_BY_NAME, "no_value": TEXT_BY_NAME,
    "scored": COUNT_BY_NAME, "queries": int, "unscored": int, "rows": int, "dim": int, "similarity": str,
    "sample": {"queries": int, "of": int, "seed": int}, "sample_interval": ENDS_BY_NAME,
    "pairs_sample": COUNT_BY_NAME,
}  # fmt: skip
"""Types of the scores of one gallery or camera."""

CHANGE_TYPES = {"metric": str, "over": str, "low": float | None, "high": float | None}
LABEL_TYPES = {"metrics": NUMBER_BY_NAME, "interval": ENDS_BY_NAME, "queries": int}
SCORE_TYPES = SIDE_TYPES | {
    "checkpoint": str, "split": str, "leaks": str | None, "note": str, "best_test_epoch": (NUMBER_BY_NAME, None),
    "length": [float, float], "relevance": {"spec": str, "relevant": str, "triplets": int, "units": str},
    "wrong_labels": {"count": int, "of": int},
    "tree": {"levels": COUNT_BY_NAME, "height": int, "mistakes_by_height": COUNT_BY_NAME},
    "labels": {"count": int, "mean": NUMBER_BY_NAME, "each": {str: LABEL_TYPES}},
    "corrected": ({"source": str, "metrics": {str: [float, float, float]}, "unknown": TEXT_BY_NAME}, None),
    "galleries": {str: SIDE_TYPES}, "cameras": {str: SIDE_TYPES}, "other_cameras": SIDE_TYPES,
    "before": SIDE_TYPES | {"change": CHANGE_TYPES},
}  # fmt: skip
"""Types of the entries of scores.json. All but `metrics` may be missing."""


def write_scores(folder: Path, scores: dict) -> None:
    """Write scores.json into a run folder."""
    write_json(folder / SCORES_FILE, scores)


def read_scores(folder: Path) -> dict | None:
    """Return the scores in a run folder; None if it was not evaluated."""
    file = folder / SCORES_FILE
    if not file.exists():
        return None
    scores = read_json(file, "run", hint=REWRITE_HINT)
    wrong = misfit({"metrics": None} | scores, SCORE_TYPES)
    if wrong is not None:
        raise LikewiseError(f"run: {file} is damaged (the value of {wrong} has another type); {REWRITE_HINT}")
    return scores


HIERARCHY_FILE = "hierarchy.json"


def write_hierarchy(folder: Path, about: dict, classes: Mapping[str, list[str]]) -> None:
    """Write hierarchy.json and hierarchy.csv into a run folder.

    Args:
        about: other entries of hierarchy.json.
        classes: name of a class -> its clusters, coarsest first; the same number for every class.
    """
    write_json(folder / HIERARCHY_FILE, about | {"classes": classes})
    levels = len(next(iter(classes.values())))
    head = ["class_name", *(f"level_{n}" for n in range(levels, 0, -1))]
    write_csv(folder / "hierarchy.csv", head, ([name, *above] for name, above in classes.items()))


def read_hierarchy(folder: Path) -> dict[str, list[str]] | None:
    """Return the clusters of every class in a run folder; None if `likewise hierarchy` was not run."""
    if not (folder / HIERARCHY_FILE).exists():
        return None
    classes = read_json(folder / HIERARCHY_FILE, "run", hint=REWRITE_HINT).get("classes")
    if not fits(classes, dict[str, list[str]]) or len({len(above) for above in classes.values()}) != 1:
        raise LikewiseError(
            f"run: {folder / HIERARCHY_FILE} is damaged (classes must have the same number of clusters each); {REWRITE_HINT}"
        )
    return classes


PER_QUERY = "per_query.parquet"
RELEVANCE_KEY = b"likewise.relevance"
"""Name of the facts about the relevance in the file, as in scores.json."""
SAMPLE_KEY = b"likewise.sample"
"""Name of the facts about the sample of queries in the file, as in scores.json."""
TEXT_COLUMNS = ("class_name", "camera", "path")
PLAIN_MEANINGS = ("same class", "any label shared")
"""What makes a row relevant, if it does not depend on the arguments of a relevance."""


def write_per_query(
    file: Path,
    scores: Scores,
    found: Retrieval,
    e: Embedded,
    items: Items,
    earlier: Mapping[str, Float[np.ndarray, "Q"]] = MappingProxyType({}),
) -> None:
    """Write per_query.parquet: row, label and class of every query, its metrics, and its nearest neighbours.

    Args:
        earlier: metrics of the same queries that were computed before; `scores` replaces those of the same name.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "row": scores.query,
        "label": items.y[scores.query],
        "class_name": text_column([items.class_name[i] for i in items.y[scores.query]]),
        "relevant": found.relevant.numpy(),
        **({} if scores.rival is None else {"rival": scores.rival}),
        **(dict(earlier) | scores.each),
        "nearest": list(neighbour_rows(found, e)),
        "nearest_similarity": list(found.sim.float().numpy()),
    }
    if items.camera is not None:
        columns["camera"] = text_column(items.camera[scores.query].tolist())
    if items.path is not None:
        columns["path"] = text_column([items.path[i] for i in scores.query])
    table = pa.table(columns)
    facts = {RELEVANCE_KEY: scores.relevance, SAMPLE_KEY: scores.sample and scores.sample.facts}
    if facts := {name: json.dumps(one) for name, one in facts.items() if one is not None}:
        table = table.replace_schema_metadata(facts)
    with atomic_write(file) as aside:
        pq.write_table(table, aside)


@dataclass(frozen=True, eq=False)
class PerQuery:
    """The content of per_query.parquet: Q queries with K neighbours. `each`: metric -> its value for every query."""

    row: Int[np.ndarray, "Q"]
    label: Int[np.ndarray, "Q"]
    class_name: np.ndarray
    relevant: Int[np.ndarray, "Q"]
    each: dict[str, Float[np.ndarray, "Q"]]
    nearest: Int[np.ndarray, "Q K"]
    similarity: Float[np.ndarray, "Q K"]
    path: np.ndarray | None = None
    rival: Int[np.ndarray, "Q"] | None = None  # label of the nearest wrong result; -1: none. None: an older file
    relevance: dict | None = None  # what is relevant, as in scores.json; None: rows of the query's class
    sample: dict | None = None  # the sample of queries, as in scores.json; None: all queries

    @property
    def meaning(self) -> str:
        """What makes a row relevant, in words; equal words mean the same rows: others than `PLAIN_MEANINGS` name the spec."""
        found = (self.relevance or {}).get("relevant", "same class")
        return found if found in PLAIN_MEANINGS else f"{found} by {self.spec}"

    @property
    def spec(self) -> str:
        """The relevance, with the first digits of the SHA-256 of its files."""
        facts = self.relevance or {"spec": "none (equal labels)"}
        read = [f"SHA-256 of {PurePath(file).name}: {content[:8]}" for file, content in facts.get("files", {}).items()]
        return f"{facts['spec']} ({', '.join(read)})" if read else facts["spec"]


def as_per_query(scores: Scores, found: Retrieval, e: Embedded, items: Items) -> PerQuery:
    """Return the scores per query of an evaluation, as `read_per_query` returns those that `write_per_query` wrote."""
    label = items.y[scores.query]
    return PerQuery(
        scores.query, label, np.asarray(items.class_name)[label], found.relevant.numpy(), scores.each, neighbour_rows(found, e),
        found.sim.float().numpy(), None if items.path is None else np.asarray([items.path[i] for i in scores.query]),
        scores.rival, scores.relevance, scores.sample and scores.sample.facts,
    )  # fmt: skip


def neighbour_rows(found: Retrieval, e: Embedded) -> Int[np.ndarray, "Q K"]:
    """Return the rows of the data of the nearest neighbours of every query; -1 = fewer than K."""
    return np.where(found.row.numpy() >= 0, e.row.numpy()[found.row.clamp_min(0).numpy()], -1)


def read_per_query(path: Path, owner: str, metrics: Sequence[str] | None = None) -> PerQuery:
    """Return the content of a per_query.parquet.

    Args:
        owner: the command that errors name.
        metrics: read only these metrics (those that the file has) and no neighbours, which is ten times faster; None: all.
    """
    advice = "give a run folder, or the per_query.parquet that `likewise evaluate` writes into it"
    if not path.is_file():
        raise LikewiseError(f"{owner}: there is no file '{path}'; {advice}")
    try:
        return _read_per_query(path, owner, metrics, advice)
    except LikewiseError:
        raise
    except Exception as error:  # pyarrow and numpy raise many kinds for damaged files
        raise LikewiseError(
            f"{owner}: '{path}' is not a parquet file or damaged ({first_line(error)}); {advice}"
        ) from None


def _read_per_query(path: Path, owner: str, metrics: Sequence[str] | None, advice: str) -> PerQuery:
    import pyarrow.parquet as pq

    wanted = None if metrics is None else ["row", "label", "class_name", "relevant", "rival", *metrics]
    schema = pq.read_schema(path)
    known, facts = schema.names, schema.metadata or {}
    facts = {key: json.loads(facts[key]) for key in (RELEVANCE_KEY, SAMPLE_KEY) if key in facts}
    table = pq.read_table(path, columns=wanted and [name for name in wanted if name in known])
    plain = ("row", "label", "class_name", "relevant", "nearest", "nearest_similarity")
    if missing := [name for name in plain if name not in known]:
        raise LikewiseError(f"{owner}: '{path}' has no column {', '.join(missing)}; {advice}")
    column = {
        name: np.asarray(text_cells(table[name]), object) if name in TEXT_COLUMNS else table[name].to_numpy()
        for name in table.column_names
        if name not in plain[4:]
    }
    if not len(table) or len(np.unique(column["row"])) < len(table):
        raise LikewiseError(
            f"{owner}: '{path}' must have one row for each query, got {len(table)} rows, or a query twice; {advice}"
        )
    nothing = {"nearest": np.zeros((len(table), 0), np.int64), "nearest_similarity": np.zeros((len(table), 0))}
    shown = nothing | {
        name: table[name].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
        for name in plain[4:]
        if name in table.column_names
    }
    return PerQuery(
        **{name: column[name] for name in plain[:4]}, nearest=shown["nearest"], similarity=shown["nearest_similarity"],
        each={name: value for name, value in column.items() if value.dtype.kind == "f"}, path=column.get("path"),
        rival=column.get("rival"), relevance=facts.get(RELEVANCE_KEY), sample=facts.get(SAMPLE_KEY),
    )  # fmt: skip
