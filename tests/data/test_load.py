import subprocess
import sys

import numpy as np
import pytest
from likewise.types import Items, LikewiseError

from likewise.data import DRAWN_DATA, NAMES, glyphs, load, public_sets
from likewise.data.own_reader import parse_call


def test_every_form_is_read(tmp_path, draw, write):
    for name in ("a", "b"):
        draw(f"set/{name}/1.png")
    assert load(str(tmp_path / "set")).class_name == ("a", "b")
    assert load(write("t.csv", "path,label\nset/a/1.png,x\n")).path == ("set/a/1.png",)
    np.savez(tmp_path / "f.npz", x=np.eye(2), label=[4, 3])
    assert load(str(tmp_path / "f.npz")).y.tolist() == [1, 0]


def test_parquet_is_a_table_or_features(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"path": ["a.png"], "label": [3]}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"x": [[1.0, 2.0]], "label": [3]}), tmp_path / "f.parquet")
    assert load(str(tmp_path / "t.parquet")).path == ("a.png",)
    assert load(str(tmp_path / "f.parquet")).x.tolist() == [[1.0, 2.0]]


def test_a_table_takes_root(write, tmp_path):
    items = load(write("t.csv", "path,label\na.png,x\n"), root=str(tmp_path / "else"))
    assert items.root == str(tmp_path / "else")


def test_names_take_root_and_glyphs_takes_arguments(monkeypatch):
    asked = []

    def glyphs(root=None, *, size=40, per_class=24, classes=None, seed=0):
        asked.append((root, size, per_class, classes, seed))
        return Items("glyphs", np.zeros(1, np.int64), ("a",))

    fake = type(sys)("likewise.data.glyphs")
    fake.glyphs = glyphs
    monkeypatch.setitem(sys.modules, "likewise.data.glyphs", fake)
    load("glyphs")
    load("glyphs(size=32, per_class=10, classes=40)", root="/there")
    assert asked == [(None, 40, 24, None, 0), ("/there", 32, 10, 40, 0)]
    with pytest.raises(LikewiseError, match=r"'sise'; did you mean 'size'\? It takes: size,"):
        load("glyphs(sise=32)")


@pytest.mark.parametrize("text", ["glyphs(32)", "glyphs(size=f())", "glyphs(**{})", "glyphs(size=)", "(1)"])
def test_only_names_with_literals_are_parsed(text):
    with pytest.raises(LikewiseError, match="cannot be read"):
        parse_call(text)


def test_nothing_is_evaluated(tmp_path):
    with pytest.raises(LikewiseError, match="cannot be read"):
        load(f"glyphs(size=open({str(tmp_path / 'made')!r}, 'w'))")
    assert not (tmp_path / "made").exists()


def test_unknown_data_is_explained(tmp_path, refused):
    refused(
        (lambda: load("cub20"), r"'cub20' .* did you mean 'cub200'"),
        (lambda: load("/no/such"), r"'/no/such' .* DATA is .*\.npz"),
        (lambda: load("glyph(size=3)"), r"'glyph'; did you mean 'glyphs'"),
    )


def test_wrong_use_is_explained(tmp_path, write, draw, refused):
    refused(
        (lambda: load("cub200"), "cub200: root must be the folder"),
        (lambda: load("cub200(size=3)", root=str(tmp_path)), "cub200 takes no arguments, got size"),
        (lambda: load(write("notes.md", "hello")), r"notes\.md has a suffix"),
        (lambda: load(write("z.npy", "hello")), "read_embeddings"),
    )
    draw("set/a/1.png")
    with pytest.raises(LikewiseError, match="root must not be given, got '/else'"):
        load(str(tmp_path / "set"), root="/else")


def test_every_name_has_a_reader_and_a_line():
    for name, line in NAMES.items():
        assert callable(getattr(glyphs if name in DRAWN_DATA else public_sets, name))
        assert line and "\n" not in line


def test_importing_the_registry_is_light():
    code = (
        "import sys, likewise.data; print([m for m in ('torchvision', 'pyarrow', 'PIL', 'scipy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
