"""What the readers of original downloads share: find files, say what is missing, compare with published counts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from likewise.types import Items, LikewiseError


@dataclass(frozen=True)
class Original:
    """A public data set as its authors hand it out."""

    name: str
    origin: str  # where it comes from, in words
    images: int  # as published
    classes: int

    def folder(self, root: str) -> str:
        base = os.path.abspath(os.path.expanduser(root))
        if not os.path.isdir(base):
            raise LikewiseError(
                f"{self.name}: root must be the unpacked download, and there is no folder {base}; {self.origin}"
            )
        return base

    def find(self, base: str, places: Sequence[str]) -> str | None:
        """The first of the places below `base` that exists."""
        return next((os.path.join(base, place) for place in places if os.path.exists(os.path.join(base, place))), None)

    def need(self, base: str, places: Sequence[str]) -> str:
        found = self.find(base, places)
        if found is None:
            what = os.path.basename(places[0].rstrip("/"))
            raise LikewiseError(
                f"{self.name}: {what} is missing; looked for {' and '.join(places)} in {base}. {self.origin}"
            )
        return found

    def lines(self, file: str) -> list[tuple[int, list[str]]]:
        """(line number, words) of every line that holds something."""
        with open(file, encoding="utf-8-sig", errors="surrogateescape") as text:
            return [(number, line.split()) for number, line in enumerate(text, 1) if line.strip()]

    def words(self, file: str, count: int, skip: int = 0) -> list[list[str]]:
        """The words of every line after `skip`, of which there must be `count` in each."""
        listed = self.lines(file)[skip:]
        for number, words in listed:
            if len(words) != count:
                raise LikewiseError(
                    f"{self.name}: every line of {os.path.basename(file)} must hold {count} words, got {len(words)} "
                    f"in line {number}; unpack the list again"
                )
        if not listed:
            raise LikewiseError(f"{self.name}: {os.path.basename(file)} lists nothing; unpack it again")
        return [words for _, words in listed]

    def check_listed(self, base: str, path: Iterable[str], lists: str) -> None:
        missing = [name for name in path if not os.path.isfile(os.path.join(base, name))]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise LikewiseError(
                f"{self.name}: {lists} names {len(missing)} pictures that are missing below {base}: "
                f"{', '.join(missing[:3])}{more}; unpack all archives of the set"
            )

    def check_count(self, items: Items) -> Items:
        if (len(items), items.classes) != (self.images, self.classes):
            warnings.warn(
                f"{self.name}: found {len(items):,} pictures of {items.classes:,} classes, but the published set has "
                f"{self.images:,} of {self.classes:,}; results on this copy do not compare with published ones",
                stacklevel=3,
            )
        return items

    def items(
        self, root: str, path: Iterable[str], label: Sequence, names: dict, split: Iterable[str], **columns
    ) -> Items:
        """Items from one label a picture; classes are numbered in sorted order of the labels, and named by `names`."""
        order = sorted(set(label))
        number = {one: place for place, one in enumerate(order)}
        made = Items(
            name=self.name,
            y=np.array([number[one] for one in label], np.int64),
            class_name=tuple(names[one] for one in order),
            path=tuple(path),
            root=root,
            split=np.array(list(split), "<U5"),
            **columns,
        )
        return self.check_count(made)
