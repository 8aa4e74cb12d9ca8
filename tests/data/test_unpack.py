"""Foreign picture tables write only below their folder of the cache, and copy only pictures of their own."""

import io
import json
import os
import re
from pathlib import Path

import pytest
from likewise.types import LikewiseError
from PIL import Image

from likewise.data import load
from likewise.data.hugging_face import SplitFiles, class_of, unpack, write_image

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def png():
    held = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(held, "PNG")
    return held.getvalue()


def table(file, path, content=None, metadata=None):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = {"image": pa.array([{"bytes": content, "path": path}], kind), "label": pa.array([0])}
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), file)
    return str(file)


def test_paths_outside_the_data_set_and_files_that_are_no_pictures_are_refused(tmp_path):
    home = tmp_path / "data"
    home.mkdir()
    (tmp_path / "secret").write_text("key")
    (tmp_path / "other.png").write_bytes(png())
    (home / "secret.png").write_text("key")
    (home / "link.png").symlink_to(tmp_path / "other.png")
    for path, words in (
        (tmp_path / "other.png", "images must lie inside the data set, but row 0 of train names '.*other.png'"),
        ("../secret", "images must lie inside the data set"),
        ("/proc/self/environ", "images must lie inside the data set"),
        ("link.png", "images must lie inside the data set"),
        ("secret.png", r"row 0 of train must name an image \(JPEG, .*\), got 'secret.png'"),
        ("a\0b", "row 0 of train has none"),
    ):
        with pytest.raises(LikewiseError, match=words):
            load(table(home / "t.parquet", str(path)))
    assert not [f for _, _, files in os.walk(tmp_path / "cache") for f in files]
    (home / "own.png").write_bytes(png())
    for path in ("own.png", str(home / "own.png")):
        items = load(table(home / "t.parquet", path))
        assert Path(items.root, items.path[0]).read_bytes() == png()


def test_an_object_may_name_pictures_anywhere_but_nothing_else(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "key").write_text("secret")
    (tmp_path / "a.png").write_bytes(png())
    assert write_image(tmp_path / "cache", "a", {"path": str(tmp_path / "a.png")}, None, "row 0") == "a.png"
    with pytest.raises(LikewiseError, match=r"row 0 must name an image"):
        write_image(tmp_path / "cache", "b", {"path": str(tmp_path / "key")}, None, "row 0")


def test_the_name_of_a_split_is_a_plain_word(tmp_path):
    for name in ("../evil", "/tmp/evil", "a/b", "..", "", "a\\b"):
        split = {name: SplitFiles({"image": "image", "label": "int64"}, "f", lambda *_: [({"bytes": png()}, 0)])}
        with pytest.raises(LikewiseError, match=f"name of a split must be a plain word, got {re.escape(repr(name))}"):
            unpack(split, "d", {})
    assert not list(tmp_path.rglob("*.png"))
    split = {"test.2-b": SplitFiles({"image": "image", "label": "int64"}, "f", lambda *_: [({"bytes": png()}, 0)])}
    assert unpack(split, "d", {}).is_file()


def test_damaged_notes_of_the_package_are_left_alone(tmp_path):
    for said in (b"[", b"[" * 10**5, b"[]", b'{"info": []}', b'{"info": {"features": [1]}}',
                 b'{"info": {"features": {"label": 3}}}', b'{"info": {"features": {"label": {"names": [1]}}}}'):  # fmt: skip
        items = load(table(tmp_path / "t.parquet", None, png(), {b"huggingface": said}))
        assert items.class_name == ("0",)
    notes = {b"huggingface": json.dumps({"info": {"features": {"label": {"names": ["ant"]}}}})}
    assert load(table(tmp_path / "t.parquet", None, png(), notes)).class_name == ("ant",)


def test_labels_must_number_a_class():
    assert class_of(1, ["a", "b"], "row 0") == (1, "b") and class_of("x", "string", "row 0") == ("x", "")
    for cell in (None, "", 2, -1, "a"):
        with pytest.raises(LikewiseError, match="every row must have a label"):
            class_of(cell, ["a", "b"], "row 0")
