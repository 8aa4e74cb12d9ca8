from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.contracts import Loss
from likewise.core.durations import steps_of
from likewise.core.kmeans import kmeans
from likewise.core.similarity import is_traced, unit_rows
from likewise.core.types import LikewiseError, Ref
from likewise.learn.losses._hierarchy_levels import (
    Level,
    Plan,
    class_vectors,
    copy_of_loss,
    level_weights,
    plan_by_tree,
    plan_sizes,
)

FIRST_KMEANS_STEPS = 10
"""Iterations of k-means at the first clustering."""

LATER_KMEANS_STEPS = 1
"""Iterations of k-means at every later clustering, which starts from the previous centres."""

MEAN_MOMENTUM = 0.9
"""Momentum of the mean embedding of a class, at every step whose batch has the class."""


class Hierarchical(Loss):
    """A proxy loss on the classes, plus the same loss on groups of similar classes that are found by clustering.

    Paper: Yang et al., Hierarchical Proxy-based Loss for Deep Metric Learning, WACV 2022.
    Formula: l_i = L(z_i, y_i; P_0) + sum_k w_k L(z_i, g_k(y_i); P_k), P_0 the proxies of the classes, g_k(y) the group of class y
        on level k, P_k the centres of a spherical k-means of P_(k-1), recomputed at intervals
    Differs: implemented from the supplement of the paper, which does not specify the following; all of it is assumed. k-means
        is spherical, starts from its last result, so that groups keep their numbers, and runs one iteration (ten at first); an
        empty group takes a class that is far from its centre, if there is one. Proxies of groups have the length of those of
        classes, so that one learning rate suits both. They are trained between two clusterings, and each clustering resets
        their optimiser state. For a class with several centres, the mean of the centres is clustered; a group has one centre.
    Needs: an inner loss whose only parameters are class vectors.

    Args:
        loss: the loss of every level, such as ProxyAnchor() or ProxyNCA(positive_in_denominator=True).
        coarse: number of groups; several decreasing numbers for several levels. Paper: 10 for 98 classes,
            12 to 500 for 11,318. None: a tenth of the classes, 2 at least.
        every: steps between two clusterings, or epochs ("1e"). Paper: 20; 10 to 80 work as well. That these are steps is
            assumed.
        levels: number of levels; without `coarse`, each has a tenth of the groups of the level below. Paper: 1.
        coarse_proxies: proxies of groups between two clusterings: "learnable" parameters, "frozen", or "centroid", the mean of
            the proxies of their classes at every step, with a gradient to these.
        start: time of the first clustering, in steps or epochs ("1e"); proxies must be trained before they form useful groups.
            Ours: after one epoch.
        by: what is clustered: the "proxies" (paper), or the "means", moving averages of the embeddings of every class, which
            reflect similarity much earlier than proxies (ours).
        weight: w, one for all levels or one for each. 1 is assumed: the paper has no weight among its settings. With a
            hundred classes 0.1 works better (docs/structure.md).
        coarse_loss: loss of the levels of groups in place of `loss`, for other scales and margins. Paper: the same for all
            levels in its first protocol; in the second, scale and margin of each level are searched.
        depth: take groups from the taxonomy of the data in place of clusters: the ancestors at this depth, 1 the coarsest.
            Several numbers, the deepest first, for several levels. Learnable proxies of such groups are trained from the first
            step and never reset.
        tree: taxonomy in place of the data's own: a shipped one, a .json or .csv file, or wordnet:ROOT.
        seed: seed of the first clustering; the run fills it in.
        per_pass: steps in an epoch, needed if `start` or `every` is in epochs; the run fills it in.
        steps: steps of the whole training, to check that `start` is before its end; the run fills it in.
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
                "Hierarchical: groups must come either from a tree (depth, tree) or from clustering (coarse, levels), "
                f"got depth={depth}, tree={tree!r}, coarse={coarse}, levels={levels}; choose one of the two"
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
        vars(self)["coarse_loss"] = coarse_loss  # by self.coarse_loss = coarse_loss its proxies would be in the state
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
        if steps is not None and per_pass is not None and not self._fixed_groups() and self._steps("start") >= steps:
            raise LikewiseError(
                f"Hierarchical: start must be before the end of training, got start={start!r} and {steps} steps, {per_pass} per "
                "epoch; train longer, or start earlier"
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
        # Groups from a tree need no clustering, so they are used from the first step.
        self.register_buffer("begun", torch.tensor(float(self._fixed_groups())))
        self.register_buffer("regrouped", torch.zeros(()))
        self.pending: tuple[Tensor, Tensor] | None = None  # embeddings and labels of this step, for `after_step`
        means = torch.zeros(self.classes, self.dim) if by == "means" else None  # zero: no sample so far
        self.register_buffer("means", means)

    def _add_level(self, cluster: Plan, weight: float) -> None:
        """Append a coarser level.

        Args:
            cluster: (number of classes or groups below, number of groups), or the group of every class or group below.
        """
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
        delattr(like, name)  # `Level.with_proxies` sets them for every batch
        self.plan.append(Level(size, weight, like, name, len(own) // size))

    def _fixed_groups(self) -> bool:
        """Return whether clustering never changes the groups or their proxies."""
        return self.depth is not None and self.coarse_proxies != "frozen"

    def _steps(self, name: str) -> int:
        """Return `start` or `every` in steps."""
        given = str(getattr(self, name))
        if self.per_pass is None and given.endswith("e"):
            raise LikewiseError(
                f"Hierarchical: with {name} in epochs, per_pass must be the number of steps in an epoch, got {name}='{given}' "
                f"and per_pass=None; give per_pass, or {name} as a number of steps"
            )
        return steps_of(given, self.per_pass or 1, name, owner="Hierarchical")

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        if self.depth is not None and self.class_names is None:
            raise LikewiseError("Hierarchical: depth needs class_names and a taxonomy, got class_names=None; give both")
        if self.means is not None and self.training and (torch.compiler.is_compiling() or not is_traced()):
            self.pending = z.detach(), y
        group, above = y, 0.0
        for number, level in enumerate(self.plan, 1):
            group = getattr(self, f"cluster_{number}")[group]
            above = above + level.weight * level.with_proxies(self.proxies_of(number), z, group)
        return self.loss.forward(z, y, ref) + self.begun * above

    def predict(self, z: Float[Tensor, "B D"]) -> Int[Tensor, "B"] | None:
        return self.loss.predict(z)

    def proxies_of(self, level: int) -> Float[Tensor, "K D"]:
        """Return the vectors of a level: 0 for the classes (unit vectors, or means of unit vectors), 1 for their groups, ..."""
        if level == 0:
            each = unit_rows(class_vectors(self.loss))
            return each.view(-1, self.classes, self.dim).mean(0)
        if self.coarse_proxies != "centroid":
            return getattr(self, f"coarse_{level}")
        return self._centres(self.proxies_of(level - 1), level)

    def _centres(self, below: Float[Tensor, "n D"], level: int) -> Float[Tensor, "K D"]:
        """Return the mean direction of every group of a level, given the vectors of the level below."""
        total = below.new_zeros(self.plan[level - 1].size, self.dim)
        return unit_rows(total.index_add(0, getattr(self, f"cluster_{level}"), unit_rows(below)))

    def _length(self) -> Float[Tensor, ""]:
        """Return the mean length of the proxies of the classes."""
        return torch.linalg.vector_norm(class_vectors(self.loss).detach(), dim=1).mean()

    def groups(self) -> list[Int[Tensor, "C"]]:
        """Return the group of every class, for every level, the finest first."""
        levels, group = [], torch.arange(self.classes, device=self.begun.device)
        for level in range(1, len(self.plan) + 1):
            group = getattr(self, f"cluster_{level}")[group]
            levels.append(group)
        return levels

    def after_step(self, step: int) -> list[nn.Parameter]:
        moved = list(self.loss.after_step(step) or ())
        if self.pending is not None:
            self._remember(*self.pending)
        self.pending = None
        if self._fixed_groups():
            return moved
        since = step - max(1, self._steps("start"))
        return moved if since < 0 or since % self._steps("every") else moved + self.regroup()

    @torch.no_grad()
    def _remember(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"]) -> None:
        """Move the mean embeddings of the classes in a batch towards the batch (moving average, MEAN_MOMENTUM)."""
        means = self.means
        assert means is not None
        total = torch.zeros_like(means).index_add_(0, y, z.to(means))
        now = F.normalize(total, dim=1)
        present, known = total.any(1, keepdim=True), means.any(1, keepdim=True)
        means.copy_(torch.where(present, torch.where(known, torch.lerp(now, means, MEAN_MOMENTUM), now), means))

    def _points(self) -> Float[Tensor, "C D"]:
        """Return the vector of each class for clustering: its mean embedding if there is one, otherwise its proxy."""
        proxies = self.proxies_of(0)
        return proxies if self.means is None else self.means.where(self.means.any(1, keepdim=True), proxies)

    @torch.no_grad()
    def regroup(self) -> list[nn.Parameter]:
        """Cluster the classes again, level by level. Return the parameters whose values were replaced."""
        below, first = self._points(), not bool(self.begun)
        if not below.isfinite().all():
            return []  # training diverged; the training loop reports it
        length = self._length()
        for number, level in enumerate(self.plan, 1):
            if self.depth is None:
                before = getattr(self, f"cluster_{number}")
                own = getattr(self, f"coarse_{number}", None)
                init = None if first else self._centres(below, number) if own is None else own
                steps = FIRST_KMEANS_STEPS if first else LATER_KMEANS_STEPS
                clusters = kmeans(below, level.size, iterations=steps, seed=self.seed, init=init, spherical=True)
                if number == 1 and not first:
                    self.regrouped.copy_((clusters.label != before).float().mean())
                before.copy_(clusters.label)
            centre = self._centres(below, number)
            if self.depth is None:  # an empty group keeps its centre
                centre = centre.where(centre.any(1, keepdim=True), clusters.centre)
            if self.coarse_proxies != "centroid":
                getattr(self, f"coarse_{number}").copy_(centre * length)
            below = centre
        self.begun.fill_(1)
        learn = self.coarse_proxies == "learnable"
        return [getattr(self, f"coarse_{number}") for number in range(1, len(self.plan) + 1)] if learn else []

    def observe_state(self) -> dict[str, Tensor]:
        return self.loss.observe_state() | {"classes_regrouped": self.regrouped.detach().clone()}
