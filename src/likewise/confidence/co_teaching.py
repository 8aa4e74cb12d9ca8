from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.contracts import Confidence
from likewise.durations import steps_of
from likewise.types import LikewiseError, PeerView, SampleWeights


class CoTeaching(Confidence):
    """Two networks learn side by side, each from the samples that the other finds easy.

    Paper: Han et al., Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels, NeurIPS 2018.
    Formula: w_i = 1 for the floor((1 - R) n) samples of least loss under the other network, else 0; in pass e
        R = share^power min(e / (T - 1), 1) while e < T = ramp, then share
    Differs: the mean runs over the chosen samples once (the authors' code divides by their number twice), and one sample at least
        is chosen. R is that of the code; in the paper the power stands on e. With a loss of pairs, the samples left out are
        still compared with.
    Needs: two networks in training, which `peers` asks for. The paper classifies: `NormSoftmax` comes nearest.

    Args:
        share: the share of wrong labels, known or guessed.
        per_pass: steps in a pass over the data; the run fills it in.
        ramp: T, how long until that share is left out, in passes ("10e") or steps. Paper: 10 passes.
        power: how the ramp's height grows with the share. Paper: 1.
    """

    needs_loss = True
    peers = 2

    step: Tensor

    def __init__(self, share: float, per_pass: int, ramp: str = "10e", power: float = 1.0):
        super().__init__()
        must_be_share(share, "CoTeaching")
        if power <= 0:
            raise LikewiseError(f"CoTeaching: power must be above 0, got {power}")
        self.share = share
        self.per_pass = per_pass
        self.ramp = ramp
        self.power = power
        self.ramp_steps = steps_of(ramp, per_pass, "ramp", owner="CoTeaching")
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(
        self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], row: Int[Tensor, "B"], loss: Float[Tensor, "B"] | None
    ) -> SampleWeights:
        raise needs_two("CoTeaching", 1)

    def exchange(self, seen: list[PeerView], y: Int[Tensor, "B"], row: Int[Tensor, "B"]) -> list[SampleWeights]:
        if len(seen) != 2:
            raise needs_two("CoTeaching", len(seen))
        return [trust_easy(other.loss, self._left_out()) for other in reversed(seen)]

    def after_step(self, step: int) -> None:
        self.step.fill_(step)

    def observe_state(self) -> dict[str, Tensor]:
        return {"left_out": self._left_out()}

    def _left_out(self) -> Float[Tensor, ""]:
        return left_out(self.step, self.per_pass, self.ramp_steps, self.share, self.power)


def left_out(step: Int[Tensor, ""], per_pass: int, ramp: int, share: float, power: float = 1.0) -> Float[Tensor, ""]:
    """R: the share of a batch that is not learned from, in the pass that this step belongs to. `ramp` counts steps."""
    number = step.div(per_pass, rounding_mode="floor")
    rising = share**power * (number / max(ramp / per_pass - 1, 1e-9)).clamp_max(1)
    return rising.masked_fill(number * per_pass >= ramp, share)


def trust_easy(
    loss: Float[Tensor, "B"], rate: Float[Tensor, ""], among: Bool[Tensor, "B"] | None = None
) -> SampleWeights:
    """Believe the samples of least loss, all but this share of them; nobody outside of `among`, if that is given."""
    loss = loss.detach()
    among = torch.ones_like(loss, dtype=torch.bool) if among is None else among
    size = among.sum()
    count = ((1 - rate) * size + 1e-3).floor().clamp_min(1)  # 0.8 * 10 may come out a little below 8
    rank = loss.masked_fill(~among, torch.inf).argsort(stable=True).argsort()
    kept = among & (rank < count)
    threshold = loss.masked_fill(kept | ~among, torch.inf).amin()
    return SampleWeights(kept.to(loss.dtype), mean_over="kept", suspicion=loss, threshold=threshold)


def must_be_share(share: float, owner: str) -> None:
    if not 0 <= share < 1:
        raise LikewiseError(f"{owner}: share is the share of wrong labels, 0 or more and below 1, got {share}")


def needs_two(owner: str, count: int) -> LikewiseError:
    return LikewiseError(
        f"{owner}: two networks must judge for one another, got {count}; as --confidence of a training it gets them"
    )
