"""The facts of a page as the blocks of text that its code reads: JSON for what is said, base64 for what is many."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from PIL import Image

from likewise.render.error_overlap import Overlapped, say_overlap
from likewise.report.records import Asked, Confused, Confusion, Facts, Noise, Pool, Viewed

NEAR_ROOM = 4_000_000
"""Bytes that the neighbours of all samples may take; with more runs or samples each shows fewer."""

CAPTION_ROOM = 2_000_000
"""Characters for captions; beyond that, only samples with a picture keep theirs."""

EXAMPLES = 3
"""Pictures of each class that stand for a confusion."""


class Block(NamedTuple):
    """A piece of data in the page. `kind` is its media type, `text` is safe inside a script element."""

    name: str
    kind: str
    text: str


def said(name: str, value: object) -> Block:
    """JSON which cannot end the element it stands in. Numbers that are none become null."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Block(name, "application/json", text.replace("<", "\\u003c").replace("\u2028", " ").replace("\u2029", " "))


def many(name: str, value: np.ndarray) -> Block:
    """The bytes of an array, lowest first."""
    return Block(name, "text/plain", base64.b64encode(value.astype(value.dtype.newbyteorder("<")).tobytes()).decode())


def plain(value: object) -> object:
    """What JSON can hold: arrays and tuples are lists, NaN and infinities None, and four digits are enough."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def pictures(facts: Facts) -> list[Image.Image]:
    """All pictures of a page, those of doubted labels first; their numbers are what blocks call them by."""
    doubted = [doubt.picture for run in facts.runs if run.noise for doubt in run.noise.doubts if doubt.picture]
    return doubted + [picture for pool in facts.pools for picture in pool.picture.values()]


def first_blocks(facts: Facts) -> Iterator[Block]:
    """What is read at once: names, curves and all that is small; then galleries, confusions, labels and trees."""
    runs = [spoken(run, near_shown(facts, run)) for run in facts.runs]
    yield said("facts", {"runs": runs, "pools": [names(pool) for pool in facts.pools]})
    count = sum(doubt.picture is not None for run in facts.runs if run.noise for doubt in run.noise.doubts)
    slots, doubts = [], 0
    for pool in facts.pools:
        slots.append({place: count + i for i, place in enumerate(pool.picture)})
        count += len(pool.picture)
    found = []
    for run in facts.runs:
        pool = facts.pools[run.pool] if run.pool >= 0 else None
        found.append(
            {
                "galleries": {name: list(map(asked, some)) for name, some in run.galleries.items() if some},
                "confusion": run.confusion and pool and confusion(run.confusion, pool, run.near),
                "noise": run.noise and noise(run.noise, doubts),
                "tree": run.tree and dict(vars(run.tree)),
            }
        )
        doubts += sum(doubt.picture is not None for doubt in run.noise.doubts) if run.noise else 0
    both = [one._asdict() | {"queries": [[asked(a), asked(b)] for a, b in one.queries]} for one in facts.compared]
    overlap = facts.overlap and overlapped(facts.overlap)
    yield said("more", {"slots": slots, "runs": found, "compared": both, "overlap": overlap})


def many_blocks(facts: Facts) -> Iterator[Block]:
    """What is large: labels and captions of pools, then maps, then neighbours."""
    for number, pool in enumerate(facts.pools):
        if any(run.maps for run in facts.runs if run.pool == number) or pool.picture:
            yield many(f"label-{number}", pool.label.astype(index_kind(len(pool.class_name))))
            if not np.array_equal(pool.row, np.arange(len(pool.row))):  # else a row is its place
                yield many(f"row-{number}", pool.row.astype(np.int32))
            yield said(f"caption-{number}", captions(pool))
    for number, run in enumerate(facts.runs):
        for name, place in run.maps.items():
            yield many(f"map-{number}-{name}", quantised(place))
    for number, run in enumerate(facts.runs):
        shown = near_shown(facts, run)
        if shown and run.maps:
            assert run.near is not None and run.near_sim is not None
            near = run.near[:, :shown]
            low, high = reach(run.near_sim)
            share = np.nan_to_num((run.near_sim[:, :shown] - low) / (high - low)).clip(0, 1)
            yield many(f"near-{number}", near.astype(index_kind(len(near))))  # nobody, -1, becomes the largest number
            yield many(f"similarity-{number}", np.round(255 * share).astype(np.uint8))


def near_shown(facts: Facts, run: Viewed) -> int:
    """How many neighbours of every sample have room."""
    if run.near is None or run.near_sim is None or not run.maps:
        return 0
    whole = sum(len(one.near) for one in facts.runs if one.near is not None)
    each = index_kind(len(run.near))().nbytes + 1
    return min(run.near.shape[1], NEAR_ROOM // max(1, whole * each))


def index_kind(many: int) -> type:
    """What numbers one of so many, and nobody."""
    return np.uint32 if many > 65535 else np.uint16


def reach(value: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest number that is one."""
    some = value[np.isfinite(value)]
    low, high = (float(some.min()), float(some.max())) if some.size else (0.0, 1.0)
    return low, high if high > low else low + 1.0


