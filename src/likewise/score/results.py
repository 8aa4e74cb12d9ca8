"""Write the results of an evaluation into the run folder, merged with earlier scores of the same network, labels and queries."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from jaxtyping import Bool, Float

from likewise.core.types import Embedded, Items, LikewiseError, Retrieval, Scores
from likewise.runs.embeddings import EMBEDDINGS_FILE, save_embeddings
from likewise.runs.folder import Run
from likewise.runs.scores import PER_QUERY, read_per_query, write_per_query, write_scores
from likewise.score.metrics import is_set_metric, is_tree_metric, level_of


def write_results(
    run: Run,
    items: Items,
    e: Embedded,
    sides: tuple[Bool[np.ndarray, "N"], Bool[np.ndarray, "N"]],
    scores: Scores,
    found: Retrieval,
    result: dict,
) -> None:
    """Write the embeddings of the test split, its queries and its scores.

    The baseline in scores.json stays. If the run is finished, so do metrics that were computed earlier and not now.
    """
    made_by = {"run": run.path, "checkpoint": result["checkpoint"], "similarity": result["similarity"]}
    known = run.scores or {}
    earlier = earlier_columns(run, scores) if run.done and known else {}
    save_embeddings(run.path / EMBEDDINGS_FILE, e, items, made_by, result["split"], sides)
    whole = [name for name in known.get("metrics", {}) if is_set_metric(name)] if run.done else []
    stored = merged(known, result, [*earlier, *whole]) if run.done and known else result
    earlier = {name: column for name, column in earlier.items() if name in stored["metrics"]}
    write_per_query(run.path / PER_QUERY, scores, found, e, items, earlier)
    # The baseline does not depend on the training.
    before = {"before": known["before"]} if "before" in known else {}
    write_scores(run.path, stored | before)


def add_set_metrics(run: Run, result: dict) -> None:
    """Add metrics of the whole set to scores.json of a finished run; nothing is written if the run was not scored."""
    known = run.scores if run.done else None
    if known and mergeable(known, result):
        parts = {name: known.get(name, {}) | result[name] for name in ("metrics", "no_value") if name in result}
        write_scores(run.path, known | parts)


def earlier_columns(run: Run, scores: Scores) -> dict[str, Float[np.ndarray, "Q"]]:
    """Return the metrics per query of an earlier evaluation of the same queries: name -> values; {} if there is none."""
    try:
        known = read_per_query(run.path / PER_QUERY, "evaluate")
    except LikewiseError:
        return {}
    same = np.array_equal(known.row, scores.query) and np.array_equal(known.label, scores.label)
    return known.each if same else {}


SAME_KEYS = ("checkpoint", "split", "similarity", "rows", "dim", "relevance")
"""Facts in scores.json that must be equal for scores to be merged."""

BY_METRIC_KEYS = ("metrics", "interval", "no_interval", "no_value", "class_mean", "scored")
"""Parts of scores.json that have one entry for each metric, or for some metrics."""

ALONE_KEYS = ("galleries", "cameras")
"""Parts of scores.json that have scores of their own by name."""

FEWER_CLASSES_REASON = "it has values for queries of fewer classes than the other metrics"


def mergeable(known: dict, new: dict) -> bool:
    """Return whether earlier scores of a finished run are of the same queries and the same similarity as new ones."""
    ranked = all("interval_over" in side for side in (known, new))
    same = (known.get(name) == new.get(name) for name in SAME_KEYS)
    count = [side.get("queries", 0) + side.get("unscored", 0) for side in (known, new)]
    return all(same) and (not ranked or count[0] == count[1])


def merged(known: dict, new: dict, kept: Collection[str]) -> dict:
    """Return the new scores, with earlier scores of the metrics in `kept` that were not computed again."""
    if not mergeable(known, new):
        return new
    kept = [name for name in kept if name not in new["metrics"] and not (is_of_tree(name) and other_tree(known, new))]
    result = of_metrics(known, new, kept)
    for part in ALONE_KEYS:
        if part in new and part in known:
            own = {name: of_metrics(known[part].get(name, {}), scores, kept) for name, scores in new[part].items()}
            result[part] = own
    if "other_cameras" in known and "other_cameras" in new:
        result["other_cameras"] = of_metrics(known["other_cameras"], new["other_cameras"], kept)
    if known.get("tree") and any(map(is_of_tree, kept)):
        result["tree"] = known["tree"] | new.get("tree", {})
    if corrected := merged_corrections(known, new, result):
        result["corrected"] = corrected
    return result


def of_metrics(known: dict, new: dict, kept: Collection[str]) -> dict:
    """Return one set of scores with the earlier ones of other metrics; counts are those of the side with more queries."""
    wide = known if known.get("queries", 0) > new.get("queries", 0) and kept else new
    both = {"metrics": {}} | known | new | {n: wide[n] for n in ("queries", "unscored", "interval_over") if n in wide}
    for part in BY_METRIC_KEYS:
        old = {name: value for name, value in known.get(part, {}).items() if name in kept}
        both[part] = old | new.get(part, {})
    for side in (known, new):
        if side.get("interval_over", both.get("interval_over")) != both.get("interval_over"):
            few = [name for name in side.get("interval", {}) if name in both["interval"]]
            both["no_interval"] |= dict.fromkeys(few, FEWER_CLASSES_REASON)
            both["interval"] = {name: ends for name, ends in both["interval"].items() if name not in few}
    order = [name for name in known.get("metrics", {}) if name in both["metrics"]]
    both["metrics"] = {name: both["metrics"][name] for name in dict.fromkeys([*order, *both["metrics"]])}
    return {name: value for name, value in both.items() if value != {} or name in new or name == "metrics"}


def merged_corrections(known: dict, new: dict, result: dict) -> dict | None:
    """Return the corrected scores of the newer source, with earlier ones of the same source; None if there are none."""
    old, now = known.get("corrected"), new.get("corrected")
    if not old or (now and now["source"] != old["source"]):
        return now
    both = {"metrics": {}, "unknown": {}} | (now or {"source": old["source"]})
    for part in ("metrics", "unknown"):
        both[part] = {name: value for name, value in (old[part] | both[part]).items() if name in result["metrics"]}
    return both


def is_of_tree(name: str) -> bool:
    """Return whether a metric depends on the class tree."""
    return is_tree_metric(name) or level_of(name) is not None


def other_tree(known: dict, new: dict) -> bool:
    """Return whether earlier scores are of another class tree."""
    trees = [side.get("tree") or {} for side in (known, new)]
    return bool(trees[1]) and any(trees[0].get(name) != trees[1].get(name) for name in ("levels", "height"))
