"""Batches: the rows that were asked for, in their order, the same in whatever process, and errors a person can read."""

import itertools
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
import torch
from likewise.types import Items, LikewiseError
from PIL import Image
from torch.utils.data import DataLoader

from likewise.data.augment import Augment, Plain
from likewise.data.class_folders import read_folder
from likewise.data.loader import batches, choose_workers, in_order
from likewise.data.placement import hold

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path):
    """Four classes of three pictures, each of a colour that tells its row."""
    for row in range(12):
        file = tmp_path / f"class{row // 3}" / f"{row:02}.png"
        file.parent.mkdir(exist_ok=True)
        image = Image.new("RGB", (12, 10), (20 * row, 0, 100))
        image.paste((0, 200, 0), (0, 0, 6, 10))
        image.save(file)
    return tmp_path


def rows_seen(found):
    """The row that each picture's colour tells."""
    return [int(x[0, 5, 9]) // 20 for x in found.x]


@pytest.mark.parametrize("workers", [0, 2])
def test_order_is_kept_and_every_picture_has_its_own_label(folder, workers):
    items = read_folder(str(folder))
    asked = [[7, 1, 1], [0], [11, 2, 5, 8], [3, 3]]
    found = list(batches(items, asked, Plain(10, "none"), device=CPU, workers=workers))
    assert [b.row.tolist() for b in found] == asked
    for batch in found:
        assert batch.y.tolist() == items.y[batch.row.numpy()].tolist()
        assert rows_seen(batch) == batch.row.tolist()
        assert batch.x.dtype == torch.uint8
        assert batch.x.shape[1:] == (3, 10, 10)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_random_numbers_of_the_caller_are_untouched(folder, workers):
    items = read_folder(str(folder))
    before = torch.get_rng_state()
    list(batches(items, [[0, 1], [2, 3]], Augment(8, "affine"), device=CPU, workers=workers))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_picture_arrives_as_one_clean_error(folder, workers):
    items = read_folder(str(folder))
    (folder / "class1" / "04.png").write_bytes(b"no picture at all")
    feed = batches(items, [[0, 1], [3, 4, 5], [6]], Plain(8, "none"), device=CPU, workers=workers)
    assert next(feed).row.tolist() == [0, 1]
    with pytest.raises(LikewiseError) as caught:
        next(feed)
    assert "04.png" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_features_go_by_plain_indexing():
    x = np.arange(12, dtype=np.float64).reshape(6, 2).astype(np.float32)
    items = Items(name="toy", y=np.array([0, 0, 1, 1, 2, 2]), class_name=("a", "b", "c"), x=x)
    found = list(batches(items, [[5, 0], [2]], None, device=CPU, workers=3))
    assert found[0].x.tolist() == [[10, 11], [0, 1]]
    assert found[0].x.dtype == torch.float32
    assert found[0].y.tolist() == [2, 0]
    assert found[0].row.tolist() == [5, 0]
    assert found[1].row.tolist() == [2]
    assert found[1].y.dtype == torch.int64


def test_rows_may_go_on_for_ever(folder):
    items = read_folder(str(folder))
    endless = ([i % 12] for i in itertools.count())
    feed = batches(items, endless, Plain(8, "none"), device=CPU)
    assert [next(feed).row.item() for _ in range(14)] == [*range(12), 0, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_reading_ahead_stops_at_a_none(folder, workers):
    """What follows it is asked for only when the batch before it was used; numbers and order go on."""
    items = read_folder(str(folder))
    used, asked = [], []

    def rows():
        for part in range(3):
            asked.append((part, len(used)))
            yield from ([4 * part + i] for i in range(4))
            yield None

    for batch in batches(items, rows(), Plain(8, "none"), device=CPU, workers=workers):
        used.append(batch.row.item())
    assert used == list(range(12))
    assert asked == [(0, 0), (1, 4), (2, 8)]
    change = Augment(8, "crop")
    plain, paused = (
        [b.x for b in batches(items, asked, change, device=CPU, workers=workers, seed=3)]
        for asked in ([[0, 1], [2], [0, 1]], [[0, 1], None, [2], [0, 1], None])
    )
    assert len(plain) == len(paused) and all(torch.equal(a, b) for a, b in zip(plain, paused))


def test_features_pass_over_a_none():
    items = Items(name="toy", y=np.zeros(3, np.int64), class_name=("a",), x=np.ones((3, 2), np.float32))
    found = batches(items, [[0], None, [2, 1], None], None, device=CPU)
    assert [b.row.tolist() for b in found] == [[0], [2, 1]]


def test_rows_are_cut_into_batches():
    assert in_order(np.array([4, 2, 9, 1, 0]), 2) == [[4, 2], [9, 1], [0]]
    assert in_order(np.array([], int), 2) == []


def test_workers_are_chosen_from_the_cores_at_hand(monkeypatch):

    for cores, expected in [(1, 0), (2, 1), (8, 4), (64, 8)]:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, c=cores: set(range(c)), raising=False)
        assert choose_workers(-1) == expected
    assert choose_workers(3) == 3
    assert choose_workers(0) == 0


def test_what_is_kept_elsewhere_is_put_together_ahead_and_stops_at_a_none(folder):
    items = read_folder(str(folder))
    held = hold(items, np.arange(12), CPU, "disk", quiet=True)
    asked, used = [], []

    def rows():
        for number in range(12):
            if number == 8:
                yield None
            asked.append((number, len(used)))
            yield [number]

    for batch in batches(items, rows(), Plain(10, "none"), device=CPU, held=held):
        assert rows_seen(batch) == batch.row.tolist()
        used.append(batch.row.item())
    assert used == list(range(12))
    assert asked == [(n, max(0, n - 2) if n < 8 else 8 + max(0, n - 10)) for n in range(12)]


def test_any_function_of_a_picture_will_do(folder):
    items = read_folder(str(folder))

    def size_of(image):
        return torch.full((3, 2, 2), image.size[0], dtype=torch.uint8)

    found = list(batches(items, [[0, 1], [2]], size_of, device=CPU))
    assert [b.x.shape[0] for b in found] == [2, 1] and found[0].x.unique().tolist() == [12]


@pytest.mark.parametrize("loaded", [False, True])
def test_the_death_of_a_reading_process_is_told_when_a_batch_is_waited_for(folder, monkeypatch, loaded):
    """Not in the middle of a step, where torch would raise it, and not as a traceback; whoever loaded something before."""
    if loaded:
        monkeypatch.setattr(torch.utils.data._utils.signal_handling, "_SIGCHLD_handler_set", False)
        list(DataLoader(range(4), num_workers=1))
        assert signal.getsignal(signal.SIGCHLD).__module__.startswith("torch.")
    items, others = read_folder(str(folder)), set(multiprocessing.active_children())
    feed = batches(items, ([i % 12] for i in itertools.count()), Plain(8, "none"), device=CPU, workers=1)
    assert next(feed).row.tolist() == [0]
    (reader,) = set(multiprocessing.active_children()) - others
    os.kill(reader.pid, signal.SIGKILL)
    time.sleep(0.3)  # a step
    with pytest.raises(LikewiseError, match=r"was killed .* fewer --workers") as caught:
        for _ in range(9):
            next(feed)
    assert caught.value.__suppress_context__
