"""Pictures on the device: the grey levels that Pillow makes of files, random boxes as torchvision draws them, clean errors."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from likewise.data import resident
from likewise.data.augment import eval_transform
from likewise.data.batches import batches
from likewise.data.folder import read_folder
from likewise.data.images import BadImage, read_image
from likewise.data.resident import Resident, random_boxes
from likewise.embedding import embed_rows
from likewise.models.embedder import Embedder
from likewise.types import Items, LikewiseError

CPU = torch.device("cpu")
SIZES = [(61, 40), (33, 90), (24, 24), (130, 77), (7, 5), (100, 31), (45, 45), (64, 101)]
"""Width and height of the pictures."""


@pytest.fixture(scope="module")
def items(tmp_path_factory) -> Items:
    """Noise, smooth in one half of each picture."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for number, (wide, high) in enumerate(SIZES):
        file = folder / f"class{number // 4}" / f"{number}.png"
        file.parent.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (high, wide, 3))
        pixels[: high // 2] = np.linspace(0, 255, wide)[:, None]
        Image.fromarray(pixels.astype(np.uint8)).save(file)
    return read_folder(str(folder))


@pytest.fixture(scope="module")
def held(items) -> Resident:
    return Resident(items, np.arange(len(items)), CPU, quiet=True)


def picture(items: Items, row: int) -> Image.Image:
    return read_image(f"{items.root}/{items.path[row]}")


def any_boxes(rng: np.random.Generator, rows: list[int]) -> np.ndarray:
    boxes = []
    for row in rows:
        wide, high = SIZES[row]
        h, w = rng.integers(1, high + 1), rng.integers(1, wide + 1)
        boxes.append((rng.integers(0, high - h + 1), rng.integers(0, wide - w + 1), h, w))
    return np.array(boxes)


@pytest.mark.parity
@pytest.mark.parametrize("size", [1, 9, 32, 57])
@pytest.mark.parametrize("at_once", [1, 2**24])
def test_boxes_have_the_grey_levels_of_torchvision(items, held, size, at_once, monkeypatch):
    monkeypatch.setattr(resident, "PIXELS", at_once)
    rng = np.random.default_rng(size)
    rows = rng.integers(0, len(items), 40).tolist()
    boxes, flip = any_boxes(rng, rows), rng.random(40) < 0.5
    found = held.crop(rows, boxes, flip, size)
    for x, row, box, turned in zip(found, rows, boxes.tolist(), flip):
        image = picture(items, row)
        cut = functional.crop(image, *box)
        pillow = cut.resize((size, box[2]), Image.Resampling.BILINEAR).resize((size, size), Image.Resampling.BILINEAR)
        theirs = functional.resized_crop(image, *box, [size, size], antialias=True)
        wanted, near = (functional.pil_to_tensor(one) for one in (pillow, theirs))
        x = x.flip(2) if turned else x
        assert torch.equal(x, wanted)  # along rows, then along columns
        assert (x.int() - near.int()).abs().max() <= 1  # in the order that Pillow likes


def resized_by_hand(line: list[int], size: int) -> list[int]:
    """The triangle filter, one new pixel at a time."""
    step, made = len(line) / size, []
    for new in range(size):
        weights = [max(0.0, 1 - abs(old + 0.5 - (new + 0.5) * step) / max(1.0, step)) for old in range(len(line))]
        made.append(math.floor(sum(w * v for w, v in zip(weights, line)) / sum(weights) + 0.5))
    return made


@pytest.mark.parametrize("size", [3, 40, 55])
def test_the_filter_by_hand(items, held, size):
    wide, high = SIZES[1]
    top, left, h, w = 4, 3, high - 9, wide - 4
    pixels = np.asarray(picture(items, 1))[top : top + h, left : left + w, 0]
    rows = [resized_by_hand(line, size) for line in pixels.tolist()]
    wanted = torch.tensor([resized_by_hand([row[k] for row in rows], size) for k in range(size)]).T
    found = held.crop([1], np.array([[top, left, h, w]]), np.array([False]), size)[0, 0]
    apart = (found.int() - wanted).abs()  # Pillow's weights of 22 bits decide where a half is rounded to
    assert apart.max() <= 1
    assert (apart > 0).float().mean() < 0.01


@pytest.mark.parametrize("kind", ["crop", "none", "affine"])
@pytest.mark.parametrize("size", [16, 35, 64])
def test_evaluation_sees_what_it_sees_of_files(items, held, size, kind):
    rows = list(range(len(items)))
    found, plain = held.evaluation(size, kind).on_device(rows, 0, 0), eval_transform(size, kind)
    for x, row in zip(found, rows):
        wide, high = SIZES[row]
        apart = (x.int() - plain(picture(items, row)).int()).abs().max()
        assert apart <= (wide < high)  # Pillow may begin with the columns of a tall picture


def test_training_without_chance_is_evaluation(held):
    made, wanted = held.training(20, "none"), held.evaluation(20, "none")
    assert torch.equal(made.on_device([3, 1], 5, 6), wanted.on_device([3, 1], 0, 0))


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


def test_chance_depends_on_seed_and_batch_alone(items, held):
    change = held.training(12)

    def draw(asked, **settings):
        return [b.x for b in batches(items, asked, change, device=CPU, **settings)]

    asked = [[0, 1, 1], [0, 1, 1], [4, 5]]
    here = draw(asked, seed=3)
    assert not torch.equal(here[0][1], here[0][2])
    assert not torch.equal(here[0], here[1])
    assert not torch.equal(here[0], draw(asked, seed=4)[0])
    assert all(torch.equal(a, b) for a, b in zip(here[1:], draw(asked[1:], seed=3, first_draw=1)))
    with_stops = draw([None, asked[0], None, None, *asked[1:], None], seed=3)
    assert all(torch.equal(a, b) for a, b in zip(here, with_stops, strict=True))


def test_every_second_picture_is_mirrored(tmp_path):
    image = Image.new("RGB", (64, 64))
    image.paste((255, 255, 255), (0, 0, 32, 64))
    (tmp_path / "one").mkdir()
    image.save(tmp_path / "one" / "half.png")
    items = read_folder(str(tmp_path))
    x = Resident(items, np.array([0]), CPU, quiet=True).training(8, scale=(0.95, 1.0)).on_device([0] * 400, 0, 0)
    white_left = (x[:, 0, 4, 0] > x[:, 0, 4, 7]).float().mean()
    assert 0.4 < white_left < 0.6


def test_batches_are_asked_for_one_at_a_time(items, held):
    asked = []

    def rows():
        for number in range(3):
            asked.append(number)
            yield [number]

    feed = batches(items, rows(), held.evaluation(8), device=CPU)
    first = next(feed)
    assert asked == [0]
    assert first.row.tolist() == [0]
    assert [b.y.tolist() for b in feed] == [[items.y[1]], [items.y[2]]]


def test_embeddings_are_those_of_files(items, held):
    torch.manual_seed(0)
    embedder = Embedder("conv_small", 8, pretrained=False)
    rows = np.array([6, 2, 0, 3])
    found = embed_rows(embedder, items, rows, held.evaluation(32), device=CPU, quiet=True)
    wanted = embed_rows(embedder, items, rows, eval_transform(32), device=CPU, quiet=True)
    assert found.row.tolist() == rows.tolist()
    assert torch.equal(found.z, wanted.z)


def test_a_side_shrinks_what_is_larger_and_nothing_else(items):
    small = Resident(items, np.arange(len(items)), CPU, side=30, quiet=True)
    for row, (wide, high) in enumerate(SIZES):
        image = picture(items, row)
        wanted = v2.Resize(30, antialias=True)(image) if min(wide, high) > 30 else image
        box = np.array([[0, 0, min(wanted.size), min(wanted.size)]])
        found = small.crop([row], box, np.array([False]), min(wanted.size))[0]
        square = functional.pil_to_tensor(wanted)[:, : min(wanted.size), : min(wanted.size)]
        assert torch.equal(found, square)


def test_boxes_of_a_table_are_cut_first_and_workers_change_nothing(items):
    rows = np.arange(len(items))
    box = np.array([(1.0, 2.0, wide - 1.0, high - 1.0) for wide, high in SIZES])
    many = dataclasses.replace(
        items, y=np.tile(items.y, 40), path=items.path * 40, box=np.tile(box, (40, 1)), split=None
    )
    made = (
        Resident(many, np.arange(320), CPU, workers=2, quiet=True).evaluation(16, "none").on_device(rows.tolist(), 0, 0)
    )
    plain = eval_transform(16, "none")
    wanted = torch.stack([plain(read_image(f"{items.root}/{items.path[row]}", box[row])) for row in rows])
    assert (made.int() - wanted.int()).abs().max() <= 1


def test_under_autocast_nothing_changes(held):
    change = held.training(24)
    wanted = change.on_device([0, 1, 3], 0, 0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(change.on_device([0, 1, 3], 0, 0), wanted)


def test_the_random_numbers_of_the_caller_are_untouched(items):
    before = torch.get_rng_state()
    Resident(items, np.array([1, 2]), CPU, quiet=True).training(8).on_device([1, 2], 0, 0)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_picture_arrives_as_one_clean_error(tmp_path, workers):
    (tmp_path / "one").mkdir()
    for number in range(260):
        Image.new("RGB", (2, 2)).save(tmp_path / "one" / f"{number:03}.png")
    (tmp_path / "one" / "200.png").write_bytes(b"no picture at all")
    with pytest.raises(BadImage, match=r"200\.png: this is not a picture"):
        Resident(read_folder(str(tmp_path)), np.arange(260), CPU, workers=workers, quiet=True)


def test_errors_say_what_to_do(items, held, monkeypatch):
    with pytest.raises(LikewiseError, match=r"'affine' is for pictures read from files; use 'crop'"):
        held.training(8, "affine")
    with pytest.raises(LikewiseError, match="scale must be two shares"):
        held.training(8, scale=(0.5, 0.1))
    with pytest.raises(LikewiseError, match="size must be a whole number"):
        held.evaluation(0)
    with pytest.raises(LikewiseError, match="size must be a whole number"):
        Resident(items, np.arange(2), CPU, side=0)
    with pytest.raises(LikewiseError, match=r"inside its picture, got \[0, 0, 24, 25\] for row 2"):
        held.crop([1, 2], np.array([[0, 0, 1, 1], [0, 0, 24, 25]]), np.zeros(2, bool), 8)
    few = Resident(items, np.array([1, 2]), CPU, quiet=True)
    with pytest.raises(LikewiseError, match="only rows that were loaded can be asked for, got row 3"):
        few.evaluation(8).on_device([2, 3], 0, 0)
    features = Items("numbers", np.zeros(2, np.int64), ("a",), x=np.zeros((2, 3), np.float32))
    with pytest.raises(LikewiseError, match="must be pictures, got numbers"):
        Resident(features, np.arange(2), CPU)

    plenty = torch.empty

    def full(*shape, **settings):
        if shape[1:] == (3,):
            raise RuntimeError("out of memory")
        return plenty(*shape, **settings)

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(LikewiseError, match="must fit on cpu, and take 0.0 GB; give a smaller side"):
        Resident(items, np.array([1, 2]), CPU, quiet=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_the_device_sees_the_same_and_never_waits(items, held):
    rows = list(range(len(items))) * 3
    there = Resident(items, np.arange(len(items)), torch.device("cuda"), quiet=True)
    change = there.training(24)
    change.on_device(rows, 0, 0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = [b.x for b in batches(items, [rows, rows], change, device=torch.device("cuda"))]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for number, x in enumerate(found):
        assert torch.equal(x.cpu(), held.training(24).on_device(rows, 0, number))
