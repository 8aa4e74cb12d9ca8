from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.confidence.co_teaching import left_out, must_be_share, needs_two, trust_easy
from likewise.contracts import Confidence
from likewise.durations import steps_of
from likewise.types import LikewiseError, PeerView, SampleWeights


class CoTeachingPlus(Confidence):
    """Co-teaching on the samples that the two networks name differently, so that they do not become one.

    Paper: Yu et al., How does Disagreement Help Generalization against Label Corruption?, ICML 2019.
    Formula: D = {i: guess_1(i) != guess_2(i)}; w_i = 1 for the floor((1 - R) |D|) samples in D of least loss under the other
        network, else 0; R = share min(e / (T - 1), 1) in pass e, T = ramp
    Differs: where the networks agree on all, D is the whole batch, its samples of large loss left out as ever (the authors'
        code takes them all, and from step 5000 on none). The code's second softmax is not there.
    Needs: two networks in training, which `peers` asks for, and a loss that names classes, such as `NormSoftmax`.

    Args:
        share: the share of wrong labels, known or guessed.
        per_pass: steps in a pass over the data; the run fills it in.
        start: plain co-teaching for so long at first ("5e", or steps). Paper: 5 passes with 100 classes, 20 with 10.
        ramp: T, how long until that share is left out, in passes ("10e") or steps. Paper: 10 passes.
    """

    needs_loss = True
    needs_prediction = True
    peers = 2

    step: Tensor

    def __init__(self, share: float, per_pass: int, start: str = "5e", ramp: str = "10e"):
        super().__init__()
        must_be_share(share, "CoTeachingPlus")
        self.share = share
        self.per_pass = per_pass
        self.start = start
        self.ramp = ramp
        self.start_steps = steps_of(start, per_pass, "start", owner="CoTeachingPlus")
        self.ramp_steps = steps_of(ramp, per_pass, "ramp", owner="CoTeachingPlus")
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.differing: Tensor | None = None  # of the latest batch, for the log

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        raise needs_two("CoTeachingPlus", 1)

    def exchange(self, seen: list[PeerView], y: Int[Tensor, "B"], row: Int[Tensor, "B"]) -> list[SampleWeights]:
        if len(seen) != 2:
            raise needs_two("CoTeachingPlus", len(seen))
        if seen[0].prediction is None or seen[1].prediction is None:
            raise LikewiseError(
                "CoTeachingPlus: the loss must name a class for each sample, got one without classes; "
                "use one with proxies, such as NormSoftmax(), or CoTeaching"
            )
        differ = seen[0].prediction != seen[1].prediction
        self.differing = differ.float().mean()
        among = differ | ~differ.any() | (self.step < self.start_steps)
        rate = left_out(self.step, self.per_pass, self.ramp_steps, self.share)
        return [trust_easy(other.loss, rate, among) for other in reversed(seen)]

    def after_step(self, step: int) -> None:
        self.step.fill_(step)

    def observe_state(self) -> dict[str, Tensor]:
        rate = left_out(self.step, self.per_pass, self.ramp_steps, self.share)
        return {"left_out": rate} | ({} if self.differing is None else {"differing": self.differing})
