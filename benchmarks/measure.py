"""Shared functions of the benchmarks: `--quick`, separate processes, clocks, training rates and generated images.

Every benchmark has `parse(words)`, which returns its options, and `main(words)`, which measures. With `--quick` it runs at toy
size in this process: this checks that the script works; the numbers mean nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path


def parse_with_quick(
    parser: argparse.ArgumentParser,
    words: Sequence[str] | None,
    commands: Sequence[argparse.ArgumentParser] = (),
    **toy,
) -> argparse.Namespace:
    """Parse the arguments; `--quick` replaces the defaults by the `toy` values, and arguments that are given still win.

    Args:
        commands: the sub-parsers that take the options, where the script has commands.
    """
    takers = commands or (parser,)
    for taker in takers:
        taker.add_argument("--quick", action="store_true", help="toy size, to see that the script works")
    options = parser.parse_args(words)
    if options.quick:
        for taker in takers:
            taker.set_defaults(**toy)
        options = parser.parse_args(words)
    return options


class NotMeasured(Exception):
    """A contender has no result: its package is missing, or its process ended."""


def alone(work: Callable, *arguments, here: bool = False):
    """Return `work(*arguments)` from a fresh process, or from this one (`here`). Raises NotMeasured with the reason."""
    if here:
        try:
            return work(*arguments)
        except ImportError as error:
            raise NotMeasured(f"not installed: {error}") from None
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # the child imports nothing from the current folder
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(work, arguments, theirs))
    child.start()
    theirs.close()
    try:
        found, missing = ours.recv()
    except EOFError:
        raise NotMeasured("its process ended (out of memory?)") from None
    finally:
        child.join()
    if missing:
        raise NotMeasured(f"not installed: {missing}")
    return found


def _answer(work: Callable, arguments: tuple, pipe) -> None:
    try:
        pipe.send((work(*arguments), None))
    except ImportError as error:
        pipe.send((None, str(error)))


class Clock:
    """Seconds and peak memory since construction, above the memory in use at that time (on a CPU: of the process, Linux only)."""

    def __init__(self, device: str):
        self.gpu = device != "cpu"
        if self.gpu:
            import torch

            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
        else:
            with open("/proc/self/clear_refs", "w") as file:  # resets the kernel's high-water mark
                file.write("5")
            self.before = memory("VmRSS")
        self.started = time.perf_counter()

    def stop(self) -> dict[str, float]:
        if self.gpu:
            import torch

            torch.cuda.synchronize()
        seconds = time.perf_counter() - self.started
        peak = torch.cuda.max_memory_allocated() if self.gpu else memory("VmHWM")
        return {"seconds": seconds, "peak_mb": max(0, peak - self.before) / 2**20, "total_mb": peak / 2**20}


def memory(name: str, process: int | str = "self") -> int:
    """Return bytes that a process holds (VmRSS) or held at most (VmHWM)."""
    with open(f"/proc/{process}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def ratio(value: float, unit: float) -> str:
    """Return value / unit as text, a dash where the unit is 0."""
    return f"{value / unit:.1f}x" if unit else "-"


def training_rate(run, skip: int = 2) -> float:
    """Return images per second of a finished run, by its own log, without the first `skip` lines (start, graph capture)."""
    rates = [line["images_per_s"] for line in run.read_log() if "images_per_s" in line][skip:]
    return len(rates) / sum(1 / rate for rate in rates)


@contextmanager
def made_up(count: int, size: tuple[int, int] = (500, 375), classes: int = 50) -> Iterator[str]:
    """A table of JPEG files of smooth noise, which compresses about as photographs do; half of the classes train.

    The cache of decoded images is next to the files for as long, so that both are deleted together.
    """
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda number: draw(folder / f"{number}.jpg", size, number), range(count)))
        lines = [f"{n}.jpg,c{n % classes},{'train' if n % classes < classes // 2 else 'test'}" for n in range(count)]
        (folder / "table.csv").write_text("\n".join(["path,label,split", *lines]) + "\n", "utf-8")
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        try:
            yield str(folder / "table.csv")
        finally:
            os.environ.pop("XDG_CACHE_HOME")
            os.environ |= {} if before is None else {"XDG_CACHE_HOME": before}


def draw(file: Path, size: tuple[int, int], seed: int) -> None:
    """Write one image of smooth noise."""
    import numpy as np
    from PIL import Image

    small = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(file, quality=90)
