import copy
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from likewise.config import Train
from likewise.types import Items, LikewiseError

from likewise import evaluate
from likewise.data import DRAWN_DATA, NAMES, glyphs, load, public_sets
from likewise.data.own_reader import check_items, is_own, parse_call
from likewise.learn.training.fit import train
from likewise.runs.scores import read_per_query


def test_every_form_is_read(tmp_path, draw, write):
    for name in ("a", "b"):
        draw(f"set/{name}/1.png")
    assert load(str(tmp_path / "set")).class_name == ("a", "b")
    assert load(write("t.csv", "path,label\nset/a/1.png,x\n")).path == ("set/a/1.png",)
    np.savez(tmp_path / "f.npz", x=np.eye(2), label=[4, 3])
    assert load(str(tmp_path / "f.npz")).y.tolist() == [1, 0]


def test_parquet_is_a_table_or_features(tmp_path):
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


OWN = '''
import numpy as np
from likewise.types import Items


def boats(root, rows: int = 96, classes: int = 12):
    """Features around one point per class."""
    rng = np.random.default_rng(0)
    y = np.arange(rows) % classes
    x = rng.normal(size=(classes, 4))[y] + 0.1 * rng.normal(size=(rows, 4))
    assert root == "harbour"
    return Items("boats", y, tuple(f"boat {c}" for c in range(classes)), x=x.astype(np.float32))


def table(root=None):
    return {"y": [1]}


DATA = 3
'''
GOOD = Items("boats", np.array([0, 1, 1]), ("a", "b"), x=np.eye(3, dtype=np.float32))


@pytest.fixture
def own(tmp_path, monkeypatch, request):
    name = f"lab_{request.node.name}".replace("[", "_").replace("]", "")
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_brackets_tell_a_reader_from_a_path():
    assert is_own("my_lab.readers.boats()") and is_own(" lab.boats(year=2020, kind='(a)') ")
    assert not any(map(is_own, ("birds.csv", "glyphs(size=3)", "lab.boats", "./lab.boats()", "a.1()", "")))


def test_a_reader_is_imported_only_with_permission(own):
    data = f"{own}.boats(rows=72)"
    with pytest.raises(LikewiseError, match="would be imported.*--allow-imports"):
        load(data, "harbour")
    assert len(load(data, "harbour", allow_imports=True)) == 72


def test_a_run_with_a_reader_and_metrics_of_ones_own_does_not_carry_the_permission(own, tmp_path, monkeypatch):
    (tmp_path / f"{own}.py").write_text(OWN.replace('assert root == "harbour"', "") + METRICS)
    own_metrics = (f"{own}.First", f"{own}.Rows()")
    settings = {
        "data": f"{own}.boats()", "root": str(tmp_path), "out": str(tmp_path / "run"), "steps": 2, "dim": 4,
        "quiet": True, "device": "cpu", "sampler": "SamplesPerClass(batch=8, per_class=2)",
        "protocol": "UnseenClasses(val=0.3)", "select": own_metrics[0], "metrics": ("R@1", *own_metrics),
    }  # fmt: skip
    with pytest.raises(LikewiseError, match="--allow-imports"):
        train(Train(**settings))
    run = train(Train(**settings, allow_imports=True))
    found = run.scores["metrics"]
    assert found[own_metrics[0]] == found["R@1"] and found[own_metrics[1]] == run.scores["rows"]
    with pytest.raises(LikewiseError, match="--allow-imports"):
        evaluate(run, quiet=True)
    assert evaluate(run, quiet=True, allow_imports=True, metrics=own_metrics)["metrics"] == {
        name: found[name] for name in own_metrics
    }
    kept = read_per_query(run.path / "per_query.parquet", "test", own_metrics[:1])  # what compare and bench read
    assert kept.each[own_metrics[0]].mean() == pytest.approx(found[own_metrics[0]])
    with pytest.raises(LikewiseError, match="--allow-imports"):
        evaluate(run.path / "embeddings.npz", quiet=True, metrics=own_metrics)
    stored = evaluate(run.path / "embeddings.npz", quiet=True, metrics=own_metrics, allow_imports=True)
    assert stored["metrics"] == pytest.approx({name: found[name] for name in own_metrics})


METRICS = """
from likewise.contracts import QueryMetric, SetMetric
from likewise.score.metrics.ranking import recall_at


class First(QueryMetric):
    def __call__(self, found):
        return recall_at(found, 1)


class Rows(SetMetric):
    def __call__(self, z, y):
        return float(len(y))
"""


def test_arguments_and_root_are_explained(own):
    for data, root, says in (
        (f"{own}.boats(rowz=3)", "harbour", r"has no argument 'rowz'; did you mean 'rows'\? It takes: root, rows, cl"),
        (f"{own}.boats()", None, "needs root; pass --root"),
        (f"{own}.boats(root='harbour')", "harbour", "has root twice"),
        (f"{own}.boats(3)", "harbour", "cannot be read.*with plain values"),
        (f"{own}.boats(rows=open('x'))", "harbour", "cannot be read"),
        (f"{own}.DATA()", None, "must be a function that returns Items, got int"),
        (f"{own}.table()", None, "must return likewise.types.Items, got a dict"),
        (f"{own}.no_such()", None, "cannot be imported"),
    ):
        with pytest.raises(LikewiseError, match=says):
            load(data, root, allow_imports=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "a/b"}, "the name is empty or a path"),
        ({"y": np.array([0.0, 1, 1])}, "y is not a vector of whole numbers"),
        ({"y": np.array([0, 1, 2])}, "y is not within 0 to 1"),
        ({"class_name": ("a", "a")}, "class_name holds a name twice"),
        ({"x": None}, "rows have neither images"),
        ({"split": np.array(["train"])}, "split does not have one entry for each of the 3 rows"),
        ({"split": np.array(["train", "dev", ""])}, "split holds a word besides"),
        ({"x": np.full((3, 2), np.nan, np.float32)}, "x is not a matrix of finite numbers"),
        ({"box": np.zeros((3, 2))}, "box does not have four numbers"),
        ({"query": np.array([0, 1, 1])}, "query is not a mask"),
    ],
)
def test_a_table_whose_columns_disagree_is_refused(change, says):
    check_items(GOOD, "reader")
    with pytest.raises(LikewiseError, match=f"reader returned a table in which {says}.*; correct the reader"):
        bad = copy.copy(GOOD)
        for name, value in change.items():
            object.__setattr__(bad, name, value)  # tests check shapes when a table is made; a user's reader does not
        check_items(bad, "reader")
