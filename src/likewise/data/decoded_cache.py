"""Disk cache of the decoded images of a data set: written once, memory-mapped, verified block by block on first use.

A cache is a folder named by its key: `pixels.bin` holds only pixels; `index.npz` holds sizes, blocks and checksums. While the
cache is built, `pixels.part` and `blocks.jsonl` (one line per finished block) take their place: a killed process loses one block.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8, UInt32
from PIL import Image

from likewise.core.argument_checks import Count, check_arguments
from likewise.core.files import atomic_write, cache_folder
from likewise.core.image_files import open_image
from likewise.core.locks import file_lock, share_lock
from likewise.core.progress import bar
from likewise.core.types import Items, LikewiseError
from likewise.data.crop_resize import shrink
from likewise.data.images import BadImage, UnreadableFile, check_files, crop, file_of, image_of, upright

VERSION = 1  # of the cache format: increase it when the files or the decoded pixels of an image change

BLOCK_ROWS = 256
"""Images per block: a block has one checksum, and a killed process loses at most one block."""

MAX_SIDE_PIXELS = 2**20
"""Largest side of an image in a valid index; `read_image` accepts only much smaller images."""

MAX_CACHE_BYTES = 100 * 10**9
"""Most bytes of all caches together; beyond it the least recently used caches are deleted."""

PREFETCH_ITEMS = 64
"""Images decoded ahead of their use, which bounds memory."""


def decoded(
    items: Items, side: int | None, rows: range, workers: int = -1, quiet: bool = False
) -> Generator[UInt8[np.ndarray, "h w 3"], None, None]:
    """Yield the decoded images of rows, in order. Threads suffice: Pillow releases the GIL while it decodes.

    Args:
        side: see `pixels_of`.
        workers: number of threads; -1: the default of ThreadPoolExecutor, by the number of cores.
    """
    pool, ahead = ThreadPoolExecutor(None if workers < 0 else max(1, workers)), deque()
    try:
        with bar("decode", rows.stop, start=rows.start, quiet=quiet) as progress:
            for row in (*rows, *[None] * min(PREFETCH_ITEMS, len(rows))):  # the None at the end drain the queue
                if row is not None:
                    ahead.append(pool.submit(pixels_of, items, row, side))
                if row is None or len(ahead) > PREFETCH_ITEMS:
                    yield ahead.popleft().result()
                    progress.advance()
    finally:
        pool.shutdown(cancel_futures=True)


def pixels_of(items: Items, row: int, side: int | None) -> UInt8[np.ndarray, "h w 3"]:
    """Return the pixels of a row's image, shrunk to the short side `side` if its short side is longer."""
    return np.asarray(shrink(image_of(items, row), side))


def decoded_bytes(items: Items, side: int | None) -> int:
    """Return the bytes of all decoded images. Only headers are read, except in formats whose headers do not suffice."""
    check_has_images(items, side)
    with ThreadPoolExecutor() as pool:
        return 3 * sum(pool.map(partial(_area, items, side), range(len(items))))


def check_has_images(items: Items, side: int | None) -> None:
    """Raise unless the data holds images and the side is a number of pixels."""
    if items.x is not None or not items.path:
        raise LikewiseError(f"pixels: the data must be images, but {items.name} has none; use data with images")
    check_arguments("pixels", {"side": side}, {"side": Count | None})


