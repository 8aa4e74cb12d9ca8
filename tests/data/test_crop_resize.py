"""Boxes resized to squares with Pillow: by hand and beside torchvision. A GPU: see test_crop_resize_triton."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional

from likewise.data.crop_resize import cut, shrink, stretch

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
    apart = (cut(FLAT, plan, size)[0, 0].int() - wanted).abs()
    assert apart.max() <= 1  # Pillow's weights of 22 bits decide where a half is rounded to
    assert (apart > 0).float().mean() < 0.01


def test_bicubic_values_stay_grey_levels():
    """Beside an edge, the cubic leaves 0..255."""
    flat = np.repeat(np.array([0, 255] * 4, np.uint8), 4)[:, None].repeat(3, 1)
    plan = np.array([[0, 8, 0, 0, 4, 8, 33, 33, 0, 0, 0]])
    found = cut(flat, plan, 33, "bicubic")
    assert (int(found.min()), int(found.max())) == (0, 255)
    assert not torch.equal(found, cut(flat, plan, 33))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(threads):
    _, plan = any_plan(np.random.default_rng(0), 20, 50, middle=True)
    wanted = cut(FLAT, plan, 20)
    torch.set_num_threads(threads)
    assert torch.equal(cut(FLAT, plan, 20), wanted)


def test_nothing_is_cut_from_nothing():
    assert cut(FLAT, np.zeros((0, 11), np.int64), 9).shape == (0, 3, 9, 9)


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
