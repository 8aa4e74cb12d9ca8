import numpy as np
import pytest
import torch
from PIL import Image

from likewise.data.augment import eval_transform, train_transform
from likewise.types import LikewiseError


def picture(width=90, height=60):
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@pytest.mark.parametrize("make", [train_transform, eval_transform])
@pytest.mark.parametrize("kind", ["crop", "affine", "none"])
@pytest.mark.parametrize("shape", [(90, 60), (7, 200), (1, 1)])
def test_every_transform_gives_uint8_squares(make, kind, shape):
    x = make(32, kind)(picture(*shape))
    assert type(x) is torch.Tensor
    assert x.dtype == torch.uint8
    assert tuple(x.shape) == (3, 32, 32)


def test_evaluation_resizes_the_short_side_and_cuts_the_middle():
    image = picture(512, 256)
    x = eval_transform(224)(image)
    assert torch.equal(x, torch.from_numpy(np.array(image)[16:240, 144:368]).permute(2, 0, 1))


def test_resize_equal_to_size_cuts_the_long_side_only():
    image = picture(96, 64)
    x = eval_transform(64, resize=64)(image)
    assert torch.equal(x, torch.from_numpy(np.array(image)[:, 16:80]).permute(2, 0, 1))


@pytest.mark.parametrize("kind", ["affine", "none"])
def test_evaluation_of_whole_pictures(kind):
    image = picture(32, 32)
    assert torch.equal(eval_transform(32, kind)(image), torch.from_numpy(np.array(image)).permute(2, 0, 1))


def test_flip_mirrors_every_second_picture():
    image = Image.fromarray(np.tile(np.repeat(np.uint8([0, 255]), 16)[None, :, None], (32, 1, 3)))
    whole = train_transform(32, scale=(1.0, 1.0))
    torch.manual_seed(0)
    bright_left = [bool(whole(image)[0, :, 0].float().mean() > 128) for _ in range(200)]
    assert 60 < sum(bright_left) < 140
    still = train_transform(32, flip=False, scale=(1.0, 1.0))
    assert not any(still(image)[0, :, 0].float().mean() > 128 for _ in range(20))


def test_affine_moves_a_little_never_flips_and_paints_no_border():
    ink = np.full((40, 40, 3), 255, np.uint8)
    ink[8:32, 8:14] = 0  # a bar left of the middle: flipped, it would stand on the right
    seen = []
    for draw in range(60):
        torch.manual_seed(draw)
        x = train_transform(40, "affine")(Image.fromarray(ink))[0].float()
        dark = (255 - x).sum(0)
        seen.append(float((dark * torch.arange(40)).sum() / dark.sum()))
        assert (x[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()
    assert max(seen) < 18
    assert 1 < max(seen) - min(seen) < 12


def test_none_has_no_chance():
    transform = train_transform(24, "none")
    assert torch.equal(transform(picture()), transform(picture()))


def test_bad_arguments_are_explained(unchecked):
    with pytest.raises(
        LikewiseError, match=r"there is no kind 'afine'; did you mean 'affine'\? It is one of: crop, affine"
    ):
        train_transform(32, "afine")
    for size in (0, -3, 2.5, True):
        with pytest.raises(LikewiseError, match="size must be a whole number of pixels above 0, got"):
            eval_transform(size)
    with pytest.raises(LikewiseError, match="resize must be at least size, got resize=20 below size=32"):
        eval_transform(32, resize=20)
    with pytest.raises(LikewiseError, match="resize=40 belongs to kind 'crop'"):
        eval_transform(32, "none", resize=40)
    for scale in ((0.0, 1.0), (0.5, 0.2), (0.5, 1.5)):
        with pytest.raises(LikewiseError, match="two shares with 0 < least <= largest <= 1"):
            train_transform(32, scale=scale)