def _area(items: Items, side: int | None, row: int) -> int:
    image = _outline(file_of(items, row))
    if image is None:
        image = image_of(items, row)
    elif items.box is not None:
        image = crop(image, items.box[row], file_of(items, row))
    short, long = sorted(image.size)
    return short * long if side is None or short <= side else side * (side * long // short)


def _outline(file: str) -> Image.Image | None:
    """Return a blank image with the size of the decoded image after EXIF rotation; None if only decoding can show it."""
    try:
        with open_image(file) as image:
            if image.format == "PNG":  # its EXIF rotation may come after the pixels
                content = Path(file).read_bytes()
                sure = not any(word in content for word in (b"eXIf", b"type exif", b"adobe.xmp"))
            else:
                sure = image.format in ("JPEG", "MPO", "WEBP")
            if sure:
                blank = Image.new("1", image.size)
                blank.info = image.info
                return upright(blank)
    except Exception:  # decoding raises an error that names the problem
        pass
    return None


class Pixels:
    """Decoded images of a whole data set, concatenated.

    Args:
        items: the data set; damaged blocks are decoded again from it.
        side: see `open_pixels`.
        flat: the pixels, memory-mapped or in memory.
        size: height and width of each image.
        edge: first rows of the blocks, and the number of rows.
        crc: checksums of the blocks of a cache in `home`; None: the pixels are in memory and need no verification.
        home: folder of the cache.
        `say`: called with messages about damaged blocks.
    """

    def __init__(
        self,
        items: Items,
        side: int | None,
        flat: UInt8[np.ndarray, "P 3"],
        size: Int[np.ndarray, "N 2"],
        edge: Int[np.ndarray, "k"],
        crc: UInt32[np.ndarray, "k-1"] | None = None,
        home: Path | None = None,
        say: Callable[[str], None] = print,
    ):
        self.items, self.side, self.flat, self.size = items, side, flat, size
        self.start = np.cumsum(size.prod(1)) - size.prod(1)
        self.bytes = flat.size
        self._edge, self._crc, self._home, self._say = edge, crc, home, say
        self._verified = set(range(len(edge) - 1)) if crc is None else set()

    def blocks(self) -> Iterator[tuple[int, UInt8[np.ndarray, "p 3"]]]:
        """Yield (first pixel, pixels) of every block in order, verified."""
        for block in range(len(self._edge) - 1):
            self._verify(block)
            first, last = self._span(block)
            yield first, self.flat[first:last]

    def need(self, rows: Sequence[int] | Int[np.ndarray, "n"]) -> None:
        """Verify the blocks of these rows, and repair damaged ones. Every block is verified only once."""
        blocks = np.searchsorted(self._edge, np.asarray(rows, np.int64), "right") - 1
        for block in sorted(set(blocks.tolist()) - self._verified):
            self._verify(block)

    def _span(self, block: int) -> tuple[int, int]:
        last = self._edge[block + 1] - 1
        return int(self.start[self._edge[block]]), int(self.start[last] + self.size[last].prod())

    def _verify(self, block: int) -> None:
        if block in self._verified:
            return
        assert self._crc is not None
        first, last = self._span(block)
        size = self.size[self._edge[block] : self._edge[block + 1]]
        if checksum(size, zlib.crc32(self.flat[first:last].data)) != self._crc[block]:
            self._repair(block, 3 * first)
        self._verified.add(block)

    def _repair(self, block: int, at: int) -> None:
        """Decode a damaged block again. Concurrent repairs are safe: only bytes that match the checksum are written."""
        rows = range(self._edge[block], self._edge[block + 1])
        self._say(f"pixels: a block of {self._home} is damaged; its {len(rows)} images are decoded again")
        problem = "the decoded pixels differ from before: an image file or Pillow changed"
        try:
            images = list(decoded(self.items, self.side, rows, quiet=True))
            whole, size = b"".join(x.tobytes() for x in images), np.array([x.shape[:2] for x in images])
            assert self._crc is not None and self._home is not None
            if (size == self.size[rows]).all() and checksum(size, zlib.crc32(whole)) == self._crc[block]:
                with (self._home / "pixels.bin").open("r+b") as file:
                    file.seek(at)
                    file.write(whole)
                    file.flush()
                    os.fsync(file.fileno())
                return
        except (BadImage, OSError) as error:
            problem = str(error)
        raise LikewiseError(
            f"pixels: a damaged block (rows {rows[0]} to {rows[-1]} of {self.items.name}) must be decoded again, but {problem}. "
            f"Delete the folder {self._home} and run the same command again"
        )


def open_pixels(
    items: Items,
    side: int | None = None,
    *,
    workers: int = -1,
    quiet: bool = False,
    say: Callable[[str], None] = print,
    folder: Path | None = None,
) -> Pixels:
    """Return the decoded images of all rows from the cache, which is built first if needed; in memory if the cache fails.

    Interrupted decoding resumes. If several processes need the same cache, one decodes and the others wait for it.

    Args:
        side: images with a longer short side are shrunk to this short side; None: no shrinking.
        workers: threads that decode; -1: by the number of cores.
        `say`: called with messages about problems that were repaired or worked around.
        folder: the folder of all caches. Default: `pixels` in `files.cache_folder()`.
    """
    home = home_of(items, side, folder)
    try:
        return open_cache(items, side, home, workers=workers, quiet=quiet, say=say)
    except BadImage:
        raise
    except (OSError, LikewiseError) as error:  # images raise only BadImage, so the problem is the cache folder
        say(f"pixels: {home} cannot be used ({error}); {items.name} is decoded into memory instead")
    held, size = bytearray(), []  # a bytearray grows in place, so the pixels are in memory only about once
    with closing(decoded(items, side, range(len(items)), workers, quiet)) as pictures:
        for x in pictures:
            held.extend(x.data)
            size.append(x.shape[:2])
    edge = np.array([*range(0, len(items), BLOCK_ROWS), len(items)])
    return Pixels(items, side, np.frombuffer(held, np.uint8).reshape(-1, 3), np.array(size), edge, say=say)


def open_cache(
    items: Items, side: int | None, home: Path, *, workers: int = -1, quiet: bool = False, say: Callable[[str], None] = print
) -> Pixels:  # fmt: skip
    """Return the decoded images from the cache in `home`, which is built first if needed. See `open_pixels`."""
    return _opened(items, side, home, say) or _made(items, side, home, workers, quiet, say)


def is_cached(items: Items, side: int | None, folder: Path | None = None) -> bool:
    """Whether the cache of these images is complete."""
    home = home_of(items, side, folder)
    return (home / "index.npz").is_file() and (home / "pixels.bin").is_file()


def checksum(size: Sequence | np.ndarray, crc: int) -> int:
    """Return the CRC-32 of a block: the CRC of its pixels, extended by the image sizes."""
    return zlib.crc32(np.asarray(size, "<i8").tobytes(), crc)


def home_of(items: Items, side: int | None, folder: Path | None) -> Path:
    """Return the folder of a cache. Its name is a hash of all that the pixels depend on: files, boxes, side; not labels."""
    check_has_images(items, side)
    try:
        files = [os.stat(file_of(items, row)) for row in range(len(items))]
    except OSError:
        check_files(items)  # raises an error that names the missing files
        raise
    facts = (
        VERSION, side, [os.path.abspath(file_of(items, row)) for row in range(len(items))],
        [(f.st_size, f.st_mtime_ns) for f in files], None if items.box is None else items.box.tolist(),
    )  # fmt: skip
    return (folder or cache_folder() / "pixels") / hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _opened(items: Items, side: int | None, home: Path, say: Callable[[str], None]) -> Pixels | None:
    """Open a finished cache; None if there is none or its index is damaged (the .npz file has checksums)."""
    try:
        with np.load(home / "index.npz", allow_pickle=False) as index:
            size, edge, crc = index["size"], index["edge"], index["crc"]
        if not _fits(size, edge, crc, len(items)):
            return None
        file = (home / "pixels.bin").open("rb")
    except Exception:
        return None
    length = 3 * int(size.prod(1).sum())
    if os.fstat(file.fileno()).st_size != length:
        os.truncate(home / "pixels.bin", length)  # missing pixels then fail their checksum and are decoded again
    flat = np.memmap(file, np.uint8, "r", shape=(length // 3, 3))
    found = Pixels(items, side, flat, size, edge, crc, home, say)
    weakref.finalize(found, file.close)
    with suppress(OSError):  # the folder may belong to another user
        share_lock(file)  # marks the cache as in use
        os.utime(home)
    return found


def _fits(size: np.ndarray, edge: np.ndarray, crc: np.ndarray, count: int) -> bool:
    """Whether these arrays are a valid index of `count` images."""
    return (
        size.shape == (count, 2) and size.dtype.kind == "i" and size.min() > 0 and size.max() <= MAX_SIDE_PIXELS
        and edge.ndim == 1 and edge.dtype.kind == "i" and len(edge) > 1 and edge[0] == 0 and edge[-1] == count
        and bool((np.diff(edge) > 0).all()) and crc.dtype == np.uint32 and crc.shape == (len(edge) - 1,)
    )  # fmt: skip


def _made(items: Items, side: int | None, home: Path, workers: int, quiet: bool, say: Callable[[str], None]) -> Pixels:
    """Build the cache under a lock, unless another process has built it meanwhile, and open it."""
    home.parent.mkdir(parents=True, exist_ok=True)
    waiting = partial(say, f"pixels: another process is decoding {items.name}; waiting for it")
    with file_lock(home.with_suffix(".lock"), before_waiting=waiting):
        if (found := _opened(items, side, home, say)) is not None:
            return found
        if (home / "pixels.bin").exists():
            say(f"pixels: the index of {home} is damaged; {items.name} is decoded again")
            shutil.rmtree(home)
        home.mkdir(exist_ok=True)
        try:
            _build(items, side, home, workers, quiet)
        except UnreadableFile:
            raise
        except (OSError, LikewiseError):
            # An incomplete cache would keep the disk full; with a broken image it can never be completed.
            shutil.rmtree(home, ignore_errors=True)
            raise
        found = _opened(items, side, home, say)
    assert found is not None
    _tidy(home)
    return found


def _build(items: Items, side: int | None, home: Path, workers: int, quiet: bool) -> None:
    """Decode all images into the cache folder, after the blocks that an interrupted process finished."""
    part, journal = home / "pixels.part", home / "blocks.jsonl"
    blocks = _finished(part, journal, len(items))
    rows, size, crc = range(sum(len(block["size"]) for block in blocks), len(items)), [], 0
    with (
        part.open("ab") as out,
        journal.open("a") as log,
        closing(decoded(items, side, rows, workers, quiet)) as pictures,
    ):
        for row, x in enumerate(pictures, rows.start):
            out.write(x.data)
            crc = zlib.crc32(x.data, crc)
            size.append(x.shape[:2])
            if len(size) == BLOCK_ROWS or row == rows[-1]:
                out.flush()
                os.fsync(out.fileno())  # before the line that declares the block finished
                blocks.append({"size": size, "crc": checksum(size, crc)})
                print(json.dumps(blocks[-1]), file=log, flush=True)
                size, crc = [], 0
    edge = np.cumsum([0, *(len(block["size"]) for block in blocks)])
    sizes, crcs = np.concatenate([block["size"] for block in blocks]), np.array([b["crc"] for b in blocks], np.uint32)
    with atomic_write(home / "index.npz") as aside, aside.open("wb") as file:
        np.savez(file, size=sizes, edge=edge, crc=crcs)
    os.replace(part, home / "pixels.bin")  # from here on the cache is complete
    journal.unlink()


def _finished(part: Path, journal: Path, count: int) -> list[dict]:
    """Return the finished blocks of an interrupted build, of at most `count` images; truncate the files after them."""
    part.touch()
    journal.touch()
    blocks, rows, lines, pixels, there = [], 0, 0, 0, part.stat().st_size
    for line in journal.read_bytes().splitlines(keepends=True):
        try:
            block = json.loads(line)
            size, crc = np.array(block["size"]), np.array([block["crc"]], np.uint32)
            whole = line.endswith(b"\n") and _fits(size, np.array([0, len(size)]), crc, len(size))
        except Exception:  # a damaged line may hold anything
            break
        rows, end = rows + len(size), pixels + 3 * int(size.prod(1).sum()) if whole else 0
        if not whole or end > there or rows > count:
            break
        blocks.append(block)
        lines, pixels = lines + len(line), end
    for file, length in ((part, pixels), (journal, lines)):
        if file.stat().st_size > length:
            os.truncate(file, length)
    return blocks


def _tidy(home: Path) -> None:
    """Delete the least recently used caches beyond MAX_CACHE_BYTES, except those that a process builds or uses."""
    total = 0
    with suppress(OSError):  # other processes may delete caches too
        for cache in sorted(home.parent.glob("[0-9a-f]" * 64 + "/"), key=os.path.getmtime, reverse=True):
            total += sum(file.stat().st_size for file in cache.iterdir())
            if total <= MAX_CACHE_BYTES or cache == home:
                continue
            with file_lock(cache.with_suffix(".lock"), wait=False) as idle:
                if idle and _unused(cache / "pixels.bin"):
                    shutil.rmtree(cache)


def _unused(file: Path) -> bool:
    if not file.exists():
        return True
    with file_lock(file, wait=False) as mine:
        return mine
