"""What a network sees of pictures: plans by hand, boxes and colours beside torchvision, moves beside Pillow."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from likewise.data import augment
from likewise.data.augment import FACTOR_UNIT, Augment, Plain, factors, jitter, motions, move, random_boxes
from likewise.data.crop_resize import shrink


def picture(width=90, height=60):
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@pytest.mark.parametrize("make", [Plain, Augment])
@pytest.mark.parametrize("kind", ["crop", "affine", "none"])
@pytest.mark.parametrize("shape", [(90, 60), (7, 200), (1, 1)])
def test_every_look_gives_uint8_squares(make, kind, shape):
    x = make(32, kind)(picture(*shape))
    assert type(x) is torch.Tensor
    assert x.dtype == torch.uint8
    assert tuple(x.shape) == (3, 32, 32)


def test_evaluation_resizes_the_short_side_and_cuts_the_middle():
    image = picture(512, 256)
    x = Plain(224)(image)
    assert torch.equal(x, torch.from_numpy(np.array(image)[16:240, 144:368]).permute(2, 0, 1))


@pytest.mark.parity
@pytest.mark.parametrize("kind", ["crop", "none"])
@pytest.mark.parametrize("shape", [(90, 60), (61, 140), (33, 33)])
def test_evaluation_is_that_of_torchvision(kind, shape):
    resize = [v2.Resize(round(35 * 256 / 224), antialias=True), v2.CenterCrop(35)]
    theirs = v2.Compose([*(resize if kind == "crop" else [v2.Resize((35, 35), antialias=True)]), v2.PILToTensor()])
    apart = Plain(35, kind)(picture(*shape)).int() - theirs(picture(*shape)).int()
    assert apart.abs().max() <= 1  # Pillow may begin with the columns


@pytest.mark.parametrize("kind", ["affine", "none"])
def test_evaluation_of_whole_pictures(kind):
    image = picture(32, 32)
    assert torch.equal(Plain(32, kind)(image), torch.from_numpy(np.array(image)).permute(2, 0, 1))


def test_plans_of_evaluation():
    whole = np.array([[60, 90], [90, 60], [40, 40]])
    assert Plain(35)(picture()).shape == (3, 35, 35)
    assert Plain(35).plan(whole, np.zeros((3, 0))).tolist() == [
        [0, 0, 60, 90, 40, 60, 2, 12, 0],
        [0, 0, 90, 60, 60, 40, 12, 2, 0],
        [0, 0, 40, 40, 40, 40, 2, 2, 0],
    ]  # a half is rounded to the even number
    assert Plain(35, "none").plan(whole[:1], np.zeros((1, 0))).tolist() == [[0, 0, 60, 90, 35, 35, 0, 0, 0]]


def test_chance_depends_on_seed_and_batch_and_place():
    look = Augment(16, jitter=(0.1, 0.1, 0.1))
    drawn = look.draw(6, 3, 5)
    assert drawn.shape == (6, 26) and len(np.unique(drawn)) == drawn.size
    assert np.array_equal(drawn, look.draw(6, 3, 5))
    assert np.array_equal(drawn[:, :23], Augment(16).draw(6, 3, 5))  # colours change nothing else
    for other in (look.draw(6, 4, 5), look.draw(6, 3, 6)):
        assert not np.intersect1d(drawn, other).size


def test_every_second_picture_is_mirrored():
    image = Image.fromarray(np.tile(np.repeat(np.uint8([0, 255]), 16)[None, :, None], (32, 1, 3)))
    whole = Augment(32, scale=(1.0, 1.0))
    bright_left = [bool(whole(image, seed)[0, :, 0].float().mean() > 128) for seed in range(200)]
    assert 60 < sum(bright_left) < 140
    assert whole.plan(np.full((200, 2), 32), whole.draw(200, 0, 0))[:, 8].mean() == pytest.approx(0.5, abs=0.15)


def box_by_hand(high: int, wide: int, scale: tuple[float, float], chance: list[float]) -> tuple[int, ...]:
    """One try after another."""
    low, top = 3 / 4, 4 / 3
    for number in range(10):
        area = high * wide * (scale[0] + (scale[1] - scale[0]) * chance[number])
        ratio = low * (top / low) ** chance[10 + number]
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= wide and 0 < h <= high:
            return int(chance[20] * (high - h + 1)), int(chance[21] * (wide - w + 1)), h, w
    h, w = high, wide
    if wide / high < low:
        h = round(wide / low)
    elif wide / high > top:
        w = round(high * top)
    return (high - h) // 2, (wide - w) // 2, h, w


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.9, 1.0), (1.0, 1.0), (0.0001, 0.001)])
def test_random_boxes_by_hand(scale):
    rng = np.random.default_rng(1)
    whole = rng.integers(1, 90, (300, 2))
    chance = rng.random((300, 22))
    wanted = [box_by_hand(*size, scale, line) for size, line in zip(whole.tolist(), chance.tolist())]
    assert random_boxes(whole, scale, chance).tolist() == [list(box) for box in wanted]
    alone = [random_boxes(whole[i : i + 1], scale, chance[i : i + 1])[0].tolist() for i in range(300)]
    assert alone == [list(box) for box in wanted]  # as files have them


@pytest.mark.parity
def test_random_boxes_are_distributed_as_those_of_torchvision():
    from scipy.stats import ks_2samp

    torch.manual_seed(0)
    theirs = v2.RandomResizedCrop(8, scale=(0.2, 1.0))
    sheet = Image.new("RGB", (120, 80))
    drawn = [
        theirs.make_params([sheet]) if hasattr(theirs, "make_params") else theirs._get_params([sheet])
        for _ in range(2000)
    ]
    chance = np.random.default_rng(0).random((2000, 22))
    found = random_boxes(np.tile([80, 120], (2000, 1)), (0.2, 1.0), chance)
    for column, name in enumerate(("top", "left", "height", "width")):
        assert ks_2samp(found[:, column], [one[name] for one in drawn]).pvalue > 0.01


def moved_by_hand(x: list, a: float, b: float, c: float, d: float) -> list:
    """One pixel after another, weighed from its four neighbours."""
    size, made = len(x), []

    def at(row: int, column: int) -> int:
        return x[min(max(row, 0), size - 1)][min(max(column, 0), size - 1)]

    for i in range(size):
        made.append([])
        for j in range(size):
            row, column = a * i - b * j + d, a * j + b * i + c
            top, left = math.floor(row), math.floor(column)
            down, over = row - top, column - left
            upper = (1 - over) * at(top, left) + over * at(top, left + 1)
            lower = (1 - over) * at(top + 1, left) + over * at(top + 1, left + 1)
            made[-1].append((1 - down) * upper + down * lower)
    return made


def test_moves_by_hand():
    x = torch.randint(0, 256, (5, 3, 17, 17), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    motion = motions(np.random.default_rng(0).random((5, 4)), 17)
    for one, four, found in zip(x, (motion / 2**20).tolist(), move(x, torch.from_numpy(motion))):
        for before, after in zip(one.tolist(), found):
            apart = (torch.tensor(moved_by_hand(before, *four)) - after).abs()
            assert apart.max() < 0.9  # neighbours are weighed in parts of 1024
            assert apart.mean() < 0.3


def test_no_chance_is_no_move():
    still = motions(np.full((1, 4), 0.5), 21)
    assert still.tolist() == [[2**20, 0, 0, 0]]
    x = torch.arange(3 * 21 * 21).remainder(256).to(torch.uint8).view(1, 3, 21, 21)
    assert torch.equal(move(x, torch.from_numpy(still)), x)


@pytest.mark.parity
@pytest.mark.parametrize("size", [24, 40])
def test_moves_are_within_one_grey_level_of_pillow(size):
    image = picture(size, size)
    margin, centre = math.ceil(0.3 * size), size / 2
    source = np.arange(-margin, size + margin).clip(0, size - 1)
    padded = Image.fromarray(np.asarray(image)[source[:, None], source])
    chance = np.random.default_rng(0).random((20, 4))
    x = torch.from_numpy(np.array(image)).permute(2, 0, 1).expand(20, -1, -1, -1)
    found = move(x, torch.from_numpy(motions(chance, size)))
    for (turn, zoom, right, down), ours in zip(chance.tolist(), found):
        angle, scale = math.radians(8 * (2 * turn - 1)), 0.9 + 0.2 * zoom
        a, b = math.cos(angle) / scale, math.sin(angle) / scale
        x, y = (centre + 0.08 * size * (2 * share - 1) for share in (right, down))
        matrix = (a, b, centre + margin - a * x - b * y, -b, a, centre + margin + b * x - a * y)
        theirs = padded.transform((size, size), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
        apart = ours.permute(1, 2, 0).int() - torch.from_numpy(np.array(theirs)).int()
        assert apart.min() >= 0 and apart.max() <= 1  # Pillow rounds down


def test_affine_moves_a_little_never_flips_and_paints_no_border():
    ink = np.full((40, 40, 3), 255, np.uint8)
    ink[8:32, 8:14] = 0  # a bar left of the middle: flipped, it would stand on the right
    seen = []
    for seed in range(60):
        x = Augment(40, "affine")(Image.fromarray(ink), seed)[0].float()
        dark = (255 - x).sum(0)
        seen.append(float((dark * torch.arange(40)).sum() / dark.sum()))
        assert (x[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()
    assert max(seen) < 18
    assert 1 < max(seen) - min(seen) < 12


def test_pictures_moved_a_few_at_a_time_are_the_same(monkeypatch):
    x = torch.randint(0, 256, (7, 3, 10, 10), dtype=torch.uint8)
    motion = torch.from_numpy(motions(np.random.default_rng(0).random((7, 4)), 10))
    whole = move(x, motion)
    monkeypatch.setattr(augment, "CHUNK_PIXELS", 250)
    assert torch.equal(move(x, motion), whole)
    assert torch.equal(move(x.contiguous(memory_format=torch.channels_last), motion), whole)
    assert move(x[:0], motion[:0]).shape == (0, 3, 10, 10)


@pytest.mark.gpu
def test_a_gpu_moves_pictures_the_same():
    x = torch.randint(0, 256, (7, 3, 60, 60), dtype=torch.uint8)
    motion = torch.from_numpy(motions(np.random.default_rng(0).random((7, 4)), 60))
    assert torch.equal(move(x.cuda(), motion.cuda()).cpu(), move(x, motion))


def test_none_has_no_chance_and_is_evaluation():
    look = Augment(24, "none")
    assert torch.equal(look(picture(), 1), look(picture(), 2))
    assert torch.equal(look(picture()), Plain(24, "none")(picture()))


def test_colours_change_in_training_alone():
    look, still = Augment(24, "none", jitter=(0.4, 0.4, 0.4)), Plain(24, "none")
    found = [look(picture(), seed) for seed in range(2)]
    assert not torch.equal(*found) and not torch.equal(found[0], still(picture()))
    assert torch.equal(found[1], look(picture(), 1))


def test_a_side_is_shrunk_to_first():
    small = shrink(picture(), 30)
    for make in (Plain, Augment):
        assert torch.equal(make(20, side=30)(picture()), make(20)(small))


def test_bad_arguments_are_explained(unchecked, refused):
    refused(
        (lambda: Augment(32, "afine"), "Augment: kind must be 'crop', 'affine' or 'none', got 'afine'"),
        (lambda: Plain(0), "Plain: size must be at least 1, got 0"),
        (lambda: Plain(2.5), "size must be a whole number, got 2.5"),
        (lambda: Plain(8, side=-3), "side must be at least 1 or None, got -3"),
        (lambda: Augment(32, scale=(0.0, 1.0)), r"scale\[0\] must be above 0 and at most 1, got 0.0"),
        (lambda: Augment(32, scale=(0.5, 0.2)), "the smallest first"),
        (lambda: Augment(32, jitter=(0.1, 0.1)), "jitter must be 3 values or None"),
        (lambda: Augment(32, jitter=(math.nan, 0, 0)), r"jitter\[0\] must be a finite number, got nan"),
    )


def pictures(count: int = 20, size: int = 32) -> torch.Tensor:
    """Noise, dark and bright ones, grey ones."""
    x = torch.randint(0, 256, (count, 3, size, size), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x[1], x[2], x[3], x[4] = x[1] // 8, 255 - x[2] // 8, x[3, :1], 255
    return x


def jittered_by_hand(x: list, bright: int, contrast: int, colour: int) -> list:
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
        wanted = jittered_by_hand(one.flatten(1).T.tolist(), *three)
        assert found.flatten(1).T.tolist() == wanted


@pytest.mark.parity
@pytest.mark.parametrize("number", range(3))
def test_each_change_of_colour_is_within_one_grey_level_of_torchvision(number):
    theirs = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation)[number]
    x = pictures()
    factor = torch.full((20, 3), FACTOR_UNIT)
    factor[:, number] = torch.from_numpy(factors(np.random.default_rng(2).random((20, 3)), (0.8, 0.8, 0.8)))[:, number]
    for one, three, found in zip(x, factor, jitter(x, factor)):
        assert (found.int() - theirs(one, three[number].item() / FACTOR_UNIT).int()).abs().max() <= 1


@pytest.mark.parity
def test_all_three_changes_are_within_one_grey_level_of_torchvision():
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


@pytest.mark.gpu
def test_a_gpu_jitters_to_the_same_bits():
    factor = torch.from_numpy(factors(np.random.default_rng(3).random((20, 3)), (0.4, 0.4, 0.4)))
    assert torch.equal(jitter(pictures().cuda(), factor.cuda()).cpu(), jitter(pictures(), factor))
