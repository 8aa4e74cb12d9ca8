"""The page of an audit: one HTML file that contains its images and loads nothing else."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from PIL import Image

from likewise.core.files import write_text
from likewise.core.progress import bar
from likewise.core.render import gallery
from likewise.core.render.html import data_uri, environment, shrunk
from likewise.curate.audit.forecast import SECONDS_PER_DECISION, gain_text
from likewise.curate.audit.read import (
    ConsensusLine,
    Findings,
    Pair,
    Sample,
    WorkerLine,
    data_name,
    read_consensus,
    read_findings,
    read_forecast,
    read_proof,
    read_workers,
)
from likewise.curate.audit.states import rare_states
from likewise.labels.review_forecast import FLAT_SHARE, METRICS

COLOUR_NAMES = tuple(f"{name}_COLOUR" for name in ("INK", "SOFT", "PAPER", "RIGHT", "WRONG", "NEUTRAL"))
"""Constants of `render.gallery` that the template uses."""

MAX_ITEMS = {
    "suspects": 120,
    "conflicts": 60,
    "off_topic": 120,
    "pairs": 40,
    "causes": 5,
    "groups": 20,
    "merges": 24,
    "classes": 500,
    "open": 12,
    "open_pairs": 6,
}
"""Kind of item -> how many are shown; `open` and `open_pairs` are visible at once, the others after a click."""

MAX_EXEMPLARS = 3
"""Example images per class."""

THUMB_SIDES = (256, 208, 176, 144, 120, 96, 72, 48)
"""Longest sides of thumbnails in pixels: the first with which all thumbnails fit `THUMB_BYTES_LIMIT` is used."""

THUMB_BYTES_LIMIT = 7_000_000
"""Maximum size of all thumbnails together, in bytes."""

CURVE_DASHES = ("none", "7 3", "2 3", "8 3 2 3", "12 4")
"""SVG dash patterns that distinguish the curves of single scores."""

SECTIONS = {
    "conflicts": "Copies with different labels", "suspects": "Flagged labels", "off_topic": "Images of no class",
    "review": "What a review brings", "proof": "Forecast and result", "annotators": "Annotators",
    "numbers": "In numbers", "classes": "Classes", "errors": "Confusions", "groups": "Worst classes", "duplicates": "Copies",
    "measured": "Detection", "verify": "Verification", "retrain": "Retraining",
    "notes": "Notes",
}  # fmt: skip
"""Key of a section in the template -> its title in the table of contents."""


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


class Conflict(NamedTuple):
    """Exact copies with several labels, the likeliest label first; `kept` is the label that is likelier than not, if any."""

    samples: list[Sample]
    kept: str


class Suspect(NamedTuple):
    """A flagged sample, examples of its given class and of the suggested class, and the labels of its neighbours.

    `wrong` is the probability that the label is wrong, as text.
    """

    sample: Sample
    wrong: str
    claimed: list[int]
    instead: list[int]
    votes: list[tuple[str, int]]


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


def write_page(folder: Path, image_of: Callable[[int], Image.Image | None], quiet: bool = False) -> Path:
    """Write audit.html from the other files of an audit folder, and return its path.

    Args:
        image_of: returns the image of a row, or None if there is none. Images that cannot be read are named on the page.
    """
    found = read_findings(folder)
    about, template = found.about, environment().get_template("audit.html")
    context = template_context(found) | review_sections(folder, found)
    wanted: dict[int, str] = {}
    template.render(context, folder=folder, pic=lambda row: wanted.setdefault(row, ""))  # collects rows
    images = read_images(wanted, image_of, quiet) if about["pictures"] else {}
    if about["pictures"] and len(images) < len(wanted):
        note = f"{len(wanted) - len(images)} of {len(wanted)} images could not be read: the page shows their names instead."
        context["notes"] = [*context["notes"], note]
    context["contents"] = [(name, text) for name, text in SECTIONS.items() if context[name]]
    if images:  # the median aspect ratio, so that most images fill their frames
        context["shape"] = round(float(np.clip(np.median([p.width / p.height for p in images.values()]), 0.75, 1.4)), 2)
    style = Markup(
        "\n".join(f".p{row} {{ background-image: url({data}) }}" for row, data in as_data_uris(images).items())
    )
    text = template.render(context, folder=folder, pic=lambda row: f"p{row}" if row in images else "", style=style)
    write_text(folder / "audit.html", text)
    return folder / "audit.html"


def template_context(found: Findings) -> dict:
    """Return the values that the template shows."""
    about, merges = found.about, found.merges()
    splits, kinds = about["parts"].values(), Counter(one.kind for one in found.classes)
    total = {name: sum(split[name] or 0 for split in splits) for name in ("samples", "wrong")}
    unknown = bool(splits) and all(split["wrong"] is None for split in splits)
    total["unknown"] = sum(split.get("states", {}).get("unknown", 0) for split in splits)
    loose = sorted(
        (one for one in found.classes if one.kind in ("mixed", "diffuse")), key=lambda c: (c.kind != "mixed", -c.share)
    )
    types = Counter(pair.type for pair in found.pair.values())
    extra = {name: about.get(name) for name in ("measured", "verify", "retrain")}
    groups = found.groups()
    review_count, review_kinds = found.to_review()
    return extra | {
        "review_count": review_count,
        "review_kinds": review_kinds,
        "found": found,
        "about": about,
        "most": MAX_ITEMS,
        "total": total | {"wrong": None if unknown else total["wrong"], "across": sum(found.across.values())},
        "states": rare_states(about),
        "conflicts": conflicts(found),
        "off_topic": found.off_topic[: MAX_ITEMS["off_topic"]],
        "suspects": suspects(found),
        "flagged": len(found.suspects.in_state("flagged")),
        "numbers": True,
        "data_name": data_name(found),
        "splits": len(about["parts"]) > 1,
        "tested": "test" in about["parts"],
        "scores": {name: about["scores"][name] for name in next(iter(found.single.values()), {})},
        "merges": [
            (o, found.exemplars(o.split, o.label, MAX_EXEMPLARS), found.exemplars(o.split, o.partner, MAX_EXEMPLARS))
            for o in merges[: MAX_ITEMS["merges"]]
        ],
        "merge_count": len(merges),
        "class_states": Counter(one.state for one in found.classes),
        "loose": loose[: MAX_ITEMS["classes"]],
        "kinds": kinds,
        "errors": {kind: without_mirrored(p for p in found.pair.values() if p.type == kind) for kind in types},
        "types": types,
        "groups": [
            (one, found.exemplars(one.split, one.label, MAX_EXEMPLARS)) for one in groups[: MAX_ITEMS["groups"]]
        ],
        "all_groups": len(groups),
        "duplicates": duplicates(found),
        "perfect": [(0, 0), (noise_share(extra["measured"] or {}), 1), (1, 1)],
        "dashes": CURVE_DASHES,
        "ends": {name: scale_ends(one["rows"]) for name in ("verify", "retrain") if (one := extra[name])},
        "notes": about["notes"],
        "classes": found.classes,
        "colour": {name: getattr(gallery, name) for name in COLOUR_NAMES},
    }


def conflicts(found: Findings) -> list[Conflict]:
    """Return the images that exist under several labels, in the order of `Findings.suspects`."""
    images: dict[int | None, list[Sample]] = {}
    for one in found.suspects.in_state("conflict"):
        images.setdefault(one.same_as, []).append(one)
    return [
        Conflict(
            sorted(samples, key=lambda s: (-(s.score or 0), s.row)),
            next((s.label for s in samples if s.decision == "keep"), ""),
        )
        for samples in images.values()
    ]


def suspects(found: Findings) -> list[Suspect]:
    """Return the most suspect samples of all splits."""
    flagged = found.suspects.in_state("flagged")
    return [
        Suspect(
            one,
            percent_text(1 - (one.score or 0.0)),
            found.exemplars(one.split, one.label, MAX_EXEMPLARS, [one.row]),
            found.exemplars(one.split, one.suggested, MAX_EXEMPLARS, [one.row]),
            Counter(found.sample[row].label for row in found.near.get(one.row, ())).most_common(),
        )
        for one in flagged[: MAX_ITEMS["suspects"]]
    ]


def percent_text(probability: float) -> str:
    """Return a probability as a whole percentage; one that is not 1 is never shown as 100 %."""
    return "> 99 %" if 0.99 < probability < 1 else f"{probability:.0%}".replace("%", " %")


def without_mirrored(pairs: Iterable[Pair]) -> list[Pair]:
    """Return the first pairs; a pair that is shown in the other direction already is left out, as it has the same causes."""
    shown: dict[frozenset, Pair] = {}
    for pair in pairs:
        if len(shown) < MAX_ITEMS["pairs"]:
            shown.setdefault(frozenset((pair.query, pair.other)), pair)
    return list(shown.values())


def duplicates(found: Findings) -> list[tuple[str, list, int]]:
    """Return near duplicates across splits and within a split: a heading, the first pairs, and the number of all pairs."""
    both = (("Across splits", True), ("Within a split", False))
    kinds = [(head, [one for one in found.duplicates if one.across == across]) for head, across in both]
    return [(head, some[: MAX_ITEMS["pairs"]], len(some)) for head, some in kinds if some]


def noise_share(measured: dict[str, dict]) -> float:
    """Return the share of wrong labels: the share of inspected samples at which a curve reaches its recall.

    `recall` is the share found after inspecting as many samples as there are wrong labels. A curve is flat where it finds none,
    so this point may be too early for a curve, but never too late: the maximum over all curves is used.
    """
    reached = [0.0]
    for one in (one for one in measured.values() if one["recall"] is not None):
        inspected, share = np.array([[0.0, 0.0], *one["curve"]]).T
        at = int(np.searchsorted(share, one["recall"] - 1e-9))
        reached.append(
            float(np.interp(one["recall"], share[at - 1 : at + 1], inspected[at - 1 : at + 1])) if at else 0.0
        )
    return max(reached)


def scale_ends(rows: Sequence[dict]) -> tuple[float, float]:
    """Return the ends of an axis that contains all intervals and zero."""
    known = [row for row in rows if row["low"] is not None and row["high"] is not None]
    low, high = min([0.0, *(row["low"] for row in known)]), max([0.0, *(row["high"] for row in known)])
    return (low, high) if high > low else (-1.0, 1.0)


def read_images(
    rows: Iterable[int], image_of: Callable[[int], Image.Image | None], quiet: bool
) -> dict[int, Image.Image]:
    """Return small images of the rows that can be read."""
    rows, small = sorted(rows), {}
    with bar("read images of the page", len(rows), quiet=quiet) as progress:
        for row in rows:
            try:
                image = image_of(row)
                if image is not None:
                    small[row] = shrunk(image.convert("RGB"), THUMB_SIDES[0])
            except (OSError, ValueError, SyntaxError):  # raised by Pillow and `read_image` for a broken file
                pass
            progress.advance()
    return small


def as_data_uris(images: dict[int, Image.Image]) -> dict[int, str]:
    """Return each image as a data URI, all of them within `THUMB_BYTES_LIMIT`."""
    for side in THUMB_SIDES:
        found = {row: data_uri(shrunk(image, side), "JPEG", quality=78, optimize=True) for row, image in images.items()}
        if sum(map(len, found.values())) <= THUMB_BYTES_LIMIT:
            break
    return found


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
