"""Batches on the device: pictures from files through worker processes or from where they are kept, features by plain indexing."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from likewise.data.augment import Plain
from likewise.data.crop_resize import send
from likewise.data.images import image_of
from likewise.distributed.collectives import cores, share_of
from likewise.types import Batch, Items, LikewiseError

AHEAD = 2
"""Batches put together before they are asked for, where their pixels lie elsewhere than on the device."""


@runtime_checkable
class Held(Protocol):
    """Decoded pictures that batches are cut from; `placement.Resident` is one. `ahead`: `stage` is worth doing ahead of time."""

    device: torch.device
    ahead: bool

    def stage(self, rows: list[int], look: Plain, drawn: np.ndarray) -> Any:
        """What is done on the host for a batch of these rows."""
        ...

    def make(self, staged: Any, size: int) -> Tensor:
        """The squares of the batch on the device."""
        ...


class Key(NamedTuple):
    """A batch to make: all of its rows, its number, and which of them this process makes."""

    rows: list[int]
    number: int
    own: slice


def batches(
    items: Items,
    rows: Iterable[list[int] | None],
    look: Plain | Callable | None,
    *,
    device: torch.device,
    held: Held | None = None,
    workers: int = 0,
    seed: int = 0,
    first_draw: int = 0,
    process: tuple[int, int] = (0, 1),
) -> Iterator[Batch]:
    """A batch for every list of rows, in order. Where its pixels come from changes nothing about it.

    Args:
        rows: rows of each batch; may go on for ever. At a None, reading ahead stops: what follows is asked for only when
            the batches before it are used.
        look: what becomes of pictures, see `augment`; or any function from a picture to a tensor, for pictures read from files.
        held: where decoded pictures are; None: they are read from their files.
        workers: processes that read files; 0 reads in this one.
        seed: of the augmentation, which depends on (seed, number of the batch) and the place in the batch alone.
        first_draw: number of the first batch, for a training that goes on.
        process: the number of this process, and how many ask for the same rows (`collectives.world`): `x` is this process's
            share of the batch, `y` and `row` are of all of it.
    """
    y, keys = torch.as_tensor(items.y), _Keys(rows, first_draw, process)
    if items.x is not None:
        features = torch.as_tensor(items.x, dtype=torch.float32)
        made = ((features[key.rows[key.own]], key) for key in keys.passing())
    elif held is not None:
        assert isinstance(look, Plain)
        made = _from_held(keys, held, look, seed)
    else:
        assert look is not None
        made = _from_files(keys, items, look, seed, workers, device)
    for x, key in made:
        x, row = send(x, device), torch.tensor(key.rows, dtype=torch.int64)
        if items.x is None:
            if isinstance(look, Plain):
                x = look.finish(x, look.draw(len(key.rows), seed, key.number)[key.own])
            # Convolutions may round otherwise in another layout, so it is one.
            x = x.contiguous(memory_format=torch.channels_last if x.is_cuda else torch.contiguous_format)
        yield Batch(x, send(y[row], device), send(row, device))


def _from_held(keys: _Keys, held: Held, look: Plain, seed: int) -> Iterator[tuple[Tensor, Key]]:
    def stage(key: Key):
        return held.stage(key.rows[key.own], look, look.draw(len(key.rows), seed, key.number)[key.own])

    if not held.ahead:
        yield from _one_ahead(keys, lambda key: held.make(stage(key), look.size), held.device)
        return
    pool, waiting = ThreadPoolExecutor(AHEAD), deque[tuple[Future, Key]]()
    try:
        while not keys.ended:
            for key in keys:
                waiting.append((pool.submit(stage, key), key))
                while len(waiting) > AHEAD:
                    yield _taken(waiting, held, look)
            while waiting:
                yield _taken(waiting, held, look)
    finally:
        pool.shutdown(cancel_futures=True)


def _one_ahead(keys: _Keys, make: Callable[[Key], Tensor], device: torch.device) -> Iterator[tuple[Tensor, Key]]:
    """On a GPU, a batch is cut out beside the network's work on the one before it."""
    if device.type != "cuda":
        yield from ((make(key), key) for key in keys.passing())
        return
    here, beside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    beside.wait_stream(here)

    def handed(x: Tensor, there: torch.cuda.Event, key: Key) -> tuple[Tensor, Key]:
        here.wait_event(there)
        x.record_stream(here)
        return x, key

    while not keys.ended:
        waiting = None
        for key in keys:
            with torch.cuda.stream(beside):
                x = make(key)
            begun = x, beside.record_event(), key
            if waiting:
                yield handed(*waiting)  # pyright: ignore[reportArgumentType]
            waiting = begun
        if waiting:
            yield handed(*waiting)  # pyright: ignore[reportArgumentType]