def quantised(place: Float[np.ndarray, "N 2"]) -> np.ndarray:
    """Places on a square of 2^16 steps a side, both axes to one scale; what is nowhere stands in the middle."""
    low = [reach(axis)[0] for axis in place.T]
    span = max(high - low for low, high in map(reach, place.T))
    share = np.nan_to_num((place - low) / span, nan=0.5).clip(0, 1)
    return np.round(share * 65535).astype(np.uint16)


def names(pool: Pool) -> dict:
    groupings = [{"name": one.name, "names": one.names, "of": one.of_class} for one in pool.groupings]
    return {
        "name": pool.name,
        "part": pool.part,
        "n": len(pool.row),
        "classes": pool.class_name,
        "groupings": groupings,
    }


def captions(pool: Pool) -> dict[int, str] | list[str]:
    if pool.caption is None:
        return []
    if sum(map(len, pool.caption)) <= CAPTION_ROOM:
        return list(pool.caption)
    return {place: pool.caption[place] for place in pool.picture}


def spoken(run: Viewed, near: int) -> dict:
    low, high = reach(run.near_sim) if near and run.near_sim is not None else (0, 1)
    return {
        "name": run.name, "pool": run.pool, "decides": run.decides, "similarity": run.similarity, "maps": list(run.maps),
        "curves": [one._asdict() for one in run.curves], "near": {"k": near, "low": low, "high": high},
        "distances": run.distances and dict(vars(run.distances)), "spectrum": run.spectrum and dict(vars(run.spectrum)),
    }  # fmt: skip


def asked(one: Asked) -> list:
    return [one.place, one.value, [[answer.place, answer.similarity, int(answer.right)] for answer in one.answers]]


def confusion(found: Confusion, pool: Pool, near: Int[np.ndarray, "N K"] | None) -> dict:
    """With queries of each pair and what answered them, those first that have pictures."""
    seen = np.array(list(pool.picture), np.int64)
    pairs = [[*pair[:4], examples(pair, pool, seen, near)] for pair in found.pairs]
    return {"pairs": pairs, "classes": found.classes, "matrix": np.round(found.matrix, 4)}


def examples(pair: Confused, pool: Pool, seen: Int[np.ndarray, "P"], near: Int[np.ndarray, "N K"] | None) -> list:
    """Samples of both classes, with pictures: first those of one that were answered by the other, and their answers."""
    ours, theirs = (seen[pool.label[seen] == one] for one in (pair.a, pair.b))
    if near is not None and near.shape[1] and len(ours):
        first = near[ours, 0]
        taken = (first >= 0) & (pool.label[first] == pair.b)
        ours = np.concatenate([ours[taken], ours[~taken]])
        theirs = np.concatenate([first[taken][np.isin(first[taken], seen)], theirs])
    known = [[one] for one in pair.example] if pair.example else [[], []]
    both = zip(known, (ours, theirs), strict=True)
    return [list(dict.fromkeys([*one, *some.tolist()]))[:EXAMPLES] for one, some in both]


def noise(found: Noise, first: int) -> dict:
    """`first`: number of the first picture of its doubts."""
    doubts = []
    for one in found.doubts:
        slot = first if one.picture is not None else None
        first += one.picture is not None
        told = {
            name: getattr(one, name)
            for name in ("row", "given", "suggested", "suspicion", "weight", "wrong", "caption")
        }
        doubts.append(told | {"slot": slot})
    return dict(vars(found)) | {
        "suspicion": [dict(vars(one)) for one in found.suspicion],
        "detection": [dict(vars(one)) for one in found.detection],
        "doubts": doubts,
    }


def overlapped(found: Overlapped) -> dict:
    ways = {
        way: {"classes": named.classes, "heat": named.heat.astype(int), "sentence": sentence(found, way)}
        for way, named in found.by.items()
    }
    return {"runs": found.runs, "methods": found.methods, "by": ways}


def sentence(found: Overlapped, way: str) -> str:
    told = say_overlap(found, way)
    return f"{told[:1].upper()}{told[1:]}."
