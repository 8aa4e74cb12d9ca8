"""Batches on the device: images from files (worker processes) or from decoded images in memory; features by indexing."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from likewise.core.distributed.collectives import cores, share_of
from likewise.core.types import Batch, Items, LikewiseError
from likewise.core.vectors import Vectors, in_memory
from likewise.data.augment import Plain
from likewise.data.crop_resize import send
from likewise.data.images import image_of

PREFETCH_ITEMS = 2
"""Batches gathered ahead of their use, if their pixels are not on the device."""


@runtime_checkable
class ImageStore(Protocol):
    """Decoded images that batches are cropped from, such as `placement.Resident`. `ahead`: run `stage` ahead of time."""

    device: torch.device
    ahead: bool

    def stage(self, rows: list[int], look: Plain, drawn: np.ndarray) -> Any:
        """Do the host work for a batch of these rows; the result is an argument of `make`."""
        ...

    def make(self, staged: Any, look: Plain) -> Tensor:
        """Return the squares of the batch on the device."""
        ...


class Key(NamedTuple):
    """A batch to compute: its rows, its number, and the slice of rows that this process computes."""

    rows: list[int]
    number: int
    own: slice


def batches(
    items: Items,
    rows: Iterable[list[int] | None],
    look: Plain | Callable | None,
    *,
    device: torch.device,
    held: ImageStore | None = None,
    workers: int = 0,
    seed: int = 0,
    first_draw: int = 0,
    process: tuple[int, int] = (0, 1),
) -> Iterator[Batch]:
    """Yield a batch for every list of rows, in order. The source of the pixels does not change the values of a batch.

    Args:
        rows: rows of each batch; may be infinite. Prefetching stops at a None: the lists after it are read only when all
            batches before it are used.
        look: the image transform, see `augment`; or, for images read from files, any function from an image to a tensor.
        device: where the batches are.
        held: decoded images; None: images are read from their files.
        workers: processes that read files; 0: read in this process.
        seed: of the augmentation, which depends only on (seed, number of the batch) and the position in the batch.
        first_draw: number of the first batch, for a resumed training.
        process: rank of this process and number of processes with the same rows (`collectives.world`): `x` is the share of
            this process, `y` and `row` cover the whole batch.
    """
    y, keys = torch.as_tensor(items.y), _Keys(rows, first_draw, process)
    if items.x is not None:
        features = features_of(items.x)
        made = ((features(key.rows[key.own]), key) for key in keys.without_prefetch())
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
            # Convolutions may round differently in another memory layout, so the layout is fixed.
            x = x.contiguous(memory_format=torch.channels_last if x.is_cuda else torch.contiguous_format)
        yield Batch(x, send(y[row], device), send(row, device))


def features_of(x: np.ndarray | Vectors) -> Callable[[Sequence[int]], Tensor]:
    """Return a function from rows to their features. Those on disk stay there, if a few rows can be read without the others."""
    if isinstance(x, Vectors) and x.by_row:
        return lambda rows: torch.from_numpy(x[np.asarray(rows, np.int64)])
    features = torch.as_tensor(in_memory(x) if isinstance(x, Vectors) else x, dtype=torch.float32)
    return lambda rows: features[rows]


def _from_held(keys: _Keys, held: ImageStore, look: Plain, seed: int) -> Iterator[tuple[Tensor, Key]]:
    """Yield batches from decoded images."""

    def stage(key: Key):
        return held.stage(key.rows[key.own], look, look.draw(len(key.rows), seed, key.number)[key.own])

    if not held.ahead:
        yield from _one_ahead(keys, lambda key: held.make(stage(key), look), held.device)
        return
    pool, waiting = ThreadPoolExecutor(PREFETCH_ITEMS), deque[tuple[Future, Key]]()
    try:
        while not keys.ended:
            for key in keys:
                waiting.append((pool.submit(stage, key), key))
                while len(waiting) > PREFETCH_ITEMS:
                    yield _taken(waiting, held, look)
            while waiting:
                yield _taken(waiting, held, look)
    finally:
        pool.shutdown(cancel_futures=True)


def _one_ahead(keys: _Keys, make: Callable[[Key], Tensor], device: torch.device) -> Iterator[tuple[Tensor, Key]]:
    """Yield batches; on a GPU, each is computed in a second stream while the network processes the previous one."""
    if device.type != "cuda":
        yield from ((make(key), key) for key in keys.without_prefetch())
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


def _taken(waiting: deque[tuple[Future, Key]], held: ImageStore, look: Plain) -> tuple[Tensor, Key]:
    staged, key = waiting.popleft()
    return held.make(staged.result(), look), key


def _from_files(
    keys: _Keys, items: Items, look: Plain | Callable, seed: int, workers: int, device: torch.device
) -> Iterator[tuple[Tensor, Key]]:
    # The loader draws a seed when it starts: from a generator of its own, so that training is not affected.
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
        except (RuntimeError, OSError, EOFError) as error:  # OSError, EOFError: while a batch was transferred
            known = str(error).startswith(("DataLoader worker", "Pin memory thread")) or not isinstance(
                error, RuntimeError
            )
            if not workers or not known:
                raise
            raise LikewiseError(
                "batches: a process that reads images was killed (out of memory?); use fewer --workers, or --cache disk"
            ) from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep torch from raising the death of a worker process at an arbitrary line: the loader notices it when it waits for a
    batch."""
    mine = hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD) if mine else None
    if getattr(before, "__module__", "").startswith("torch."):  # the handler of an earlier loader
        before = signal.SIG_DFL
    yield
    if mine:
        signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)


def in_order(rows: Int[np.ndarray, "n"], size: int) -> list[list[int]]:
    """Split rows into batches of `size`; the last batch may be shorter."""
    return [rows[i : i + size].tolist() for i in range(0, len(rows), size)]


def choose_workers(workers: int) -> int:
    """Return the number of worker processes; -1 means half of the cores, at most 8, because the network needs the others."""
    return min(8, cores() // 2) if workers < 0 else workers


class Files(Dataset):
    """Dataset of key -> (images of a batch, key). The error of a damaged image is returned as a value: raised in a worker, it
    would arrive wrapped in a traceback."""

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
    """Iterator of batch keys over lists of rows. Iteration stops at a None; iterating again continues after it."""

    def __init__(self, rows: Iterable[list[int] | None], first: int, process: tuple[int, int]):
        self.rows, self.number, self.process, self.ended = iter(rows), first, process, False

    def __iter__(self) -> Iterator[Key]:
        for chosen in self.rows:
            if chosen is None:
                return
            number, self.number = self.number, self.number + 1
            yield Key(chosen, number, share_of(len(chosen), *self.process))
        self.ended = True

    def without_prefetch(self) -> Iterator[Key]:
        """Yield all keys across every None, for callers that do not prefetch."""
        while not self.ended:
            yield from self
