"""Tables of Hugging Face: pictures keep their bytes, labels their names, and what is missing is said."""

import io
import os

import numpy as np
import pytest
from likewise.config import Evaluate, Report, Search
from likewise.types import LikewiseError
from PIL import Image

import likewise
from likewise.data import load
from likewise.data.hugging_face import from_object, parse
from likewise.deploy.index.search_index import search
from likewise.report.report_target import open_target
from likewise.score.evaluate import evaluate

datasets = pytest.importorskip("datasets")
NAMES = ["ant", "bee", "cat"]


def picture(seed, kind="JPEG"):
    """The bytes of a small picture, a colour for each of three classes."""
    noise = np.random.default_rng(seed).integers(0, 60, (16, 16, 3))
    noise[..., seed % 3] += 150
    held = io.BytesIO()
    Image.fromarray(noise.astype(np.uint8)).save(held, kind)
    return held.getvalue()


def make(rows=range(12), label="label", **more):
    features = {"image": datasets.Image(), label: datasets.ClassLabel(names=NAMES)}
    columns = {"image": [{"bytes": picture(r), "path": None} for r in rows], label: [r % 3 for r in rows]}
    for name, (feature, values) in more.items():
        features[name], columns[name] = feature, values
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def contents(items):
    return [open(os.path.join(items.root, file), "rb").read() for file in items.path]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_saved_dataset_keeps_bytes_and_names(tmp_path):
    make().save_to_disk(str(tmp_path / "insects"))
    items = load(str(tmp_path / "insects"))
    assert items.name == "insects" and items.class_name == tuple(NAMES) and items.split is None
    assert items.y.tolist() == [0, 1, 2] * 4 and contents(items) == [picture(r) for r in range(12)]
    assert items.path[3] == "train/000003.jpeg"


def test_splits_train_validate_and_test(tmp_path):
    whole = datasets.DatasetDict(train=make(range(6)), validation=make(range(6, 9)), test=make(range(9, 12)))
    whole.save_to_disk(str(tmp_path / "insects"))
    items = load(str(tmp_path / "insects"))
    assert items.split.tolist() == ["train"] * 6 + ["val"] * 3 + ["test"] * 3
    assert contents(items) == [picture(r) for r in range(12)]
    some = load(f"hf:{tmp_path / 'insects'}?split=train,test")
    assert some.split.tolist() == ["train"] * 6 + ["test"] * 3
    assert load(f"hf:{tmp_path / 'insects'}?split=test").split is None
    with pytest.raises(LikewiseError, match="no split 'tset'; did you mean 'test'"):
        load(f"hf:{tmp_path / 'insects'}?split=tset")
    whole["extra"] = whole.pop("validation")
    with pytest.raises(LikewiseError, match=r"got 'extra'.*split=train,test"):
        from_object(whole)


def test_a_parquet_file_with_pictures_needs_no_package(tmp_path, monkeypatch):
    file = tmp_path / "insects.parquet"
    make().to_parquet(str(file))
    monkeypatch.setattr("likewise.data.hugging_face.package", lambda: pytest.fail("the package was asked for"))
    items = load(str(file))
    assert items.class_name == tuple(NAMES) and contents(items) == [picture(r) for r in range(12)]


def test_words_as_labels_files_as_pictures_and_other_formats(tmp_path):
    (tmp_path / "a.PNG").write_bytes(picture(0, "PNG"))
    held = [{"bytes": None, "path": str(tmp_path / "a.PNG")}, {"bytes": picture(1, "WEBP"), "path": "b.webp"}]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")})
    items = load(from_object(datasets.Dataset.from_dict({"image": held, "label": ["b", "a"]}, features=features)))
    assert items.class_name == ("a", "b") and items.y.tolist() == [1, 0]
    assert items.path == ("train/000000.png", "train/000001.webp")
    assert contents(items) == [picture(0, "PNG"), picture(1, "WEBP")]


