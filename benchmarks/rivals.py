"""Label scores of other tools, for benchmarks: cleanlab and SelfClean. Low scores are suspect.

cleanlab gets what its documentation recommends: out-of-sample probabilities of a logistic regression, and those of nearest
neighbours. Folds are shuffled: the order of data sorted by true class would otherwise reveal wrong labels. SelfClean's score
is its published formula, computed here: its package needs the whole matrix of distances in memory.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

CLEANLAB_METHODS = ("self_confidence", "normalized_margin")

MAX_BLOCK_VALUES = 1 << 23
"""Maximum number of distances that are computed at a time."""


def cleanlab_scores(
    y: np.ndarray, regressions: dict[str, np.ndarray], neighbours: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Return cleanlab's label scores by name, and by model its share of labels with an issue. Empty without cleanlab.

    Args:
        y: class numbers without gaps.
        regressions: name of a model -> features of its logistic regression.
        neighbours: embeddings whose nearest neighbours vote.
    """
    try:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores
    except ImportError as error:
        print(f"without cleanlab: {error}; pip install cleanlab")
        return {}, {}
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.neighbors import KNeighborsClassifier

    folds = StratifiedKFold(min(5, int(np.bincount(y).max())), shuffle=True, random_state=0)
    ways = {name: (LogisticRegression(max_iter=1000), x) for name, x in regressions.items()}
    ways["neighbours"] = (KNeighborsClassifier(10, metric="cosine"), neighbours)
    scores, shares = {}, {}
    for name, (model, x) in ways.items():
        p = cross_val_predict(model, x, y, cv=folds, method="predict_proba")
        p = (p + 1e-9) / (p + 1e-9).sum(1, keepdims=True)
        for method in CLEANLAB_METHODS:
            scores[f"cleanlab, {name}, {method}"] = get_label_quality_scores(y, p, method=method)
        shares[f"cleanlab, {name}"] = float(np.mean(find_label_issues(y, p, n_jobs=1)))
    return scores, shares


def selfclean_score(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return SelfClean's label score: how near the nearest sample of the own class is, beside the nearest of another class.

    Paper: Gröger et al., Intrinsic Self-Supervision for Data Quality Audits, NeurIPS 2024.
    Formula: other² / (own² + other²), with the distances (1 - cosine) / 2; for a sample alone in its class, own = its largest
        distance to another class
    """
    unit, label = F.normalize(torch.as_tensor(z).double(), dim=1), torch.as_tensor(y)
    found = []
    for rows in torch.arange(len(unit)).split(max(1, MAX_BLOCK_VALUES // len(unit))):
        far = ((1 - unit[rows] @ unit.T) / 2).clamp(0, 1)
        same = label[rows, None] == label
        other = far.masked_fill(same, torch.inf).amin(1)
        furthest = far.masked_fill(same, -torch.inf).amax(1)
        own = far.masked_fill(~same | (rows[:, None] == torch.arange(len(unit))), torch.inf).amin(1)
        own = torch.where(own.isinf(), furthest, own)
        found.append((other**2 / (own**2 + other**2)).nan_to_num(0.5))  # both distances 0: cannot tell
    return torch.cat(found).numpy()
