from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from likewise.contracts import Miner
from likewise.similarity import at_least_float32, distance, full_precision, observed
from likewise.types import LikewiseError, Pairs


class TSINT(nn.Module, Miner):
    """Leave out the pairs that a teacher takes for wrong: class mates far apart, and strangers too near.

    Paper: Ibrahimi et al., Learning with Label Noise for Image Retrieval by Selecting Interactions, WACV 2022.
    Formula: keep p where D_ip <= c+, keep n where D_in >= c-; D the teacher's distances; c+ and c- are moving averages of the
        percentiles q+ = (1 - share)^2 of D over the batch's positives and q- = (1 - q+) / (C - 1) of D over its negatives
    Differs: only the paper's idea is followed, for its text was not at hand. The percentiles are the shares of pairs that
        uniform noise leaves right and makes wrong; both momenta are ours; the teacher starts from the network itself, not from
        another one. In the first batch a cut is the batch's own percentile; later batches move it before they are cut.
    Needs: a loss of pairs, such as `Contrastive(miner=TSINT(share=0.2))`, and no memory: the teacher sees the batch alone.

    Args:
        classes: C, number of training classes; the run fills it in.
        share: the share of wrong labels, known or guessed.
        momentum: how much of itself the teacher keeps at a step.
        cut_momentum: how much of itself a cut keeps at a step.
    """

    yields = "pairs"
    whole = True

    cuts: Tensor

    def __init__(self, classes: int, share: float = 0.2, momentum: float = 0.999, cut_momentum: float = 0.9):
        super().__init__()
        if classes < 2:
            raise LikewiseError(f"TSINT: two classes or more are needed, got classes={classes}")
        if not 0 <= share < 1:
            raise LikewiseError(f"TSINT: share is the share of wrong labels, 0 or more and below 1, got {share}")
        if not (0 <= momentum < 1 and 0 <= cut_momentum < 1):
            raise LikewiseError(
                f"TSINT: momenta must be 0 or more and below 1, got momentum={momentum}, cut_momentum={cut_momentum}"
            )
        self.classes = classes
        self.share = share
        self.momentum = momentum
        self.cut_momentum = cut_momentum
        self.seen: Tensor | None = None
        self.fresh = False
        self.register_buffer("cuts", torch.tensor([torch.inf, -torch.inf]))  # nothing is cut before the first look

    def see_teacher(self, z: Float[Tensor, "B D"]) -> None:
        self.seen, self.fresh = z.detach(), True

    def __call__(self, sim: Float[Tensor, "B R"], pairs: Pairs, dim: int, margin: float | None = None) -> Pairs:
        if self.seen is None:
            raise LikewiseError("TSINT: it needs a teacher's view of the batch; call look(z) before the loss")
        if sim.shape != (len(self.seen), len(self.seen)):
            raise LikewiseError(
                f"TSINT: the teacher saw {len(self.seen)} samples, but {tuple(sim.shape)} pairs are to be chosen from; "
                "compare the batch with itself, without a memory"
            )
        with full_precision(self.seen):
            z = at_least_float32(self.seen)
            d = distance(z @ z.T)
        # Once a look: a loss may ask again for the same batch, and must get the same answer.
        if self.fresh and self.training and (torch.compiler.is_compiling() or not observed()):
            self._move(d, pairs)
        return Pairs(pairs.pos & (d <= self.cuts[0]), pairs.neg & (d >= self.cuts[1]))

    def _move(self, d: Float[Tensor, "B B"], pairs: Pairs) -> None:
        self.fresh = False
        right = (1 - self.share) ** 2
        sides = ((pairs.pos, right), (pairs.neg, (1 - right) / (self.classes - 1)))
        found = torch.stack([percentile(d, mask, q) for mask, q in sides]).to(self.cuts)
        moved = torch.where(self.cuts.isinf(), found, torch.lerp(found, self.cuts, self.cut_momentum))
        self.cuts.copy_(torch.where(found.isnan(), self.cuts, moved))


def percentile(x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"], q: float) -> Float[Tensor, ""]:
    """The value below which a share q of those in the mask lies, on a line between the two nearest; NaN for an empty mask."""
    enough = min(x.numel(), int(q * x.numel()) + 2)  # were all in the mask
    rising = x.masked_fill(~mask, torch.inf).flatten().topk(enough, largest=False).values
    last = mask.sum() - 1
    place = q * last
    low = place.long().clamp(0, enough - 1)
    below, above = rising.take(torch.stack([low, torch.minimum(low + 1, last).clamp(0, enough - 1)]))
    return (below + (above - below) * (place - low)).masked_fill(last < 0, torch.nan)
