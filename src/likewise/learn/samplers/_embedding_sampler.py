"""The base class of samplers that choose batches by embeddings, with the latest embedding of every training row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.contracts import BatchSampler
from likewise.core.types import Embedded, LikewiseError
from likewise.learn.samplers._class_index import (
    Lonely,
    candidate_batches,
    check_batch,
    check_pool,
    usable_classes,
)


class EmbeddingSampler(BatchSampler):
    """Base of samplers that choose the batches of an epoch by the latest embeddings of the training rows, in `_choose`.

    The embeddings are filled in once before training; each step updates the rows of its batch. Embeddings of a step stay on the
    device until they are read, at the next epoch or checkpoint, so that no step waits for a copy to the host.
    """

    pool: int
    candidates: int

    def __init__(
        self, labels: Int[np.ndarray, "N"], batch: int, per_class: int, lonely: Lonely, class_names: tuple[str, ...] | None,
        seed: int, pool: int | None = None,
    ):  # fmt: skip
        """Store and check the arguments that these samplers share.

        Args:
            pool: rows that the batches of a step are chosen from; None: all rows.
        """
        owner = type(self).__name__
        check_batch(owner, batch, per_class)
        why = f"per_class={per_class}" if per_class > 1 else None
        self._members = usable_classes(owner, labels, why, lonely, class_names)
        if pool is not None:
            check_pool(owner, pool, batch, self._members)
            self.pool = pool
        self.labels = labels
        self.batch = batch
        self.per_class = per_class
        self.lonely = lonely
        self.class_names = class_names
        self.seed = seed
        self._z: np.ndarray | None = None
        self._waiting: list[tuple[Tensor, Tensor]] = []  # embeddings of steps, on their device, and their rows
        self._number, self._batches = -1, torch.zeros(0, 0, dtype=torch.int64)  # the current epoch

    @abstractmethod
    def _choose(self, z: Float[np.ndarray, "N D"], number: int) -> list[list[int]]:
        """Return the batches of epoch `number`, given the latest embeddings."""

    def __len__(self) -> int:
        return max(1, len(self._members.every) // self.batch)

    def start(self, embed: Callable[[], Embedded]) -> None:
        """Store the embeddings of all training rows, unless they were loaded from a checkpoint."""
        if self._z is not None:
            return
        z = np.array(embed().z.detach().float().cpu())
        if len(z) != len(self.labels):
            raise LikewiseError(
                f"{type(self).__name__}: start must get embeddings of all {len(self.labels)} training rows, got {len(z)}"
            )
        self._z = z

    def observe(self, z: Float[Tensor, "B D"], row: Int[Tensor, "B"]) -> None:
        """Store the embeddings of a batch, on their device."""
        self._waiting.append((z.detach().to(torch.float32, copy=True), row.clone()))

    def latest(self) -> Float[np.ndarray, "N D"]:
        """Return the latest embedding of every row."""
        if self._z is None:
            raise LikewiseError(
                f"{type(self).__name__}: the sampler needs embeddings of the training rows; call start(embed) before iterating"
            )
        if self._waiting:
            z, row = (torch.cat(parts).cpu().numpy() for parts in zip(*self._waiting))
            self._z[row] = z  # if a row occurs several times, its last embedding is stored
            self._waiting.clear()
        return self._z

    def epoch_batches(self, number: int) -> list[list[int]]:
        """Return the batches of an epoch. They are chosen at the first call and stored, also in checkpoints."""
        if number != self._number:
            z = self.latest()
            bad = len(z) - int(np.isfinite(z).all(1).sum())
            if bad:
                raise LikewiseError(
                    f"{type(self).__name__}: embeddings must be finite, got {bad} rows with NaN or infinity; lower lr or set "
                    "clip_norm"
                )
            self._number, self._batches = number, torch.tensor(self._choose(z, number))
        return self._batches.tolist()

    def state_dict(self) -> dict:
        """Return the embeddings and the batches of the current epoch too."""
        z = None if self._z is None else torch.tensor(self.latest())
        return super().state_dict() | {"bank": z, "pass": self._number, "batches": self._batches}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self._waiting.clear()
        self._z = None if state["bank"] is None else np.array(state["bank"])
        self._number, self._batches = state["pass"], state["batches"]

    def _best(
        self, z: Float[np.ndarray, "N D"], number: int, cost: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> list[list[int]]:
        """Return the batches of an epoch, each the candidate of lowest cost.

        Args:
            cost: (embeddings of a pool, candidates as positions in the pool) -> cost of every candidate.
        """
        rng = np.random.default_rng((self.seed, number))
        batches = []
        for _ in range(len(self)):
            pool = self._members.pool(self.pool, self.per_class, rng)
            tries = candidate_batches(self.labels[pool], self.candidates, self.batch, self.per_class, rng)
            batches.append(pool[tries[np.argmin(cost(z[pool], tries))]].tolist())
        return batches
