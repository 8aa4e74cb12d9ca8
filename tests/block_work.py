"""Work on blocks, and executors that kill its process, for tests; another process imports this module."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from likewise.core.block_executors import RayBlocks
from likewise.core.errors import LikewiseError


def row_sums(shared, rows):
    return shared["x"][rows].sum(1) * shared["factor"]


def threads_and_arguments(shared, block):
    return torch.get_num_threads(), shared, block


def refusing(shared, rows):
    raise LikewiseError(f"rows must be below 4, got {rows.start}; drop them")


def broken(shared, rows):
    return 1 / (rows.start - 4)


def deadly(shared, rows):
    """Kill the process at the rows from 4 on, every time; count the calls of each block."""
    with open(Path(shared["folder"]) / str(rows.start), "a") as file:
        file.write("x")
    if rows.start == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return rows.start


def slow_first(shared, rows):
    """Return the process after all later blocks that may be started were started, in the first block."""
    (Path(shared["folder"]) / str(rows.start)).touch()
    if rows.start == 0:
        end = time.monotonic() + 600
        while len(list(Path(shared["folder"]).iterdir())) < shared["window"] and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(1)  # would more blocks be started, they would be by now
        return len(list(Path(shared["folder"]).iterdir()))
    return rows.start


@dataclass(frozen=True)
class KilledOnce:
    """Other work, but the first process that computes a block is killed when it has computed it."""

    work: object
    mark: str

    def __call__(self, shared, block):
        found = self.work(shared, block)
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return found
        os.kill(os.getpid(), signal.SIGKILL)


class KillingBlocks(RayBlocks):
    """Ray, where one process is killed in every kind of work; `calls` has the names of the work, one for each `map_blocks`."""

    def __init__(self, ray, who, folder: Path):
        super().__init__(ray, who)
        self.folder, self.calls = folder, []

    def map_blocks(self, work, shared, blocks, progress=None):
        name, mark = work.__name__, self.folder / work.__name__
        self.calls.append(name)
        if self.calls.count(name) == 1:
            work = KilledOnce(work, str(mark))
        yield from super().map_blocks(work, shared, blocks, progress)
        assert mark.exists()
