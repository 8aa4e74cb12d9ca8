from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.contracts import Loss
from likewise.durations import steps_of
from likewise.losses._hierarchy_levels import (
    Level,
    Plan,
    class_vectors,
    copy_of_loss,
    level_weights,
    plan_by_tree,
    plan_sizes,
)
from likewise.numerics.kmeans import kmeans
from likewise.similarity import observed, unit_rows
from likewise.types import LikewiseError, Ref

FIRST_KMEANS_STEPS, LATER_KMEANS_STEPS = 10, 1
"""Steps of k-means when groups are found first, and when they follow their classes."""

MEAN_MOMENTUM = 0.9
"""How much of itself the mean of a class keeps at a step that meets it."""


class Hierarchical(Loss):
    """A loss with a proxy for every class, and again with one for every group of similar classes, found while training.

    Paper: Yang et al., Hierarchical Proxy-based Loss for Deep Metric Learning, WACV 2022.
    Formula: l_i = L(z_i, y_i; P_0) + sum_k w_k L(z_i, g_k(y_i); P_k), P_0 the proxies of the classes, g_k(y) the group of class y
        on level k, P_k the centres of a spherical k-means of P_(k-1), found anew every so many steps
    Differs: known from its supplement, which leaves open what follows. k-means starts where it last ended, so that groups keep
        their numbers, and takes one step (ten at first); a group that lost its classes takes one that is served badly, if it can.
        Proxies of groups are as long as those of classes, so that a learning rate means the same to both. Between two
        clusterings they learn, and lose what the optimiser remembered of them at the next. A proxy of a class with several
        centres is their mean; its group has one.
    Needs: an inner loss whose only parameters are vectors of classes.

    Args:
        loss: the loss of every level, such as ProxyAnchor() or ProxyNCA(positive_in_denominator=True).
        coarse: how many groups; several numbers, each smaller than the one before, for several levels. Paper: 10 for 98 classes,
            12 to 500 for 11,318. None: a tenth of the classes, 2 at least.
        every: how long from one clustering to the next. Paper: 20, and 10 to 80 do as well.
        levels: levels of groups, each a tenth of the one below, where `coarse` does not say. Paper: 1.
        coarse_proxies: what the proxies of groups are between two clusterings: "learnable" parameters, "frozen", or "centroid",
            the mean of their classes' proxies at every step, with a gradient to these.
        start: when groups are first found; proxies that have learned nothing yet make groups of nothing. Ours: after one pass.
        by: what is clustered: the "proxies" (paper), or the "means" of the embeddings of every class as it was met, which
            tell what is alike long before proxies do (ours).
        weight: w, one for all levels or one for each. Paper: 1, as it seems. On a hundred classes 0.1 does less
            harm (docs/structure.md).
        coarse_loss: what levels of groups take in place of `loss`, for other scales and margins there.
        depth: take the data's own tree in place of clusters: the ancestors at this depth, 1 the coarsest. Several numbers, the
            deepest first, for several levels. Learnable proxies of such groups learn from the first step on and are not moved.
        tree: in place of the data's own tree: a shipped one, a .json or .csv file, or wordnet:ROOT.
        seed: of the first clustering; the run fills it in.
        per_pass: steps in a pass, where `start` or `every` counts passes; the run fills it in.
        steps: of the whole training, so that `start` is not after its end; the run fills it in.
        class_names: names of the classes by number, for `depth`; the run fills them in.
        taxonomy: ancestors by class name, coarsest first, for `depth`; the run fills them in.
    """

    begun: Tensor
    regrouped: Tensor
    means: Tensor | None
    classes: int
    dim: int
    coarse_loss: Loss | None

    def __init__(
        self, loss: Loss, coarse: int | tuple[int, ...] | None = None, every: int | str = 20, levels: int = 1,
        coarse_proxies: Literal["learnable", "frozen", "centroid"] = "learnable", start: int | str = "1e",
        by: Literal["proxies", "means"] = "proxies", weight: float | tuple[float, ...] = 1.0, coarse_loss: Loss | None = None,
        depth: int | tuple[int, ...] | None = None, tree: str | None = None, seed: int = 0, per_pass: int | None = None,
        steps: int | None = None, class_names: Sequence[str] | None = None, taxonomy: dict[str, tuple[str, ...]] | None = None,
    ):  # fmt: skip
        super().__init__()
        if coarse_proxies not in ("learnable", "frozen", "centroid"):
            raise LikewiseError(
                f"Hierarchical: coarse_proxies must be 'learnable', 'frozen' or 'centroid', got '{coarse_proxies}'"
            )
        if (tree is not None and depth is None) or (depth is not None and (coarse is not None or levels != 1)):
            raise LikewiseError(
                "Hierarchical: groups are those of a tree (depth, and tree if not the data's) or are found (coarse, levels), "
                f"got depth={depth}, tree={tree!r}, coarse={coarse}, levels={levels}; choose"
            )
        if by not in ("proxies", "means"):
            raise LikewiseError(f"Hierarchical: by must be 'proxies' or 'means', got '{by}'")
        class_vectors(loss)
        self.classes, self.dim = loss.classes, loss.dim  # pyright: ignore[reportAttributeAccessIssue]
        self.loss = loss
        self.coarse = coarse
        self.every = every
        self.levels = levels
        self.coarse_proxies = coarse_proxies
        self.start = start
        self.by = by
        self.weight = weight
        vars(self)["coarse_loss"] = coarse_loss  # by self.coarse_loss = coarse_loss its proxies would be stored
        self.depth = depth
        self.tree = tree
        self.seed = seed
        self.per_pass = per_pass
        self.steps = steps
        self.class_names = class_names
        self.taxonomy = taxonomy
        self.lr_factor = loss.lr_factor
        self.remembers = by == "means"
        for name, least in (("start", 0), ("every", 1)):
            steps_of(str(getattr(self, name)), per_pass or 10**6, name, least, owner="Hierarchical")
        if steps is not None and per_pass is not None and not self._groups_are_fixed() and self._steps("start") >= steps:
            raise LikewiseError(
                f"Hierarchical: groups are first found after start={start!r}, but training ends after {steps} steps, {per_pass} "
                "a pass; train longer, or start earlier"
            )
        if coarse_loss is not None:
            class_vectors(coarse_loss)
        if depth is None:
            above = plan_sizes(self.classes, coarse, levels)
        else:
            above = plan_by_tree(self.classes, depth, class_names, tree, taxonomy)
        self.plan: list[Level] = []
        for cluster, w in zip(above, level_weights(weight, len(above)), strict=True):
            self._add_level(cluster, w)
        # Groups that are given, and follow their classes or learn, have nothing to wait for.
        self.register_buffer("begun", torch.tensor(float(self._groups_are_fixed())))
        self.register_buffer("regrouped", torch.zeros(()))
        self.seen: tuple[Tensor, Tensor] | None = None  # the batch of this step, until it is over
        means = torch.zeros(self.classes, self.dim) if by == "means" else None  # zero: not met yet
        self.register_buffer("means", means)

    def _add_level(self, cluster: Plan, weight: float) -> None:
        """One more, above those there are: how many below and how many here, or who belongs where."""
        below, size = cluster if isinstance(cluster, tuple) else (len(cluster), int(cluster.max()) + 1)
        like = copy_of_loss(self.loss if self.coarse_loss is None else self.coarse_loss, classes=size, dim=self.dim)
        own, level = class_vectors(like), len(self.plan) + 1
        start = torch.zeros(below, dtype=torch.int64) if isinstance(cluster, tuple) else cluster
        self.register_buffer(f"cluster_{level}", start)
        proxies = own.detach()[:size].clone()
        proxies *= self._length() / torch.linalg.vector_norm(proxies, dim=1).mean()
        if self.coarse_proxies == "learnable":
            self.register_parameter(f"coarse_{level}", nn.Parameter(proxies))
        elif self.coarse_proxies == "frozen":
            self.register_buffer(f"coarse_{level}", proxies)
        ((name, _),) = like.named_parameters()
        delattr(like, name)  # with_proxies to it for every batch
        self.plan.append(Level(size, weight, like, name, len(own) // size))

    def _groups_are_fixed(self) -> bool:
        """Whether nothing is ever put elsewhere."""
        return self.depth is not None and self.coarse_proxies != "frozen"

    def _steps(self, name: str) -> int:
        given = str(getattr(self, name))
        if self.per_pass is None and given.endswith("e"):
            raise LikewiseError(
                f"Hierarchical: {name}='{given}' counts passes, and nobody said how many steps a pass has; give per_pass, or "
                f"{name} as a number of steps"
            )
        return steps_of(given, self.per_pass or 1, name, owner="Hierarchical")

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        if self.depth is not None and self.class_names is None:
            raise LikewiseError("Hierarchical: depth needs class_names and a tree of classes; give them")
        if self.means is not None and self.training and (torch.compiler.is_compiling() or not observed()):
            self.seen = z.detach(), y
        group, above = y, 0.0
        for number, level in enumerate(self.plan, 1):
            group = getattr(self, f"cluster_{number}")[group]
            above = above + level.weight * level.with_proxies(self.proxies_of(number), z, group)
        return self.loss.forward(z, y, ref) + self.begun * above

    def predict(self, z: Float[Tensor, "B D"]) -> Int[Tensor, "B"] | None:
        return self.loss.predict(z)

    def proxies_of(self, level: int) -> Float[Tensor, "K D"]:
        """The vectors of a level: 0 for the classes (of unit length, or means of such), 1 for their groups, and so on."""
        if level == 0:
            each = unit_rows(class_vectors(self.loss))
            return each.view(-1, self.classes, self.dim).mean(0)
        if self.coarse_proxies != "centroid":
            return getattr(self, f"coarse_{level}")
        return self._centres(self.proxies_of(level - 1), level)

    def _centres(self, below: Float[Tensor, "n D"], level: int) -> Float[Tensor, "K D"]:
        """The mean direction of every group."""
        total = below.new_zeros(self.plan[level - 1].size, self.dim)
        return unit_rows(total.index_add(0, getattr(self, f"cluster_{level}"), unit_rows(below)))

    def _length(self) -> Float[Tensor, ""]:
        """The mean length of the proxies of classes."""
        return torch.linalg.vector_norm(class_vectors(self.loss).detach(), dim=1).mean()

    def groups(self) -> list[Int[Tensor, "C"]]:
        """The group of every class, level by level, the finest first."""
        found, group = [], torch.arange(self.classes, device=self.begun.device)
        for level in range(1, len(self.plan) + 1):
            group = getattr(self, f"cluster_{level}")[group]
            found.append(group)
        return found

    def after_step(self, step: int) -> list[nn.Parameter]:
        moved = list(self.loss.after_step(step) or ())
        if self.seen is not None:
            self._remember(*self.seen)
        self.seen = None
        if self._groups_are_fixed():
            return moved
        since = step - max(1, self._steps("start"))
        return moved if since < 0 or since % self._steps("every") else moved + self.regroup()

    @torch.no_grad()
    def _remember(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"]) -> None:
        """Move the means of the classes in a batch towards it."""
        means = self.means
        assert means is not None
        total = torch.zeros_like(means).index_add_(0, y, z.to(means))
        now = F.normalize(total, dim=1)
        met, known = total.any(1, keepdim=True), means.any(1, keepdim=True)
        means.copy_(torch.where(met, torch.where(known, torch.lerp(now, means, MEAN_MOMENTUM), now), means))

    def _points(self) -> Float[Tensor, "C D"]:
        """What stands for each class when they are clustered; its proxy, where it was never met."""
        proxies = self.proxies_of(0)
        return proxies if self.means is None else self.means.where(self.means.any(1, keepdim=True), proxies)

    @torch.no_grad()
    def regroup(self) -> list[nn.Parameter]:
        """Cluster the classes anew, level by level. Returns the parameters that are somewhere else now."""
        below, first = self._points(), not bool(self.begun)
        if not below.isfinite().all():
            return []  # training has diverged, and the loop has better words for it
        length = self._length()
        for number, level in enumerate(self.plan, 1):
            if self.depth is None:
                before = getattr(self, f"cluster_{number}")
                own = getattr(self, f"coarse_{number}", None)
                init = None if first else self._centres(below, number) if own is None else own
                steps = FIRST_KMEANS_STEPS if first else LATER_KMEANS_STEPS
                found = kmeans(below, level.size, iterations=steps, seed=self.seed, init=init, spherical=True)
                if number == 1 and not first:
                    self.regrouped.copy_((found.label != before).float().mean())
                before.copy_(found.label)
            centre = self._centres(below, number)
            if self.depth is None:  # a group that nobody is in stays
                centre = centre.where(centre.any(1, keepdim=True), found.centre)
            if self.coarse_proxies != "centroid":
                getattr(self, f"coarse_{number}").copy_(centre * length)
            below = centre
        self.begun.fill_(1)
        learn = self.coarse_proxies == "learnable"
        return [getattr(self, f"coarse_{number}") for number in range(1, len(self.plan) + 1)] if learn else []

    def observe_state(self) -> dict[str, Tensor]:
        return self.loss.observe_state() | {"classes_regrouped": self.regrouped.detach().clone()}
