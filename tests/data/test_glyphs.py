"""Glyphs: same seed, same pictures; every class is a real and visible character; no half data set in the cache."""

import multiprocessing
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from likewise.types import Items, LikewiseError
from PIL import Image

from likewise.data import glyphs as module
from likewise.data import load
from likewise.data.glyphs import (
    characters,
    draw,
    face_of,
    font_files,
    glyph_labels,
    glyphs,
    homoglyphs,
    labels_of_font,
)


@pytest.fixture(scope="module")
def table():
    return module.characters()


@pytest.fixture(scope="module")
def faces(table):
    return module.font_files([code for code, *_ in table])


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Items:
    return glyphs(tmp_path_factory.mktemp("glyphs"), per_class=3, classes=24)


def contents(items: Items) -> dict[str, bytes]:
    return {file: (Path(items.root) / file).read_bytes() for file in items.path}


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_same_arguments_same_bytes(small, tmp_path):
    assert contents(glyphs(tmp_path, per_class=3, classes=24)) == contents(small)


def test_more_pictures_or_fewer_classes_keep_the_others(small, tmp_path):
    other = glyphs(tmp_path, per_class=5, classes=10)
    shared = set(other.path) & set(small.path)
    assert len(shared) == 30
    was, now = contents(small), contents(other)
    assert all(was[file] == now[file] for file in shared)
    assert other.class_name == small.class_name[:10]
    assert other.split[::5].tolist() == small.split[::3][:10].tolist()


def test_pictures_of_a_class_differ(small):
    assert len(set(contents(small).values())) == len(small)


def test_seed_changes_every_picture_but_not_the_table(small, tmp_path):
    other = glyphs(tmp_path, per_class=3, classes=24, seed=1)
    was, now = contents(small), contents(other)
    assert was.keys() == now.keys() and all(was[file] != now[file] for file in was)
    assert other.class_name == small.class_name and (other.split == small.split).all()


@pytest.mark.slow
@pytest.mark.process
def test_many_processes_draw_what_one_does(tmp_path, monkeypatch):
    many = glyphs(tmp_path / "many", size=8, per_class=50, classes=24)  # enough pictures to be worth a pool
    monkeypatch.setattr(module.sys, "platform", "elsewhere")
    one = glyphs(tmp_path / "one", size=8, per_class=50, classes=24)
    assert contents(many) == contents(one)
    assert listing(tmp_path / "many") == [Path(many.root).name]


@pytest.mark.parametrize("size", [8, 33, 40])
def test_pictures_have_the_size_and_are_rgb(tmp_path, size):
    items = glyphs(tmp_path, size=size, per_class=2, classes=16)
    for file in items.path:
        with Image.open(Path(items.root) / file) as picture:
            assert (picture.format, picture.mode, picture.size) == ("PNG", "RGB", (size, size))


