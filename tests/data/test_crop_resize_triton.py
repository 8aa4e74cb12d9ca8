"""The kernel on pictures gives the bits of its reference: by Triton's interpreter on the CPU, and on a GPU where there is one."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from likewise.data import crop_resize_triton as cut_cuda
from likewise.data.crop_resize import cut

SIZES = [(10, 13), (9, 5), (2, 11), (1, 1)]
"""Height and width of the pictures, which are small: the interpreter takes a millisecond for each weight."""

KINDS = ("random", "whole", "middle", "tiny")


def pixels() -> np.ndarray:
    """Noise, with a stretch of white: sums at the end of their range."""
    flat = np.random.default_rng(0).integers(0, 256, (sum(h * w for h, w in SIZES), 3)).astype(np.uint8)
    flat[40:90] = 255
    return flat


def plan_of(kind: str, size: int, each: int = 1) -> np.ndarray:
    """Boxes of every picture: random ones, mirrored or not; all of it; all of it resized to more, as evaluation does; a pixel."""
    rng, lines, start = np.random.default_rng(size), [], 0
    for high, wide in SIZES:
        for _ in range(each):
            flip = len(lines) % 2
            box, grown, first = (0, 0, high, wide), (size, size), (0, 0)
            if kind in ("random", "tiny"):
                h, w = (1, 1) if kind == "tiny" else (rng.integers(1, high + 1), rng.integers(1, wide + 1))
                box = rng.integers(0, high - h + 1), rng.integers(0, wide - w + 1), h, w
            if kind == "middle":
                grown = tuple(side * (size + 5) // min(high, wide) for side in (high, wide))
                first = tuple(int(np.rint((side - size) / 2)) for side in grown)
            lines.append((start, wide, *box, *grown, *first, flip))
        start += high * wide
    return np.array(lines, np.int64)


def interpreted() -> None:
    """Run where Triton interprets."""
    torch.set_num_threads(1)
    if (reason := interpreter_fails()) is not None:
        print("cannot", reason)
        return
    flat = torch.from_numpy(pixels())
    linear = (("random", 3, 4), ("random", 11, 8), ("whole", 7, 8), ("middle", 7, 8), ("tiny", 5, 8))
    cubic = (("random", 3, 4), ("middle", 7, 8), ("tiny", 5, 8))
    for kind, size, block, by in (*((*one, "bilinear") for one in linear), *((*one, "bicubic") for one in cubic)):
        cut_cuda.TILE_ROWS = cut_cuda.TILE_WIDTH = block
        plan = plan_of(kind, size)
        found, wanted = cut_cuda.cut(flat, torch.from_numpy(plan), size, by), cut(flat.numpy(), plan, size, by)
        assert torch.equal(found, wanted), f"{by} {kind} to {size}: {(found != wanted).sum()} grey levels differ"
        print(kind, size, wanted.float().std().item())


def interpreter_fails() -> str | None:
    """Why Triton's interpreter cannot run a loop whose length is loaded: those up to 3.6 fail with NumPy 2.5."""
    import triton
    import triton.language as tl

    @triton.jit
    def add_up(count, total):
        for _ in range(tl.load(count)):
            tl.store(total, tl.load(total) + 1)

    number = torch.tensor([3]), torch.zeros(1, dtype=torch.int64)
    try:
        add_up[(1,)](*number)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    assert number[1].item() == 3
    return None


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(cut_cuda.triton is None, reason="needs Triton")
def test_interpreted_on_the_cpu_it_equals_the_reference_to_the_bit():
    """In a process of its own: Triton chooses when it is imported."""
    words = [sys.executable, "-c", "import test_crop_resize_triton as test; test.interpreted()"]
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    if done.stdout.startswith("cannot"):
        pytest.skip(f"Triton's interpreter fails here: {done.stdout}")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["random", *KINDS, "random", "middle", "tiny"]
    assert all(float(line.split()[2]) > 20 for line in done.stdout.splitlines())  # pictures, not one grey


@pytest.mark.skipif(cut_cuda.triton is None, reason="needs Triton")
def test_kernels_are_made_of_the_bare_functions():
    """Tests wrap functions to check shapes; a kernel finds what it calls in the module of the function it is given."""
    for name in ("_cut", "_window", "_weight", "_apart", "_cubic", "_level"):
        assert getattr(cut_cuda, name).fn.__globals__ is vars(cut_cuda)


@pytest.mark.gpu
@pytest.mark.skipif(cut_cuda.triton is None, reason="needs Triton")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 9, 64, 129])
@pytest.mark.parametrize("by", ["bilinear", "bicubic"])
def test_on_a_gpu_it_equals_pillow_to_the_bit_and_never_waits(kind, size, by):
    flat, plan = pixels(), plan_of(kind, size, each=20)
    there = torch.from_numpy(flat).cuda()
    cut(there, plan, size, by)
    for where in (plan, plan[:1], plan[:0]):
        torch.cuda.set_sync_debug_mode("error")
        try:
            found = cut(there, where, size, by)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert found.is_cuda and torch.equal(found.cpu(), cut(flat, where, size, by))
    assert cut(there, plan, size).is_contiguous(memory_format=torch.channels_last)
