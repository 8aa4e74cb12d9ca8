"""The embedding bank, and the base class of samplers that choose batches by embeddings."""

from __future__ import annotations

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


class EmbeddingBank:
    """The latest embedding of every training row, and the batches of the current epoch.

    The bank is filled once before training; each step updates the rows of its batch. Embeddings of a step stay on the device
    until the bank is read, at the next epoch or checkpoint, so that no step waits for a copy to the host.
    """

    def __init__(self, owner: str, rows: int):
        self.owner, self.rows = owner, rows
        self.z: np.ndarray | None = None
        self.waiting: list[tuple[Tensor, Tensor]] = []
        self.number, self.batches = -1, torch.zeros(0, 0, dtype=torch.int64)

    def start(self, embed: Callable[[], Embedded]) -> None:
        """Fill the bank, unless it was loaded from a checkpoint."""
        if self.z is not None:
            return
        z = np.array(embed().z.detach().float().cpu())
        if len(z) != self.rows:
            raise LikewiseError(
                f"{self.owner}: start must get embeddings of all {self.rows} training rows, got {len(z)}"
            )
        self.z = z

    def observe(self, z: Float[Tensor, "B D"], row: Int[Tensor, "B"]) -> None:
        """Store the embeddings of a batch, on their device."""
        self.waiting.append((z.detach().to(torch.float32, copy=True), row.clone()))

    def read(self) -> Float[np.ndarray, "N D"]:
        """Return the latest embeddings."""
        if self.z is None:
            raise LikewiseError(
                f"{self.owner}: the sampler needs embeddings of the training rows; call start(embed) before iterating"
            )
        if self.waiting:
            z, row = (torch.cat(parts).cpu().numpy() for parts in zip(*self.waiting))
            self.z[row] = z  # if a row occurs several times, its last embedding is stored
            self.waiting.clear()
        return self.z

    def epoch_batches(self, number: int, choose: Callable[[np.ndarray, int], list[list[int]]]) -> list[list[int]]:
        """Return the batches of an epoch. They are chosen at the first call and stored, also in checkpoints.

        Args:
            number: number of the epoch.
            choose: (embeddings, number of the epoch) -> batches.
        """
        if number != self.number:
            z = self.read()
            bad = len(z) - int(np.isfinite(z).all(1).sum())
            if bad:
                raise LikewiseError(
                    f"{self.owner}: embeddings must be finite, got {bad} rows with NaN or infinity; lower lr or set clip_norm"
                )
            self.number, self.batches = number, torch.tensor(choose(z, number))
        return self.batches.tolist()

    def state_dict(self) -> dict:
        """Return the embeddings and the batches of the current epoch."""
        z = None if self.z is None else torch.tensor(self.read())
        return {"bank": z, "pass": self.number, "batches": self.batches}

    def load_state_dict(self, state: dict) -> None:
        """Restore the embeddings and the batches of the current epoch."""
        self.waiting.clear()
        self.z = None if state["bank"] is None else np.array(state["bank"])
        self.number, self.batches = state["pass"], state["batches"]


class EmbeddingSampler(BatchSampler):
    """Base of samplers that choose the batches of an epoch from an embedding bank, by `_choose(embeddings, epoch)`."""

    pool: int
    candidates: int
    _choose: Callable[[np.ndarray, int], list[list[int]]]

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
        self._bank = EmbeddingBank(owner, len(labels))
        self.labels = labels
        self.batch = batch
        self.per_class = per_class
        self.lonely = lonely
        self.class_names = class_names
        self.seed = seed

    def __len__(self) -> int:
        return max(1, len(self._members.every) // self.batch)

    def start(self, embed: Callable[[], Embedded]) -> None:
        self._bank.start(embed)

    def observe(self, z: Float[Tensor, "B D"], row: Int[Tensor, "B"]) -> None:
        self._bank.observe(z, row)

    def epoch_batches(self, number: int) -> list[list[int]]:
        return self._bank.epoch_batches(number, self._choose)

    def state_dict(self) -> dict:
        return super().state_dict() | self._bank.state_dict()

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self._bank.load_state_dict(state)

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
