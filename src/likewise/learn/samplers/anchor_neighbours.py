from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.core.argument_checks import Count
from likewise.core.class_sums import class_sums
from likewise.core.types import LikewiseError
from likewise.learn.samplers._class_index import Lonely
from likewise.learn.samplers._embedding_sampler import EmbeddingSampler


class AnchorNeighbours(EmbeddingSampler):
    """Batches of random classes together with the classes nearest to them.

    Paper: Ge et al., Deep Metric Learning with Hierarchical Triplet Loss, ECCV 2018.
    Formula: a batch = l random classes, the m - 1 classes nearest to each of them, t samples of every class; n = l m t.
        d(p, q) = mean |r_i - r_j|^2 over samples i of p and j of q = 2 - 2 m_p m_q, m_c the mean unit embedding of c
    Differs: a class that is in the batch already is passed over for the next nearest, so that a batch has l m classes. The
        paper embeds the training set for each tree; here the embeddings are the latest ones of training.

    Args:
        labels: classes of the training samples; the run fills it in.
        batch: n, samples in a batch, a multiple of per_class times neighbourhood.
        per_class: t, samples of each class in a batch.
        neighbourhood: m, a random class and the classes nearest to it.
        lonely: what to do with classes of a single sample: "error", or "skip" to train without them.
        class_names: names of the classes, for errors; the run fills it in.
        seed: the run fills it in.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        batch: Count = 120,
        per_class: Count = 2,
        neighbourhood: Count = 3,
        lonely: Lonely = "error",
        class_names: tuple[str, ...] | None = None,
        seed: int = 0,
    ):
        super().__init__(labels, batch, per_class, lonely, class_names, seed)
        self.neighbourhood = neighbourhood
        self.largest_class = per_class
        if batch % (per_class * neighbourhood):
            raise LikewiseError(
                "AnchorNeighbours: batch must be a multiple of per_class times neighbourhood, "
                f"got batch={batch}, per_class={per_class}, neighbourhood={neighbourhood}"
            )
        if len(self._members.rows) < batch // per_class:
            raise LikewiseError(
                f"AnchorNeighbours: batch={batch} with per_class={per_class} needs {batch // per_class} classes, but the "
                f"labels have {len(self._members.rows)}; lower batch, or raise per_class"
            )

    def _choose(self, z: Float[np.ndarray, "N D"], number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        members = self._members
        rows, of_row = torch.as_tensor(members.every), torch.as_tensor(members.of_row[members.every])
        total = class_sums(torch.as_tensor(z)[rows], of_row, len(members.rows), torch.float64)
        mean = (total / torch.as_tensor(members.size)[:, None]).numpy()
        anchors = self.batch // (self.per_class * self.neighbourhood)
        return [
            members.fill(self._classes(mean, anchors, rng), self.per_class, rng).reshape(-1).tolist()
            for _ in range(len(self))
        ]

    def _classes(self, mean: Float[np.ndarray, "C D"], anchors: int, rng: np.random.Generator) -> Int[np.ndarray, "n"]:
        """Return the classes of a batch: some at random, each followed by its nearest classes that are not in the batch."""
        drawn = rng.permutation(len(mean))[:anchors]
        taken, classes = set(drawn.tolist()), []
        for anchor in drawn.tolist():
            order = np.argsort(-(mean @ mean[anchor]), kind="stable").tolist()
            near = [c for c in order if c not in taken][: self.neighbourhood - 1]
            taken.update(near)
            classes += [anchor, *near]
        return np.array(classes)