def test_default_table_is_large_and_split_in_every_alphabet(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_draw_all", lambda *_: None)  # the table without the pictures
    items = glyphs(tmp_path)
    counts = np.bincount(items.y, minlength=items.classes)
    assert items.classes >= 200 and counts.min() >= 20
    assert len(items) == len(items.path) == len(items.split) == len(set(items.path))
    assert len(set(items.class_name)) == items.classes
    train, test = (set(items.y[items.split == part].tolist()) for part in ("train", "test"))
    assert not train & test and train | test == set(range(items.classes))
    assert set(items.taxonomy) == set(items.class_name)
    for kind in set(items.taxonomy.values()):
        of_kind = [y for y, name in enumerate(items.class_name) if items.taxonomy[name] == kind]
        assert abs(len(train.intersection(of_kind)) - len(test.intersection(of_kind))) <= 1
        assert len(kind) == 2 and kind[1].startswith(kind[0])
    assert len({script for script, _ in items.taxonomy.values()}) >= 6


def test_few_classes_are_balanced(table):
    for count in (2, 10, 16, 100):
        parts = [split for *_, split in table[:count]]
        assert abs(parts.count("train") - parts.count("test")) <= 1
    assert {script for _, script, *_ in table[:16]} == {script for _, script, *_ in table}


def test_names_say_the_character(small):
    for y, name in enumerate(small.class_name):
        code, character = name.split(" ")
        assert code == f"U+{ord(character):04X}" and character.isprintable()
        assert small.path[3 * y].startswith(f"{code}/")


def test_homoglyphs_hold_the_letters_that_look_the_same(table):
    names = tuple(f"U+{code:04X} {chr(code)}" for code, *_ in table)
    groups = homoglyphs(Items(name="glyphs", y=np.arange(len(names)), class_name=names))
    texts = [{chr(table[y][0]) for y in group} for group in groups]
    assert {"A", "\u0391", "\u0410"} in texts  # Latin, Greek Alpha, Cyrillic A
    assert any({"o", "\u03bf", "\u043e"} <= text for text in texts)
    assert not any({"O", "o"} <= text or {"A", "\u039b"} <= text for text in texts)
    members = [y for group in groups for y in group]
    assert len(members) == len(set(members)) and min(map(len, groups)) >= 2


def test_homoglyphs_of_other_items_are_refused():
    with pytest.raises(LikewiseError, match="homoglyphs: .* got 'Wren'"):
        homoglyphs(Items(name="birds", y=np.arange(2), class_name=("Wren", "Robin")))


def test_every_face_draws_the_character_and_not_a_box(table, faces):
    boxes = {file: module.outline(file, "\U0010fffd") for files in faces.values() for file in files}
    assert len(boxes) >= 16
    for code, *_ in table:
        for file in faces[code]:
            drawn = module.outline(file, chr(code))
            assert drawn != boxes[file], f"{Path(file).name} has no U+{code:04X}"
            assert any(drawn.split(b")", 1)[1]), f"{Path(file).name} draws nothing for U+{code:04X}"


def test_glyph_is_seen_on_its_background(table, faces):
    for number, (code, *_) in enumerate(table):
        rng = np.random.default_rng((0, code, number))
        face = faces[code][int(rng.random() * len(faces[code]))]
        state = rng.bit_generator.state
        ink = module._shape(chr(code), face, 40, rng)
        x = np.asarray(module._paint(ink, rng), int)
        assert (x == np.asarray(module.draw(0, code, number, 40, faces[code]), int)).all()
        rng.bit_generator.state = state  # the same lines, light and grain, and a space in place of the character
        empty = np.asarray(module._paint(module._shape(" ", face, 40, rng), rng), int)
        seen = np.abs(x - empty).max(2) > 30
        assert seen.sum() >= 20, f"U+{code:04X} picture {number}: {seen.sum()} pixels of 1600 show it"
        edge = np.concatenate([ink[0], ink[-1], ink[:, 0], ink[:, -1]])
        assert (edge > 0.5).mean() < 0.25, f"U+{code:04X} picture {number} is cut off"


def test_second_call_reads_the_cache(small, monkeypatch):
    monkeypatch.setattr(module, "draw", lambda *_: pytest.fail("drawn again"))
    again = glyphs(Path(small.root).parent, per_class=3, classes=24)
    assert again.root == small.root and again.path == small.path and (again.y == small.y).all()


def test_every_parameter_has_its_own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_draw_all", lambda *_: None)
    few = {"size": 9, "per_class": 2, "classes": 4, "seed": 0}
    changed = ({}, {"size": 10}, {"per_class": 3}, {"classes": 5}, {"seed": 1})
    roots = [glyphs(tmp_path, **(few | change)).root for change in changed]
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    assert len({*roots, glyphs(tmp_path, **few).root}) == 6


def test_default_root_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    items = glyphs(size=8, per_class=2, classes=2)
    assert Path(items.root).parent == tmp_path / "likewise" and Path(items.root).name.startswith("glyphs-")


def fail_after(count: int, fail):
    drawn = iter(range(count))
    draw = module.draw

    def failing(*arguments):
        if next(drawn, None) is None:
            fail()
        return draw(*arguments)

    return failing


def interrupt():
    raise KeyboardInterrupt


def test_interrupted_drawing_leaves_nothing(tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "draw", fail_after(5, interrupt))
        glyphs(tmp_path, size=8, per_class=3, classes=4)
    assert listing(tmp_path) == []
    items = glyphs(tmp_path, size=8, per_class=3, classes=4)
    assert len(contents(items)) == 12


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_failure_in_a_worker_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "draw", fail_after(10, interrupt))
    with pytest.raises(KeyboardInterrupt):
        glyphs(tmp_path, size=8, per_class=100, classes=12)
    assert listing(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
def test_killed_drawing_is_not_taken_for_whole(tmp_path, monkeypatch):
    def killed():
        module.draw = fail_after(5, lambda: os._exit(9))
        glyphs(tmp_path, size=8, per_class=3, classes=4)

    child = multiprocessing.get_context("fork").Process(target=killed)
    child.start()
    child.join()
    (left,) = listing(tmp_path)  # a killed process cannot tidy up, but what it leaves does not have the name
    assert child.exitcode == 9 and left.startswith(".")
    items = glyphs(tmp_path, size=8, per_class=3, classes=4)
    assert len(contents(items)) == 12
    assert (tmp_path / left).exists()  # it may still be at work
    long_ago = time.time() - 7200
    os.utime(tmp_path / left, (long_ago, long_ago))
    (Path(items.root) / items.path[0]).unlink()
    glyphs(tmp_path, size=8, per_class=3, classes=4)
    assert listing(tmp_path) == [Path(items.root).name]


@pytest.mark.parametrize("spoil", [os.unlink, lambda file: Path(file).write_bytes(b"")])
def test_cache_with_a_lost_picture_is_drawn_again(tmp_path, spoil):
    items = glyphs(tmp_path, size=8, per_class=3, classes=4)
    whole = contents(items)
    spoil(Path(items.root) / items.path[7])
    assert contents(glyphs(tmp_path, size=8, per_class=3, classes=4)) == whole
    assert listing(tmp_path) == [Path(items.root).name]


def test_two_processes_at_once_agree(tmp_path, monkeypatch):
    draw_class = module._draw_class

    def overtaken(*arguments):  # while this call draws, another one begins and ends
        monkeypatch.setattr(module, "_draw_class", draw_class)
        glyphs(tmp_path, size=8, per_class=3, classes=4)
        draw_class(*arguments)

    monkeypatch.setattr(module, "_draw_class", overtaken)
    items = glyphs(tmp_path, size=8, per_class=3, classes=4)
    assert len(contents(items)) == 12 and listing(tmp_path) == [Path(items.root).name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 7}, "size must be between 8 and 1024, got 7"),
        ({"size": 32.5}, "size must be .*, got 32.5"),
        ({"per_class": 1}, "per_class must be between 2 and .*, got 1"),
        ({"classes": 1}, "classes must be at least 2 or None, got 1"),
        ({"classes": 100_000}, "classes must be .*, got 100000"),
        ({"classes": True}, "classes must be .*, got True"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_bad_arguments_say_what_holds(tmp_path, unchecked, arguments, message):
    with pytest.raises(LikewiseError, match="glyphs: " + message):
        glyphs(tmp_path, **arguments)
    assert listing(tmp_path) == []


def test_labels_follow_from_character_and_font(tmp_path):
    items, plain = (
        glyph_labels(tmp_path, size=16, per_class=3, classes=40),
        glyphs(tmp_path, size=16, per_class=3, classes=40),
    )
    assert items.path == plain.path and items.split.tolist() == plain.split.tolist() and items.taxonomy is None
    table = characters()[:40]
    for row in range(0, len(items), 7):
        code, script, kind, _ = table[row // 3]
        names = {items.label_name[label] for label in items.label_sets[items.y[row]]}
        assert {script, kind} <= names and (chr(code) in names or chr(code).lower() in names)
        assert len(names & {"sans", "serif", "monospaced"}) == 1
        assert (
            "|".join(items.label_name[label] for label in items.label_sets[items.y[row]])
            == items.class_name[items.y[row]]
        )
    assert not set(items.y[items.split == "train"]) & set(items.y[items.split == "test"])


def test_the_font_is_the_one_that_is_drawn():
    """Both take the first random number of the image: with one font at a time, only the right one draws the same image."""
    faces = font_files([65])[65]
    face = face_of(0, 65, 4, faces)
    assert faces.count(face) == 1
    rng = np.random.default_rng((0, 65, 4))
    assert face == faces[int(rng.random() * len(faces))]
    whole, alone = (np.asarray(draw(0, 65, 4, 24, some)) for some in (faces, (face,)))
    assert (whole == alone).all()


@pytest.mark.parametrize(
    ("font", "labels"),
    [("DejaVuSans-BoldOblique", ("sans", "bold", "italic")), ("DejaVuSansMono", ("monospaced",)),
     ("STIXGeneralBolIta", ("serif", "bold", "italic")), ("cmb10", ("serif", "bold")), ("cmti10", ("serif", "italic")),
     ("cmtt10", ("monospaced",)), ("cmss10", ("sans",))],
)  # fmt: skip
def test_labels_of_fonts(font, labels):
    assert labels_of_font(font) == labels


def test_it_is_a_named_data_set(tmp_path):
    items = load("glyph_labels(size=16, per_class=2, classes=4)", str(tmp_path))
    assert (items.name, len(items)) == ("glyph_labels", 8)
