"""Copies of pictures: planted ones are found, other pictures are not; the hash against a sum of cosines by hand."""

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from likewise.curate.audit import near_duplicates as module
from likewise.curate.audit.near_duplicates import (
    HASH_COEFFICIENTS,
    agreement,
    copy_log_odds,
    copy_probabilities,
    near_duplicates,
    perceptual_hash,
)


def scene(seed, size=(96, 72)):
    """A picture with large shapes and fine detail: blurred noise of several widths."""
    rng, layers = np.random.default_rng(seed), []
    for width in (14, 5, 1.5):
        noise = Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
        layers.append(np.asarray(noise.filter(ImageFilter.GaussianBlur(width)), float))
        layers[-1] = (layers[-1] - layers[-1].mean()) / layers[-1].std()
    mixed = 128 + 30 * layers[0] + 20 * layers[1] + 10 * layers[2]
    return Image.fromarray(mixed.clip(0, 255).astype(np.uint8))


def packed(image):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=30)
    return Image.open(file).convert("RGB")


COPIES = {
    "half": lambda p: p.resize((p.width // 2, p.height // 2)),
    "packed": packed,
    "mirrored": ImageOps.mirror,
    "cropped": lambda p: p.crop((3, 5, 3 + round(0.9 * p.width), 5 + round(0.9 * p.height))),
    "without its foot": lambda p: p.crop((0, 0, p.width, round(0.9 * p.height))),
    "cropped and mirrored": lambda p: ImageOps.mirror(p.crop((8, 1, 94, 66))),
    "brighter": lambda p: ImageEnhance.Brightness(p).enhance(1.2),
}


def apart(count, seed=0, dim=16):
    g = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, dim, generator=g))


def pairs(found):
    return list(zip(found.row.tolist(), found.other.tolist(), found.kind.tolist()))


def test_the_hash_is_the_signs_of_a_sum_of_cosines():
    picture = scene(3)
    grey = np.asarray(
        picture.convert("L").resize((96, 96), Image.Resampling.BICUBIC).resize((32, 32), Image.Resampling.BICUBIC)
    )
    bits = "".join(
        str(int(sum(
            float(grey[y, x]) * math.cos(math.pi * u * (2 * y + 1) / 64) * math.cos(math.pi * v * (2 * x + 1) / 64)
            for y in range(32) for x in range(32)
        ) > 0))
        for u, v in (divmod(int(place), 32) for place in HASH_COEFFICIENTS)
    )  # fmt: skip
    assert perceptual_hash(picture)[0].tobytes() == int(bits, 2).to_bytes(8, "big")


def test_the_mirrored_hash_is_that_of_the_mirrored_picture():
    assert perceptual_hash(scene(1))[0] ^ module.MIRROR_MASK == perceptual_hash(ImageOps.mirror(scene(1)))[0]


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("first", [True, False])
def test_a_copy_is_found_among_others(way, first):
    pictures = [scene(seed) for seed in range(6)]
    copy = COPIES[way](pictures[2])
    pictures = [copy, *pictures] if first else [*pictures, copy]
    found = near_duplicates(apart(7), pictures.__getitem__, k=6)  # everybody is a candidate
    assert pairs(found) == ([(0, 3, "near")] if first else [(2, 6, "near")])
    assert 0 <= found.bits[0] <= module.MAX_HASH_DISTANCE and found.unread == 0


def test_the_hash_finds_copies_that_the_embedding_keeps_apart():
    pictures = [scene(seed) for seed in range(20)]
    pictures += [COPIES["mirrored"](pictures[4]), COPIES["half"](pictures[9])]
    z = torch.nn.functional.normalize(torch.eye(22) + 0.2)
    z[20], z[21] = -z[4], -z[9]
    assert pairs(near_duplicates(z, pictures.__getitem__, k=1)) == [(4, 20, "near"), (9, 21, "near")]


def test_the_same_thing_in_another_colour_is_another_thing():
    red = Image.merge("RGB", [scene(0).convert("L").point(lambda v, s=s: int(v * s)) for s in (1.0, 0.4, 0.3)])
    blue = Image.merge("RGB", red.split()[::-1])
    detail, tint = agreement(red, blue, module.CROP_WINDOWS[0], False)
    assert detail > 0.85 and tint > module.MAX_COLOUR_DIFFERENCE
    assert agreement(red, red, module.CROP_WINDOWS[0], False) == (pytest.approx(1, abs=1e-5), 0)
    assert pairs(near_duplicates(apart(2), [red, blue].__getitem__)) == []


def test_plain_pictures_are_copies_only_pixel_by_pixel():
    plain = [
        Image.new("RGB", (40, 40), (9, 9, 9)),
        Image.new("RGB", (40, 40), (9, 9, 9)),
        Image.new("RGB", (40, 40), (9, 9, 8)),
    ]
    found = near_duplicates(apart(3), plain.__getitem__)
    assert pairs(found) == [(0, 1, "same")] and found.bits.tolist() == [0]


