from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive, ShareBelowOne
from likewise.core.contracts import Confidence
from likewise.core.durations import steps_of
from likewise.core.types import LikewiseError, PeerView, SampleWeights


class CoTeaching(Confidence):
    """Two networks in training; each trains on the samples with the lowest loss under the other network.

    Paper: Han et al., Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels, NeurIPS 2018.
    Formula: w_i = 1 for the floor((1 - R) n) samples of least loss under the other network, else 0; in epoch e
        R = share^power min(e / (T - 1), 1) while e < T = ramp, then share
    Differs: the loss is the mean over the chosen samples (the authors' code divides by their number twice), and at least one
        sample is chosen. R follows the code; in the paper the exponent applies to e. With a pair loss, dropped samples still
        appear as partners.
    Needs: two networks in training (`peers` = 2). The paper trains a classifier: `Softmax`.

    Args:
        share: the noise rate, known or estimated.
        per_pass: steps per epoch; the run fills it in.
        ramp: T, the time until that share is dropped, in epochs ("10e") or steps. Paper: 10 epochs.
        power: exponent of the share in the ramp. Paper: 1.
    """

    needs_loss = True
    uses_classes = False
    peers = 2

    step: Tensor

    def __init__(self, share: ShareBelowOne, per_pass: int, ramp: str = "10e", power: Positive = 1.0):
        super().__init__()
        self.share = share
        self.per_pass = per_pass
        self.ramp = ramp
        self.power = power
        self.ramp_steps = steps_of(ramp, per_pass, "ramp", owner="CoTeaching")
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        raise two_networks_error("CoTeaching", 1)

    def exchange(self, views: list[PeerView], y: Int[Tensor, "B"], row: Int[Tensor, "B"]) -> list[SampleWeights]:
        if len(views) != 2:
            raise two_networks_error("CoTeaching", len(views))
        return [keep_lowest_losses(other.loss, self._dropped_share()) for other in reversed(views)]

    def after_step(self, step: int) -> None:
        self.step.fill_(step)

    def observe_state(self) -> dict[str, Tensor]:
        return {"left_out": self._dropped_share()}

    def _dropped_share(self) -> Float[Tensor, ""]:
        return dropped_share(self.step, self.per_pass, self.ramp_steps, self.share, self.power)


def dropped_share(
    step: Int[Tensor, ""], per_pass: int, ramp: int, share: float, power: float = 1.0
) -> Float[Tensor, ""]:
    """Return R, the share of a batch that is dropped, in the epoch of this step. `ramp` is in steps."""
    epoch = step.div(per_pass, rounding_mode="floor")
    rising = share**power * (epoch / max(ramp / per_pass - 1, 1e-9)).clamp_max(1)
    return rising.masked_fill(epoch * per_pass >= ramp, share)


def keep_lowest_losses(
    loss: Float[Tensor, "B"], rate: Float[Tensor, ""], among: Bool[Tensor, "B"] | None = None
) -> SampleWeights:
    """Return weight 1 for the samples of lowest loss and 0 for the share `rate` of highest loss.

    Args:
        among: samples that count; all others get weight 0. None: all samples count.
    """
    loss = loss.detach()
    among = torch.ones_like(loss, dtype=torch.bool) if among is None else among
    size = among.sum()
    count = ((1 - rate) * size + 1e-3).floor().clamp_min(1)  # 0.8 * 10 may be slightly below 8 in floating point
    rank = loss.masked_fill(~among, torch.inf).argsort(stable=True).argsort()
    kept = among & (rank < count)
    threshold = loss.masked_fill(kept | ~among, torch.inf).amin()
    return SampleWeights(kept.to(loss.dtype), mean_over="kept", suspicion=loss, threshold=threshold)


def two_networks_error(owner: str, count: int) -> LikewiseError:
    return LikewiseError(
        f"{owner}: it must have two networks, got {count}; use it as --confidence of a training, which builds both"
    )
