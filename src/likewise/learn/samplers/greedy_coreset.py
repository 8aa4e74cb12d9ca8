from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from likewise.core.argument_checks import Count
from likewise.learn.samplers._class_index import Lonely
from likewise.learn.samplers._embedding_sampler import EmbeddingSampler


class GreedyCoreset(EmbeddingSampler):
    """Batches spread over the embedding space (GC): every new centre is the row farthest from the centres before it.

    Paper: Roth et al., Revisiting Training Strategies, ICML 2020 (GC).
    Formula: B* = pool random rows; c_1 random in B*; c_k = arg max_{i in B*} min_{j < k} d(i, c_j);
        a batch = batch / per_class centres, each with per_class - 1 random samples of its class
    Differs: the centres of a class are limited by the number of its images, so that a batch repeats an image only if it must. The
        study's code looks up the centres in a list other than the pool; see published_indices. Embeddings have unit length,
        also for losses on raw embeddings.

    Args:
        labels: classes of the training samples; the run fills it in.
        batch: samples in a batch. Study: 112.
        per_class: samples of a class around each centre, the centre included. Study: 2.
        pool: number of random rows that the centres of a batch are chosen from; all rows if there are fewer. Study: 512.
        lonely: what to do with classes of a single sample: "error", or "skip" to train without them.
        class_names: names of the classes, for errors; the run fills it in.
        published_indices: look up the positions of the centres in another list of random rows, drawn once per epoch, as the
            published code does by mistake; in effect, centres are random rows from that list.
        seed: the run fills it in.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, "N"],
        batch: Count = 112,
        per_class: Count = 2,
        pool: Count = 512,
        lonely: Lonely = "error",
        class_names: tuple[str, ...] | None = None,
        published_indices: bool = False,
        seed: int = 0,
    ):
        super().__init__(labels, batch, per_class, lonely, class_names, seed, pool)
        self.published_indices = published_indices

    def _choose(self, z: Float[np.ndarray, "N D"], number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        every, of_row = self._members.every, self._members.of_row
        size = min(self.pool, len(every))
        epoch_rows = rng.choice(every, size) if self.published_indices else None
        room = np.maximum(self._members.size // self.per_class, 1)
        batches = []
        for _ in range(len(self)):
            pool = rng.choice(every, size, replace=False)
            places = centres(z[pool], self.batch // self.per_class, int(rng.integers(size)), of_row[pool], room)
            chosen = (pool if epoch_rows is None else epoch_rows)[places]
            batches.append(self._with_mates(chosen, rng))
        return batches

    def _with_mates(self, chosen: Int[np.ndarray, "k"], rng: np.random.Generator) -> list[int]:
        """Return every centre followed by samples of its class: first those that are not in the batch, the centre itself last."""
        inside = np.zeros(len(self.labels), bool)
        inside[chosen] = True
        batch = []
        for row in chosen:
            mates = rng.permutation(self._members.rows[self._members.of_row[row]])
            mates = mates[np.argsort(inside[mates] + (mates == row).astype(int), kind="stable")]
            taken = np.resize(mates, self.per_class - 1)
            inside[taken] = True
            batch += [int(row), *taken.tolist()]
        return batch


def centres(
    z: Float[np.ndarray, "n D"], count: int, first: int, classes: Int[np.ndarray, "n"], room: Int[np.ndarray, "C"]
) -> Int[np.ndarray, "k"]:
    """Return the positions of `count` rows, each the farthest from the rows before it.

    Args:
        first: position of the first row.
        classes: class of each row.
        room: largest number of rows of each class; ignored once no class has room left.
    """
    nearest, free, room, chosen = np.full(len(z), np.inf), np.ones(len(z), bool), room.copy(), [first]
    for _ in range(count - 1):
        new = chosen[-1]
        free[new] = False
        room[classes[new]] -= 1
        apart = z - z[new]
        nearest = np.minimum(nearest, np.einsum("nd,nd->n", apart, apart))
        allowed = free & (room[classes] > 0)
        chosen.append(int(np.argmax(np.where(allowed if allowed.any() else free, nearest, -1))))
    return np.array(chosen)
