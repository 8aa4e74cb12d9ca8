"""Colours changed a little: by hand, and beside torchvision."""

import numpy as np
import pytest
import torch
from likewise.types import LikewiseError
from torchvision.transforms.v2 import functional

from likewise.data.color_jitter import FACTOR_UNIT, check_jitter, factors, jitter


def pictures(count: int = 20, size: int = 32) -> torch.Tensor:
    """Noise, dark and bright ones, grey ones."""
    x = torch.randint(0, 256, (count, 3, size, size), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x[1], x[2], x[3], x[4] = x[1] // 8, 255 - x[2] // 8, x[3, :1], 255
    return x


def by_hand(x: list, bright: int, contrast: int, colour: int) -> list:
    """One pixel after another; factors in parts of 4096."""

    def fit(value: int) -> int:
        return min(255, max(0, value))

    def grey(pixel: list) -> int:
        return (2989 * pixel[0] + 5870 * pixel[1] + 1140 * pixel[2]) // 10000

    x = [[fit(value * bright // 4096) for value in pixel] for pixel in x]
    total = sum(grey(pixel) for pixel in x)
    x = [[fit((value * contrast * len(x) + (4096 - contrast) * total) // (4096 * len(x))) for value in p] for p in x]
    return [[fit((value * colour + (4096 - colour) * grey(pixel)) // 4096) for value in pixel] for pixel in x]


def test_jitter_by_hand():
    x = pictures(6, 5)
    factor = torch.from_numpy(factors(np.random.default_rng(1).random((6, 3)), (0.9, 1.5, 2.0)))
    for one, three, found in zip(x, factor.tolist(), jitter(x, factor)):
        wanted = by_hand(one.flatten(1).T.tolist(), *three)
        assert found.flatten(1).T.tolist() == wanted


@pytest.mark.parity
@pytest.mark.parametrize("number", range(3))
def test_each_is_within_one_grey_level_of_torchvision(number):
    theirs = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation)[number]
    x = pictures()
    factor = torch.full((20, 3), FACTOR_UNIT)
    factor[:, number] = torch.from_numpy(factors(np.random.default_rng(2).random((20, 3)), (0.8, 0.8, 0.8)))[:, number]
    for one, three, found in zip(x, factor, jitter(x, factor)):
        assert (found.int() - theirs(one, three[number].item() / FACTOR_UNIT).int()).abs().max() <= 1


@pytest.mark.parity
def test_all_three_are_within_one_grey_level_of_torchvision():
    x = pictures()
    factor = torch.from_numpy(factors(np.random.default_rng(3).random((20, 3)), (0.4, 0.4, 0.4)))
    for one, three, found in zip(x, (factor / FACTOR_UNIT).tolist(), jitter(x, factor)):
        wanted = functional.adjust_contrast(functional.adjust_brightness(one, three[0]), three[1])
        assert (found.int() - functional.adjust_saturation(wanted, three[2]).int()).abs().max() <= 1


def test_large_pictures_do_not_overflow():
    x = torch.full((1, 3, 700, 700), 250, dtype=torch.uint8)
    factor = torch.tensor([[FACTOR_UNIT, 2 * FACTOR_UNIT, FACTOR_UNIT]])
    assert (jitter(x, factor).int() - 250).abs().max() <= 1  # as bright as its mean


def test_without_strength_nothing_changes():
    still = factors(np.random.default_rng(0).random((20, 3)), (0.0, 0.0, 0.0))
    assert still.tolist() == [[FACTOR_UNIT] * 3] * 20
    assert torch.equal(jitter(pictures(), torch.from_numpy(still)), pictures())


def test_factors_keep_to_their_range():
    found = factors(np.random.default_rng(0).random((2000, 3)), (0.4, 2.0, 0.1)) / FACTOR_UNIT
    for column, (least, most) in zip(found.T, ((0.6, 1.4), (0.0, 3.0), (0.9, 1.1))):
        assert least <= column.min() < least + 0.02 * (most - least)
        assert most - 0.02 * (most - least) < column.max() <= most


@pytest.mark.parametrize("strength", [(0.1, 0.1), (-0.1, 0, 0), (float("nan"), 0, 0)])
def test_bad_strengths_are_explained(strength, unchecked):
    with pytest.raises(LikewiseError, match="each 0 or more, got .*; 0.4 0.4 0.4 is common"):
        check_jitter(strength)


@pytest.mark.gpu
def test_a_gpu_agrees_to_the_bit():
    factor = torch.from_numpy(factors(np.random.default_rng(3).random((20, 3)), (0.4, 0.4, 0.4)))
    assert torch.equal(jitter(pictures().cuda(), factor.cuda()).cpu(), jitter(pictures(), factor))
