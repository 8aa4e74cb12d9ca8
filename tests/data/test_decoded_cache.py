"""The pixel cache: bit-equal to decoding, resumed after a kill, shared by processes, mended where damaged, never half."""

import dataclasses
import json
import multiprocessing
import os
import resource
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from likewise.types import Items, LikewiseError
from PIL import Image, PngImagePlugin
from torchvision.transforms.v2 import functional

from likewise.core import locks
from likewise.data import decoded_cache as pixels
from likewise.data.crop_resize import shrink
from likewise.data.decoded_cache import _finished, decoded, decoded_bytes, home_of, is_cached, open_pixels, pixels_of
from likewise.data.images import BadImage, UnreadableFile, image_of

COUNT = 11


def picture(file: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    high, wide = rng.integers(15, 50, 2)
    Image.fromarray(rng.integers(0, 256, (high, wide, 3), np.uint8)).save(file)


@pytest.fixture
def items(tmp_path) -> Items:
    root = tmp_path / "pictures"
    root.mkdir()
    names = tuple(f"{number:02d}.{'jpg' if number % 2 else 'png'}" for number in range(COUNT))
    for number, name in enumerate(names):
        picture(root / name, number)
    return Items("noise", np.zeros(COUNT, np.int64), ("a",), names, str(root))


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Blocks of two pictures."""
    monkeypatch.setattr(pixels, "BLOCK_ROWS", 2)


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def opened(folder):
    """Open the cache; what it says is in `opened.said`."""

    def call(items, side=24, **others):
        return open_pixels(items, side, quiet=True, say=call.said.append, folder=folder, **others)

    call.said = []
    return call


@pytest.fixture
def read(monkeypatch) -> list[int]:
    """The rows that are decoded."""
    rows = []
    monkeypatch.setattr(pixels, "pixels_of", lambda data, row, side: (rows.append(row), pixels_of(data, row, side))[1])
    return rows


def assert_right(found, items, side=24):
    """Every row, one at a time, and the same block by block."""
    at = 0
    for row in range(len(items)):
        wanted = pixels_of(items, row, side)
        high, wide = found.size[row]
        assert found.start[row] == at and (high, wide) == wanted.shape[:2]
        at += high * wide
        assert np.array_equal(found.flat[found.start[row] : at].reshape(high, wide, 3), wanted)
    assert found.bytes == 3 * at == 3 * len(found.flat) == decoded_bytes(items, side)
    firsts, pieces = zip(*found.blocks())
    assert list(firsts) == [found.start[row] for row in range(0, len(items), 2)]
    assert np.array_equal(np.concatenate(pieces), found.flat)


def home(items, folder, side=24) -> Path:
    return home_of(items, side, folder)


class Other:
    """Another process that decodes, and notes every picture in `log`; no file may become longer than `most` bytes."""

    def __init__(self, items, folder, log, pause=0.0, most=None):
        self.answer, there = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("fork").Process(
            target=self.work, args=(items, folder, log, pause, most, there)
        )
        self.process.start()
        there.close()

    @staticmethod
    def work(items, folder, log, pause, most, answer):
        def slow(data, row, side):
            with log.open("a") as file:
                file.write(f"{row}\n")
            time.sleep(pause)
            return pixels_of(data, row, side)

        pixels.pixels_of, pixels.PREFETCH_ITEMS, said = slow, 1, []
        if most is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        found = open_pixels(items, 24, workers=1, quiet=True, say=said.append, folder=folder)
        answer.send((said, type(found.flat).__name__, b"".join(x.tobytes() for _, x in found.blocks())))

    def result(self) -> tuple[list[str], str, bytes]:
        assert self.answer.poll(60)
        said = self.answer.recv()
        self.process.join()
        return said


def wait_for(what) -> None:
    end = time.monotonic() + 600
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def spoil(file: Path, at: int) -> None:
    with file.open("r+b") as out:
        out.seek(at)
        byte = out.read(1)[0]
        out.seek(at)
        out.write(bytes([byte ^ 64]))


@pytest.mark.parametrize("side", [None, 24])
def test_every_row_is_the_decoded_picture_and_the_second_time_none_is_decoded(items, folder, opened, read, side):
    assert not is_cached(items, side, folder)
    first = opened(items, side, workers=3)
    assert isinstance(first.flat, np.memmap) and not first.flat.flags.writeable
    assert_right(first, items, side)
    assert sorted(read) == list(range(COUNT)) and is_cached(items, side, folder)
    assert sorted(file.name for file in home(items, folder, side).iterdir()) == ["index.npz", "pixels.bin"]
    assert_right(opened(items, side), items, side)
    assert len(read) == COUNT and opened.said == []


def test_the_default_place_is_the_cache_folder(items, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    open_pixels(items, quiet=True)
    assert home_of(items, None, tmp_path / "xdg" / "likewise" / "pixels").is_dir() and is_cached(items, None)


def test_the_key_is_of_what_the_pixels_depend_on(items, folder):
    whole = np.full((COUNT, 4), np.nan)
    part = whole.copy()
    part[3] = 0, 0, 5, 5
    keys = [home(items, folder), home(items, folder, None), home(items, folder, 23)]
    keys += [home(dataclasses.replace(items, box=box), folder) for box in (whole, part)]
    keys.append(home(dataclasses.replace(items, path=items.path[::-1]), folder))
    file = Path(items.root) / items.path[2]
    before = file.stat()
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    keys.append(home(items, folder))
    file.write_bytes(file.read_bytes() + b"\0")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    keys.append(home(items, folder))
    assert len(set(keys)) == len(keys)
    other = dataclasses.replace(items, name="other", y=np.arange(COUNT) % 2, class_name=("b", "c"))
    assert home(other, folder) == keys[-1]
    absolute = tuple(str(Path(items.root) / name) for name in items.path)
    assert home(dataclasses.replace(items, root="", path=absolute), folder) == keys[-1]


def test_boxes_are_cut(items, opened):
    box = np.tile([1.0, 2.0, 12.5, 14.0], (COUNT, 1))
    boxed = dataclasses.replace(items, box=box)
    found = opened(boxed, None)
    assert_right(found, boxed, None)
    assert (found.size == [12, 12]).all()


def test_after_a_kill_it_goes_on_behind_the_last_whole_block(items, folder, opened, read, tmp_path):
    log, journal = tmp_path / "log", home(items, folder) / "blocks.jsonl"
    killed = Other(items, folder, log, pause=0.1)
    wait_for(lambda: journal.exists() and journal.read_text().count("\n") >= 3)
    killed.process.kill()
    killed.process.join()
    whole = journal.read_text().count("\n")
    assert 3 <= whole < 6 and not is_cached(items, 24, folder)
    assert len(log.read_text().split()) >= 2 * whole
    with journal.open("a") as out:
        out.write('{"size": [[20, 20], [2')  # a torn line, and bytes that nobody vouches for
    with (journal.parent / "pixels.part").open("ab") as out:
        out.write(b"torn" * 100)
    assert_right(opened(items), items)
    assert sorted(read) == list(range(2 * whole, COUNT)) and opened.said == []


def test_a_broken_picture_is_named_and_its_cache_removed(items, folder, opened):
    """A cache with a broken picture can never be completed: the repaired file has another key."""
    (Path(items.root) / items.path[7]).write_bytes(b"no picture")
    with pytest.raises(BadImage, match=r"07\.jpg: this is not an image"):
        opened(items)
    assert not home(items, folder).exists()


def test_finished_blocks_stay_if_a_file_cannot_be_read_now(items, folder, opened, monkeypatch):
    fail_at(monkeypatch, opened, items, 7, UnreadableFile)
    assert (home(items, folder) / "blocks.jsonl").read_text().count("\n") == 3


def fail_at(monkeypatch, opened, items, row, error) -> None:
    """Open a cache, and be stopped by an error at this row."""

    def stop(data, at, side):
        if at == row:
            raise error
        return pixels_of(data, at, side)

    with monkeypatch.context() as now:
        now.setattr(pixels, "pixels_of", stop)
        with pytest.raises(error):
            opened(items)


def test_an_interrupt_leaves_what_is_finished(items, opened, read, monkeypatch):
    fail_at(monkeypatch, opened, items, 5, KeyboardInterrupt)
    assert_right(opened(items), items)
    assert sorted(read) == list(range(4, COUNT))


def test_lines_without_their_pixels_do_not_count(items, folder, opened, read, monkeypatch):
    fail_at(monkeypatch, opened, items, 6, KeyboardInterrupt)
    part = home(items, folder) / "pixels.part"
    os.truncate(part, part.stat().st_size - 1)
    assert_right(opened(items), items)
    assert sorted(read) == list(range(4, COUNT))


def test_of_two_processes_one_decodes_and_the_other_waits(items, folder, opened, tmp_path):
    log = tmp_path / "log"
    both = [Other(items, folder, log, pause=0.05) for _ in range(2)]
    (said, *first), (also_said, *second) = (other.result() for other in both)
    assert sorted(map(int, log.read_text().split())) == list(range(COUNT))
    assert said + also_said == ["pixels: another process is decoding noise; waiting for it"]
    found = opened(items)
    assert_right(found, items)
    assert first == second == ["memmap", found.flat.tobytes()]


@pytest.mark.parametrize("cut", [False, True])
def test_a_damaged_block_is_found_on_first_use_and_decoded_again(items, folder, opened, read, cut):
    opened(items)
    file = home(items, folder) / "pixels.bin"
    whole = file.read_bytes()
    read.clear()
    if cut:
        os.truncate(file, len(whole) - 7)
    else:
        spoil(file, len(whole) - 7)
    found = opened(items)
    found.need([0, 1, 5])
    assert read == [] and opened.said == []
    found.need(np.array([3, COUNT - 1]))
    assert read == [COUNT - 1]  # the last block holds one picture
    assert opened.said == [f"pixels: a block of {file.parent} is damaged; its 1 images are decoded again"]
    assert_right(found, items)
    assert file.read_bytes() == whole
    spoil(file, len(whole) - 7)
    found.need(range(COUNT))
    assert len(opened.said) == 1  # a block is looked at once


def test_all_blocks_are_checked_on_the_way_to_a_device(items, folder, opened, read):
    opened(items)
    spoil(home(items, folder) / "pixels.bin", 1000)
    found = opened(items)
    for _ in range(2):
        assert np.array_equal(np.concatenate([x for _, x in found.blocks()]), found.flat)
        assert_right(found, items)
    assert len(opened.said) == 1


@pytest.mark.parametrize("how", ["resized", "other pixels", "gone"])
def test_a_block_that_cannot_be_mended_is_an_error(items, folder, opened, how):
    opened(items)
    found, file = opened(items), Path(items.root) / items.path[2]
    spoil(home(items, folder) / "pixels.bin", 3 * int(found.start[2]))
    if how == "gone":
        file.unlink()
    elif how == "resized":
        Image.open(file).resize((9, 9)).save(file)
    else:
        Image.open(file).rotate(180).save(file)
    wrong = "there is no such file" if how == "gone" else "the decoded pixels differ from before"
    for _ in range(2):
        with pytest.raises(LikewiseError, match=rf"rows 2 to 3 of noise.*{wrong}") as caught:
            found.need([3])
    assert f"Delete the folder {found._home} and run" in str(caught.value)
    found.need([0, 5])


def test_whatever_byte_of_the_index_is_damaged_pixels_are_right(items, folder, opened):
    opened(items)
    place, built = home(items, folder), 0
    whole = (place / "index.npz").read_bytes()
    for at in range(0, len(whole), 41):
        spoil(place / "index.npz", at)
        opened.said.clear()
        found = opened(items)
        built += len(opened.said)
        assert opened.said in ([], [f"pixels: the index of {place} is damaged; noise is decoded again"])
        assert_right(found, items)
    assert built > 10


def test_an_index_of_something_else_is_made_anew(items, folder, opened):
    opened(items)
    place = home(items, folder)
    with np.load(place / "index.npz") as index:
        own = dict(index)
    huge, count = np.full_like(own["size"], 2**40), len(own["size"])
    for odd in (
        {"size": huge}, {"size": -own["size"]}, {"size": own["size"][:-1]}, {"size": own["size"].astype(float)},
        {"size": np.zeros(())}, {"edge": own["edge"][:1]}, {"edge": own["edge"][::-1]}, {"edge": own["edge"] * 10**6},
        {"edge": np.array([0.5, count])}, {"crc": own["crc"][:-1]}, {"crc": own["crc"].astype("U9")},
    ):  # fmt: skip
        np.savez(place / "index.npz", **own | odd)
        opened.said.clear()
        assert_right(opened(items), items)
        assert opened.said == [f"pixels: the index of {place} is damaged; noise is decoded again"]


def test_lines_of_something_else_in_an_unfinished_cache_are_cut_off(items, folder, opened, monkeypatch):
    fail_at(monkeypatch, opened, items, 9, KeyboardInterrupt)
    journal = home(items, folder) / "blocks.jsonl"
    first = journal.read_text().splitlines()[0]
    for odd in ("3", "[]", "{}", "[" * 10**5, '{"size": 3, "crc": 1}', '{"size": [[2]], "crc": 1}', '{"size": [], "crc": 1}',
                '{"size": [[1, 1]], "crc": "x"}', '{"size": [[-1, 1]], "crc": 1}', first + "\n" + first):  # fmt: skip
        journal.write_text(f"{first}\n{odd}\n")
        blocks = _finished(home(items, folder) / "pixels.part", journal, len(json.loads(first)["size"]))
        assert blocks == [json.loads(first)] and journal.read_text() == first + "\n"


def test_damage_to_a_line_of_an_unfinished_cache_is_not_believed(items, folder, opened, monkeypatch):
    fail_at(monkeypatch, opened, items, 9, KeyboardInterrupt)
    journal = home(items, folder) / "blocks.jsonl"
    lines = journal.read_text().splitlines()
    high, wide = (block := json.loads(lines[1]))["size"][0]
    assert high != wide
    block["size"][0] = [wide, high]  # as many pixels as before
    journal.write_text("\n".join([lines[0], json.dumps(block), *lines[2:], ""]))
    found = opened(items)
    with pytest.raises(LikewiseError, match="Delete the folder"):
        found.need([2])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_without_room_pixels_are_held_in_memory(items, folder, opened):
    place = home(items, folder)
    place.mkdir(parents=True)
    (place / "pixels.part").symlink_to("/dev/full")
    found = opened(items)
    assert len(opened.said) == 1 and "No space left on device" in opened.said[0]
    assert "noise is decoded into memory instead" in opened.said[0]
    assert not isinstance(found.flat, np.memmap) and not place.exists()
    assert_right(found, items)
    found.need([3])


def test_a_disk_that_fills_up_on_the_way_keeps_no_half_files(items, folder, opened, tmp_path):
    said, kind, content = Other(items, folder, tmp_path / "log", most=12_000).result()
    assert len(said) == 1 and "cannot be used ([Errno 27] File too large)" in said[0]
    assert len((tmp_path / "log").read_text().split()) > COUNT  # some had been written
    assert [file.suffix for file in folder.iterdir()] == [".lock"]
    assert kind == "ndarray" and content == opened(items).flat.tobytes()


def test_a_folder_that_cannot_be_is_done_without(items, opened, folder):
    folder.write_text("a file stands there")
    found = opened(items)
    assert len(opened.said) == 1 and "File exists" in opened.said[0]
    assert_right(found, items)


def test_caches_used_longest_ago_go_but_none_in_use(items, folder, opened, monkeypatch):
    strange = folder / "mine"
    strange.mkdir(parents=True)
    (strange / "pixels.bin").write_bytes(bytes(10_000))
    os.utime(strange, (0, 0))
    sides = (24, 23, 22, 21)
    kept = [opened(items, side) for side in sides]
    for age, side in enumerate(sides):
        os.utime(home(items, folder, side), (1000 - age, 1000 - age))
    del kept[1:]
    used = opened(items, 22)  # which makes it young; 24 is in use, however old
    os.utime(home(items, folder, 24), (1, 1))
    monkeypatch.setattr(pixels, "MAX_CACHE_BYTES", used.bytes * 5 // 2)
    newest = opened(items, 20)
    assert [is_cached(items, side, folder) for side in (*sides, 20)] == [True, False, True, False, True]
    assert strange.is_dir()
    assert_right(newest, items, 20)
    assert_right(kept[0], items, 24)


def test_a_cache_that_is_being_made_is_not_tidied_away(items, folder, opened, monkeypatch, tmp_path):
    other = Other(items, folder, tmp_path / "log", pause=0.1)
    wait_for(lambda: (home(items, folder) / "blocks.jsonl").exists())
    monkeypatch.setattr(pixels, "MAX_CACHE_BYTES", 0)
    opened(items, 20)
    assert other.result()[:2] == ([], "memmap")
    assert is_cached(items, 24, folder)


def test_without_file_locks_it_works_all_the_same(items, opened, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    assert_right(opened(items), items)


def test_threads_may_ask_at_the_same_time(items, folder, opened):
    opened(items)
    spoil(home(items, folder) / "pixels.bin", 10)
    found = opened(items)
    asking = [threading.Thread(target=found.need, args=(range(COUNT),)) for _ in range(4)]
    [thread.start() for thread in asking]
    [thread.join() for thread in asking]
    assert_right(found, items)


def test_missing_pictures_are_named_and_features_refused(items, opened):
    (Path(items.root) / items.path[4]).unlink()
    with pytest.raises(LikewiseError, match=r"04\.png \(missing\)"):
        opened(items)
    features = Items("points", np.zeros(2, np.int64), ("a",), x=np.zeros((2, 3), np.float32))
    with pytest.raises(LikewiseError, match="must be images, but points has none"):
        opened(features)
    with pytest.raises(LikewiseError, match="side must be at least 1 or None, got 0"):
        decoded_bytes(items, 0)


def noise(wide: int, high: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (high, wide, 3), np.uint8))


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.fixture
def mixed(tmp_path) -> Items:
    """Every kind of picture whose size is not simply that of its header."""
    late = PngImagePlugin.PngInfo()
    late.add_itxt("XML:com.adobe.xmp", '<x tiff:Orientation="8"/>')
    noise(41, 30).save(tmp_path / "0.jpg")
    noise(41, 30).save(tmp_path / "1.jpg", exif=turned(6))
    noise(60, 22).save(tmp_path / "2.jpg", exif=b"Exif\x00\x00 nonsense")
    noise(23, 37).convert("RGBA").save(tmp_path / "3.png")
    noise(23, 37).save(tmp_path / "4.png", exif=turned(5))
    noise(31, 20).save(tmp_path / "5.png", pnginfo=late)
    noise(29, 50).save(tmp_path / "6.webp", exif=turned(8))
    noise(33, 21).save(tmp_path / "7.tif", tiffinfo={0x0112: 6})
    noise(19, 45).convert("P").save(tmp_path / "8.gif")
    Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30)).save(tmp_path / "9.png")
    noise(18, 18).save(tmp_path / "10.bmp")
    path = tuple(sorted((file.name for file in tmp_path.iterdir()), key=lambda name: int(name.split(".")[0])))
    return Items("mixed", np.zeros(len(path), np.int64), ("a",), path, str(tmp_path))


def boxed(mixed: Items) -> Items:
    box = np.full((len(mixed), 4), np.nan)
    box[1] = 2.5, 3, 29.5, 41  # of the turned picture, which is 30 wide
    box[7] = 0, 0, 20, 33
    return dataclasses.replace(mixed, box=box)


@pytest.mark.parametrize("side", [None, 20, 29, 1000])
def test_bytes_are_foreseen_exactly(mixed, side):
    for data in (mixed, boxed(mixed)):
        wanted = sum(pixels_of(data, row, side).size for row in range(len(data)))
        assert decoded_bytes(data, side) == wanted


def test_of_simple_pictures_only_headers_are_read(mixed, monkeypatch):
    read = []
    monkeypatch.setattr(pixels, "image_of", lambda data, row: (read.append(data.path[row]), image_of(data, row))[1])
    decoded_bytes(mixed, 20)
    assert sorted(read) == ["10.bmp", "4.png", "5.png", "7.tif", "8.gif"]


@pytest.mark.parity
def test_sizes_of_shrunk_pictures_are_torchvisions(tmp_path):
    sizes = [(wide, high) for wide in (31, 47, 100) for high in (30, 61, 333)]
    for number, (wide, high) in enumerate(sizes):
        Image.new("RGB", (wide, high)).save(tmp_path / f"{number}.png")
    names = tuple(f"{number}.png" for number in range(len(sizes)))
    mixed = Items("sizes", np.zeros(len(sizes), np.int64), ("a",), names, str(tmp_path))
    for side in (7, 13, 29):
        theirs = [functional.resize(Image.new("RGB", size), [side], antialias=True).size for size in sizes]
        assert decoded_bytes(mixed, side) == 3 * sum(wide * high for wide, high in theirs)


@pytest.mark.parametrize("workers", [-1, 0, 3])
def test_pictures_come_in_order_whoever_is_fastest(mixed, workers, monkeypatch):
    def late(data, row, side):
        time.sleep(0.03 * (row % 3 == 0))
        return pixels_of(data, row, side)

    monkeypatch.setattr(pixels, "pixels_of", late)
    monkeypatch.setattr(pixels, "PREFETCH_ITEMS", 4)
    found = list(decoded(mixed, 20, range(2, 11), workers, quiet=True))
    assert len(found) == 9
    for row, x in enumerate(found, 2):
        assert np.array_equal(x, np.array(shrink(image_of(mixed, row), 20)))


def test_no_more_than_a_few_pictures_are_held_ahead(mixed, monkeypatch):
    begun = []
    monkeypatch.setattr(pixels, "pixels_of", lambda data, row, side: begun.append(row) or np.zeros((1, 1, 3), np.uint8))
    monkeypatch.setattr(pixels, "PREFETCH_ITEMS", 3)
    pictures = decoded(mixed, None, range(11), quiet=True)
    next(pictures)
    assert max(begun) <= 3
    pictures.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


def test_a_broken_picture_is_named(mixed, tmp_path):
    (tmp_path / "3.png").write_bytes(b"no picture")
    with pytest.raises(BadImage, match=r"3\.png: this is not an image"):
        list(decoded(mixed, None, range(11), quiet=True))
    with pytest.raises(BadImage, match=r"3\.png: this is not an image"):
        decoded_bytes(mixed, None)
    with pytest.raises(BadImage, match="the box must lie inside the image"):
        decoded_bytes(dataclasses.replace(mixed, box=np.tile([0.0, 0, 35, 20], (11, 1))), None)
