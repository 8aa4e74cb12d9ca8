from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.argument_checks import Count, Positive
from likewise.core.contracts import Loss, Relevance
from likewise.core.similarity import is_traced
from likewise.core.types import LikewiseError, Pairs, Ref
from likewise.learn.losses._blockwise import by_rows
from likewise.learn.losses._hyperbolic import SPACES_BY_NAME, SpaceName


class SmoothAP(Loss):
    """One minus the average precision of every sample as a query, with a sigmoid in place of the step function of ranks.

    Paper: Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020, eq. 5 to 7.
    Formula: l_i = 1 - 1/|P_i| sum_{k in P_i} (1 + sum_{j in P_i, j != k} g(s_ij - s_ik)) / (1 + sum_{j != k} g(s_ij - s_ik))
        with g(x) = 1 / (1 + e^(-x / temperature))
    Differs: nothing. Classes may have any size, and samples any order. The query is not one of its own results (in the authors'
        code it is, as a positive of rank 1). A query without positives has the value 0, and the mean is over the others.
    Graded: l_i = 1 - 1/sum_k r_ik sum_{k in P_i} r_ik (r_ik + sum_{j in P_i, j != k} r_ij g(s_ij - s_ik)) / (1 + sum_{j != k}
        g(s_ij - s_ik)), the generalised precision of Kekalainen & Jarvelin, JASIST 2002; P_i by the threshold, as time grows
        with its size.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        temperature: how sharp the sigmoid is. Paper: 0.01.
        largest_class: upper bound of the samples of a class in the batch; the run fills it in if its sampler has one. Time
            grows with it, and queries of a larger class get NaN. None, or with a reference: the CPU counts the samples; on other
            devices counting would need a device sync, so every sample is treated as a possible positive, which is slow in
            large batches.
        space: space of the similarities. "hyperbolic" changes the strength of pull and push, not the order of neighbours; a
            similarity of 1 or 0.5 means the same, and miners and evaluation use the cosine. See `likewise.losses._hyperbolic`.
    """

    relevance_inputs = ("pairs",)
    graded = True

    def __init__(
        self, temperature: Positive = 0.01, largest_class: Count | None = None,
        space: SpaceName = "cosine",
    ):  # fmt: skip
        super().__init__()
        self.temperature = temperature
        self.largest_class = largest_class
        self.space = space

    def check_relevance(self, relevance: Relevance) -> None:
        super().check_relevance(relevance)
        if self.largest_class is not None:
            raise LikewiseError(
                f"SmoothAP: with a relevance, the size of a class does not bound the positives of a sample, got "
                f"largest_class={self.largest_class}; drop it"
            )

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        return by_rows(partial(self._rows, None if ref else self.largest_class), z, y, ref, relevance=self.relevance)

    def _rows(self, largest_class: int | None, sim: Float[Tensor, "b R"], pairs: Pairs):
        upto = pairs.pos.cumsum(1, dtype=torch.int32)
        count = upto[:, -1]
        most = sim.shape[1] if largest_class is None else max(1, min(largest_class - 1, sim.shape[1]))  # positives
        if largest_class is None and sim.device.type == "cpu" and not is_traced():
            most = int(count.max())
        elif largest_class is None and is_traced() and most > 256:
            raise LikewiseError(
                f"SmoothAP: if compiled or transformed, the loss must have a bound on the samples of a class, got {most} samples "
                "and no bound; set it, for example SmoothAP(largest_class=4)"
            )
        number = torch.arange(1, most + 1, device=sim.device, dtype=torch.int32).expand(len(sim), most).contiguous()
        # Columns of the first, second, ... positive of every row.
        column = torch.searchsorted(upto, number).clamp_max(sim.shape[1] - 1)
        is_one = number <= count[:, None]

        sim = SPACES_BY_NAME[self.space].similarity(sim) / (2 * self.temperature)
        all_pairs = sim.masked_fill(~(pairs.pos | pairs.neg), -torch.inf)
        gain = None if pairs.value is None else pairs.value.to(sim).gather(1, column) * is_one
        total = count.clamp_min(1) if gain is None else gain.sum(1).clamp_min(torch.finfo(sim.dtype).tiny)
        precise = precision_sum(all_pairs, sim.gather(1, column), is_one, gain) / total
        return (1 - precise).where(count > 0, 0.0).masked_fill(
            count >= (largest_class or sim.shape[1] + 1), torch.nan
        ), count > 0


