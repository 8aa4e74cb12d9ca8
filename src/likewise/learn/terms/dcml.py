from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Loss, Term
from likewise.core.types import Batch, LikewiseError, Output


class DCML(Term):
    """One loss per composite of a compositional head, and a pull of every mixture towards one of its parts.

    Paper: Zheng et al., Deep Compositional Metric Learning, CVPR 2021.
    Formula: J = sum_c L_c(m_c, y) + w sum_c rec_c; m and rec as in `Compositional`, L_c a copy of the training loss
    Differs: follows the authors' code, whose path for a single loss is no valid program: it divides a list of composites by
        its length. That every composite has a loss of its own is our reading of it.
    Needs: `--head "Compositional()"`, and `--loss-weight 0`: there is no loss on the whole embedding.

    Args:
        make_loss: dim -> a new copy of the training loss; the run fills it in.
        embedder: the network in training, for k and dim of its head; the run fills it in.
        decision: w. Authors' code: 1.
        weight: factor of J.
        weighted: whether the sample weights of the confidence apply to this term.
    """

    uses_classes = False

    def __init__(
        self, make_loss: Callable[..., Loss], embedder: nn.Module, decision: NotNegative = 1.0, weight: float = 1.0,
        weighted: bool = False,
    ):  # fmt: skip
        super().__init__()
        head: Any = embedder.head
        if not hasattr(head, "mix"):
            raise LikewiseError(
                f"DCML: the network must have a head of mixtures, got {type(head).__name__}; "
                "train with --head 'Compositional()'"
            )
        self.make_loss = make_loss
        self.hold(embedder=embedder)
        self.decision = decision
        self.weight = weight
        self.weighted = weighted
        self.losses = nn.ModuleList(make_loss(head.dim // head.k) for _ in range(head.k))
        self.undecided: Tensor | None = None  # mean cost of a mixture in the last training batch

    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        assert out.nodes is not None and out.rec is not None
        if self.training:
            self.undecided = out.rec.detach().mean()
        each = [loss(part, batch.y) for loss, part in zip(self.losses, out.nodes.unbind(1), strict=True)]
        return torch.stack(each).sum(0) + self.decision * out.rec.sum(1)

    def after_step(self, step: int) -> list[nn.Parameter]:
        losses: list[Any] = list(self.losses)
        return [moved for loss in losses for moved in loss.after_step(step) or ()]

    def observe_state(self) -> dict[str, Tensor]:
        return {} if self.undecided is None else {"mixtures_undecided": self.undecided}
