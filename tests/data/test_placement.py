"""Decoded pictures at hand: wherever they are kept a batch has the same bits; where they are kept by default; clean errors."""

import dataclasses
import shutil

import numpy as np
import pytest
import torch
from likewise.types import Items, LikewiseError
from PIL import Image

from likewise.data import placement as resident
from likewise.data.augment import Augment, Plain
from likewise.data.class_folders import read_folder
from likewise.data.decoded_cache import is_cached, open_pixels
from likewise.data.images import BadImage
from likewise.data.loader import batches
from likewise.data.placement import choose, gather_rows, has_room, hold, open_cached
from likewise.models.embedder import Embedder
from likewise.runs.embed import embed_rows

CPU = torch.device("cpu")
SIZES = [(61, 40), (33, 90), (24, 24), (130, 77), (7, 5), (100, 31), (45, 45), (64, 101)]
"""Width and height of the pictures."""

LOOKS = {
    "evaluation": Plain(24),
    "evaluation of whole pictures": Plain(24, "none"),
    "crop": Augment(24),
    "affine": Augment(24, "affine"),
    "none": Augment(24, "none"),
    "side": Augment(24, side=30),
    "evaluation, side": Plain(24, side=30),
    "jitter": Augment(24, jitter=(0.4, 0.4, 0.4)),
}
SOURCES = ["one process", "two processes", "disk", "host", "device"]
ASKED = [[7, 1, 1, 4, 0], [3], [2, 6, 5, 2, 6, 5], [0, 1]]


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


