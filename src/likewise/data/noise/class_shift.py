from __future__ import annotations

import numpy as np
from jaxtyping import Int

from likewise.core.argument_checks import Count, Share
from likewise.core.contracts import NoiseModel
from likewise.core.errors import LikewiseError
from likewise.data.noise._selection import choose, number_classes


class ClassShift(NoiseModel):
    """A share of the samples gets the label `shift` class numbers higher; each class has exactly one wrong label.

    If the order of the classes is meaningful (birds by family), the wrong label is often a related class.

    Paper: Liu et al., Debugging and Explaining Metric Learning Approaches: An Influence Function Based Perspective, NeurIPS 2022.
    Formula: new = y + shift, or y - shift if class y + shift does not exist; classes numbered 0..C-1
    Differs: exactly round(share * N) labels change, where the paper's code truncates; `exact=False` changes each label with
        probability `share`.

    Args:
        share: share of the labels that become wrong, in [0, 1].
        shift: difference of the class numbers. Paper's code: 5.
        exact: whether `share` is the exact share or the expected share.
    """

    def __init__(self, share: Share = 0.3, shift: Count = 5, exact: bool = True):
        self.share = share
        self.shift = shift
        self.exact = exact

    def __call__(self, y: Int[np.ndarray, "N"], rng: np.random.Generator) -> Int[np.ndarray, "N"]:
        classes, place = number_classes("ClassShift", y, self.share)
        if self.share and len(classes) < 2 * self.shift:
            raise LikewiseError(
                f"ClassShift: shift={self.shift} needs at least {2 * self.shift} classes, got {len(classes)}; lower shift"
            )
        rows = choose(len(y), self.share, self.exact, rng)
        further = place[rows] + self.shift
        noisy = y.copy()
        noisy[rows] = classes[np.where(further < len(classes), further, further - 2 * self.shift)]
        return noisy