def test_columns_are_named_where_there_are_several(tmp_path):
    many = {"coarse": (datasets.ClassLabel(names=["x", "y"]), [r % 2 for r in range(12)])}
    many["thumb"] = (datasets.Image(), [{"bytes": picture(r + 50), "path": None} for r in range(12)])
    make(label="fine", **many).save_to_disk(str(tmp_path / "d"))
    with pytest.raises(LikewiseError, match=r"several, image, thumb; name it: \?image="):
        load(str(tmp_path / "d"))
    items = load(f"hf:{tmp_path / 'd'}?image=thumb&label=coarse")
    assert items.class_name == ("x", "y") and contents(items)[0] == picture(50)


def test_it_is_unpacked_once_and_taken_up_where_it_was_left(tmp_path, monkeypatch):
    whole = make()
    table = from_object(whole)
    os.unlink(table)
    folder = os.path.dirname(table)
    with open(f"{folder}/train/000004.jpeg", "wb") as cut:
        cut.write(b"half")
    os.unlink(f"{folder}/train/000005.jpeg")
    written, real = [], os.replace
    monkeypatch.setattr("os.replace", lambda a, b: (written.append(os.path.basename(b)), real(a, b)))
    assert from_object(whole) == table and contents(load(table)) == [picture(r) for r in range(12)]
    assert written == ["000004.jpeg", "000005.jpeg", os.path.basename(table)]
    assert from_object(whole) == table and len(written) == 3
    assert from_object(make(range(1, 13))) != table


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"text": ["a"]}, "must hold the image, but there are none among text"),
        ({"image": [{"bytes": picture(0), "path": None}]}, r"none among image; name it"),
        ({"image": [{"bytes": picture(0), "path": None}], "label": [0.5]}, "label must be classes"),
        ({"image": [None], "label": [1]}, "row 0 of train has none"),
        ({"image": [{"bytes": picture(0), "path": None}], "label": [None]}, "got None in row 0 of train"),
    ],
)
def test_what_is_missing_is_said(columns, words):
    kinds = {"image": datasets.Image(), "text": datasets.Value("string"), "label": datasets.Value("int64")}
    if columns.get("label") == [0.5]:
        kinds["label"] = datasets.Value("float32")
    features = datasets.Features({name: kinds[name] for name in columns})
    with pytest.raises(LikewiseError, match=words):
        from_object(datasets.Dataset.from_dict(columns, features=features))


def test_other_mistakes_are_said(tmp_path):
    make().save_to_disk(str(tmp_path / "d"))
    unlabelled = make().cast_column("label", datasets.Value("int64")).map(lambda row: {"label": -1})
    for data, words in (
        (f"hf:{tmp_path / 'd'}?label=lable", "no column 'lable'; did you mean 'label'"),
        (f"hf:{tmp_path / 'd'}?image=label", "column 'label' must hold images"),
        (f"hf:{tmp_path / 'd'}?label=image", "got 'image' with image"),
        (f"hf:{tmp_path / 'no'}", "must be a folder written by save_to_disk"),
    ):
        with pytest.raises(LikewiseError, match=words):
            load(data)
    with pytest.raises(LikewiseError, match="root must not be given, got 'x'"):
        load(str(tmp_path / "d"), "x")
    with pytest.raises(LikewiseError, match="got -1 in row 0 of train; select"):
        from_object(unlabelled.cast_column("label", datasets.ClassLabel(names=NAMES)))
    with pytest.raises(LikewiseError, match="got IterableDataset; load"):
        from_object(make().to_iterable_dataset())


def test_the_hub_is_asked_by_name_and_config(monkeypatch):
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *words: asked.append(words) or make())
    assert load("hf:lab/insects:small?label=label").name == "lab-insects-small" and asked == [("lab/insects", "small")]

    def fail(*_):
        raise ConnectionError("no network\nat all")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(LikewiseError, match=r"'lab/insects' must be .*\(no network\)"):
        load("hf:lab/insects")


