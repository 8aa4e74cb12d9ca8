"""Estimate how many labels of the scored rows are wrong: wrong test labels make scores too low."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int

from likewise.numerics.label_evidence import discriminate
from likewise.numerics.label_noise import Noise
from likewise.types import Embedded, Items

MIN_CHECKED_ROWS = 200
"""Smallest number of rows whose labels are checked: of fewer rows, a few unusual samples look like a share of wrong labels."""

MAX_CHECKED_ROWS = 2000
"""Largest number of rows that the estimate is made from, about two seconds of one CPU core; of more rows, some are drawn."""

MIN_CLASS_ROWS = 5
"""Smallest mean number of rows of a class among the rows that the estimate is made from."""

GOOD_EXPLAINED_SHARE = 0.7
"""Share of the information in the labels that embeddings explain from which they separate the classes well."""

MIN_WRONG_SHARE, MIN_WRONG_SHARE_IF_POOR = 0.03, 0.05
"""Smallest share of wrong labels that is reported, for embeddings that separate the classes well and for other ones.

On 42 sets with right labels (40 of normal clusters, digits and breast_cancer of scikit-learn), the estimates were at most 0.003
and 0.036, and none was reported. With 8 % of their labels exchanged at random, 40 of the 42 were reported; the
number was 0.74 to 1.76 times the true one (median 1.02)."""

MIN_WRONG_LABELS = 5
"""Smallest number of wrong labels that is reported."""


def find_wrong_labels(e: Embedded, items: Items, seed: int = 0) -> dict | None:
    """Return the estimated number of wrong labels, as {"count": ..., "of": rows}; None unless it is clearly above zero.

    Labels that are exchanged with any class count. Labels that are exchanged with a similar class count only if the embeddings
    separate the classes well: otherwise they look the same as classes that the network confuses.
    """
    rows = torch.arange(len(e.y))
    if len(rows) > MAX_CHECKED_ROWS:
        drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        rows = drawn[:MAX_CHECKED_ROWS].sort().values
    label, y = e.y[rows].unique(return_inverse=True)
    if len(rows) < MIN_CHECKED_ROWS or len(label) < 2 or len(rows) < MIN_CLASS_ROWS * len(label):
        return None
    group = None if items.group is None else torch.as_tensor(items.group)[e.row[rows]]
    with torch.no_grad():
        _, noise = discriminate(e.z[rows].float(), y, len(label), seed=seed, group=group)
    share = wrong_share(noise, y)
    count = round(share * len(e.y))
    return {"count": count, "of": len(e.y)} if share > 0 and count >= MIN_WRONG_LABELS else None


def wrong_share(noise: Noise, y: Int[torch.Tensor, "N"]) -> float:
    """Return the estimated share of wrong labels; 0 if it may as well be none."""
    if not noise.informative:
        return 0.0
    frequency = torch.bincount(y).double() / len(y)
    explained = noise.gain / float(-(frequency * frequency.log()).sum())
    share = noise.any + (noise.similar if explained >= GOOD_EXPLAINED_SHARE else 0.0)
    least = MIN_WRONG_SHARE if explained >= GOOD_EXPLAINED_SHARE else MIN_WRONG_SHARE_IF_POOR
    return float(share) if np.isfinite(share) and share >= least else 0.0
