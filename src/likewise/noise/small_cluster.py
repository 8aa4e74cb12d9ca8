from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.contracts import NoiseModel
from likewise.errors import LikewiseError
from likewise.noise._selection import check_share, number_classes
from likewise.numerics.kmeans import kmeans


class SmallCluster(NoiseModel):
    """Whole classes dissolve: cut into small clusters of similar samples, each goes to another class as one.

    So wrong labels come in groups that look alike, as when a search engine files things under a wrong word. The dissolved
    classes are gone.

    Paper: the small cluster noise of Liu et al., Noise-resistant Deep Metric Learning with Ranking-based Instance Selection
        (PRISM), CVPR 2021.
    Formula: until share * N labels are wrong: draw a class, k-means over the n samples now in it with n // 2 centres, and give
        each cluster to a class that is left
    Differs: the paper does not say when to stop, nor whether a class that has taken in clusters may dissolve; here, as in its
        lists, the share is passed by less than the last class, and any class that is left may. `target="nearest"` is ours.

    Args:
        features: of the samples, or of all rows of the data: an array, a .npy file, or an .npz file with x.
        share: how many labels become wrong at least, in [0, 1).
        clusters: pieces of a class; None: half as many as it has samples.
        target: a cluster's new class: any, or the one whose mean is nearest to its centre.
        rows: row of each sample in the data; the data fills them in.
        samples: how many rows the data has; the data fills it in.
    """

    def __init__(
        self,
        features: str | Float[np.ndarray, "n F"],
        share: float = 0.3,
        clusters: int | None = None,
        target: Literal["random", "nearest"] = "random",
        rows: Int[np.ndarray, "N"] | None = None,
        samples: int | None = None,
    ):
        check_share("SmallCluster", share)
        if clusters is not None and clusters < 1:
            raise LikewiseError(f"SmallCluster: clusters must be 1 or more, got {clusters}")
        self.features = features
        self.share = share
        self.clusters = clusters
        self.target = target
        self.rows = rows
        self.samples = samples

    def __call__(self, y: Int[np.ndarray, "N"], rng: np.random.Generator) -> Int[np.ndarray, "N"]:
        if not self.share:
            return y.copy()
        classes, place = number_classes("SmallCluster", y, self.share)
        x = torch.as_tensor(self._features(len(y)))
        now, left, wrong = place.copy(), np.arange(len(classes)), 0
        total = torch.zeros(len(classes), x.shape[1]).index_add_(0, torch.as_tensor(place), x)  # features of each class
        while wrong < self.share * len(y):
            gone = rng.choice(left)
            left = left[left != gone]
            if not len(left):
                raise LikewiseError(
                    f"SmallCluster: share={self.share} would dissolve every class of {len(classes)}; lower it"
                )
            members = np.flatnonzero(now == gone)
            pieces = min(self.clusters or max(len(members) // 2, 1), len(members))
            found = kmeans(x[members], pieces, seed=int(rng.integers(2**31)))
            if self.target == "random":
                targets = rng.choice(left, pieces)
            else:
                mean = total[left] / torch.as_tensor(np.bincount(now)[left, None])
                targets = left[(mean.square().sum(1) - 2 * found.centre @ mean.T).argmin(1).numpy()]
            now[members] = targets[found.label.numpy()]
            total.index_add_(0, torch.as_tensor(now[members]), x[members])
            wrong += int((place[members] == gone).sum())  # those that came from elsewhere were wrong before
        return classes[now].astype(y.dtype)

    def _features(self, count: int) -> Float[np.ndarray, "N F"]:
        x = read_features(self.features) if isinstance(self.features, str) else self.features
        if x.ndim != 2 or not np.issubdtype(x.dtype, np.floating):
            raise LikewiseError(
                f"SmallCluster: features must be numbers with a row a sample, got {x.dtype} of shape {x.shape}"
            )
        if len(x) != count:
            if self.rows is None or len(self.rows) != count or len(x) != self.samples:
                raise LikewiseError(
                    f"SmallCluster: features must have a row for each of the {count} samples or for all rows of the data, got "
                    f"{len(x)}; embed the data that is to be spoiled"
                )
            x = x[self.rows]
        if not np.isfinite(x).all():
            raise LikewiseError("SmallCluster: features must be finite, and some are not; embed the data again")
        return np.ascontiguousarray(x, np.float32)


def read_features(file: str) -> np.ndarray:
    path = Path(file).expanduser()
    try:
        found = np.load(path, allow_pickle=False)
        return found["x"] if path.suffix.lower() == ".npz" else found
    except Exception as error:  # numpy, zipfile and zlib raise many kinds for damaged files
        raise LikewiseError(
            f"SmallCluster: features must be a .npy file, or an .npz file with x, and '{file}' cannot be read so ({error})"
        ) from None
