"""Boxes resized to squares: Pillow's grey levels from Pillow, from torch and, where there is one, from a GPU; by hand and beside
torchvision."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional

from likewise.data import crop_resize as module
from likewise.data.crop_resize import cubic, cut, resize_rows, shrink, stretch, triangle

SIZES = [(40, 61), (90, 33), (24, 24), (77, 130), (5, 7), (31, 100), (45, 45), (101, 64)]
"""Height and width of the pictures."""


def noise(high: int, wide: int, seed: int = 0) -> np.ndarray:
    """Smooth in the upper half."""
    pixels = np.random.default_rng((seed, high, wide)).integers(0, 256, (high, wide, 3))
    pixels[: high // 2] = np.linspace(0, 255, wide)[:, None]
    return pixels.astype(np.uint8)


PICTURES = [noise(*size) for size in SIZES]
FLAT = np.concatenate([picture.reshape(-1, 3) for picture in PICTURES])
START = np.cumsum([0, *(high * wide for high, wide in SIZES)])


def any_plan(rng: np.random.Generator, size: int, count: int, middle: bool) -> tuple[list[int], np.ndarray]:
    """Random boxes; `middle`: of which the middle is kept, when resized to more than the size."""
    lines, rows = [], rng.integers(0, len(SIZES), count).tolist()
    for row in rows:
        high, wide = SIZES[row]
        h, w = rng.integers(1, high + 1), rng.integers(1, wide + 1)
        corner = rng.integers(0, high - h + 1), rng.integers(0, wide - w + 1)
        grown = size + rng.integers(0, 20, 2) if middle else (size, size)
        first = [rng.integers(0, side - size + 1) for side in grown]
        lines.append((START[row], wide, *corner, h, w, *grown, *first, rng.integers(0, 2)))
    return rows, np.array(lines, np.int64)


@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize("size", [1, 9, 32, 57])
@pytest.mark.parametrize("at_once", [1, 2**24])
@pytest.mark.parametrize("by", ["bilinear", "bicubic"])
def test_torch_and_pillow_agree_to_the_bit(size, at_once, middle, by, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_PIXELS", at_once)
    _, plan = any_plan(np.random.default_rng(size), size, 60, middle)
    assert torch.equal(cut(FLAT, plan, size, by), cut(torch.from_numpy(FLAT), plan, size, by))


@pytest.mark.parametrize("by", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [3, 11])
def test_large_pictures_may_become_small(size, by):
    """Means of hundreds of pixels, which float32 would not hold all at once."""
    flat = np.random.default_rng(0).integers(200, 256, (340 * 300, 3)).astype(np.uint8)
    plan = np.array([[0, 300, 2, 3, 330, 297, size, size, 0, 0, 0], [0, 300, 0, 0, 9, 9, size, size, 0, 0, 1]])
    assert torch.equal(cut(flat, plan, size, by), cut(torch.from_numpy(flat), plan, size, by))


def test_means_of_many_pixels_are_exact():
    """One part of 2**22 below a half, which is rounded down; in 11 bits at a time float32 would lose it."""
    total = (-1 - 2**21) * pow(255, -1, 2**22) % 2**22
    weight = torch.full((1, 1, 250), total // 250)
    weight[..., -1] += total % 250
    found = resize_rows(torch.full((1, 3, 1, 250), 255.0), weight, 8)
    assert found.flatten().tolist() == [(255 * total + 2**21) // 2**22] * 3


@pytest.mark.parity
@pytest.mark.parametrize("size", [1, 9, 32, 57])
def test_boxes_have_the_grey_levels_of_torchvision(size):
    rows, plan = any_plan(np.random.default_rng(size), size, 40, middle=False)
    for x, row, (_, _, *box, flip) in zip(cut(FLAT, plan, size), rows, plan[:, [0, 1, 2, 3, 4, 5, 10]].tolist()):
        image = Image.fromarray(PICTURES[row])
        of_image = functional.pil_to_tensor(functional.resized_crop(image, *box, [size, size], antialias=True))
        of_tensor = functional.resized_crop(functional.pil_to_tensor(image), *box, [size, size], antialias=True)
        x = x.flip(2) if flip else x
        for near in (of_image, of_tensor):  # in whatever order they take the two axes
            assert (x.int() - near.int()).abs().max() <= 1


def resized_by_hand(line: list[int], size: int) -> list[int]:
    """The triangle filter, one new pixel at a time."""
    step, made = len(line) / size, []
    for new in range(size):
        weights = [max(0.0, 1 - abs(old + 0.5 - (new + 0.5) * step) / max(1.0, step)) for old in range(len(line))]
        made.append(math.floor(sum(w * v for w, v in zip(weights, line)) / sum(weights) + 0.5))
    return made


@pytest.mark.parametrize("size", [3, 40, 55])
def test_the_filter_by_hand(size):
    high, wide = SIZES[1]
    top, left, h, w = 4, 3, high - 9, wide - 4
    pixels = PICTURES[1][top : top + h, left : left + w, 0]
    rows = [resized_by_hand(line, size) for line in pixels.tolist()]
    wanted = torch.tensor([resized_by_hand([row[k] for row in rows], size) for k in range(size)]).T
    plan = np.array([[START[1], wide, top, left, h, w, size, size, 0, 0, 0]])
    apart = (
        cut(FLAT, plan, size)[0, 0].int() - wanted
    ).abs()  # Pillow's weights of 22 bits decide where a half is rounded to
    assert apart.max() <= 1
    assert (apart > 0).float().mean() < 0.01


def test_weights_are_whole_numbers_that_add_up():
    length, grown = torch.tensor([7, 90, 40]), torch.tensor([31, 12, 40])
    weight = triangle(length, grown, torch.zeros(3, dtype=torch.int64), 12, 90)
    assert ((weight.sum(2) - 2**22).abs() <= 45).all()  # each is rounded by itself
    assert weight[2, :, :12].equal(torch.eye(12, dtype=torch.int64) * 2**22)
    x = torch.full((3, 3, 2, 90), 200.0)
    for bits in (11, 8):
        assert resize_rows(x, weight, bits).unique().tolist() == [200.0]


def keys_cubic(x: float) -> float:
    x = abs(x)
    if x < 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


@pytest.mark.parametrize(("length", "grown"), [(9, 31), (90, 12), (40, 40)])
def test_bicubic_weights_by_hand(length, grown):
    zero = torch.zeros(1, dtype=torch.int64)
    found = cubic(torch.tensor([length]), torch.tensor([grown]), zero, grown, length)[0] / 2**22
    step = length / grown
    for new in range(grown):
        weights = [keys_cubic((old + 0.5 - (new + 0.5) * step) / max(1.0, step)) for old in range(length)]
        wanted = torch.tensor(weights, dtype=torch.float64) / sum(weights)
        torch.testing.assert_close(found[new].double(), wanted, rtol=0, atol=2**-22)  # rounded to 22 bits
    assert length == grown or found.min() < 0


def test_bicubic_values_stay_grey_levels():
    """Beside an edge, the cubic leaves 0..255."""
    flat = np.repeat(np.array([0, 255] * 4, np.uint8), 4)[:, None].repeat(3, 1)
    plan = np.array([[0, 8, 0, 0, 4, 8, 33, 33, 0, 0, 0]])
    found = cut(torch.from_numpy(flat), plan, 33, "bicubic")
    assert (int(found.min()), int(found.max())) == (0, 255)
    assert torch.equal(found, cut(flat, plan, 33, "bicubic"))
    assert not torch.equal(found, cut(flat, plan, 33))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(threads):
    _, plan = any_plan(np.random.default_rng(0), 20, 50, middle=True)
    wanted = cut(FLAT, plan, 20)
    torch.set_num_threads(threads)
    assert torch.equal(cut(FLAT, plan, 20), wanted)


def test_under_autocast_nothing_changes():
    _, plan = any_plan(np.random.default_rng(0), 20, 8, middle=False)
    wanted = cut(torch.from_numpy(FLAT), plan, 20)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(cut(torch.from_numpy(FLAT), plan, 20), wanted)


def test_nothing_is_cut_from_nothing():
    for pixels in (FLAT, torch.from_numpy(FLAT)):
        assert cut(pixels, np.zeros((0, 11), np.int64), 9).shape == (0, 3, 9, 9)


def test_a_box_that_needs_no_resizing_is_copied():
    picture = PICTURES[3]
    made = stretch(picture[10:40, 20:50], 30, 30, 4, 6, 0, 8)
    assert np.array_equal(made, picture[14:22, 26:34])
    assert np.array_equal(stretch(Image.fromarray(picture), 77, 130, 4, 6, 1, 8), picture[4:12, 6:14][:, ::-1])


def test_a_side_shrinks_what_is_larger_and_nothing_else():
    for picture in PICTURES:
        image = Image.fromarray(picture)
        small = shrink(image, 30)
        if min(image.size) <= 30:
            assert small is image and shrink(image, None) is image
            continue
        theirs = functional.resize(image, [30], antialias=True)
        assert small.size == theirs.size and min(small.size) == 30
        assert np.abs(np.asarray(small).astype(int) - np.asarray(theirs)).max() <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [True, False])
def test_a_gpu_agrees_to_the_bit_and_never_waits(kernel, monkeypatch):
    from likewise.data import crop_resize_triton as cut_cuda

    if not kernel:
        monkeypatch.setattr(cut_cuda, "available", lambda: False)
    _, plan = any_plan(np.random.default_rng(0), 33, 60, middle=True)
    there = torch.from_numpy(FLAT).cuda()
    cut(there, plan, 33)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = cut(there, plan, 33)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(found.cpu(), cut(FLAT, plan, 33))
