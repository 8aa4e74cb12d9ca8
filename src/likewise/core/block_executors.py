"""Executors of blocks: one function for block after block of rows, in this process or in tasks of a Ray cluster.

`map_blocks(work, shared, blocks)` yields `work(shared, block)` for every block, in the order of the blocks. All executors call
the same function with the same blocks and the same number of threads, so that their results are equal, bit for bit on machines
of one kind. `executing` chooses the executor of a command; without it, blocks are computed here, one after another.

Work is a function at the top level of a module, without side effects that matter if it runs twice. It must not change what is
shared: on a cluster, tensors and arrays are read-only memory that all processes of a machine have in common.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from likewise.core.distributed.collectives import world
from likewise.core.errors import LikewiseError
from likewise.core.ray_cluster import LOST_TASK_ERRORS, MAX_RAY_TRIES, check_address, ray_cluster

BLOCKS_PER_SLOT = 2
"""Number of blocks per slot of a cluster that are computed, waiting, or finished before an earlier block is."""

MAX_VIEW_RATIO = 2
"""Largest memory of a tensor, in units of its values, that is sent as it is; of a smaller part, only the values are sent."""

MAX_UNALIGNED_BYTES = 2**16
"""Size up to which tensors are copied from the object store, which does not align small buffers; alignment orders sums."""

INSTEAD_OF_RAY = "drop --executor to compute on this machine"
"""What works without Ray, for errors."""

Work = Callable[[Mapping[str, Any], Any], Any]
"""Function of what is shared by all blocks, and of a block."""

Progress = Callable[[float], None]
"""Called with the share of the blocks that are finished."""


@runtime_checkable
class BlockExecutor(Protocol):
    """Computes blocks. `slots`: number of blocks that are computed at the same time."""

    slots: int

    def map_blocks(
        self, work: Work, shared: Mapping[str, Any], blocks: Sequence[Any], progress: Progress | None
    ) -> Iterator[Any]:
        """Yield `work(shared, block)` for every block, in their order."""
        ...


class LocalBlocks:
    """Computes one block after another in this process."""

    slots = 1

    def map_blocks(
        self, work: Work, shared: Mapping[str, Any], blocks: Sequence[Any], progress: Progress | None = None
    ) -> Iterator[Any]:
        """As `BlockExecutor.map_blocks`; a block is computed when its result is asked for."""
        for done, block in enumerate(blocks):
            yield work(shared, block)
            if progress:
                progress((done + 1) / len(blocks))


_EXECUTOR: ContextVar[BlockExecutor | None] = ContextVar("block_executor", default=None)


def current_executor() -> BlockExecutor:
    """Return the executor of the running command."""
    return _EXECUTOR.get() or LocalBlocks()


def is_distributed() -> bool:
    """Return whether the executor of the running command computes in other processes."""
    return not isinstance(current_executor(), LocalBlocks)


def map_blocks(
    work: Work, shared: Mapping[str, Any], blocks: Sequence[Any], progress: Progress | None = None
) -> Iterator[Any]:
    """Yield `work(shared, block)` for every block, in their order, by the executor of the running command.

    Args:
        work: a function at the top level of a module.
        shared: tensors, arrays and small picklable objects; a cluster gets them once per call, not once per block.
        blocks: row ranges, row numbers, or other small picklable objects.
        progress: called with the share of the blocks that are finished.
    """
    return current_executor().map_blocks(work, shared, blocks, progress)


@contextmanager
def using(executor: BlockExecutor) -> Iterator[BlockExecutor]:
    """Use this executor in the block."""
    token = _EXECUTOR.set(executor)
    try:
        yield executor
    finally:
        _EXECUTOR.reset(token)


@contextmanager
def executing(who: str, address: str | None) -> Iterator[BlockExecutor]:
    """Use the executor that --executor of a command names: None keeps the current one.

    Args:
        who: command, for errors.
        address: "ray" (the cluster at RAY_ADDRESS, or a running local one, or else a new local one) or "ray://HOST:PORT".
    """
    if address is None:
        yield current_executor()
        return
    check_address(who, address)
    if world()[1] > 1:
        raise LikewiseError(
            f"{who}: --executor starts processes of its own, but torchrun started {world()[1]}; use one of the two"
        )
    with ray_cluster(who, address, INSTEAD_OF_RAY) as (ray, _), using(RayBlocks(ray, who)) as executor:
        yield executor


class RayBlocks:
    """Computes blocks in tasks of a Ray cluster, on CPU cores. Only the driver, the process of the command, must stay alive.

    A block whose process or node is lost is computed again, up to `MAX_RAY_TRIES` times in all; other blocks are not affected.
    A task has as many threads as this process, because the number of threads changes the order of sums, and reserves as many
    cores (all cores of a node that has fewer). What is shared is put into Ray's object store once per call, and read without a
    copy on every node. At most `BLOCKS_PER_SLOT` results per slot are held at a time.

    Args:
        ray: the module, connected to a cluster.
        who: command, for errors.
    """

    def __init__(self, ray, who: str):
        self.ray, self.who, self.threads = ray, who, torch.get_num_threads()
        cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        self.cpus = max(1, min(self.threads, max(cores, default=1)))
        self.slots = max(1, sum(count // self.cpus for count in cores))

    def map_blocks(
        self, work: Work, shared: Mapping[str, Any], blocks: Sequence[Any], progress: Progress | None = None
    ) -> Iterator[Any]:
        """As `BlockExecutor.map_blocks`. Results are on the device of the first shared tensor."""
        if not blocks:
            return
        task = self.ray.remote(num_cpus=self.cpus, max_retries=0)(compute_block)
        packed = pack(dict(shared))
        device, common = packed.device, self.ray.put(packed)
        del packed
        tries, waiting, results = [0] * len(blocks), {}, {}

        def start(place: int) -> None:
            tries[place] += 1
            call = pack((work, blocks[place]))
            waiting[task.remote(sys.path, os.getcwd(), self.threads, common, call)] = place

        started = taken = done = 0
        try:
            while taken < len(blocks):
                while started < min(len(blocks), taken + BLOCKS_PER_SLOT * self.slots):
                    start(started)
                    started += 1
                for ready in self.ray.wait(list(waiting), timeout=1)[0]:
                    place = waiting.pop(ready)
                    try:
                        results[place] = self.ray.get(ready)
                    except self.ray.exceptions.RayError as error:
                        self._check_repeatable(
                            error, tries[place], f"{place + 1} of {len(blocks)}{rows_of(blocks[place])}"
                        )
                        start(place)
                        continue
                    done += 1
                    if progress:
                        progress(done / len(blocks))
                while taken in results:
                    result = unpack(results.pop(taken), copy=True, device=device)
                    taken += 1
                    yield result
        finally:
            for one in waiting:  # after an error, Ctrl-C, or if the rest is not wanted
                self.ray.cancel(one, force=True)

    def _check_repeatable(self, error: Exception, tries: int, block: str) -> None:
        """Raise unless the block should be computed again: its process was lost, and not too often."""
        kind, lines = type(error).__name__, str(error).strip().splitlines() or [""]
        if kind in LOST_TASK_ERRORS:
            if tries < MAX_RAY_TRIES:
                return
            raise LikewiseError(
                f"{self.who}: the process that computed block {block} was lost {tries} times ({kind}: {lines[0]}); check the "
                f"memory of the nodes, or {INSTEAD_OF_RAY}"
            ) from None
        cause = getattr(error, "cause", None)
        if isinstance(cause, LikewiseError):
            raise cause from None
        raise LikewiseError(
            f"{self.who}: block {block} failed on a node of the Ray cluster ({lines[-1]}); install the same likewise on every "
            f"node, or set PYTHONPATH to a place that all nodes see, or {INSTEAD_OF_RAY}"
        ) from error


def rows_of(block: Any) -> str:
    """Return the rows of a block in words, for errors; empty if it is not of rows."""
    if isinstance(block, slice | range):
        return f" (rows {block.start} to {block.stop - 1})"
    if isinstance(block, Tensor) and block.dim() == 1 and len(block):
        return f" (rows {int(block[0])} to {int(block[-1])})"
    return ""


def compute_block(path: list[str], here: str, threads: int, shared: Packed, call: Packed) -> Packed:
    """Compute one block in a process of the cluster.

    Args:
        path: import path of the driver; its entries are appended to that of this process.
        here: working directory of the driver, for relative entries and relative paths of files.
        threads: number of threads.
        call: work and block.
    """
    sys.path.extend(place for entry in path if (place := os.path.join(here, entry)) not in sys.path)
    if os.path.isdir(here):
        os.chdir(here)
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    work, block = unpack(call)
    with torch.no_grad():
        return pack(work(unpack(shared), block))


class Packed(NamedTuple):
    """A pickled object without its tensors and arrays, and these; Ray shares the arrays between processes without a copy."""

    text: bytes
    arrays: list[np.ndarray]
    device: str = "cpu"  # of the first tensor; the arrays are on the CPU


class Place(NamedTuple):
    """Where an array, or the memory of a tensor, is in `Packed.arrays`; a tensor has its old strides, as they order sums."""

    number: int
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] | None = None  # None: an array
    offset: int = 0


class _Packer(pickle.Pickler):
    """Writes tensors and arrays as their places in `arrays`, which it fills."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file, protocol=5)
        self.arrays: list[np.ndarray] = []
        self.device = ""
        self.places: dict[int, tuple[Place, Any]] = {}  # by id; the object is kept, so that the id stays its own
        self.numbers: dict[tuple[int, torch.dtype], int] = {}  # of memory, by its address
        self.kept: list[Tensor] = []  # so that no address is used again

    def persistent_id(self, obj: Any) -> tuple | None:
        is_tensor = type(obj) is Tensor and obj.layout == torch.strided and obj.dtype != torch.bfloat16
        if not is_tensor and (type(obj) is not np.ndarray or obj.dtype.hasobject):
            return None
        if id(obj) not in self.places:
            self.places[id(obj)] = self._place_of(obj), obj
        return tuple(self.places[id(obj)][0])

    def _place_of(self, t: Tensor | np.ndarray) -> Place:
        """Store an array, or the memory of a tensor (its values if they are a small part of it), and return the place."""
        if isinstance(t, np.ndarray):
            return Place(self._stored(t))
        self.device = self.device or str(t.device)
        t = t.detach()
        if t.untyped_storage().nbytes() > MAX_VIEW_RATIO * t.numel() * t.element_size():
            t = t.contiguous().clone()
        self.kept.append(t)
        key = t.untyped_storage().data_ptr(), t.dtype
        if key not in self.numbers or not t.numel():
            self.numbers[key] = self._stored(t.new_empty(0).set_(t.untyped_storage()).cpu().numpy())
        return Place(self.numbers[key], tuple(t.shape), t.stride(), int(t.storage_offset()))

    def _stored(self, array: np.ndarray) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1


