"""The baseline of a run: scores of the network before training, and a warning if training made them worse."""

from __future__ import annotations

from collections.abc import Mapping

from likewise.core.settings import Train
from likewise.core.types import LikewiseError
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.scores import PER_QUERY, read_per_query, write_scores
from likewise.score.checks import rows_of
from likewise.score.compare import ends
from likewise.score.intervals import MIN_INTERVAL_UNITS, paired_interval
from likewise.score.metrics import as_text, import_metrics
from likewise.score.query_sample import with_sample
from likewise.score.retrieve import Scoring, relevance_of
from likewise.score.scoring import as_compared, score, summary

WORSE_HINT = (
    "with few images, train for fewer epochs, with a lower rate (--lr, --backbone-lr 1e-5), or not at all (--epochs 0)"
)
"""Advice if training made the scores worse."""


def add_baseline(run: Run, config: Train, say=print) -> dict:
    """Return the scores of a run; if the network started from pretrained weights, with the baseline in "before".

    The baseline is computed once and stored in scores.json. If it cannot be computed, `say` receives the reason.
    """
    scores = run.scores
    assert scores is not None
    start = run.about["config"]
    missing = scores["metrics"].keys() - scores.get("before", {}).get("metrics", {}).keys()
    trained = (start.get("pretrained") or start.get("weights")) and run.read_log()  # --epochs 0 leaves none
    if not missing or not trained:
        return scores
    try:
        scores |= {"before": score_before(run, config, list(scores["metrics"]))}
    except LikewiseError as error:
        say(f"the baseline (scores before training) cannot be computed: {error}")
        return scores
    write_scores(run.path, scores)
    return scores


def about_baseline(scores: Mapping, config: Mapping) -> str:
    """Return what the network before training is, as a sentence, if its head is not the features themselves; else ""."""
    if "before" not in scores or config["head"] == "Identity()":
        return ""
    return (
        f"before training: the backbone as it was loaded, and a head {config['head']} with random weights; "
        '--head "Identity()" --epochs 0 scores the backbone alone'
    )


def score_before(run: Run, config: Train, metrics: list[str]) -> dict:
    """Return the `summary` of the untrained network, and the change of the selection metric by training, with its interval."""
    import_metrics(metrics, config.allow_imports)
    opened = OpenRun(
        run, checkpoint="untrained", device=config.device, data=config.data, root=config.root, workers=config.workers,
        allow_imports=config.allow_imports, quiet=True, say=lambda line: None,
    )  # fmt: skip
    items, protocol, similarity = opened.items, opened.protocol, opened.similarity
    rows = rows_of(protocol, items, "test")
    e = as_compared(
        opened.embed(items, rows, title="embed test split, before training", quiet=config.quiet), similarity
    )
    relevance = relevance_of(items, rows, opened.settings.relevance, trained=True, allow_imports=config.allow_imports)
    drawn = (run.scores or {}).get("sample", {}).get("queries")  # the same queries as after training
    scoring = with_sample(e, Scoring(
        items, protocol, metrics, similarity, opened.device, relevance=relevance, sample=drawn,
    ))  # fmt: skip
    each, _ = score(e, scoring)
    name = opened.settings.select if opened.settings.select in each.each else next(iter(each.each))
    after = read_per_query(run.path / PER_QUERY, "train", [name])
    values = each.each[name], after.each[name]
    rivals = None if each.rival is None or after.rival is None else (each.rival, after.rival)
    by, over = paired_interval(*values, after.label, rivals), "classes"
    if by.n < MIN_INTERVAL_UNITS:
        by, over = paired_interval(*values), "queries"
    change = {"metric": name, "over": over, **ends(by)}
    return summary(each, e, scoring) | {"change": change}


def worse_than_baseline(scores: dict) -> str:
    """Return a warning if training made the selection metric worse and the interval of the change excludes 0; else ""."""
    change = scores.get("before", {}).get("change", {})
    high = change.get("high")
    if high is None or not high < 0:
        return ""
    name = change["metric"]
    old, new = (as_text(name, found["metrics"][name]) for found in (scores["before"], scores))
    least, most = (-100 * change[end] for end in ("high", "low"))
    interval = f"by {least:.1f} to {most:.1f} points, 95 % interval over {change['over']}"
    return f"training made it worse: {name} {old} -> {new} ({interval});\n{WORSE_HINT}"