def _taken(waiting: deque[tuple[Future, Key]], held: Held, look: Plain) -> tuple[Tensor, Key]:
    staged, key = waiting.popleft()
    return held.make(staged.result(), look.size), key


def _from_files(
    keys: _Keys, items: Items, look: Plain | Callable, seed: int, workers: int, device: torch.device
) -> Iterator[tuple[Tensor, Key]]:
    # The loader draws a seed when it starts; not from the generator that training depends on.
    loader = DataLoader(
        Files(items, look, seed), None, sampler=keys, num_workers=workers, collate_fn=_as_it_is,
        generator=torch.Generator(), pin_memory=device.type == "cuda", persistent_workers=workers > 0,
    )  # fmt: skip
    while not keys.ended:
        try:
            with _own_signals():
                feed = iter(loader)
            for found in feed:
                if isinstance(found, LikewiseError):
                    raise found
                yield found[0], Key(*found[1])
        except (RuntimeError, OSError, EOFError) as error:  # the latter: while a batch was handed over
            known = str(error).startswith(("DataLoader worker", "Pin memory thread")) or not isinstance(
                error, RuntimeError
            )
            if not workers or not known:
                raise
            raise LikewiseError(
                "batches: a process that reads pictures was killed (out of memory?); use fewer --workers, or --cache disk"
            ) from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep torch from raising the death of a reading process in the middle of whatever is done then: it is found when a batch is
    waited for."""
    mine = hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD) if mine else None
    if getattr(before, "__module__", "").startswith("torch."):  # an earlier loader's, somewhere else
        before = signal.SIG_DFL
    yield
    if mine:
        signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)


def in_order(rows: Int[np.ndarray, "n"], size: int) -> list[list[int]]:
    """Rows cut into batches, the last one perhaps shorter."""
    return [rows[i : i + size].tolist() for i in range(0, len(rows), size)]


def choose_workers(workers: int) -> int:
    """-1: half of the cores, at most 8; the network needs the rest."""
    return min(8, cores() // 2) if workers < 0 else workers


class Files(Dataset):
    """Key -> the pictures of a batch, and the key again. The error of a broken picture is handed over as a value: raised in a
    worker it would arrive wrapped in a traceback."""

    def __init__(self, items: Items, look: Plain | Callable, seed: int):
        self.items, self.look, self.seed = items, look, seed

    def __getitem__(self, key: Key) -> tuple[Tensor, Key] | LikewiseError:
        rows, number, own = key
        try:
            images = (image_of(self.items, row) for row in rows[own])
            if not isinstance(self.look, Plain):
                return torch.stack([self.look(image) for image in images]), key
            drawn = self.look.draw(len(rows), self.seed, number)[own]
            made = np.empty((len(drawn), 3, self.look.size, self.look.size), np.uint8)
            for place, (image, line) in enumerate(zip(images, drawn, strict=True)):
                made[place] = self.look.on_image(image, line).transpose(2, 0, 1)
            return torch.from_numpy(made), key
        except LikewiseError as error:
            return error


def _as_it_is(found):
    return found


class _Keys:
    """Rows as keys. Iterating stops at a None and, begun again, goes on behind it."""

    def __init__(self, rows: Iterable[list[int] | None], first: int, process: tuple[int, int]):
        self.rows, self.number, self.process, self.ended = iter(rows), first, process, False

    def __iter__(self) -> Iterator[Key]:
        for chosen in self.rows:
            if chosen is None:
                return
            number, self.number = self.number, self.number + 1
            yield Key(chosen, number, share_of(len(chosen), *self.process))
        self.ended = True

    def passing(self) -> Iterator[Key]:
        """All of them, one when it is asked for: nothing is read ahead that would have to stop."""
        while not self.ended:
            yield from self
