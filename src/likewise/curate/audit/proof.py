"""Forecast and result of a review: the gain that came true beside the gain that was forecast, in proof.json.

The head that the forecast is about is fitted again with the labels of the review; the network of a run is trained again. Shape of
proof.json, without NaN, all gains as shares:

    {"reviewed": number of suspects with a decision,
     "labels": "decisions" of people, or "suggestions" of the audit without a review,
     "parts": [{"of": "head" or "network",
                "rows": [{"metric": "R@1" or "MAP@R", "before", "after",
                          "forecast": {"gain", "low", "high"}: 90 % interval,
                          "realised": {"gain", "low", "high"}: 95 % interval, None if there is none,
                          "inside": whether the realised gain lies in the forecast interval,
                          "note": what the intervals leave open}],
                "note": what differs from the forecast}],
     "reason": why nothing can be compared; empty if something is}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.files import write_json
from likewise.curate.audit.forecast import ForecastHead, forecast_at, gain_text, read_head
from likewise.curate.audit.read import PROOF_FILE, Findings, read_forecast, read_order
from likewise.labels.many_heads import HeadSettings, QueryScores, score_queries, train_heads
from likewise.labels.review_forecast import METRICS, WORLDS_COUNT
from likewise.score.intervals import MIN_INTERVAL_UNITS, paired_interval

FITS_COUNT = 8
"""Number of heads for each set of labels whose mean is the realised metric; the forecast interval is for one training."""

MIN_FIRST_SHARE = 0.9
"""Share of the reviewed suspects that come first in the order of the forecast, below which a note reports it."""

NETWORK_NOTE = (
    "The forecast is that of a head on fixed features; this is the whole network, trained again from the same seed."
)
"""How a network that is trained again differs from the head of the forecast."""

SUGGESTIONS_NOTE = "These labels were not reviewed: they are the suggestions of the audit."
"""How suggested labels differ from those of a review."""

NO_FORECAST_TEXT = "the audit has no forecast; audit with --forecast"


def prove_review(
    folder: Path, findings: Findings, labels: Mapping[int, str | None], decided: set[int],
    train_again: Callable[[], dict] | None = None,
) -> dict:  # fmt: skip
    """Fit the head of the forecast and train the network with the labels of a review; write and return proof.json.

    Args:
        labels: row of the data -> its class after the review, or None: it was removed. Rows that keep their label are left out.
        decided: rows with a settled decision.
        train_again: trains the network of a run again, as `audit.retrain` does; None: the audit has no network.
    """
    about, parts = read_forecast(folder), []
    if about is None and train_again is None:
        raise LikewiseError(
            f"review: --retrain needs a forecast, or a run to train again, but {folder} has neither; audit with --forecast"
        )
    if not decided:
        raise LikewiseError(
            "review: --retrain needs decisions about labels, but there are none; review the audit first"
        )
    queue = read_order(folder)
    reviewed = len(decided.intersection(queue))
    if about is not None and not about["reason"]:
        head = read_head(folder)
        if head is None:
            raise LikewiseError(f"review: the forecast of {folder} needs heads.npz, but it is missing; audit again")
        found = refit_head(head, head.number_labels(findings, labels))
        notes = [
            about_order(queue, decided),
            about_others(findings, queue, decided),
            about_scores(head.scored_as_given),
        ]
        parts.append(("head", found, " ".join(note for note in notes if note)))
    if train_again is not None:
        again = train_again()
        parts.append(("network", again["rows"], f"{NETWORK_NOTE} {again['summary'].rstrip('.')}."))
    return write_proof(folder, about, parts, reviewed, "decisions")


def refit_head(head: ForecastHead, reviewed: Int[Tensor, "N"], settings: HeadSettings = HeadSettings()) -> list[dict]:
    """Return a row for each metric: the head with the given labels (before) and with the labels of a review (after).

    Heads are trained and scored as in the forecast, from seeds that it did not use. A training row with a class that no training
    row was given is left out. The test rows are scored with their given labels, or, where the forecast draws them too, with those
    of the review. The interval is over test classes, or over queries if there are few classes, for these trainings.

    Args:
        reviewed: labels after the review; -1: removed.
    """
    train, test = head.train, ~head.train
    known = torch.isin(reviewed, head.given[train])
    labels = torch.stack([head.given[train], torch.where(known, reviewed, -1)[train]])
    seeds = head.seed + WORLDS_COUNT + torch.arange(FITS_COUNT)
    with torch.no_grad():
        w = train_heads(head.x[train], labels.repeat_interleave(FITS_COUNT, 0), seeds.repeat(2), settings)
    scored = (head.given if head.scored_as_given else reviewed)[test]
    fits = [score_queries(head.x[test], scored, one) for one in w]
    before, after = fits[:FITS_COUNT], fits[FITS_COUNT:]
    if not len(before[0].place):
        return []
    unit = scored[before[0].place].numpy()
    over_classes = len(np.unique(unit)) >= MIN_INTERVAL_UNITS
    rows = []
    for name, field in zip(METRICS, ("r1", "mapr"), strict=True):
        a, b = mean_scores(before, field), mean_scores(after, field)
        rivals = (before[0].rival.numpy(), after[0].rival.numpy())
        one = paired_interval(a, b, unit, rivals) if over_classes else paired_interval(a, b)
        low, high = (None, None) if one.reason else (one.low, one.high)
        rows.append({
            "metric": name, "before": float(a.mean()), "after": float(b.mean()), "difference": one.mean, "low": low,
            "high": high, "reason": one.reason,
        })  # fmt: skip
    return rows


def mean_scores(fits: list[QueryScores], field: str) -> Float[np.ndarray, "Q"]:
    """Return the mean of a metric over several heads, for each query."""
    return torch.stack([getattr(one, field) for one in fits]).double().mean(0).numpy()


def about_order(queue: Sequence[int], decided: set[int]) -> str:
    """Return a sentence if other suspects were reviewed than those that the forecast has first; empty if nearly the same."""
    made = decided.intersection(queue)
    first = len(made.intersection(queue[: len(made)]))
    if not made or first >= MIN_FIRST_SHARE * len(made):
        return ""
    return (
        f"{first:,} of the {len(made):,} reviewed suspects are among the first {len(made):,} of the forecast's order: the "
        "forecast is for other labels than those that were reviewed."
    )


def about_others(findings: Findings, queue: Sequence[int], decided: set[int]) -> str:
    """Return a sentence if labels were decided that are not suspects of the forecast."""
    others = len(decided.intersection(findings.sample) - set(queue))
    if not others:
        return ""
    return f"The labels of {others:,} other sample{'s' * (others != 1)} were decided too; the forecast does not count them."


def about_scores(scored_as_given: bool) -> str:
    """Return which labels score the test rows."""
    if scored_as_given:
        return "Scored with the given labels of the test split, as the forecast."
    return (
        "Scored with the reviewed labels of the other half of the classes; labels that were not reviewed may be wrong."
    )


def prove_suggestions(folder: Path, again: dict) -> dict | None:
    """Write and return proof.json of a network that was trained with suggested labels; None without a forecast."""
    about = read_forecast(folder)
    if about is None:
        return None
    note = f"{SUGGESTIONS_NOTE} {NETWORK_NOTE}"
    return write_proof(folder, about, [("network", again["rows"], note)], about["suspects"], "suggestions")


def write_proof(
    folder: Path, about: dict | None, parts: Sequence[tuple[str, Sequence[dict], str]], reviewed: int,
    labels: Literal["decisions", "suggestions"],
) -> dict:  # fmt: skip
    """Write proof.json from the forecast and the realised gains, and return its content.

    Args:
        about: the forecast; None: there is none.
        parts: "head" or "network", its metrics (metric, before, after, difference, low, high), and a note.
    """
    known = about is not None and bool(about["curve"]) and not about["reason"]
    found = []
    for of, realised, note in parts:
        by_name = {line["metric"]: line for line in realised if line["metric"] in METRICS}
        rows = [
            proof_row(by_name[name], forecast_at(about, reviewed, name))
            for name in METRICS if about is not None and known and name in by_name
        ]  # fmt: skip
        found.append({"of": of, "rows": rows, "note": note})
    reason = "" if any(one["rows"] for one in found) else "no metric of the forecast was scored"
    if not known:
        reason = NO_FORECAST_TEXT if about is None else about["reason"]
    proof = {"reviewed": reviewed, "labels": labels, "parts": found, "reason": reason}
    write_json(Path(folder) / PROOF_FILE, proof)
    return proof


def proof_row(line: dict, forecast: dict) -> dict:
    """Return one metric of a part of proof.json."""
    real = {"gain": line["difference"], "low": line.get("low"), "high": line.get("high")}
    inside = forecast["low"] <= real["gain"] <= forecast["high"]
    return {
        "metric": line["metric"], "before": line.get("before"), "after": line.get("after"), "forecast": forecast,
        "realised": real, "inside": inside, "note": left_open(forecast, real, inside, line.get("reason") or ""),
    }  # fmt: skip


def left_open(forecast: dict, real: dict, inside: bool, reason: str = "") -> str:
    """Return what the two intervals leave open, in one sentence; empty if nothing."""
    if real["low"] is None or real["high"] is None:
        return f"The result has no interval{f' ({reason})' if reason else ''}, so it may be chance."
    if not inside and real["low"] <= forecast["high"] and forecast["low"] <= real["high"]:
        return "The intervals overlap, so it is open whether the forecast was wrong."
    if real["low"] <= 0 <= real["high"]:
        return "The interval of the result contains 0, so it is open whether the review brought a gain."
    return ""


def proof_lines(proof: dict) -> list[str]:
    """Return forecast and realised gain in one sentence per metric, and what they leave open."""
    lines = []
    for part in proof["parts"]:
        for one in part["rows"]:
            f, real = one["forecast"], one["realised"]
            lines.append(
                f"{part['of']}, {one['metric']}: forecast {gain_text(f)} points, realised {gain_text(real)}: "
                f"{'inside' if one['inside'] else 'outside'} of the forecast interval. {one['note']}".rstrip()
            )
        if part["note"]:
            lines.append(f"{part['of']}: {part['note']}")
    return [*lines, *([f"Nothing can be compared: {proof['reason']}"] if proof["reason"] else [])]
