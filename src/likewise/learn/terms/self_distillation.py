from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from likewise.core.argument_checks import Count, Positive
from likewise.core.contracts import Term
from likewise.core.distributed.collectives import gathered
from likewise.core.similarity import at_least_float32, full_precision
from likewise.core.types import Batch, Output


class SelfDistillation(Term):
    """Keeps the similarities within a batch close to those of the teacher: the network at the end of the previous epoch.

    Paper: Zeng et al., Improving Generalization of Metric Learning via Listwise Self-distillation (LSD), 2022.
    Formula: l_i = e/E T^2 KL( softmax(s'_i / T) || softmax(s_i / T) ), s = z z^T with the diagonal, s' that of the teacher,
        e the number of the epoch from 0, E the number of epochs
    Differs: the mode that scales the columns of negatives is missing, because no value for it is published. The teacher is in
        evaluation mode, which the paper does not specify. If the last epoch is incomplete, E is not an integer.
    Needs: a second forward pass, by the teacher; it costs as much as that of the network, under the same autocast.

    Args:
        embedder: the network in training; the run fills it in.
        per_pass: steps per epoch; the run fills it in.
        steps: steps of the whole training; the run fills it in.
        weight: alpha. Published: 50 in the example, 200 in the code.
        temperature: T. Published: 1.
        weighted: whether the sample weights of the confidence apply to this term.
    """

    uses_classes = False

    embedder: nn.Module
    ramp: Tensor

    def __init__(
        self,
        embedder: nn.Module,
        per_pass: Count,
        steps: Count,
        weight: float = 50.0,
        temperature: Positive = 1.0,
        weighted: bool = False,
    ):
        super().__init__()
        self.hold(embedder=embedder)
        self.per_pass = per_pass
        self.steps = steps
        self.weight = weight
        self.temperature = temperature
        self.weighted = weighted
        self.teacher = copy.deepcopy(embedder).eval().requires_grad_(False)
        self.register_buffer("ramp", torch.zeros(()))

    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        with torch.no_grad():
            teacher = similarities(gathered(self.teacher(batch.x).z, len(batch.row)))
        return self.ramp * kl_rows(teacher, similarities(out.z), self.temperature)

    def after_step(self, step: int) -> None:
        if step % self.per_pass == 0:
            self.teacher.load_state_dict(self.embedder.state_dict())
            self.ramp.fill_(step / self.steps)

    def train(self, mode: bool = True) -> SelfDistillation:
        super().train(mode)
        self.teacher.eval()
        return self

    def observe_state(self) -> dict[str, Tensor]:
        return {"distillation_ramp": self.ramp.detach().clone()}


def similarities(z: Float[Tensor, "B D"]) -> Float[Tensor, "B B"]:
    """Return the cosine similarities within a batch of unit vectors, in full precision."""
    with full_precision(z):
        z = at_least_float32(z)
        return z @ z.T


def kl_rows(a: Float[Tensor, "B R"], b: Float[Tensor, "B R"], temperature: float = 1.0) -> Float[Tensor, "B"]:
    """Return T^2 KL(softmax(a_i / T) || softmax(b_i / T)) for every row i; T^2 keeps the gradient scale independent of T."""
    p, q = (a / temperature).log_softmax(1), (b / temperature).log_softmax(1)
    return temperature**2 * (p.exp() * (p - q)).sum(1)
