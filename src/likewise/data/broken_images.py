"""Broken images: find them before any work begins, and skip them by one rule. The result is stored for the next command.

An image is broken if its file exists but `read_image` cannot use it. A file that is missing or cannot be opened is always an
error.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL

from likewise.core.errors import DiskFull, printable, shown_names
from likewise.core.files import cache_folder, open_csv, write_csv
from likewise.core.locks import file_lock
from likewise.core.progress import bar
from likewise.core.types import Items, LikewiseError
from likewise.data.images import BadImage, UnreadableFile, check_files, drop, file_of, image_of
from likewise.data.label_sets import sample_labels

VERSION = 1  # of the stored lists: increase it when `read_image` accepts other images

MAX_BROKEN_SHARE = 0.01
"""Share of broken images above which the data counts as damaged, if there are also `MIN_DAMAGED_COUNT` of them."""

MIN_DAMAGED_COUNT = 5
"""Number of broken images below which they are always skipped."""

MAX_SHOWN_LINES = 5
"""Number of broken images that a message names."""

CHUNK_ROWS = 256
"""Images that are submitted to the threads at once, which bounds memory."""

LIST_HEAD = ["row", "path", "reason"]

STRICT_RULE = "strict: no image is skipped (--strict, `bench`, `tune`, and recipes on named data sets)"


class Broken(NamedTuple):
    """A broken image: its row, its path as in the table of the data, and the problem."""

    row: int
    path: str
    reason: str


def skip_broken(
    items: Items,
    *,
    strict: bool = False,
    decode: Callable[[Items], bool] | None = None,
    workers: int = -1,
    quiet: bool = False,
    say: Callable[[str], None] = print,
    listing: Path | None = None,
) -> Items:
    """Return the data without its broken images, which `Items.skipped` names. Raises if too many are broken; see `check_damage`.

    Args:
        strict: raise at a broken image.
        decode: function that decodes all images to keep them, and raises `BadImage` at the first broken one; False: it did not
            decode them. With it, the images of data without broken ones are decoded only once.
        workers: threads that decode; -1: by the number of cores.
        `say`: receives the number and the list of skipped images.
        listing: file for the list of skipped images, beside the stored one; without any, an older file is removed.
    """
    if items.path is None or items.x is not None:
        return items
    report_left_out(items, strict, say)
    check_files(items)
    file = list_file(items)
    broken = read_list(file, items)
    if broken is None:
        broken = find_once(items, file, decode, strict, workers, quiet)
    if listing is not None:
        with suppress(OSError):
            listing.unlink(missing_ok=True)
    if not broken:
        return items
    if strict:
        raise BadImage(f"{file_of(items, broken[0].row)}: {broken[0].reason}. {STRICT_RULE}")
    check_damage(items, broken, file)
    if listing is not None:
        with suppress(OSError, DiskFull):
            listing.parent.mkdir(parents=True, exist_ok=True)
            write_csv(listing, LIST_HEAD, broken)
            file = listing
    say(f"skipped {len(broken):,} of {len(items):,} images that cannot be decoded{shown_list(broken, file)}")
    return without(items, [one.row for one in broken])


def report_left_out(items: Items, strict: bool, say: Callable[[str], None]) -> None:
    """Pass the links and folders that the reader left out to `say`; raise for the first one if `strict`."""
    if not items.left_out:
        return
    if strict:
        path, reason = items.left_out[0]
        raise BadImage(f"{os.path.join(items.root, path)}: {reason}; remove it. {STRICT_RULE}")
    head = f"left out {len(items.left_out):,} links or folders that cannot be used:"
    say("\n".join([head, *first_lines(items.left_out)]))


def without(items: Items, rows: Sequence[int]) -> Items:
    """Return the data without these rows, which `skipped` then names."""
    assert items.path is not None
    return dataclasses.replace(drop(items, rows), skipped=tuple((row, items.path[row]) for row in rows))


def skip_again(items: Items, skipped: Sequence[Sequence]) -> Items:
    """Return the data without the images that a run skipped. Nothing is decoded.

    Args:
        skipped: `Items.skipped` of the data of the run; images that are not in the data are ignored.
    """
    if items.x is None:
        check_files(items)
    rows = [row for row, path in skipped if items.path is not None and items.path[row : row + 1] == (path,)]
    return without(items, rows) if rows else items


def find_once(
    items: Items, file: Path, decode: Callable[[Items], bool] | None, strict: bool, workers: int, quiet: bool
) -> list[Broken]:
    """Find the broken images and store the list. If several processes need it, one decodes and the others wait for it."""
    with ExitStack() as stack:
        with suppress(OSError):  # without a cache folder nothing is stored
            file.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(file_lock(file.with_suffix(".lock")))
        broken = read_list(file, items)
        if broken is None:
            broken = search(items, decode, strict, workers, quiet)
            if not strict or not broken:  # a strict search ends at the first one
                with suppress(OSError, DiskFull):
                    write_csv(file, LIST_HEAD, broken)
    return broken


def search(
    items: Items, decode: Callable[[Items], bool] | None, strict: bool, workers: int, quiet: bool
) -> list[Broken]:
    """Return the broken images: none if `decode` decodes all images, otherwise those that `find_broken` finds."""
    try:
        if decode is not None and decode(items):
            return []
    except UnreadableFile:
        raise
    except BadImage:
        pass
    return find_broken(items, first=strict, workers=workers, quiet=quiet)


def find_broken(items: Items, *, first: bool = False, workers: int = -1, quiet: bool = False) -> list[Broken]:
    """Decode every image and return the broken ones. Threads suffice: Pillow releases the GIL while it decodes.

    Args:
        first: stop after the first block of images with a broken one.
        workers: number of threads; -1: by the number of cores.
    """
    if items.path is None:
        return []
    broken = []
    with (
        ThreadPoolExecutor(None if workers < 0 else max(1, workers)) as pool,
        bar("check images", len(items), quiet=quiet) as progress,
    ):
        for start in range(0, len(items), CHUNK_ROWS):
            rows = range(start, min(start + CHUNK_ROWS, len(items)))
            reasons = pool.map(partial(problem_of, items), rows)
            broken += [Broken(row, items.path[row], reason) for row, reason in zip(rows, reasons) if reason]
            progress.advance(len(rows))
            if first and broken:
                break
    return broken


def problem_of(items: Items, row: int) -> str:
    """Return why an image is broken, without its path; "" if it is not."""
    try:
        image_of(items, row)
    except UnreadableFile:
        raise
    except BadImage as error:
        return str(error).removeprefix(f"{file_of(items, row)}: ")
    return ""


def check_damage(items: Items, broken: Sequence[Broken], file: Path) -> None:
    """Raise if a class has lost all of its images, or if many are broken: see `MIN_DAMAGED_COUNT` and `MAX_BROKEN_SHARE`.

    If samples have several labels, every label must keep an image, but a set of labels need not.
    """
    every, one, many = items.class_name, "class", "classes"
    if items.label_name is not None:
        every, one, many = items.label_name, "label", "labels"
    sample, label = sample_labels(items, items.y)
    rows = [bad.row for bad in broken]
    is_broken = np.isin(sample, rows)
    lost = np.setdiff1d(label[is_broken], label[~is_broken])
    if len(lost):
        names = shown_names([every[number] for number in lost])
        rows_of_lost = set(sample[np.isin(label, lost)].tolist())
        of_lost = [bad for bad in broken if bad.row in rows_of_lost]
        raise LikewiseError(
            f"{items.name}: every {one} must keep an image, but all images of {len(lost)} of {len(every)} {many} cannot be "
            f"decoded ({names}); replace these files, or remove the {many}"
            f"{shown_list(of_lost, file)}"
        )
    if len(broken) >= MIN_DAMAGED_COUNT and len(broken) > MAX_BROKEN_SHARE * len(items):
        raise LikewiseError(
            f"{items.name}: at most {MAX_BROKEN_SHARE:.0%} of the images may be broken (or {MIN_DAMAGED_COUNT - 1} of them), but "
            f"{len(broken):,} of {len(items):,} cannot be decoded; replace or delete these files{shown_list(broken, file)}"
        )


def shown_list(broken: Sequence[Broken], file: Path) -> str:
    """Return the first broken images, one per line, and the file with the whole list if it could be stored."""
    shown = ((one.path, one.reason.rpartition("; ")[0] or one.reason) for one in broken)  # without its advice
    lines = first_lines(list(shown))
    if file.exists():
        more = f"{lines.pop().strip()}; " if len(broken) > MAX_SHOWN_LINES else ""
        lines.append(f"  {more}the whole list: {file}")
    return ":\n" + "\n".join(lines)


def first_lines(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line for each of the first pairs of path and reason, and the number of the others."""
    lines = [f"  {printable(path)}: {printable(reason)}" for path, reason in pairs[:MAX_SHOWN_LINES]]
    more = len(pairs) - MAX_SHOWN_LINES
    return lines + ([f"  and {more:,} more"] if more > 0 else [])


def list_file(items: Items) -> Path:
    """Return the file for the list of broken images. Its name has a hash of what decoding depends on: files, boxes, Pillow."""
    files = [file_of(items, row) for row in range(len(items))]
    seen = [(os.path.abspath(file), (found := os.stat(file)).st_size, found.st_mtime_ns) for file in files]
    facts = (VERSION, PIL.__version__, seen, None if items.box is None else items.box.tolist())
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:20]
    return cache_folder() / "broken" / f"{re.sub(r'[^A-Za-z0-9.-]+', '_', items.name)[:40]}-{key}.csv"


def read_list(file: Path, items: Items) -> list[Broken] | None:
    """Return the stored list of broken images; None if there is none, or if it is damaged."""
    with suppress(OSError, ValueError, csv.Error), open_csv(file) as lines:
        head, *rows = csv.reader(lines)
        broken = [Broken(int(row), path, reason) for row, path, reason in rows]
        if head == LIST_HEAD and all(0 <= one.row < len(items) and one.reason for one in broken):
            return broken
    return None
