"""Contract checks for parts, yours and ours: `check_loss(make)` raises AssertionError naming what a part breaks.

    from likewise.testing import check_loss
    check_loss(lambda: MyLoss(margin=0.3))

`make` builds a fresh part each time. Losses with classes are built for `CLASSES` classes and `DIM` dimensions.
"""

from likewise.testing.loss import CLASSES, DIM, check_loss
from likewise.testing.shelves import check_metric, check_miner, check_noise, check_sampler

__all__ = ["CLASSES", "DIM", "check_loss", "check_metric", "check_miner", "check_noise", "check_sampler"]
