from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from likewise.core.contracts import Loss, Term
from likewise.core.types import Batch, LikewiseError, Output


class DivideConquer(Term):
    """One loss per slice of the embedding (learner), each on the batches of its cluster of the training samples.

    Paper: Sanakoyeu et al., Divide and Conquer the Embedding Space for Metric Learning, CVPR 2019.
    Formula: L = L_k(unit slice k of the embedding) for a batch of cluster k; L = L_0(whole embedding) for a batch of all
        samples; L_0 .. L_K copies of the training loss with their own parameters
    Differs: the loss on the whole embedding is a copy of its own; the authors' code uses that of the first learner. From 8/19
        of the time of division on, the code trains the whole embedding on the batches of the clusters; neither their text
        nor this term does.
    Needs: a head with slices, `Slices()`; batches from clusters, `Clustered()`; and `--loss-weight 0`, as this term has the
        loss of the whole embedding too.

    Args:
        make_loss: dim -> a new copy of the training loss; the run fills it in.
        embedder: the network in training, for k and dim of its head; the run fills it in.
        weight: factor of L.
        weighted: whether the sample weights of the confidence apply to this term.
    """

    syncs = True
    uses_classes = False

    def __init__(
        self, make_loss: Callable[[int], Loss], embedder: nn.Module, weight: float = 1.0, weighted: bool = False
    ):
        super().__init__()
        head: Any = embedder.head
        if not hasattr(head, "k"):
            raise LikewiseError(
                f"DivideConquer: the network must have a head with slices, got {type(head).__name__}; "
                "train with --head 'Slices()'"
            )
        self.make_loss = make_loss
        self.hold(embedder=embedder)
        self.weight = weight
        self.weighted = weighted
        self.whole = make_loss(head.dim)
        self.losses = nn.ModuleList(make_loss(head.dim // head.k) for _ in range(head.k))

    def forward(self, out: Output, batch: Batch) -> Float[Tensor, "B"]:
        if batch.group is None:
            raise LikewiseError(
                "DivideConquer: every batch must come from one cluster, got batches of a sampler without clusters; "
                f"train with --sampler 'Clustered(clusters={len(self.losses)})'"
            )
        assert out.nodes is not None
        learner = int(batch.group[0])  # the only device sync
        if learner >= len(self.losses):
            raise LikewiseError(
                f"DivideConquer: clusters and slices must be equally many, got a sample of cluster {learner} for "
                f"{len(self.losses)} slices (both from 0); set k of Slices or clusters of Clustered"
            )
        if learner < 0:
            return self.whole(out.z, batch.y)
        return self.losses[learner](out.nodes[:, learner], batch.y)

    def after_step(self, step: int) -> list[nn.Parameter]:
        losses: list[Any] = [self.whole, *self.losses]
        return [moved for loss in losses for moved in loss.after_step(step) or ()]
