from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.core.argument_checks import Count, Share
from likewise.core.contracts import NoiseModel
from likewise.core.errors import LikewiseError
from likewise.core.kmeans import kmeans
from likewise.core.vectors import Vectors, in_memory
from likewise.data.features import read_arrays
from likewise.data.noise._selection import number_classes


class SmallCluster(NoiseModel):
    """Whole classes are split into small clusters of similar samples, and each cluster gets the label of another class.

    Wrong labels therefore come in groups of similar images, as with wrong search results. The split classes disappear.

    Paper: the small cluster noise of Liu et al., Noise-resistant Deep Metric Learning with Ranking-based Instance Selection
        (PRISM), CVPR 2021.
    Formula: until share * N labels are wrong: draw a class, run k-means on its current n samples with n // 2 centres, and assign
        each cluster to a remaining class
    Differs: the paper does not define when to stop, nor whether a class that received clusters may be split; here, as in its
        published lists, the share is exceeded by less than the last class, and every remaining class may be split.
        `target="nearest"` is ours.

    Args:
        features: features of the samples, or of all rows of the data: an array, a .npy file, or an .npz file with x.
        share: smallest share of the labels that become wrong, in [0, 1).
        clusters: number of clusters of a class; None: half the number of its samples.
        target: new class of a cluster: a random one, or the class whose mean is nearest to the centre of the cluster.
        rows: row of each sample in the data; the data fills them in.
        samples: number of rows of the data; the data fills it in.
    """

    def __init__(
        self,
        features: str | Float[np.ndarray, "n F"],
        share: Share = 0.3,
        clusters: Count | None = None,
        target: Literal["random", "nearest"] = "random",
        rows: Int[np.ndarray, "N"] | None = None,
        samples: int | None = None,
    ):
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
        now, remaining, wrong = place.copy(), np.arange(len(classes)), 0
        # feature sums of each class
        total = torch.zeros(len(classes), x.shape[1]).index_add_(0, torch.as_tensor(place), x)
        while wrong < self.share * len(y):
            split_class = rng.choice(remaining)
            remaining = remaining[remaining != split_class]
            if not len(remaining):
                raise LikewiseError(
                    f"SmallCluster: at least one class must remain, but share={self.share} would split all {len(classes)}; "
                    "lower share"
                )
            members = np.flatnonzero(now == split_class)
            pieces = min(self.clusters or max(len(members) // 2, 1), len(members))
            clusters = kmeans(x[members], pieces, seed=int(rng.integers(2**31)))
            if self.target == "random":
                targets = rng.choice(remaining, pieces)
            else:
                mean = total[remaining] / torch.as_tensor(np.bincount(now)[remaining, None])
                targets = remaining[(mean.square().sum(1) - 2 * clusters.centre @ mean.T).argmin(1).numpy()]
            now[members] = targets[clusters.label.numpy()]
            total.index_add_(0, torch.as_tensor(now[members]), x[members])
            wrong += int((place[members] == split_class).sum())  # members from other classes were wrong already
        return classes[now].astype(y.dtype)

    def _features(self, count: int) -> Float[np.ndarray, "N F"]:
        x = read_arrays(str(Path(self.features).expanduser()))[0] if isinstance(self.features, str) else self.features
        x = in_memory(x) if isinstance(x, Vectors) else x
        if x.ndim != 2 or not np.issubdtype(x.dtype, np.floating):
            raise LikewiseError(
                f"SmallCluster: features must be floats with one row per sample, got {x.dtype} of shape {x.shape}; embed the data"
            )
        if len(x) != count:
            if self.rows is None or len(self.rows) != count or len(x) != self.samples:
                raise LikewiseError(
                    f"SmallCluster: features must have a row for each of the {count} samples or for all rows of the data, got "
                    f"{len(x)}; embed the same data"
                )
            x = x[self.rows]
        if not np.isfinite(x).all():
            raise LikewiseError(
                "SmallCluster: features must be finite, got NaN or infinite values; embed the data again"
            )
        return np.ascontiguousarray(x, np.float32)
