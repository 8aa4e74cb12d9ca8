"""Shared code of the readers of original downloads: find files, report missing ones, compare with published counts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from likewise.core.types import Items, LikewiseError


@dataclass(frozen=True)
class Original:
    """A public data set as its authors distribute it."""

    name: str
    origin: str  # end of errors: where the data comes from and how to unpack it
    images: int  # as published
    classes: int

    def folder(self, root: str) -> str:
        """Return the absolute path of root; raise if it is not a folder."""
        base = os.path.abspath(os.path.expanduser(root))
        if not os.path.isdir(base):
            raise LikewiseError(
                f"{self.name}: root must be the folder of the unpacked download, got {base}, which does not exist; {self.origin}"
            )
        return base

    def find(self, base: str, places: Sequence[str]) -> str | None:
        """Return the first of these paths below `base` that exists, or None."""
        return next((os.path.join(base, place) for place in places if os.path.exists(os.path.join(base, place))), None)

    def need(self, base: str, places: Sequence[str]) -> str:
        """Return the first of these paths below `base` that exists; raise if none does."""
        found = self.find(base, places)
        if found is None:
            wanted = os.path.basename(places[0].rstrip("/"))
            raise LikewiseError(
                f"{self.name}: {wanted} is missing; looked for {' and '.join(places)} in {base}. {self.origin}"
            )
        return found

    def lines(self, file: str) -> list[tuple[int, list[str]]]:
        """Return (line number, words) of every line that is not blank."""
        with open(file, encoding="utf-8-sig", errors="surrogateescape") as text:
            return [(number, line.split()) for number, line in enumerate(text, 1) if line.strip()]

    def words(self, file: str, count: int, skip: int = 0) -> list[list[str]]:
        """Return the words of every line after the first `skip`; raise unless each line has `count` words."""
        listed = self.lines(file)[skip:]
        for number, words in listed:
            if len(words) != count:
                raise LikewiseError(
                    f"{self.name}: every line of {os.path.basename(file)} must hold {count} words, got {len(words)} "
                    f"in line {number}; unpack the list again"
                )
        if not listed:
            raise LikewiseError(f"{self.name}: {os.path.basename(file)} must not be empty; unpack it again")
        return [words for _, words in listed]

    def check_listed(self, base: str, path: Iterable[str], lists: str) -> None:
        """Raise unless all listed files exist below `base`; `lists` names the list in the error."""
        missing = [name for name in path if not os.path.isfile(os.path.join(base, name))]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise LikewiseError(
                f"{self.name}: {lists} names {len(missing)} images that are missing below {base}: "
                f"{', '.join(missing[:3])}{more}; unpack all archives of the set"
            )

    def check_count(self, items: Items) -> Items:
        """Warn if the numbers of images and classes differ from the published ones; return the items."""
        if (len(items), items.classes) != (self.images, self.classes):
            warnings.warn(
                f"{self.name}: found {len(items):,} images of {items.classes:,} classes, but the published set has "
                f"{self.images:,} of {self.classes:,}; results on this copy are not comparable with published ones",
                stacklevel=3,
            )
        return items

    def items(
        self, root: str, path: Iterable[str], label: Sequence, names: dict, split: Iterable[str], **columns
    ) -> Items:
        """Return items from one label per image; classes are numbered in sorted order of the labels and named by `names`."""
        order = sorted(set(label))
        number = {key: place for place, key in enumerate(order)}
        items = Items(
            name=self.name,
            y=np.array([number[key] for key in label], np.int64),
            class_name=tuple(names[key] for key in order),
            path=tuple(path),
            root=root,
            split=np.array(list(split), "<U5"),
            **columns,
        )
        return self.check_count(items)
