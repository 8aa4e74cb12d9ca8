"""What samplers that look at embeddings remember."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.contracts import BatchSampler
from likewise.samplers._class_index import ClassIndex, candidate_batches, check_batch, check_pool, usable_classes
from likewise.types import Embedded, LikewiseError


class EmbeddingBank:
    """The last embedding seen of every training row, and the batches of the pass under way, chosen from it.

    Filled once before training; each step overwrites the rows of its batch. What a step brings waits on its device until
    the bank is read, at the next pass or checkpoint, so that no step waits for a copy.
    """

    def __init__(self, owner: str, rows: int):
        self.owner, self.rows = owner, rows
        self.z: np.ndarray | None = None
        self.waiting: list[tuple[Tensor, Tensor]] = []
        self.number, self.batches = -1, torch.zeros(0, 0, dtype=torch.int64)

    def start(self, embed: Callable[[], Embedded]) -> None:
        """Fill the bank, unless it was loaded."""
        if self.z is not None:
            return
        z = np.array(embed().z.detach().float().cpu())
        if len(z) != self.rows:
            raise LikewiseError(f"{self.owner}: start wants embeddings of all {self.rows} training rows, got {len(z)}")
        self.z = z

    def observe(self, z: Float[Tensor, "B D"], row: Int[Tensor, "B"]) -> None:
        self.waiting.append((z.detach().to(torch.float32, copy=True), row.clone()))

    def read(self) -> Float[np.ndarray, "N D"]:
        """The embeddings as of now."""
        if self.z is None:
            raise LikewiseError(f"{self.owner}: it looks at embeddings; call start(embed) before taking batches")
        if self.waiting:
            z, row = (torch.cat(parts).cpu().numpy() for parts in zip(*self.waiting))
            self.z[row] = z  # of a row that came several times, the last remains
            self.waiting.clear()
        return self.z

    def one_pass(self, number: int, choose: Callable[[np.ndarray, int], list[list[int]]]) -> list[list[int]]:
        """The batches of a pass: chosen when first asked for, and from then on these, also after going on from a state.

        Args:
            choose: from the embeddings and the pass's number to its batches.
        """
        if number != self.number:
            z = self.read()
            bad = len(z) - int(np.isfinite(z).all(1).sum())
            if bad:
                raise LikewiseError(
                    f"{self.owner}: embeddings must be finite, got {bad} rows that are not; lower lr or set clip_norm"
                )
            self.number, self.batches = number, torch.tensor(choose(z, number))
        return self.batches.tolist()

    def state_dict(self) -> dict:
        z = None if self.z is None else torch.tensor(self.read())
        return {"bank": z, "pass": self.number, "batches": self.batches}

    def load_state_dict(self, state: dict) -> None:
        self.waiting.clear()
        self.z = None if state["bank"] is None else np.array(state["bank"])
        self.number, self.batches = state["pass"], state["batches"]


class EmbeddingSampler(BatchSampler):
    """What samplers share that choose a pass's batches (`_choose(z, number)`) by the embeddings in a bank."""

    labels: Int[np.ndarray, "N"]
    batch: int
    per_class: int
    pool: int
    candidates: int
    lonely: Literal["error", "skip"]
    class_names: tuple[str, ...] | None
    seed: int
    _members: ClassIndex
    _bank: EmbeddingBank
    _choose: Callable[[np.ndarray, int], list[list[int]]]

    def _checked_members(self) -> tuple[ClassIndex, EmbeddingBank]:
        """Check what a constructor stored, and return the rows by class and an empty bank: its last line."""
        owner = type(self).__name__
        check_batch(owner, self.batch, self.per_class)
        why = f"per_class={self.per_class}" if self.per_class > 1 else None
        members = usable_classes(owner, self.labels, why, self.lonely, self.class_names)
        check_pool(owner, self.pool, self.batch, members)
        return members, EmbeddingBank(owner, len(self.labels))

    def __len__(self) -> int:
        return len(self._members.every) // self.batch

    def start(self, embed: Callable[[], Embedded]) -> None:
        self._bank.start(embed)

    def observe(self, z: Float[Tensor, "B D"], row: Int[Tensor, "B"]) -> None:
        self._bank.observe(z, row)

    def one_pass(self, number: int) -> list[list[int]]:
        return self._bank.one_pass(number, self._choose)

    def state_dict(self) -> dict:
        return super().state_dict() | self._bank.state_dict()

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self._bank.load_state_dict(state)

    def _best(
        self, z: Float[np.ndarray, "N D"], number: int, cost: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> list[list[int]]:
        """A pass of batches, each the cheapest of some candidates. `cost` takes a pool's embeddings and positions in it."""
        rng = np.random.default_rng((self.seed, number))
        batches = []
        for _ in range(len(self)):
            pool = self._members.pool(self.pool, self.per_class, rng)
            tries = candidate_batches(self.labels[pool], self.candidates, self.batch, self.per_class, rng)
            batches.append(pool[tries[np.argmin(cost(z[pool], tries))]].tolist())
        return batches
