"""Estimate how many labels of the scored rows are wrong: wrong test labels make scores too low."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int

from likewise.core.types import Embedded, Items
from likewise.labels.label_evidence import discriminate
from likewise.labels.label_noise import Noise

MIN_CHECKED_ROWS = 200
"""Smallest number of rows whose labels are checked: of fewer rows, a few unusual samples look like a share of wrong labels."""

MAX_CHECKED_ROWS = 2000
"""Largest number of rows that the estimate is made from, about two seconds of one CPU core; of more rows, some are drawn."""

MIN_CLASS_ROWS = 8
"""Smallest class whose labels are checked: few samples of a class among many others look like samples of these."""

GOOD_EXPLAINED_SHARE = 0.7
"""Share of the information in the labels that embeddings explain from which they separate the classes well."""

MIN_EXPLAINED_SHARE = 0.25
"""Smallest such share with which anything is reported: what a network does not separate looks like wrong labels.

With right labels, an untrained network on drawn characters (0.12) gave an estimate of 13 % wrong labels. On features of five data
sets (Pets, Caltech-101, GTSRB, Omniglot, CUB200), made worse in five steps by noise and a random projection, right labels gave a
false report at 0.02, 0.03 and 0.23, and in none of the eleven cases from 0.29 on."""

MIN_WRONG_SHARE, MIN_WRONG_SHARE_IF_POOR = 0.03, 0.05
"""Smallest share of wrong labels that is reported, for embeddings that separate the classes well and for other ones.

On 36 sets with right labels (34 of normal clusters, digits and breast_cancer of scikit-learn), the estimates were at most 0.003
and 0.029, and on embeddings of drawn characters 0.033; none was reported. With 8 % of the labels exchanged at random, 34 of the
36 were reported; the number was 0.70 to 1.43 times the true one (median 1.00). These limits and
`MIN_CLASS_ROWS` were chosen on the same sets; six more sets, of small classes, were not checked by this rule."""

MIN_WRONG_LABELS = 5
"""Smallest number of wrong labels that is reported."""


def find_wrong_labels(e: Embedded, items: Items, seed: int = 0) -> dict | None:
    """Return the estimated number of wrong labels, as {"count": ..., "of": labels}; None unless it is clearly above zero.

    Labels that are exchanged with any class count. Labels that are exchanged with a similar class count only if the embeddings
    separate the classes well: otherwise they look the same as classes that the network confuses.
    """
    rows = drawn_rows(e.y, seed)
    if len(rows) < MIN_CHECKED_ROWS:
        return None
    label, y = e.y[rows].unique(return_inverse=True)
    if len(label) < 2:
        return None
    group = None if items.group is None else torch.as_tensor(items.group)[e.row[rows]]
    with torch.no_grad():
        _, noise = discriminate(e.z[rows].float(), y, len(label), seed=seed, group=group)
    share, checked = wrong_share(noise, y), len(rows) if len(e.y) <= MAX_CHECKED_ROWS else len(e.y)
    count = round(share * checked)
    return {"count": count, "of": checked} if share > 0 and count >= MIN_WRONG_LABELS else None


def drawn_rows(y: Int[torch.Tensor, "N"], seed: int) -> Int[torch.Tensor, "n"]:
    """Return the rows that the estimate is made from, in order: at most `MAX_CHECKED_ROWS`, without those of small classes."""
    rows = torch.arange(len(y))
    if len(rows) > MAX_CHECKED_ROWS:
        drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        rows = drawn[:MAX_CHECKED_ROWS].sort().values
    _, own, size = y[rows].unique(return_inverse=True, return_counts=True)
    return rows[size[own] >= MIN_CLASS_ROWS]


def wrong_share(noise: Noise, y: Int[torch.Tensor, "N"]) -> float:
    """Return the estimated share of wrong labels; 0 if it may as well be none."""
    if not noise.informative:
        return 0.0
    frequency = torch.bincount(y).double() / len(y)
    explained = noise.gain / float(-(frequency * frequency.log()).sum())
    if explained < MIN_EXPLAINED_SHARE:
        return 0.0
    share = noise.any + (noise.similar if explained >= GOOD_EXPLAINED_SHARE else 0.0)
    least = MIN_WRONG_SHARE if explained >= GOOD_EXPLAINED_SHARE else MIN_WRONG_SHARE_IF_POOR
    return float(share) if np.isfinite(share) and share >= least else 0.0
