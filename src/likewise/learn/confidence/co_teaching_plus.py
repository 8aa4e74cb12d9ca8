from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import ShareBelowOne
from likewise.core.contracts import Confidence
from likewise.core.durations import steps_of
from likewise.core.types import LikewiseError, PeerView, SampleWeights
from likewise.learn.confidence.co_teaching import dropped_share, keep_lowest_losses, two_networks_error


class CoTeachingPlus(Confidence):
    """Co-teaching on the samples for which the two networks predict different classes, so that the networks stay different.

    Paper: Yu et al., How does Disagreement Help Generalization against Label Corruption?, ICML 2019.
    Formula: D = {i: guess_1(i) != guess_2(i)}; w_i = 1 for the floor((1 - R) |D|) samples in D of least loss under the other
        network, else 0; R = share min(e / (T - 1), 1) in epoch e, T = ramp
    Differs: if the networks agree on all samples, D is the whole batch, and its samples of high loss are dropped as usual (the
        authors' code uses all samples, and none from step 5000 on). The second softmax of the code is omitted.
    Needs: two networks in training (`peers` = 2), and a loss that predicts classes: `Softmax` in the paper.

    Args:
        share: the noise rate, known or estimated.
        per_pass: steps per epoch; the run fills it in.
        start: duration of plain co-teaching at first, in epochs ("5e") or steps. Paper: 5 epochs with 100 classes, 20 with 10.
        ramp: T, the time until that share is dropped, in epochs ("10e") or steps. Paper: 10 epochs.
    """

    needs_loss = True
    needs_prediction = True
    peers = 2

    step: Tensor

    def __init__(self, share: ShareBelowOne, per_pass: int, start: str = "5e", ramp: str = "10e"):
        super().__init__()
        self.share = share
        self.per_pass = per_pass
        self.start = start
        self.ramp = ramp
        self.start_steps = steps_of(start, per_pass, "start", owner="CoTeachingPlus")
        self.ramp_steps = steps_of(ramp, per_pass, "ramp", owner="CoTeachingPlus")
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.differing: Tensor | None = None  # share of the last batch with different predictions, for the log

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        raise two_networks_error("CoTeachingPlus", 1)

    def exchange(self, views: list[PeerView], y: Int[Tensor, "B"], row: Int[Tensor, "B"]) -> list[SampleWeights]:
        if len(views) != 2:
            raise two_networks_error("CoTeachingPlus", len(views))
        if views[0].prediction is None or views[1].prediction is None:
            raise LikewiseError(
                "CoTeachingPlus: the loss must predict a class for each sample, got a loss without classes; "
                "use a loss with proxies, such as NormSoftmax(), or use CoTeaching"
            )
        differ = views[0].prediction != views[1].prediction
        self.differing = differ.float().mean()
        among = differ | ~differ.any() | (self.step < self.start_steps)
        rate = dropped_share(self.step, self.per_pass, self.ramp_steps, self.share)
        return [keep_lowest_losses(other.loss, rate, among) for other in reversed(views)]

    def after_step(self, step: int) -> None:
        self.step.fill_(step)

    def observe_state(self) -> dict[str, Tensor]:
        rate = dropped_share(self.step, self.per_pass, self.ramp_steps, self.share)
        return {"left_out": rate} | ({} if self.differing is None else {"differing": self.differing})