def precision_sum(
    x: Float[Tensor, "b R"],
    pos: Float[Tensor, "b K"],
    is_one: Bool[Tensor, "b K"],
    gain: Float[Tensor, "b K"] | None = None,
) -> Float[Tensor, "b"]:
    """Return, for every row, the sum over its positives of rank among the positives / rank among all samples.

    Ranks count from 1 and are smooth: rank of k = 1/2 + sum_j sigmoid(2 x_j - 2 x_k), k itself being one of the j.

    Args:
        gain: weight of every positive, in the outer sum and in the ranks among the positives; None: 1.
    """
    return _precision_sum(x, pos, is_one, gain) if is_traced() else _PrecisionSum.apply(x, pos, is_one, gain)


def _precision_sum(x: Tensor, pos: Tensor, is_one: Tensor, gain: Tensor | None) -> Tensor:
    above, above_pos = ((v[:, None, :] - pos[:, :, None]).tanh() + 1 for v in (x, pos.masked_fill(~is_one, -torch.inf)))
    if gain is not None:
        return (gain * ((above_pos * gain[:, None, :]).sum(2) + gain) / (above.sum(2) + 1)).where(is_one, 0.0).sum(1)
    return ((above_pos.sum(2) + 1) / (above.sum(2) + 1)).where(is_one, 0.0).sum(1)


class _PrecisionSum(torch.autograd.Function):
    """`_precision_sum` with its own gradient, one positive at a time, so that no temporary is larger than the rows.

    Computed by tanh (twice the sigmoid minus 1), which has no slow ranges on the CPU.
    """

    @staticmethod
    def forward(ctx, x: Tensor, pos: Tensor, is_one: Tensor, gain: Tensor | None) -> Tensor:
        ones, others = is_one.to(x) if gain is None else gain, pos.masked_fill(~is_one, -torch.inf)
        total, by_x, by_pos = x.new_zeros(len(x), 1), torch.zeros_like(x), torch.zeros_like(pos)
        above, slope = torch.empty_like(x), torch.empty_like(x)
        for k in range(pos.shape[1]):
            own = pos[:, k : k + 1]
            torch.sub(x, own, out=above).tanh_().add_(1)
            above_pos = (others - own).tanh_().add_(1)
            own_gain = ones[:, k : k + 1]
            inverse = above.sum(1, keepdim=True).add_(1).reciprocal_()
            share = own_gain * inverse
            if gain is None:
                precise = share * above_pos.sum(1, keepdim=True).add_(1)
            else:
                precise = share * (above_pos * gain).sum(1, keepdim=True).add_(own_gain)
            total += precise
            torch.sub(2, above, out=slope).mul_(above)  # tanh' = (1 + tanh) (1 - tanh)
            slope_pos = (2 - above_pos).mul_(above_pos)
            slope_pos = slope_pos if gain is None else slope_pos.mul_(gain)
            precise = precise.mul_(inverse)
            by_x.addcmul_(slope, precise, value=-1)
            by_pos.addcmul_(slope_pos, share)
            by_pos[:, k : k + 1] += precise * slope.sum(1, keepdim=True) - share * slope_pos.sum(1, keepdim=True)
        ctx.save_for_backward(x, pos, is_one, by_x, by_pos, gain)
        return total[:, 0]

    @staticmethod
    def backward(ctx, grad: Tensor):
        x, pos, is_one, by_x, by_pos, gain = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivative needed: record the backward pass
            x, pos = x.view_as(x), pos.view_as(pos)  # separate tensors, because pos was computed from x
            again = _precision_sum(x, pos, is_one, gain)
            return *torch.autograd.grad(again, (x, pos), grad, create_graph=True), None, None
        return by_x * grad[:, None], by_pos * grad[:, None], None, None