def test_a_run_does_not_make_others_contact_a_hub(monkeypatch, tmp_path):
    """It may be a stranger's: only the cache is looked into, until the user names the data himself."""
    from huggingface_hub import constants

    asked = []

    def load_dataset(*words):
        asked.append((words, constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE))
        if not cached:
            raise ConnectionError("offline")
        return make(range(24))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    cached, names = (
        True,
        {"backbone": "conv_small", "size": 16, "dim": 8, "steps": 1, "augment": "none", "workers": 0},
    )
    names |= {"device": "cpu", "sampler": "SamplesPerClass(batch=4, per_class=2)", "protocol": "SeenClasses()"}
    monkeypatch.setattr("likewise.models.pretrained.weights.is_reachable", lambda address: True)
    run = likewise.train("hf:lab/insects", out=tmp_path / "run", metrics=("R@1",), quiet=True, **names)
    assert asked == [(("lab/insects", None), False, False)]
    monkeypatch.setattr(
        "likewise.models.pretrained.weights.is_reachable", lambda address: pytest.fail("the hub was contacted")
    )
    how = {"target": str(run.path), "metrics": ("R@1",), "device": "cpu", "workers": 0, "quiet": True}
    evaluate(Evaluate(**how))
    assert asked[-1] == (("lab/insects", None), True, True)
    cached = False
    with pytest.raises(LikewiseError, match="got 'hf:lab/insects'; .* --data"):
        evaluate(Evaluate(**how))
    (run.path / "embeddings.npz").unlink()
    with pytest.raises(LikewiseError, match="must be in the cache"):
        search(Search(target=str(run.path), query="0", device="cpu", workers=0, quiet=True))
    settings = Report((str(run.path),), device="cpu", workers=0, quiet=True)
    notes = open_target(str(run.path), "run", settings, {}, print).notes
    assert any("data could not be opened" in note and "--data hf:lab/insects" in note for note in notes)
    assert all(hub and package for _, hub, package in asked[1:]) and not constants.HF_HUB_OFFLINE
    cached = True
    monkeypatch.setattr("likewise.models.pretrained.weights.is_reachable", lambda address: True)
    evaluate(Evaluate(**how, data="hf:lab/insects"))
    assert asked[-1] == (("lab/insects", None), False, False)


def test_the_notation_by_hand():
    assert parse("hf:a/b:c?image=i&label=l") == ("a/b:c", {"image": "i", "label": "l"})
    for wrong in ("hf:a?imag=i", "hf:a?image", "hf:a?image=", "hf:"):
        with pytest.raises(LikewiseError, match="write it as|Write it as"):
            parse(wrong)


def test_it_trains_and_is_evaluated_again(tmp_path):
    how = {"backbone": "conv_small", "size": 16, "dim": 8, "steps": 4, "augment": "none", "workers": 0, "quiet": True}
    how |= {
        "metrics": ("R@1",),
        "device": "cpu",
        "sampler": "SamplesPerClass(batch=4, per_class=2)",
        "protocol": "SeenClasses()",
    }
    run = likewise.train(make(range(24)), out=tmp_path / "run", **how)
    again = evaluate(Evaluate(target=str(run.path), metrics=("R@1",), device="cpu", workers=0, quiet=True))
    assert again["metrics"] == run.scores["metrics"] and run.about["config"]["data"].endswith(".csv")


def test_lists_of_labels_become_several_labels(tmp_path):
    kind, cells = datasets.Sequence(datasets.ClassLabel(names=NAMES)), [[r % 3, (r + r // 6) % 3] for r in range(12)]
    made = make(tags=(kind, cells)).remove_columns("label")
    made.save_to_disk(str(tmp_path / "insects"))
    made.to_parquet(str(tmp_path / "insects.parquet"))
    for items in (load(str(tmp_path / "insects")), load(str(tmp_path / "insects.parquet")), load(from_object(made))):
        assert items.label_name == tuple(NAMES) and items.class_name == (
            "ant",
            "ant|bee",
            "ant|cat",
            "bee",
            "bee|cat",
            "cat",
        )
        found = [sorted(items.class_name[c].split("|")) for c in items.y]
        assert found == [sorted({NAMES[c] for c in cell}) for cell in cells]
    words = make(label="other", labels=(datasets.Sequence(datasets.Value("string")), [["a", "b"], ["b"]] * 6))
    items = load(from_object(words.remove_columns("other")))
    assert items.class_name == ("a|b", "b")
    for cell, says in (([], "every row must have a label, got None"), (["a|b"], "a label must not hold '|'")):
        bad = make(label="other", labels=(datasets.Sequence(datasets.Value("string")), [cell] * 12))
        with pytest.raises(LikewiseError, match=says.replace("|", r"\|")):
            from_object(bad.remove_columns("other"))
