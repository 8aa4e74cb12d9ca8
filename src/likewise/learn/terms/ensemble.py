from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.core.argument_checks import NotNegative
from likewise.core.contracts import Loss, Miner, Term
from likewise.core.types import Batch, LikewiseError, Output

ERROR_MOMENTUM = 0.9
"""Momentum of the moving average of a branch's reconstruction error, per step."""


class Ensemble(Term):
    """One loss per part of a relational head, each on the samples that its part reconstructs best.

    Paper: Zheng et al., Deep Relational Metric Learning, ICCV 2021.
    Formula: J = sum_k L_k({h_nk : k(n) = k}) + w mean_nk rec_nk, k(n) = argmin_k rec_nk; h and rec as in `Relational`,
        L_k a copy of the training loss with its own proxies
    Differs: l_n = (B / n_k) L_k(h_nk) + w mean_k rec_nk, n_k the number of samples in the branch of n, so that the mean is J; an
        empty branch adds nothing. Proxies are initialised as in the loss; those of the released code are shorter. `balanced` is
        ours: nothing in the paper prevents one branch from taking all samples. A node of length 0 has no direction and gets no
        sample. Nodes are unit vectors, also for losses on raw embeddings.
    Needs: a head with parts, `Relational()`, and a loss that works on a subset of the batch: no views, no teacher.

    Args:
        make_loss: dim -> a new copy of the training loss; the run fills it in.
        embedder: the network in training, for k and dim of its head; the run fills it in.
        weight: factor of J. Paper: 1, with `--loss-weight 10`.
        reconstruction: w; this summand trains only the decoders. Paper: 1.
        balanced: divide rec_nk by its moving average over the branch, so that a branch that reconstructs all samples well cannot
            take all of them.
        weighted: whether the sample weights of the confidence apply to this term.
    """

    syncs = True
    uses_classes = False

    usual: Tensor

    def __init__(
        self,
        make_loss: Callable[[int], Loss],
        embedder: nn.Module,
        weight: float = 1.0,
        reconstruction: NotNegative = 1.0,
        balanced: bool = False,
        weighted: bool = False,
    ):
        super().__init__()
        head: Any = embedder.head
        if not hasattr(head, "decoder"):
            raise LikewiseError(
                f"Ensemble: the network must have a head whose parts reconstruct their input, got {type(head).__name__}; "
                "train with --head 'Relational()'"
            )
        self.make_loss = make_loss
        self.hold(embedder=embedder)
        self.weight = weight
        self.reconstruction = reconstruction
        self.balanced = balanced
        self.weighted = weighted
        self.losses = nn.ModuleList(make_loss(head.dim // head.k) for _ in range(head.k))
        for component in self.losses.modules():
            if getattr(component, "views", 1) > 1 or (isinstance(component, Miner) and component.momentum is not None):
                raise LikewiseError(
                    f"Ensemble: {type(component).__name__} needs the whole batch, but a branch gets a subset of it; "
                    "use another loss"
                )
        # of the last training batch: share of the samples in each branch, mean error of each branch
        self.last_batch: tuple[Tensor, Tensor] | None = None
        self.register_buffer("usual", torch.zeros(head.k))

    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        assert out.rec is not None and out.nodes is not None
        branch = self.choose(out)
        size, order = len(branch), branch.argsort(stable=True)
        count = (branch[:, None] == torch.arange(len(self.losses), device=branch.device)).sum(0)
        if self.training:
            self.last_batch = count / size, out.rec.detach().mean(0)
        node = out.nodes[order, branch[order]]
        counts = count.tolist()  # the only device sync: each loss gets the rows of its branch alone
        pieces = zip(self.losses, counts, node.split(counts), batch.y[order].split(counts), strict=True)
        each = torch.cat([size / n * loss(h, y) for loss, n, h, y in pieces if n])
        return each[order.argsort()] + self.reconstruction * out.rec.mean(1)

    @torch.no_grad()
    def choose(self, out: Output) -> Int[Tensor, "B"]:
        """Return the branch of every sample; the first one in case of a tie."""
        assert out.rec is not None and out.nodes is not None
        cost = out.rec
        if self.balanced:
            usual = self.usual.to(cost)
            cost = cost / usual.where(usual > 0, cost.mean(0)).clamp_min(1e-12)
        return cost.masked_fill(out.nodes.square().sum(2) < 0.5, torch.inf).argmin(1)

    def after_step(self, step: int) -> list[nn.Parameter]:
        if self.balanced and self.last_batch is not None:
            now = self.last_batch[1].to(self.usual)
            self.usual.copy_(torch.lerp(now, self.usual, ERROR_MOMENTUM).where(self.usual > 0, now))
        return [moved for loss in self.losses for moved in loss.after_step(step) or ()]  # pyright: ignore[reportCallIssue]

    def observe_state(self) -> dict[str, Tensor]:
        shares = () if self.last_batch is None else self.last_batch[0]
        return {f"branch_{number}": share for number, share in enumerate(shares, 1)}
