"""evaluate: score a run on a split of its own data or on other data, or embeddings; metrics per query and of the whole set."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float

from likewise.core.block_executors import executing
from likewise.core.contracts import Protocol, Split
from likewise.core.devices import bytes_of, choose_device
from likewise.core.distributed.process_group import joined, world
from likewise.core.files import check_output_path, write_json
from likewise.core.settings import Evaluate, check, default_metrics
from likewise.core.types import Embedded, Items, LikewiseError, Retrieval, Scores
from likewise.data.dataset import protocol_for
from likewise.data.decoded_cache import Pixels
from likewise.data.protocols.splits import in_splits
from likewise.runs.embeddings import EMBEDDINGS_FILE, save_embeddings
from likewise.runs.folder import Run, best_test_epoch, find_target, is_folder_of_run
from likewise.runs.open import OpenRun, has_fingerprint
from likewise.runs.scores import PER_QUERY, SCORES_FILE, read_per_query, write_per_query, write_scores
from likewise.runs.training_files import Trained, find_trained, read_trained
from likewise.score.checks import check_input, find_leaks, per_query_file, rows_of
from likewise.score.evaluate_arrays import evaluate_embeddings
from likewise.score.metrics import import_metrics, is_set_metric, is_tree_metric, level_of
from likewise.score.retrieve import Scoring, changed_files, read_pairs, relevance_of_run
from likewise.score.score_table import Scored
from likewise.score.scoring import as_compared, score_all, with_tree
from likewise.score.wrong_labels import find_wrong_labels

MAX_NAMED_CLASSES = 3
"""Number of classes that a sentence names."""
MAX_REMAINDER_SHARE = 0.1
"""If classes that trained have at most this share of the samples that are left, these samples are left out, too. After a
correction they are the few that a relabelling moved; a class of two such samples would weigh as much as any other."""


def evaluate(config: Evaluate, say=print) -> Scored:
    """Return the scores of a run or a file of embeddings, as in scores.json. Processes of torchrun share the queries."""
    check(config)
    target = find_target(config.target, "evaluate")
    out = check_output_path(config.out, ".json", "evaluate") if config.out else None
    with joined(choose_device(config.device)) as device, executing("evaluate", config.executor):
        result = evaluate_target(config, target, device, say)
        if out and world()[0] == 0:
            write_json(out, result)
        return Scored(result)


def evaluate_target(config: Evaluate, target: Path, device: torch.device, say) -> dict:
    """Return the scores of a run folder or a file of embeddings."""
    if not is_folder_of_run(target):
        return evaluate_embeddings(config, target, device)
    if config.labels:
        raise LikewiseError(f"evaluate: '{target}' is a run and has labels of its own; drop --labels")
    opened = open_run(config, target, device, say, data=config.data, root=config.root)
    other = load_other(opened, config.root) if config.data else None
    if not opened.run.done:
        say(f"this run is not finished, so these are the scores of its last checkpoint: {opened.run.path}")
    if other is not None:
        return evaluate_other(open_run(config, target, device, say), config, other)
    if config.per_query and config.relevance is None:
        raise LikewiseError(f"evaluate: '{target}' is a run and has per-query of its own; drop --per-query")
    return evaluate_run(opened, config)


def open_run(
    config: Evaluate, target: Path, device: torch.device, say, data: str | None = None, root: str | None = None
) -> OpenRun:
    """Return the run that the config names; `data` and `root` replace those of the run."""
    return OpenRun(
        Run(target), checkpoint=config.checkpoint, device=device, allow_imports=config.allow_imports,
        workers=config.workers, quiet=config.quiet, say=say, data=data, root=root,
    )  # fmt: skip


def evaluate_run(opened: OpenRun, config: Evaluate, pixels: Pixels | None = None) -> dict:
    """Return the scores of the network of an open run on a split of its data.

    The result is written into the run folder only for the best checkpoint on the test split, with the similarity of its loss,
    its own relevance and without excluded pairs; metrics that an earlier evaluation of the finished run wrote stay. If all
    metrics are of the whole set, nothing is ranked, and they are added to scores.json if the run has one.

    Args:
        config: metrics, split, relevance and so on; target, data and device are those of `opened`.
        pixels: decoded images of the items, if the caller has them.
    """
    run, protocol, finished, split = opened.run, opened.protocol, opened.run.done, config.split
    per_query = per_query_file(config)
    items = with_tree(opened.items, config.taxonomy)
    e, scoring = open_scoring(opened, items, protocol, split, config, pixels)
    result, scores, found = score_all(e, scoring)
    result |= wrong_labels(e, items, split) | {"checkpoint": opened.checkpoint, "split": split}
    if split == "test":
        best = best_test_epoch(run.read_log()) if opened.checkpoint == "best" else None
        result |= {"leaks": find_leaks(items, protocol, opened.quiet), "best_test_epoch": best}
    if per_query is not None and found is not None and world()[0] == 0:
        write_per_query(per_query, scores, found, e, items)
    own = opened.checkpoint == "best" and split == "test" and scoring.similarity == opened.similarity
    own = own and config.exclude is None and config.relevance is None
    if own and run.done == finished and world()[0] == 0:  # unless training has ended in the meantime
        if found is None:
            add_set_metrics(run, result)
        elif scores.sample is not None and covers_more(run.scores, result):
            opened.say(
                f"not stored: {run.path / SCORES_FILE} has the scores of all queries, and these are of a sample (--out FILE.json "
                "stores them)"
            )
        else:
            write_results(run, items, e, replace(scoring, drawn=None).sides(e), scores, found, result)
    return result


def evaluate_other(opened: OpenRun, config: Evaluate, items: Items) -> dict:
    """Return the scores of a run on data other than its own; with `config.per_query`, also write a parquet file.

    Nothing is written into the run folder. The protocol is that of the data: `QueryGallery` if it marks queries or gallery.
    """
    assert config.data is not None
    out = per_query_file(config)
    check_input("evaluate", config.target, opened.run.about["features"], items, config.data)
    data = without_trained(items, config.data, [opened], config.split)
    if data.left_out == data.rows:
        raise LikewiseError(
            f"evaluate: the run trained on all {data.rows:,} {data.noun} of '{Path(data.name).name}' that could be scored, so "
            "nothing is left; give samples that it did not train on"
        )
    items = with_tree(data.items, config.taxonomy)
    e, scoring = open_scoring(opened, items, protocol_for(items), "test", config)
    result, scores, found = score_all(e, scoring)
    result |= wrong_labels(e, items, "test")
    if out and world()[0] == 0:
        if found is None:
            raise LikewiseError("evaluate: --per-query needs at least one metric per query; add R@1 to --metrics")
        write_per_query(out, scores, found, e, items)
    place = {"checkpoint": opened.checkpoint, "split": config.split, "data": config.data}
    return result | place | {"left_out": data.left_out, "leaks": describe_left_out(data)}


def wrong_labels(e: Embedded, items: Items, split: Split) -> dict:
    """Return "wrong_labels" of scores.json for a test split: the estimated number, if it is clearly above zero; else {}."""
    if split != "test" or items.label_sets is not None or world()[0] != 0:
        return {}
    found = find_wrong_labels(e, items)
    return {"wrong_labels": found} if found else {}


def open_scoring(
    opened: OpenRun, items: Items, protocol: Protocol, split: Split, config: Evaluate, pixels: Pixels | None = None
) -> tuple[Embedded, Scoring]:
    """Return the embeddings of a split of some data by the network of an open run, and how they are scored.

    Args:
        config: metrics, similarity, relevance (by default that of the training) and so on.
    """
    allow_imports = opened.settings.allow_imports
    import_metrics(config.metrics, allow_imports)
    rows = rows_of(protocol, items, split)
    relevance = relevance_of_run(opened.settings.relevance, config.relevance, items, rows, allow_imports)
    for file in changed_files(relevance, opened.run.about.get("relevance_files", {})):
        opened.say(f"the relevance is not that of the training, because this file has changed since then: {file}")
    metrics = default_metrics(config.metrics, relevance and relevance.source.gives)
    similarity = config.similarity or opened.similarity
    exclude = read_pairs(config.exclude, items)
    e = as_compared(opened.embed(items, rows, title=f"embed {split} split", pixels=pixels), similarity)
    return e, Scoring(
        items, protocol, metrics, similarity, opened.device, opened.quiet, bytes_of(config.memory), exclude, relevance,
        review=config.correct_test_labels, say=opened.say, sample=config.queries,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class OtherData:
    """Data of which no scored sample trained: `items.split` is "test" for the samples to score, "" for all others."""

    items: Items
    name: str  # as the user gave it
    rows: int  # samples of the split, before those that trained are left out
    trained: tuple[int, ...]  # of these, the samples that each run trained on
    left_out: int  # of these, the samples that a run trained on
    classes: tuple[str, ...] = ()  # classes of the samples that are left, which a run trained on, too
    remainder: int = 0  # samples of these classes that are left out, too, because they are few; 0: they are scored

    @property
    def noun(self) -> str:
        return "images" if self.items.x is None else "feature vectors"


def load_other(opened: OpenRun, root: str | None) -> Items | None:
    """Return the data at `--data`, unless it is the data of the run at a new place.

    Args:
        opened: the run, opened with `data`.
        root: value of `--root`. Without it, the paths of other data do not start at the root of the run's own data.
    """
    own_root = opened.settings.root
    try:
        items = opened.load()
        if has_fingerprint(opened.run, items):
            opened.take(items)
            return None
    except LikewiseError:
        pass  # raised again below, unless other data can be read without the root of the run's own data
    if root is None and own_root is not None:
        opened.settings = dataclasses.replace(opened.settings, root=None)
    return opened.load(own=False)


def trained_samples(opened: OpenRun) -> Trained:
    """Return the samples that a run trained on: from its folder, or from its data if an older version trained it."""
    if (found := read_trained(opened.run.path)) is not None:
        return found
    try:
        items, protocol = opened.noisy_items, opened.protocol
        rows = [protocol.rows(items, part) for part in ("train", "val")]
    except LikewiseError as error:
        raise LikewiseError(
            f"evaluate: the samples that '{opened.run.path}' trained on must be known, to leave them out of other data, but this "
            f"run has no trained.npz, and its own data cannot be read ({error}); restore its data, or train it again"
        ) from None
    return find_trained(opened.items, np.union1d(*rows))


def without_trained(items: Items, name: str, runs: Sequence[OpenRun], split: Split = "test") -> OtherData:
    """Return the data with the samples to score: its own split, or all of it, without samples that one of the runs trained on.

    Args:
        name: the data as the user gave it.
        split: split to score, if the data has splits.
    """
    rows = np.flatnonzero(chosen_rows(items, split))
    trained = [trained_samples(opened) for opened in runs]
    found = np.stack([one.has(items, rows) for one in trained])
    scored = rows[~found.any(0)]
    left_out = len(rows) - len(scored)
    seen = {word for one, opened in zip(trained, runs) if not opened.protocol.shares_classes for word in one.class_name}
    remains = np.isin(items.y[scored], [c for c, word in enumerate(items.class_name) if word in seen])
    is_remainder = bool(remains.any()) and remains.mean() <= MAX_REMAINDER_SHARE
    classes = tuple(items.class_name[c] for c in np.unique(items.y[scored][remains]).tolist())
    scored = scored[~remains] if is_remainder else scored
    parts = np.full(len(items), "", "<U5")
    parts[scored] = "test"
    return OtherData(
        dataclasses.replace(items, split=parts), name, len(rows), tuple(found.sum(1).tolist()), left_out, classes,
        int(remains.sum()) if is_remainder else 0,
    )  # fmt: skip


def chosen_rows(items: Items, split: Split) -> Bool[np.ndarray, "N"]:
    """Return a mask of the rows of a split of the data; all rows, without junk, for the test split of data without splits."""
    if items.split is not None and (items.split != "").any():
        chosen = in_splits(items) & (items.split == split)
    elif split == "test":
        chosen = in_splits(dataclasses.replace(items, split=None))
    else:
        raise LikewiseError(
            f"evaluate: '{items.name}' has no `split` column, so no {split} split; add the column, or drop --split"
        )
    if not chosen.any():
        raise LikewiseError(f"evaluate: the {split} split of '{items.name}' is empty; check its `split` column")
    return chosen


def describe_left_out(data: OtherData) -> str:
    """Return a sentence about the samples that are left out, and the classes that trained, for the scores of one run."""
    noun = data.noun
    if data.left_out:
        text = f"{data.left_out:,} of {data.rows:,} {noun} are left out, because the run trained on them (train or val)"
    else:
        text = f"the run trained on none of these {data.rows:,} {noun}"
    return text + describe_classes(data)


def describe_classes(data: OtherData) -> str:
    """Return the end of a sentence about classes of the samples that are left and that were trained on; "" without such."""
    classes = data.classes
    if not classes:
        return ""
    shown = ", ".join(classes[:MAX_NAMED_CLASSES]) + (", ..." if len(classes) > MAX_NAMED_CLASSES else "")
    if data.remainder:
        of = "a class" if len(classes) == 1 else f"{len(classes):,} classes"
        are = "is" if data.remainder == 1 else "are"
        return f"; {data.remainder:,} more of {of} that trained {are} left out, too ({shown})"
    are = "class of the others was" if len(classes) == 1 else "classes of the others were"
    return f"; {len(classes):,} {are} in training too ({shown})"


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


def covers_more(known: dict | None, new: dict) -> bool:
    """Return whether stored scores are of all queries of the network and rows of which the new scores are a sample."""
    if known is None or "sample" in known or "interval_over" not in known:
        return False
    return all(known.get(name) == new.get(name) for name in ("checkpoint", "split", "similarity", "rows", "dim"))


def add_set_metrics(run: Run, result: dict) -> None:
    """Add metrics of the whole set to scores.json of a finished run; nothing is written if the run was not scored."""
    known = run.scores if run.done else None
    if known and mergeable(known, result):
        names = ("metrics", "no_value", "sample_interval", "pairs_sample")
        parts = {name: known.get(name, {}) | result[name] for name in names if name in result}
        write_scores(run.path, known | parts)


def earlier_columns(run: Run, scores: Scores) -> dict[str, Float[np.ndarray, "Q"]]:
    """Return the metrics per query of an earlier evaluation of the same queries: name -> values; {} if there is none."""
    try:
        known = read_per_query(run.path / PER_QUERY, "evaluate")
    except LikewiseError:
        return {}
    same = np.array_equal(known.row, scores.query) and np.array_equal(known.label, scores.label)
    return known.each if same else {}


SAME_KEYS = ("checkpoint", "split", "similarity", "rows", "dim", "relevance", "sample")
"""Facts in scores.json that must be equal for scores to be merged."""

BY_METRIC_KEYS = ("metrics", "interval", "no_interval", "no_value", "class_mean", "scored", "sample_interval")
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
