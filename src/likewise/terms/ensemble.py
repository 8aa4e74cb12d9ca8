from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.contracts import Loss, Miner, Term
from likewise.terms._held import hold_without_registering
from likewise.types import Batch, LikewiseError, Output

MOMENTUM = 0.9
"""How much of itself a branch's usual error keeps at a step."""


class Ensemble(Term):
    """Train each part of a relational head with a loss of its own, on the samples that this part remembers best.

    Paper: Zheng et al., Deep Relational Metric Learning, ICCV 2021.
    Formula: J = sum_k L_k({h_nk : k(n) = k}) + w mean_nk rec_nk, k(n) = argmin_k rec_nk; h and rec as in `Relational`,
        L_k the training's loss with proxies of its own
    Differs: l_n = (B / n_k) L_k(h_nk) + w mean_k rec_nk, n_k the samples in its branch, so that the mean is J; an empty branch
        adds nothing. Proxies start as the loss's do; the released code's are shorter. `balanced` is ours: nothing in the paper
        keeps one branch from taking all samples. A node of length 0 has no direction and takes no sample. Nodes are unit
        vectors, for losses of raw ones too.
    Needs: a head with parts, `Relational()`, and a loss that works on some samples of a batch: no views, no teacher.

    Args:
        make_loss: dim -> a fresh copy of the training's loss; the run fills it in.
        embedder: the network in training, asked for its head's k and dim; the run fills it in.
        weight: of J. Paper: 1, beside `--loss-weight 10`.
        reconstruction: w; it trains the decoders alone. Paper: 1.
        balanced: take rec_nk relative to its branch's usual one, so that a part that remembers all well takes not all.
        weighted: let the confidence's weights apply here too.
    """

    syncs = True

    usual: Tensor

    def __init__(
        self,
        make_loss: Callable[[int], Loss],
        embedder: nn.Module,
        weight: float = 1.0,
        reconstruction: float = 1.0,
        balanced: bool = False,
        weighted: bool = False,
    ):
        super().__init__()
        head: Any = embedder.head
        if not hasattr(head, "k"):
            raise LikewiseError(
                f"Ensemble: the network needs a head with parts, got {type(head).__name__}; "
                "train with --head 'Relational()'"
            )
        if reconstruction < 0:
            raise LikewiseError(f"Ensemble: reconstruction must be 0 or more, got {reconstruction}")
        self.make_loss = make_loss
        hold_without_registering(self, "embedder", embedder)  # self.embedder = embedder would save and train it twice
        self.weight = weight
        self.reconstruction = reconstruction
        self.balanced = balanced
        self.weighted = weighted
        self.losses = nn.ModuleList(make_loss(head.dim // head.k) for _ in range(head.k))
        for part in self.losses.modules():
            if getattr(part, "views", 1) > 1 or (isinstance(part, Miner) and part.momentum is not None):
                raise LikewiseError(
                    f"Ensemble: {type(part).__name__} needs the whole batch, and a branch sees some of it; "
                    "use another loss"
                )
        self.seen: tuple[Tensor, Tensor] | None = None  # of the last batch: shares of the branches, their mean errors
        self.register_buffer("usual", torch.zeros(head.k))

    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        assert out.rec is not None and out.nodes is not None
        branch = self.choose(out)
        size, order = len(branch), branch.argsort(stable=True)
        count = (branch[:, None] == torch.arange(len(self.losses), device=branch.device)).sum(0)
        if self.training:
            self.seen = count / size, out.rec.detach().mean(0)
        node = out.nodes[order, branch[order]]
        counts = count.tolist()  # the one wait: rows are really taken out, so that a loss sees nobody else's
        pieces = zip(self.losses, counts, node.split(counts), batch.y[order].split(counts), strict=True)
        each = torch.cat([size / n * loss(h, y) for loss, n, h, y in pieces if n])
        return each[order.argsort()] + self.reconstruction * out.rec.mean(1)

    @torch.no_grad()
    def choose(self, out: Output) -> Int[Tensor, "B"]:
        """The branch of every sample; of equals, the first."""
        assert out.rec is not None and out.nodes is not None
        cost = out.rec
        if self.balanced:
            usual = self.usual.to(cost)
            cost = cost / usual.where(usual > 0, cost.mean(0)).clamp_min(1e-12)
        return cost.masked_fill(out.nodes.square().sum(2) < 0.5, torch.inf).argmin(1)

    def after_step(self, step: int) -> list[nn.Parameter]:
        if self.balanced and self.seen is not None:
            now = self.seen[1].to(self.usual)
            self.usual.copy_(torch.lerp(now, self.usual, MOMENTUM).where(self.usual > 0, now))
        return [moved for loss in self.losses for moved in loss.after_step(step) or ()]  # pyright: ignore[reportCallIssue]

    def observe_state(self) -> dict[str, Tensor]:
        shares = () if self.seen is None else self.seen[0]
        return {f"branch_{number}": share for number, share in enumerate(shares, 1)}
