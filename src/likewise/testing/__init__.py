"""Contract checks for components, yours and ours. Each raises an AssertionError that states the violated rule.

    from likewise.testing import check_loss
    check_loss(lambda: MyLoss(margin=0.3))

`make` returns a new component at every call. Components with classes must be built for `CLASSES` classes and `DIM` dimensions,
and components that need the training labels for `LABELS`.
"""

from likewise.testing.components import (
    check_label_noise,
    check_metric,
    check_miner,
    check_noise,
    check_reader,
    check_relevance,
    check_sampler,
)
from likewise.testing.confidence import CHECK_LABELS, check_confidence
from likewise.testing.loss import CHECK_CLASSES, CHECK_DIM, check_loss
from likewise.testing.term import check_term

__all__ = [
    "CHECK_CLASSES",
    "CHECK_DIM",
    "CHECK_LABELS",
    "check_confidence",
    "check_label_noise",
    "check_loss",
    "check_metric",
    "check_miner",
    "check_noise",
    "check_reader",
    "check_relevance",
    "check_sampler",
    "check_term",
]
