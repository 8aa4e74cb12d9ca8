"""Data of benchmarks/graded.py: features or pixels with a class tree or several labels, divided by classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from likewise.data.taxonomies import taxonomy

DIRECTIONS = 256
"""Principal directions of the features that are kept."""
SIGN_GROUPS = {
    "speed limit": (0, 1, 2, 3, 4, 5, 7, 8), "other prohibition": (9, 10, 15, 16), "end of restriction": (6, 32, 41, 42),
    "mandatory": tuple(range(33, 41)), "danger": (11, *range(18, 32)), "unique": (12, 13, 14, 17),
}  # fmt: skip
"""Groups of the signs of GTSRB (Stallkamp et al., Man vs. computer, 2012)."""


@dataclass(frozen=True, eq=False)
class Data:
    """Samples of some classes, with the class tree or the sets of labels of these classes."""

    name: str
    x: torch.Tensor
    y: torch.Tensor
    names: tuple[str, ...]
    tree: dict[str, tuple[str, ...]] | None = None
    label_sets: tuple[tuple[int, ...], ...] | None = None

    def only(self, classes: np.ndarray) -> Data:
        """Return the samples of some classes, numbered from 0."""
        number = torch.full((len(self.names),), -1)
        number[torch.as_tensor(classes)] = torch.arange(len(classes))
        kept = number[self.y] >= 0
        sets = None if self.label_sets is None else tuple(self.label_sets[c] for c in classes)
        names = tuple(self.names[c] for c in classes)
        return replace(self, x=self.x[kept], y=number[self.y[kept]], names=names, label_sets=sets)

    def facts(self) -> dict:
        return {
            "taxonomy": self.tree,
            "class_names": self.names,
            "label_sets": self.label_sets,
            "labels": self.y.numpy(),
        }


def tree_of(name: str, names: Sequence[str], path: Sequence[str], label: np.ndarray) -> dict[str, tuple[str, ...]]:
    """Return class name -> its ancestors for a set of features."""
    if name == "cub200":
        return {one: above for one, above in taxonomy("cub200").items() if one in names}
    if name == "gtsrb":
        group = {number: text for text, numbers in SIGN_GROUPS.items() for number in numbers}
        return {one: (group[int(one)],) for one in names}
    if name == "pets":  # the files of cats begin with an upper-case letter
        return {one: ("cat" if one[0].isupper() else "dog",) for one in names}
    first = {int(c): Path(path[place]).parts for c, place in zip(*np.unique(label, return_index=True), strict=True)}
    tree = {}
    for (
        c,
        parts,
    ) in first.items():  # .../train/Fruit/Apple/Golden-Delicious/1.jpg, or .../train/Vegetables/Zucchini/1.jpg
        start = max(place for place, part in enumerate(parts) if part in ("train", "val", "test"))
        above = parts[start + 1 : -1]
        tree[names[c]] = tuple(above[:-1] if above[-1] == names[c] and len(above) > 2 else above)
    return tree


def read_features(file: Path) -> tuple[Data, Data]:
    """Return the training and the test half of a set: classes 1 to 100 of cub200, else a random half of the classes."""
    with np.load(file) as found:
        x, label, names, path = (found[key] for key in ("x", "label", "names", "path"))
    names = tuple(map(str, names))
    data = Data(
        file.stem, torch.as_tensor(x).float(), torch.as_tensor(label), names, tree_of(file.stem, names, path, label)
    )
    if file.stem == "cub200":
        number = {
            int(c): int(Path(path[at]).parts[-2][:3])
            for c, at in zip(*np.unique(label, return_index=True), strict=True)
        }
        train = np.array([c for c in number if number[c] <= 100])
        return scaled(data.only(train), data.only(np.setdiff1d(np.arange(len(names)), train)))
    return scaled(*halves(data, 0.5, 0))


def halves(data: Data, share: float, seed: int) -> tuple[Data, Data]:
    """Divide the classes at random."""
    order = np.random.default_rng(seed).permutation(len(data.names))
    cut = round(share * len(order))
    return data.only(np.sort(order[:cut])), data.only(np.sort(order[cut:]))


def scaled(train: Data, test: Data) -> tuple[Data, Data]:
    """Return both in the principal directions of the training features, which fit no label, in units of their mean length."""
    mean = train.x.mean(0)
    centred = train.x - mean
    directions = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -DIRECTIONS:]
    unit = (centred @ directions).norm(dim=1).mean()
    found = [replace(one, x=(one.x - mean) @ directions / unit) for one in (train, test)]
    return found[0], found[1]


def draw_glyphs(classes: int | None, per_class: int) -> tuple[Data, Data]:
    """Return the glyphs with several labels as pixels of half the size. Characters of the test half are not trained."""
    from PIL import Image

    from likewise.data.glyphs import glyph_labels

    items = glyph_labels(classes=classes, per_class=per_class)
    assert items.path is not None and items.split is not None and items.label_sets is not None
    images = (Image.open(Path(items.root, path)).convert("L").reduce(2) for path in items.path)
    x = torch.as_tensor(np.stack([np.asarray(one, np.float32).ravel() / 255 for one in images]))
    data = Data("glyph_labels", x, torch.as_tensor(items.y), items.class_name, label_sets=items.label_sets)
    train, test = (np.unique(items.y[items.split == part]) for part in ("train", "test"))
    return scaled(with_used_labels(data.only(train)), data.only(test))


def with_used_labels(data: Data) -> Data:
    """Return the data with its labels numbered from 0, without those that no class has."""
    assert data.label_sets is not None
    number = {label: at for at, label in enumerate(sorted({label for one in data.label_sets for label in one}))}
    return replace(data, label_sets=tuple(tuple(number[label] for label in one) for one in data.label_sets))


def toy() -> tuple[Data, Data]:
    """Return blobs of 24 classes in 6 groups."""
    rng, y = np.random.default_rng(0), torch.arange(480) % 24
    centre = np.repeat(rng.normal(size=(6, 16)), 4, 0) + 0.5 * rng.normal(size=(24, 16))
    x = torch.as_tensor(centre[y] + rng.normal(size=(480, 16))).float()
    names = tuple(f"c{c}" for c in range(24))
    return scaled(*halves(Data("toy", x, y, names, {f"c{c}": (f"g{c // 4}",) for c in range(24)}), 0.5, 0))
