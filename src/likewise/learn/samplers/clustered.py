from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.core.argument_checks import Count
from likewise.core.kmeans import kmeans
from likewise.core.types import LikewiseError
from likewise.learn.samplers._class_index import ClassIndex, Lonely
from likewise.learn.samplers._embedding_sampler import EmbeddingSampler

MAX_KMEANS_STEPS = 100
"""Iterations of k-means at most; it ends earlier if no centre moves."""


class Clustered(EmbeddingSampler):
    """Batches from one cluster of the training samples each, cluster after cluster; terms get the cluster as `Batch.group`.

    Paper: Sanakoyeu et al., Divide and Conquer the Embedding Space for Metric Learning, CVPR 2019.
    Formula: every T epochs, K clusters by k-means of the embeddings, numbered so that they share as many samples as possible
        with the clusters before (an assignment problem); batch j from cluster j modulo K, per_class samples of a class each
    Differs: the embeddings are the latest ones of training, with augmentation; the paper embeds the whole training set. They
        are the whole embeddings, as in the paper's text; the authors' code clusters the pooled features. An epoch has as
        many batches as without clusters; in the code it has K times those of the largest cluster. A class is drawn again
        only after all others of its cluster.
    Needs: a term that uses the clusters, `DivideConquer`.

    Args:
        labels: classes of the training samples; the run fills it in.
        batch: samples in a batch. Authors' code: 80.
        per_class: samples of each class in a batch. Authors' code: 4.
        clusters: K. Authors' code: 8.
        every: T, epochs between two clusterings. Authors' code: 2.
        until: epochs after which all samples are one cluster, with the group -1; None: never. Authors' code: 190 of 200.
        lonely: what to do with classes of a single sample: "error", or "skip" to train without them.
        class_names: names of the classes, for errors; the run fills it in.
        seed: the run fills it in.
    """

    groups: Int[np.ndarray, "N"]

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        batch: Count = 80,
        per_class: Count = 2,
        clusters: Count = 8,
        every: Count = 2,
        until: int | None = None,
        lonely: Lonely = "error",
        class_names: tuple[str, ...] | None = None,
        seed: int = 0,
    ):
        super().__init__(labels, batch, per_class, lonely, class_names, seed)
        if clusters > len(labels):
            raise LikewiseError(
                f"Clustered: clusters must be at most the {len(labels)} training samples, got {clusters}"
            )
        self.clusters = clusters
        self.every = every
        self.until = until
        self.groups = np.full(len(labels), -1)

    def _choose(self, z: Float[np.ndarray, "N D"], number: int) -> list[list[int]]:
        """Return the batches of an epoch, cluster after cluster; in the epochs of a clustering, cluster first."""
        rng = np.random.default_rng((self.seed, number))
        divided = self.until is None or number < self.until
        if not divided:
            self.groups = np.full(len(self.labels), -1)
        elif number % self.every == 0 or (self.groups < 0).all():
            self.groups = self._clusters(z, number)
        rows = [np.flatnonzero(self.groups == c) for c in (range(self.clusters) if divided else (-1,))]
        parts = [(r, ClassIndex(self.labels[r], least=min(2, self.per_class))) for r in rows]
        parts = [(r, index) for r, index in parts if len(index.rows) > 1]  # a loss needs two classes
        if not parts:
            raise LikewiseError(
                f"Clustered: a cluster must have two classes of {min(2, self.per_class)} samples, but none of {self.clusters} "
                "has; lower clusters"
            )
        batches, first = [], number * len(self)
        for turn in range(first, first + len(self)):
            among, index = parts[turn % len(parts)]
            drawn = index.deal(self.batch // self.per_class, self.per_class, rng)
            batches.append(among[drawn.reshape(-1)].tolist())
        return batches

    def _clusters(self, z: Float[np.ndarray, "N D"], number: int) -> Int[np.ndarray, "N"]:
        """Return the cluster of every row, with the numbers of the earlier clusters that it shares most rows with."""
        new = kmeans(torch.as_tensor(z), self.clusters, iterations=MAX_KMEANS_STEPS, seed=self.seed + number).label
        new = new.cpu().numpy()
        if (self.groups < 0).all():
            return new
        from scipy.optimize import linear_sum_assignment  # slow to import

        shared = np.zeros((self.clusters, self.clusters), np.int64)
        np.add.at(shared, (new, self.groups), 1)
        return linear_sum_assignment(shared, maximize=True)[1][new]

    def state_dict(self) -> dict:
        return super().state_dict() | {"groups": torch.as_tensor(self.groups)}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self.groups = np.array(state["groups"])
