from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.contracts import Loss
from likewise.losses._blockwise import by_rows
from likewise.losses._hyperbolic import SPACES_BY_NAME, check_space
from likewise.similarity import observed
from likewise.types import LikewiseError, Pairs, Ref


class SmoothAP(Loss):
    """Raise the average precision of every sample as a query, with a sigmoid in place of "is ranked above".

    Paper: Brown et al., Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval, ECCV 2020, eq. 5 to 7.
    Formula: l_i = 1 - 1/|P_i| sum_{k in P_i} (1 + sum_{j in P_i, j != k} g(s_ij - s_ik)) / (1 + sum_{j != k} g(s_ij - s_ik))
        with g(x) = 1 / (1 + e^(-x / temperature))
    Differs: nothing. Classes may have any sizes and stand in any order. The query is not among its own answers (in the authors'
        code it is, as a positive that it always finds). A query without positives gives 0, and the mean is over the others.
    Needs: two samples of a class in the batch; use `SamplesPerClass`.

    Args:
        temperature: how sharp the sigmoid is. Paper: 0.01.
        largest_class: the most samples a class has in the batch; the run fills it in where its sampler knows. Time grows with
            it, and queries of a larger class get NaN. None, or compared with a reference: counted on the CPU, which costs
            nothing; elsewhere counting would mean waiting for the device, so every sample is taken for a possible positive,
            which is slow in large batches.
        space: where similarities are measured. "hyperbolic" keeps what 1 and 0.5 mean; it bends pull and push, not the order of
            neighbours, so miners and evaluation keep the cosine. See `likewise.losses._hyperbolic`.
    """

    def __init__(
        self, temperature: float = 0.01, largest_class: int | None = None,
        space: Literal["cosine", "hyperbolic"] = "cosine",
    ):  # fmt: skip
        super().__init__()
        check_space(space, "SmoothAP")
        if temperature <= 0:
            raise LikewiseError(f"SmoothAP: temperature must be above 0, got {temperature}; the paper takes 0.01")
        if largest_class is not None and largest_class < 1:
            raise LikewiseError(
                f"SmoothAP: largest_class must be 1 or more, got {largest_class}; None counts for itself"
            )
        self.temperature = temperature
        self.largest_class = largest_class
        self.space = space

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        return by_rows(partial(self._rows, None if ref else self.largest_class), z, y, ref)

    def _rows(self, largest_class: int | None, sim: Float[Tensor, "b R"], pairs: Pairs):
        upto = pairs.pos.cumsum(1, dtype=torch.int32)
        count = upto[:, -1]
        most = sim.shape[1] if largest_class is None else max(1, min(largest_class - 1, sim.shape[1]))  # positives
        if largest_class is None and sim.device.type == "cpu" and not observed():
            most = int(count.max())
        elif largest_class is None and observed() and most > 256:
            raise LikewiseError(
                f"SmoothAP: compiled or transformed, it would compare {most} x {most} answers of every query; say how many "
                "samples a class has at most: SmoothAP(largest_class=4)"
            )
        number = torch.arange(1, most + 1, device=sim.device, dtype=torch.int32).expand(len(sim), most).contiguous()
        column = torch.searchsorted(upto, number).clamp_max(
            sim.shape[1] - 1
        )  # where a row's first, second ... positive is
        is_one = number <= count[:, None]

        sim = SPACES_BY_NAME[self.space].similarity(sim) / (2 * self.temperature)
        everybody = sim.masked_fill(~(pairs.pos | pairs.neg), -torch.inf)
        precise = precision_sum(everybody, sim.gather(1, column), is_one) / count.clamp_min(1)
        return (1 - precise).where(count > 0, 0.0).masked_fill(
            count >= (largest_class or sim.shape[1] + 1), torch.nan
        ), count > 0


def precision_sum(
    x: Float[Tensor, "b R"], pos: Float[Tensor, "b K"], is_one: Bool[Tensor, "b K"]
) -> Float[Tensor, "b"]:
    """The sum over a row's positives of rank among the positives / rank among everybody.

    Ranks count from 1 and are smooth: rank of k = 1/2 + sum_j sigmoid(2 x_j - 2 x_k), k itself being one of the j.
    """
    return _precision_sum(x, pos, is_one) if observed() else _PrecisionSum.apply(x, pos, is_one)


def _precision_sum(x: Tensor, pos: Tensor, is_one: Tensor) -> Tensor:
    above, above_pos = ((v[:, None, :] - pos[:, :, None]).tanh() + 1 for v in (x, pos.masked_fill(~is_one, -torch.inf)))
    return ((above_pos.sum(2) + 1) / (above.sum(2) + 1)).where(is_one, 0.0).sum(1)


class _PrecisionSum(torch.autograd.Function):
    """The same with its gradient, one positive after another, so that nothing is larger than the rows.

    By way of tanh, twice the sigmoid less 1: on the CPU it has no slow ranges.
    """

    @staticmethod
    def forward(ctx, x: Tensor, pos: Tensor, is_one: Tensor) -> Tensor:
        ones, others = is_one.to(x), pos.masked_fill(~is_one, -torch.inf)
        total, by_x, by_pos = x.new_zeros(len(x), 1), torch.zeros_like(x), torch.zeros_like(pos)
        above, slope = torch.empty_like(x), torch.empty_like(x)
        for k in range(pos.shape[1]):
            own = pos[:, k : k + 1]
            torch.sub(x, own, out=above).tanh_().add_(1)
            above_pos = (others - own).tanh_().add_(1)
            share = ones[:, k : k + 1] / above.sum(1, keepdim=True).add_(1)
            precise = share * above_pos.sum(1, keepdim=True).add_(1)
            total += precise
            torch.sub(2, above, out=slope).mul_(above)  # tanh' = (1 + tanh) (1 - tanh)
            slope_pos = (2 - above_pos).mul_(above_pos)
            precise = precise.mul_(share)
            by_x.addcmul_(slope, precise, value=-1)
            by_pos.addcmul_(slope_pos, share)
            by_pos[:, k : k + 1] += precise * slope.sum(1, keepdim=True) - share * slope_pos.sum(1, keepdim=True)
        ctx.save_for_backward(x, pos, is_one, by_x, by_pos)
        return total[:, 0]

    @staticmethod
    def backward(ctx, grad: Tensor):
        x, pos, is_one, by_x, by_pos = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this gradient: record it
            x, pos = x.view_as(x), pos.view_as(pos)  # copies, for the one is made of the other
            again = _precision_sum(x, pos, is_one)
            return *torch.autograd.grad(again, (x, pos), grad, create_graph=True), None
        return by_x * grad[:, None], by_pos * grad[:, None], None
