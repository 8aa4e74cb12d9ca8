"""Sections of the page of an audit about its review: the forecast, what came true of it, and the annotators."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from likewise.curate.audit.forecast import SECONDS_PER_DECISION, gain_text, read_forecast
from likewise.curate.audit.proof import read_proof
from likewise.curate.audit.read import Findings
from likewise.curate.audit.read_votes import ConsensusLine, WorkerLine, read_consensus, read_workers
from likewise.labels.review_forecast import FLAT_SHARE, METRICS

MAX_WORKERS, MAX_DISPUTED = 200, 24
"""Maximum number of workers and of disputed samples on the page."""

CONSENSUS_STATES = {
    "agreed": "all votes are equal, and the consensus is the given label",
    "votes differ": "the consensus is the given label",
    "other label": "the consensus is another label",
    "undecided": "votes and features do not decide",
}
"""State of consensus.csv -> its meaning."""

Points = list[tuple[float, float]]
"""Points of a plot; both axes go from 0 to 1."""


class Tick(NamedTuple):
    """A mark on an axis: its place from 0 to 1, and its value."""

    at: float
    value: float


class GainLine(NamedTuple):
    """The curve of one metric in the plot of a forecast, and the outline of its interval."""

    name: str
    line: Points
    band: Points


class ForecastView(NamedTuple):
    """What the page shows of a forecast: the curve as a plot and as a table, or the reason why there is none."""

    about: dict
    lines: list[GainLine]
    across: list[Tick]  # reviewed suspects
    up: list[Tick]  # points
    flat: float | None  # where the curve becomes flat, from 0 to 1
    flat_line: dict | None  # the line of the curve there
    last: dict  # the line of the curve for a review of all suspects
    seconds: float = SECONDS_PER_DECISION
    flat_share: float = FLAT_SHARE


class VotesView(NamedTuple):
    """What the page shows of votes: how many, the workers, the number of samples by state, and the most disputed samples."""

    facts: dict
    workers: list[WorkerLine]
    states: list[tuple[str, int, str]]
    disputed: list[ConsensusLine]
    disputed_count: int


def review_sections(folder: Path, found: Findings) -> dict:
    """Return the values of the template that show forecast, result and annotators; None for what the folder does not have."""
    forecast = read_forecast(folder)
    asks = forecast is None and found.questions is None and bool(found.suspects)
    words = ["likewise", "audit", found.about.get("target", "TARGET"), "--forecast", "--out", str(folder)]
    return {
        "review": None if forecast is None else forecast_view(forecast),
        "forecast_command": shlex.join(words) if asks else "",
        "proof": proof_view(folder),
        "annotators": votes_view(folder, found),
        "gain_text": lambda one: gain_text(one).replace("-", "\N{MINUS SIGN}"),
        "most_workers": MAX_WORKERS,
    }


def forecast_view(about: dict) -> ForecastView:
    """Return the forecast with the places of its curve on a plot."""
    curve = about["curve"]
    if about["reason"]:
        return ForecastView(about, [], [], [], None, None, curve[-1] if curve else {})
    whole = max(1, curve[-1]["k"])
    values = [100 * line[name][part] for line in curve for name in METRICS for part in ("low", "high")]
    ticks = nice_ticks(min(0.0, *values), max(0.0, *values))
    low, height = ticks[0], (ticks[-1] - ticks[0]) or 1.0

    def place(part: str, name: str) -> Points:
        return [(line["k"] / whole, (100 * line[name][part] - low) / height) for line in curve]

    lines = [GainLine(n, place("gain", n), [*place("high", n), *reversed(place("low", n))]) for n in METRICS]
    flat, last = about["flat_at"], curve[-1]
    if flat is None or flat >= last["k"] or last["MAP@R"]["high"] <= 0:
        flat = None  # no mark
    return ForecastView(
        about, lines, [Tick(v / whole, v) for v in nice_ticks(0, whole) if v <= whole],
        [Tick((v - low) / height, v) for v in ticks], None if flat is None else flat / whole,
        None if flat is None else next(line for line in curve if line["k"] >= flat), last,
    )  # fmt: skip


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers, at most about `most`, of which the first is not above `low` and the last not below `high`."""
    wide = max(high - low, 1e-9)
    unit = 10 ** math.floor(math.log10(wide / most))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor * most >= wide)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 10) for n in range(first, last + 1)]


def proof_view(folder: Path) -> dict | None:
    """Return the content of proof.json, with the ends of an axis for the intervals of every part."""
    proof = read_proof(folder)
    if proof is None:
        return None
    parts = [part | {"ends": proof_ends(part["rows"])} for part in proof["parts"]]
    return proof | {"parts": parts}


def proof_ends(rows: Sequence[dict]) -> tuple[float, float]:
    """Return the ends of an axis that has 0 and all intervals of forecasts and results."""
    values = [row[side][part] for row in rows for side in ("forecast", "realised") for part in ("gain", "low", "high")]
    known = [0.0, *(value for value in values if value is not None)]
    return (min(known), max(known)) if max(known) > min(known) else (-1.0, 1.0)


def votes_view(folder: Path, found: Findings) -> VotesView | None:
    """Return the workers, the samples by state, and the samples whose votes differ most; None without votes."""
    lines = [line for line in read_consensus(folder) if line.row in found.sample]
    facts = found.about.get("votes")
    if not lines or not facts:
        return None
    count = Counter(line.state for line in lines)
    states = [(name, count[name], meaning) for name, meaning in CONSENSUS_STATES.items()]
    disputed = sorted((line for line in lines if "|" in line.voted), key=lambda one: (-one.wrong, one.row))
    return VotesView(facts, read_workers(folder), states, disputed[:MAX_DISPUTED], len(disputed))