@pytest.fixture
def private(tmp_path, monkeypatch):
    """A cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def source(name: str, items: Items, side: int | None) -> dict:
    """Settings of `batches` by which pixels come from there."""
    if "process" in name:
        return {"workers": 2 if name == "two processes" else 0}
    return {"held": hold(items, np.arange(len(items)), CPU, name, side, quiet=True)}


def draw(items: Items, look: Plain, rows=ASKED, **settings) -> list[torch.Tensor]:
    return [batch.x for batch in batches(items, rows, look, device=CPU, **{"seed": 3} | settings)]


def same(here: list[torch.Tensor], there: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


@pytest.mark.parametrize("name", SOURCES[1:])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_pixels_are_the_same_to_the_bit_wherever_they_come_from(items, look, name):
    assert same(draw(items, look), draw(items, look, **source(name, items, look.side)))


@pytest.mark.parametrize("name", SOURCES)
def test_boxes_of_a_table_are_cut_first(items, name):
    box = np.array([(1.0, 2.0, wide - 1.0, high - 1.0) for wide, high in SIZES])
    box[4] = np.nan
    some = dataclasses.replace(items, box=box, split=None)
    look = Augment(24)
    found = draw(some, look, **source(name, some, None))
    assert same(found, draw(some, look)) and not same(found, draw(items, look))


@pytest.mark.parametrize("name", SOURCES)
def test_chance_depends_on_seed_and_batch_alone(items, name):
    look, way = Augment(12), source(name, items, None)
    asked = [[0, 1, 1], [0, 1, 1], [4, 5]]
    here = draw(items, look, asked, **way)
    assert not torch.equal(here[0][1], here[0][2])  # twice in a batch, each for itself
    assert not torch.equal(here[0], here[1])
    assert not torch.equal(here[0], draw(items, look, asked, seed=4, **way)[0])
    assert same(here[1:], draw(items, look, asked[1:], first_draw=1, **way))  # as if training had gone on
    assert same(here, draw(items, look, [None, asked[0], None, None, *asked[1:], None], **way))


@pytest.mark.parametrize("name", ["one process", "disk", "device"])
@pytest.mark.parametrize("look", [Augment(24), Augment(24, "affine", jitter=(0.4, 0.4, 0.4))], ids=["crop", "affine"])
def test_shares_of_several_processes_are_the_batch(items, look, name):
    way, whole = source(name, items, None), draw(items, look)
    for many in (2, 3):
        parts = []
        for rank in range(many):
            found = list(batches(items, ASKED, look, device=CPU, seed=3, process=(rank, many), **way))
            assert [batch.row.tolist() for batch in found] == ASKED  # everyone knows all of them
            assert [batch.y.tolist() for batch in found] == [items.y[rows].tolist() for rows in ASKED]
            parts.append(found)
        for number, x in enumerate(whole):
            assert torch.equal(torch.cat([part[number].x for part in parts]), x)


def test_rows_copied_elsewhere_are_those_asked_for(items):
    pixels = open_pixels(items, quiet=True)
    for rows in ([6, 1, 2, 2, 7], [3], []):
        held, start = gather_rows(pixels, np.array(rows, int), CPU)
        for row in range(len(items)):
            if row not in rows:
                assert start[row] == -1
                continue
            count, first = int(pixels.size[row].prod()), pixels.start[row]
            assert np.array_equal(held[start[row] : start[row] + count].numpy(), pixels.flat[first : first + count])
        assert len(held) == pixels.size[np.unique(rows).astype(int)].prod(1).sum()


def test_rows_are_copied_in_pieces(items, monkeypatch):
    pixels = open_pixels(items, quiet=True)
    wanted, _ = gather_rows(pixels, np.arange(8), CPU)
    monkeypatch.setattr(resident, "CHUNK_PIXELS", 1000)
    assert torch.equal(gather_rows(pixels, np.arange(8), CPU)[0], wanted)


def test_embeddings_are_those_of_files_wherever_pictures_are(items, private):
    torch.manual_seed(0)
    embedder = Embedder("conv_small", 8, pretrained=False)
    rows = np.array([6, 2, 0, 3])
    wanted = embed_rows(embedder, items, rows, Plain(32), device=CPU, quiet=True)
    assert open_cached(items, rows, CPU, None) is None
    held = hold(items, rows, CPU, "disk", quiet=True)
    assert open_cached(items, rows, CPU, None) is not None  # from now on they are found
    for way in ({"held": held}, {}):
        found = embed_rows(embedder, items, rows, Plain(32), device=CPU, quiet=True, **way)
        assert found.row.tolist() == rows.tolist()
        assert torch.equal(found.z, wanted.z)


def test_on_the_cpu_nothing_is_copied(items):
    for keep, ahead in (("device", False), ("host", False), ("disk", True)):
        held = hold(items, np.arange(2), CPU, keep, quiet=True)
        pixels, plan = held.stage([5], Plain(8), np.zeros((1, 0)))
        assert held.ahead == ahead and np.shares_memory(pixels, held.pixels.flat) != ahead
        assert plan.shape == (1, 11)


def test_by_default_pictures_are_kept_where_they_fit(monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    monkeypatch.setattr(resident, "free", lambda: 800)
    assert choose(10**15, CPU, None) == "device"
    assert [choose(length, gpu, None) for length in (500, 501, 800, 801)] == ["device", "host", "host", "disk"]
    assert [choose(length, gpu, 600) for length in (600, 601)] == ["device", "host"]


def test_there_is_room_on_disk_or_in_memory(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: type("Use", (), {"free": 1000}))
    monkeypatch.setattr(resident, "free", lambda: 700)
    assert has_room(500) and has_room(700) and not has_room(701)
    monkeypatch.setattr(resident, "free", lambda: 100)
    assert has_room(500) and not has_room(501)
    monkeypatch.setattr(resident.os, "access", lambda folder, how: False)  # of somebody else
    assert has_room(100) and not has_room(101)
    monkeypatch.undo()
    left = resident.free()
    assert left > 2**20
    assert resident.free(processes=4) < left / 2


def test_by_default_whatever_goes_wrong_ends_with_files(items, private, monkeypatch):
    told = []
    way = {"say": told.append, "quiet": True}
    assert hold(items, np.arange(8), CPU, "files") is None and not is_cached(items, None)
    monkeypatch.setattr(resident, "has_room", lambda length: False)
    assert hold(items, np.arange(8), CPU, **way) is None
    assert (
        told.pop()
        == "images are read from their files every time, because they cannot be cached: not enough space for 0.0 GB"
    )
    monkeypatch.undo()
    broken = dataclasses.replace(items, path=(*items.path[:7], "none.png"))
    assert hold(broken, np.arange(7), CPU, **way) is None
    assert "none.png" in told.pop()
    features = Items("numbers", np.zeros(2, np.int64), ("a",), x=np.zeros((2, 3), np.float32))
    assert hold(features, np.arange(2), CPU, **way) is None and not told


def test_a_cache_that_cannot_be_written_does_not_matter(items, private):
    (private / "likewise").write_text("a file where the folder would be")
    told = []
    held = hold(items, np.arange(8), CPU, say=told.append, quiet=True)
    look = Augment(24)
    assert same(draw(items, look, held=held), draw(items, look))
    assert len(told) == 1


@pytest.mark.parametrize("keep", ["disk", "host", "device"])
def test_a_broken_picture_arrives_as_one_clean_error(tmp_path, keep):
    (tmp_path / "one").mkdir()
    for number in range(6):
        Image.new("RGB", (2, 2)).save(tmp_path / "one" / f"{number}.png")
    (tmp_path / "one" / "4.png").write_bytes(b"no picture at all")
    with pytest.raises(BadImage, match=r"4\.png: this is not an image"):
        hold(read_folder(str(tmp_path)), np.arange(6), CPU, keep, quiet=True)


@pytest.mark.parametrize("keep", ["disk", "device"])
def test_an_error_on_the_way_arrives_as_it_is(items, keep, monkeypatch):
    held = hold(items, np.arange(8), CPU, keep, quiet=True)

    def damaged(rows):
        if 3 in rows:
            raise LikewiseError("pixels: a block is damaged")

    monkeypatch.setattr(held.pixels, "need", damaged)
    feed = batches(items, ASKED, Plain(8), device=CPU, held=held)
    assert next(feed).row.tolist() == ASKED[0]
    with pytest.raises(LikewiseError, match="^pixels: a block is damaged$"):
        next(feed)


def test_errors_say_what_to_do(items, monkeypatch):
    held = hold(items, np.arange(2), CPU, "device", quiet=True)
    held._start = gather_rows(held.pixels, np.arange(2), CPU)[1]  # as it is on an accelerator
    with pytest.raises(LikewiseError, match="must have been loaded, got row 3"):
        held.stage([1, 3], Plain(8), np.zeros((2, 0)))

    def full(*shape, **settings):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(LikewiseError, match="fit on cpu, but need 0.0 GB"):
        gather_rows(held.pixels, np.arange(2), CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("keep", ["disk", "host", "device"])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_the_device_sees_the_same_and_never_waits(items, look, keep):
    gpu, rows = torch.device("cuda"), [list(range(len(items))) * 3] * 4
    held = hold(items, np.arange(len(items)), gpu, keep, look.side, quiet=True)
    way = {"device": gpu, "held": held, "seed": 3}
    list(batches(items, rows, look, **way))
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = [batch.x for batch in batches(items, rows, look, **way)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    wanted = draw(items, look, rows)
    assert same([x.cpu() for x in found], wanted)
    assert {x.stride() for x in found} == {x.stride() for x in (b.x for b in batches(items, rows, look, device=gpu))}
