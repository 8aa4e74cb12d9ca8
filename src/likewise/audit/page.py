"""The report of an audit: one HTML file with its pictures inside, which opens anywhere and asks for nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from PIL import Image

from likewise.audit.read import Findings, Pair, Sample, read_findings
from likewise.io.progress import bar
from likewise.render import gallery
from likewise.render.html import data_uri, environment, shrunk

MAX_ITEMS = {
    "suspects": 120,
    "pairs": 40,
    "causes": 5,
    "groups": 20,
    "merges": 24,
    "classes": 500,
    "open": 12,
    "open_pairs": 6,
}
"""How many of each are shown; `open` are seen at without_mirrored, the others after a click."""

MAX_EXEMPLARS = 3

THUMB_SIDES = (176, 144, 120, 96, 72, 48)
"""Longest sides that thumbnails may have, in pixels: the largest with which all of them fit."""

THUMB_BYTES_LIMIT = 7_000_000
"""Bytes for all thumbnails together."""

CURVE_DASHES = ("none", "7 3", "2 3", "8 3 2 3", "12 4")
"""By which the curves of single scores are told apart."""

SECTIONS = {
    "suspects": "Suspect labels", "classes": "Classes", "errors": "Test errors", "groups": "Worst classes",
    "duplicates": "Duplicates", "measured": "How well it works", "verify": "Causes, tried", "retrain": "Trained anew",
    "notes": "Notes",
}  # fmt: skip


class Suspect(NamedTuple):
    """A sample, examples of the class it is labelled with and of the suggested one, and the labels of its neighbours."""

    sample: Sample
    claimed: list[int]
    instead: list[int]
    votes: list[tuple[str, int]]


def write_page(folder: Path, picture: Callable[[int], Image.Image | None], quiet: bool = False) -> Path:
    """Write audit.html out of the other files of an audit's folder.

    Args:
        picture: a row's picture; None where there is none. One that cannot be read is named on the page.
    """
    found = read_findings(folder)
    about, template, facts = found.about, environment().get_template("audit.html"), template_context(found)
    wanted: dict[int, str] = {}
    template.render(facts, folder=folder, pic=lambda row: wanted.setdefault(row, ""))  # to learn what is shown
    pictures = read_images(wanted, picture, quiet) if about["pictures"] else {}
    if about["pictures"] and len(pictures) < len(wanted):
        told = f"{len(wanted) - len(pictures)} of {len(wanted)} pictures could not be read: their names stand for them."
        facts["notes"] = [*facts["notes"], told]
    facts["contents"] = [(name, text) for name, text in SECTIONS.items() if facts[name]]
    if pictures:  # as most of them are, so that whole pictures fill their frames
        facts["shape"] = round(float(np.clip(np.median([p.width / p.height for p in pictures.values()]), 0.75, 1.4)), 2)
    style = Markup("\n".join(f".p{row} {{ background-image: url({data}) }}" for row, data in as_data_uris(pictures).items()))
    text = template.render(facts, folder=folder, pic=lambda row: f"p{row}" if row in pictures else "", style=style)
    aside = folder / "audit.html.new"
    aside.write_text(text, "utf-8")
    return aside.replace(folder / "audit.html")


def template_context(found: Findings) -> dict:
    """Everything the template shows, as far as it is not in the findings themselves."""
    about, merges = found.about, found.merges()
    parts, kinds = about["parts"].values(), Counter(one.kind for one in found.classes)
    total = {name: sum(part[name] or 0 for part in parts) for name in ("samples", "wrong", "flagged")}
    loose = sorted(
        (one for one in found.classes if one.kind in ("merge", "diffuse")), key=lambda c: (c.kind != "merge", -c.share)
    )
    types = Counter(pair.type for pair in found.pair.values())
    extra = {name: about.get(name) for name in ("measured", "verify", "retrain")}
    groups = found.groups()
    return extra | {
        "found": found,
        "about": about,
        "most": MAX_ITEMS,
        "total": total | {"across": sum(found.across.values())},
        "suspects": suspects(found),
        "flagged": Counter(one.split for one in found.suspects),
        "scores": {name: about["scores"][name] for name in next(iter(found.single.values()), {})},
        "merges": [
            (o, exemplars(found, o.split, o.label), exemplars(found, o.split, o.target)) for o in merges[: MAX_ITEMS["merges"]]
        ],
        "loose": loose[: MAX_ITEMS["classes"]],
        "kinds": kinds,
        "errors": {kind: without_mirrored(p for p in found.pair.values() if p.type == kind) for kind in types},
        "types": types,
        "groups": [(one, exemplars(found, one.part, one.label)) for one in groups[: MAX_ITEMS["groups"]]],
        "all_groups": len(groups),
        "duplicates": duplicates(found),
        "perfect": [(0, 0), (noise_share(extra["measured"] or {}), 1), (1, 1)],
        "dashes": CURVE_DASHES,
        "ends": {name: scale_ends(one["rows"]) for name in ("verify", "retrain") if (one := extra[name])},
        "notes": about["notes"],
        "classes": found.classes,
        "colour": {name: getattr(gallery, name) for name in ("INK", "SOFT", "PAPER", "RIGHT", "WRONG", "NEUTRAL")},
    }


def suspects(found: Findings) -> dict[str, list[Suspect]]:
    """The most suspect samples of each part; parts share the room there is."""
    parts = [name for name in found.about["parts"] if any(one.split == name for one in found.suspects)]
    shown = {}
    for part in parts:
        some = [one for one in found.suspects if one.split == part][: MAX_ITEMS["suspects"] // len(parts)]
        shown[part] = [
            Suspect(
                one,
                exemplars(found, part, one.label, one.row),
                exemplars(found, part, one.suggested, one.row),
                Counter(found.sample[row].label for row in found.near.get(one.row, ())).most_common(),
            )
            for one in some
        ]
    return shown


def exemplars(found: Findings, part: str, label: str, but: int | None = None) -> list[int]:
    """The members of a class whose labels fit exemplars."""
    members = found.members.get((part, label), [])[: MAX_EXEMPLARS + 1]
    return [row for row in members if row != but][:MAX_EXEMPLARS]


def without_mirrored(pairs: Iterable[Pair]) -> list[Pair]:
    """The first pairs, without those that are shown already from the other side: they have the same causes."""
    shown: dict[frozenset, Pair] = {}
    for pair in pairs:
        if len(shown) < MAX_ITEMS["pairs"]:
            shown.setdefault(frozenset((pair.query, pair.other)), pair)
    return list(shown.values())


def duplicates(found: Findings) -> list[tuple[str, list, int]]:
    """Those across parts and those within one: a heading, the first of them, and how many there are."""
    both = (("Across parts", True), ("Within a part", False))
    kinds = [(head, [one for one in found.duplicates if one.across == across]) for head, across in both]
    return [(head, some[: MAX_ITEMS["pairs"]], len(some)) for head, some in kinds if some]


def noise_share(measured: dict[str, dict]) -> float:
    """The share of wrong labels: where a curve reaches its recall, which is that after so many samples were inspected.

    Curves are flat where nothing is found, so each may reach it too early, and none too late.
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
    """Where a scale for these intervals begins and ends; zero is on it."""
    known = [row for row in rows if row["low"] is not None and row["high"] is not None]
    low, high = min([0.0, *(row["low"] for row in known)]), max([0.0, *(row["high"] for row in known)])
    return (low, high) if high > low else (-1.0, 1.0)


def read_images(
    rows: Iterable[int], picture: Callable[[int], Image.Image | None], quiet: bool
) -> dict[int, Image.Image]:
    """Small pictures of these rows, without those that cannot be read."""
    rows, small = sorted(rows), {}
    with bar("pictures of the report", len(rows), quiet=quiet) as progress:
        for row in rows:
            try:
                image = picture(row)
                if image is not None:
                    small[row] = shrunk(image.convert("RGB"), THUMB_SIDES[0])
            except (OSError, ValueError, SyntaxError):  # what Pillow and `read_image` raise for a broken file
                pass
            progress.advance()
    return small


def as_data_uris(pictures: dict[int, Image.Image]) -> dict[int, str]:
    """Each picture as a data URI, all of them small enough to stay within `THUMB_BYTES_LIMIT`."""
    for side in THUMB_SIDES:
        found = {
            row: data_uri(shrunk(image, side), "JPEG", quality=78, optimize=True) for row, image in pictures.items()
        }
        if sum(map(len, found.values())) <= THUMB_BYTES_LIMIT:
            break
    return found
