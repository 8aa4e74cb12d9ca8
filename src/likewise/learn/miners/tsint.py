from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge
from jaxtyping import Bool, Float
from torch import Tensor, nn

from likewise.core.argument_checks import ShareBelowOne
from likewise.core.contracts import Miner
from likewise.core.similarity import at_least_float32, distance, full_precision, is_traced
from likewise.core.types import LikewiseError, Pairs


class TSINT(nn.Module, Miner):
    """Drop the pairs that are probably wrong according to a teacher: positives too far apart and negatives too near.

    Paper: Ibrahimi et al., Learning with Label Noise for Image Retrieval by Selecting Interactions, WACV 2022.
    Formula: keep p where D_ip <= c+, keep n where D_in >= c-; D the teacher's distances; c+ and c- are moving averages of the
        percentiles q+ = (1 - share)^2 of D over the batch's positives and q- = (1 - q+) / (C - 1) of D over its negatives
    Differs: follows the paper's idea; its full text was not available. The percentiles are the shares of pairs that uniform
        noise leaves right and makes wrong; both momenta are ours; the teacher starts from the network itself, not from
        another one. In the first batch a threshold is the percentile of that batch; every later batch updates the threshold
        before it is applied.
    Needs: a loss of pairs, such as `Contrastive(miner=TSINT(share=0.2))`, and no memory: the teacher embeds the batch only.

    Args:
        classes: C, number of training classes; the run fills it in.
        share: noise rate, known or estimated.
        momentum: momentum of the teacher's weights per step.
        cut_momentum: momentum of the thresholds c+ and c- per step.
    """

    yields = "pairs"
    whole = True

    cuts: Tensor

    def __init__(
        self, classes: Annotated[int, Ge(2)], share: ShareBelowOne = 0.2, momentum: ShareBelowOne = 0.999,
        cut_momentum: ShareBelowOne = 0.9,
    ):  # fmt: skip
        super().__init__()
        self.classes = classes
        self.share = share
        self.momentum = momentum
        self.cut_momentum = cut_momentum
        self.teacher_z: Tensor | None = None
        self.fresh = False
        self.register_buffer("cuts", torch.tensor([torch.inf, -torch.inf]))  # no pair is dropped before the first batch

    def see_teacher(self, z: Float[Tensor, "B D"]) -> None:
        self.teacher_z, self.fresh = z.detach(), True

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None = None) -> Pairs:
        if self.teacher_z is None:
            raise LikewiseError(
                "TSINT: the miner needs the teacher's embeddings of the batch; call see_teacher(z) before the loss"
            )
        if sim.shape != (len(self.teacher_z), len(self.teacher_z)):
            raise LikewiseError(
                f"TSINT: pairs must be those of the batch with itself, got {tuple(sim.shape)} pairs and "
                f"{len(self.teacher_z)} samples of the teacher; train without a memory"
            )
        with full_precision(self.teacher_z):
            z = at_least_float32(self.teacher_z)
            d = distance(z @ z.T)
        # Once per batch: a loss may call the miner again for the same batch, and must get the same pairs.
        if self.fresh and self.training and (torch.compiler.is_compiling() or not is_traced()):
            self._update_thresholds(d, pairs)
        return Pairs(pairs.pos & (d <= self.cuts[0]), pairs.neg & (d >= self.cuts[1]))

    def _update_thresholds(self, d: Float[Tensor, "B B"], pairs: Pairs) -> None:
        self.fresh = False
        right = (1 - self.share) ** 2
        quantiles = ((pairs.pos, right), (pairs.neg, (1 - right) / (self.classes - 1)))
        found = torch.stack([percentile(d, mask, q) for mask, q in quantiles]).to(self.cuts)
        moved = torch.where(self.cuts.isinf(), found, torch.lerp(found, self.cuts, self.cut_momentum))
        self.cuts.copy_(torch.where(found.isnan(), self.cuts, moved))


def percentile(x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"], q: float) -> Float[Tensor, ""]:
    """Return the q-quantile of the values in the mask, interpolated linearly; NaN for an empty mask."""
    enough = min(x.numel(), int(q * x.numel()) + 2)  # upper bound, reached if the mask is full
    rising = x.masked_fill(~mask, torch.inf).flatten().topk(enough, largest=False).values
    last = mask.sum() - 1
    place = q * last
    low = place.long().clamp(0, enough - 1)
    below, above = rising.take(torch.stack([low, torch.minimum(low + 1, last).clamp(0, enough - 1)]))
    return (below + (above - below) * (place - low)).masked_fill(last < 0, torch.nan)