class _Unpacker(pickle.Unpickler):
    """Reads what `_Packer` wrote."""

    def __init__(self, packed: Packed, copy: bool, device: str):
        super().__init__(io.BytesIO(packed.text))
        self.arrays, self.copy, self.device = packed.arrays, copy, device
        self.memory: dict[int, Tensor] = {}

    def persistent_load(self, pid: tuple) -> Any:
        place = Place(*pid)
        array = self.arrays[place.number]
        if place.stride is None:
            return array.copy() if self.copy else array
        if place.number not in self.memory:
            flat = torch.from_numpy(array)
            flat = flat.clone() if self.copy or flat.nbytes < MAX_UNALIGNED_BYTES else flat
            self.memory[place.number] = flat.to(self.device)
        return self.memory[place.number].as_strided(place.size, place.stride, place.offset)


def pack(value: Any) -> Packed:
    """Return an object as bytes and arrays. It must be picklable; its tensors are copied to the CPU."""
    packer = _Packer(file := io.BytesIO())
    packer.dump(value)
    return Packed(file.getvalue(), packer.arrays, packer.device or "cpu")


def unpack(packed: Packed, copy: bool = False, device: str = "cpu") -> Any:
    """Return the object of `pack`.

    Args:
        copy: copy the arrays; otherwise the object must not be changed in place, because their memory may be read-only.
        device: device of the tensors.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return _Unpacker(packed, copy, device).load()
