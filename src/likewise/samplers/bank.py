"""What samplers that look at embeddings remember."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.types import Embedded, LikewiseError


class Bank:
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


class Watching:
    """The doors of a sampler that chooses a pass's batches (`_choose(z, number)`) by the embeddings in its `_bank`."""

    _bank: Bank

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
