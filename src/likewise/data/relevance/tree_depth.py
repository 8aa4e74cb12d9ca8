from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.argument_checks import Positive, ShareAboveZero
from likewise.core.contracts import Relevance, RelevanceInput
from likewise.data.taxonomies import ancestors, class_tree


class TreeDepth(Relevance):
    """Relevance of classes by the class tree: 1 for the same class, less the higher the lowest common ancestor lies.

    Formula: r(a, b) = (depth(lca(a, b)) / max(depth(a), depth(b)))^power; the root has depth 0
    Ids are classes. Proxies are those of classes, and `targets` is the relevance of a sample's class to every class.

    Args:
        taxonomy: class name -> its ancestors, coarsest first; the run fills it in.
        class_names: names of the classes; the run fills it in.
        power: 1 is linear in depth; above 1, only close relatives are relevant.
        threshold: a pair of this relevance or more is positive. 1: only the same class.
        tree: name of a shipped taxonomy, or a file, in place of that of the data.
    """

    gives: tuple[RelevanceInput, ...] = ("pairs", "targets")
    levels: Int[Tensor, "C L"]
    depth: Float[Tensor, "C"]

    def __init__(
        self,
        taxonomy: dict[str, tuple[str, ...]] | None,
        class_names: tuple[str, ...],
        power: Positive = 1.0,
        threshold: ShareAboveZero = 1.0,
        tree: str | None = None,
    ):
        super().__init__()
        self.taxonomy = taxonomy
        self.class_names = class_names
        self.power = power
        self.threshold = threshold
        self.tree = tree
        found = class_tree(ancestors("TreeDepth", class_names, tree, taxonomy))
        self.ids = len(class_names)
        own = torch.arange(self.ids)
        # Groups below the root, then the class itself: two classes share the first levels of their paths, and no later ones.
        groups = torch.as_tensor(found.group[found.root :]).reshape(-1, self.ids)
        self.register_buffer("levels", torch.cat([groups, own[None]]).T.contiguous(), persistent=False)
        self.register_buffer("depth", torch.as_tensor(found.depth).float(), persistent=False)

    @property
    def width(self) -> int:
        return self.ids

    def targets(self, y: Int[Tensor, "B"]) -> Float[Tensor, "B C"]:
        """Return the relevance of the class of every sample to every class."""
        return self(y, torch.arange(self.ids, device=y.device))

    def forward(self, a: Int[Tensor, "B"], b: Int[Tensor, "R"]) -> Float[Tensor, "B R"]:
        shared = torch.zeros(len(a), len(b), device=a.device)
        for level in self.levels.T:  # a loop over levels: no B x R x levels tensor
            one, other = level[a][:, None], level[b][None, :]
            shared += (one == other) & (one >= 0)
        return (shared / torch.maximum(self.depth[a][:, None], self.depth[b][None, :])) ** self.power