def test_of_many_copies_as_many_pairs_as_join_them():
    one, two = scene(0), scene(1)
    pictures = [one, two] * 15 + [scene(2)]
    found = near_duplicates(apart(31), pictures.__getitem__, k=2)
    assert len(found.row) == 28 and set(found.kind) == {"same"}
    assert ((found.row % 2) == (found.other % 2)).all() and (found.row < found.other).all()


def test_pairs_across_parts_come_before_pairs_within():
    copies = [scene(0), scene(0), scene(0), COPIES["packed"](scene(0))]
    found = near_duplicates(apart(4), copies.__getitem__, split=np.array([1, 1, 1, 0]))
    assert pairs(found) == [(0, 3, "near"), (1, 3, "near"), (2, 3, "near")]
    assert len(near_duplicates(apart(4), copies.__getitem__).row) == 3


def test_without_pictures_only_equal_vectors_are_copies():
    z = apart(40)
    z[7], z[30] = z[21], torch.nn.functional.normalize(z[12] + 1e-4 * apart(1, 5)[0], dim=0)
    z[25] = torch.nn.functional.normalize(z[3] + 0.1 * apart(1, 6)[0], dim=0)  # near, but not as near as a copy
    found = near_duplicates(z)
    assert pairs(found) == [(7, 21, "same"), (12, 30, "near")] and found.bits.tolist() == [-1, -1]
    assert found.similarity == pytest.approx([1, (z[12] @ z[30]).item()], abs=1e-6)


@pytest.mark.parametrize("spread", [0.0, 1e-7, 1e-3, 0.03])
def test_classes_drawn_together_to_a_point_are_no_copies(spread):
    z = torch.nn.functional.normalize(apart(4).repeat_interleave(100, 0) + spread * apart(400, 9))
    assert pairs(near_duplicates(z)) == []


def test_samples_without_a_picture_are_counted_and_judged_by_embedding():
    pictures, z = [scene(seed) for seed in range(12)], apart(12)
    pictures[3] = pictures[5] = None
    z[5], z[8] = z[3], z[1]  # 1 and 8 are other pictures, whatever the embedding says
    found, shares = near_duplicates(z, pictures.__getitem__, progress=(shares := []).append), shares
    assert pairs(found) == [(3, 5, "same")] and found.unread == 2
    assert shares == sorted(shares) and shares[-1] == 1


def test_the_same_pixels_count_as_one_cluster_even_if_other_pairs_join_them():
    copies = [scene(0), scene(0), scene(0), COPIES["packed"](scene(0)), scene(1)]
    found = near_duplicates(apart(5), copies.__getitem__, split=np.array([1, 1, 1, 0, 0]))
    assert found.cluster.tolist() == [0, 0, 0, 1, 2] and set(found.kind) == {"near"}
    assert {tuple(pair) for pair in found.near.pair.tolist()} >= {(0, 3)} and (found.near.probability > 0.5).all()
    same = near_duplicates(apart(3), lambda row: scene(0))
    assert same.probability.tolist() == [1, 1] and same.cluster.tolist() == [0, 0, 0]


def test_two_boxes_of_one_file_are_no_copies():
    files, boxes = np.array([0, 0, 1]), [(0, 0, 9, 9), (0, 0, 8, 9), (0, 0, 9, 9)]
    images = [scene(0), COPIES["cropped"](scene(0)), scene(0)]
    found = near_duplicates(apart(3), images.__getitem__, k=2, place=(files, boxes))
    assert (0, 1) not in zip(found.row, found.other) and found.cluster.tolist() == [0, 1, 0]


def test_equal_vectors_of_a_data_set_are_exact_copies():
    vectors = np.array([0, 1, 1, *range(2, 9), *[9] * 30])
    found = near_duplicates(apart(40), vectors=vectors)
    assert pairs(found) == [(1, 2, "same")]  # 30 equal vectors are a class at one point


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_compare(count):
    assert pairs(near_duplicates(apart(count), lambda row: scene(row))) == []


def test_probability_of_copies_by_hand():
    assert copy_log_odds(4, 1 - math.exp(-5)) == pytest.approx(-9.77 - 0.25 * 4 + 3.18 * 5)
    assert copy_log_odds(0, 1.0) == copy_log_odds(0, 0.9999) == pytest.approx(-9.77 - 3.18 * math.log(1e-3))
    (p,) = copy_probabilities(np.array([0.0]))
    share = (p + 2) / 5
    assert p == pytest.approx(share) == pytest.approx(0.5)  # s / (1 - s) = p / (1 - p)
    many = copy_probabilities(
        np.array([-3.0] * 800 + [3.0] * 4)
    )  # frames of a video: pairs that agree a little are many
    assert many[0] < 0.01 and many[-1] < 0.5 < copy_probabilities(np.array([3.0] * 4))[0]
    assert copy_probabilities(np.zeros(0)).tolist() == []
