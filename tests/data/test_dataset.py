"""The data of a run."""

import os

import numpy as np
import pytest
from likewise.config import Train
from likewise.protocols import QueryGallery, StratifiedLabels, UnseenClasses
from likewise.types import Items, LikewiseError

from likewise.core.files import cache_folder
from likewise.data import load
from likewise.data.dataset import (
    absolute_path,
    data_folders,
    folders_in_table,
    inject_noise,
    marks_queries,
    outside_files_warning,
    protocol_for,
)
from likewise.data.own_reader import check_items
from likewise.runs.open import check_fingerprint


def items(**columns):
    y = np.repeat(np.arange(10), 3)
    return Items(columns.pop("name", "toy"), y, tuple(map(str, range(10))), **columns)


def test_marks_count_only_where_some_row_has_one():
    assert not marks_queries(items()) and not marks_queries(items(query=np.zeros(30, bool)))
    assert marks_queries(items(gallery=np.arange(30) == 3))


def test_pictures_outside_the_data_are_told(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "away").symlink_to(tmp_path)
    inside = [
        str(tmp_path / "link" / "a.png"),
        str(tmp_path / "data" / "b.png"),
        str(tmp_path / "data" / "deep" / "c.png"),
    ]
    inside = [(os.path.dirname(file), 1, file) for file in inside]
    assert outside_files_warning(inside, [str(tmp_path / "data")]) == "" == outside_files_warning([], [])
    for file in (tmp_path / "data2" / "x.png", tmp_path / "x.png", tmp_path / "data" / "away" / "x.png"):
        told = outside_files_warning([*inside, (str(file.parent), 2, str(file))], ["", str(tmp_path / "link")])
        assert told.startswith(
            f"2 of 5 images that the embeddings file names are outside of the data folders (first: {file})"
        )
    for data, root, folders in (
        (str(tmp_path / "data"), None, [str(tmp_path / "data")]),
        (str(tmp_path / "t.csv"), "/r", [str(tmp_path), "/r"]),
        ("hf:lab/insects", None, [str(cache_folder())]),
    ):
        assert data_folders(Train(data=data, root=root)) == folders
    assert data_folders(None) == []


def test_the_protocol_of_data_without_settings():
    assert isinstance(protocol_for(items()), UnseenClasses)
    assert isinstance(protocol_for(items(query=np.arange(30) < 3)), QueryGallery)
    assert isinstance(protocol_for(several_labels()), StratifiedLabels)


def several_labels() -> Items:
    """Ninety samples with one to three of twelve labels."""
    rng, names = np.random.default_rng(0), tuple("abcdefghijkl")
    sets = [tuple(sorted(set(rng.integers(0, 12, rng.integers(1, 4)).tolist()))) for _ in range(90)]
    distinct = tuple(sorted(set(sets)))
    joined = tuple("|".join(names[label] for label in one) for one in distinct)
    x = rng.normal(size=(90, 2)).astype(np.float32)
    y = np.array([distinct.index(one) for one in sets])
    return Items("tags", y, joined, x=x, label_name=names, label_sets=distinct)


@pytest.mark.parametrize("noise", ["DropLabels(share=0.2)", "AddLabels(share=0.2)", "Uniform(share=0.2)"])
def test_noise_in_several_labels_makes_new_sets_and_keeps_the_true_ones(noise):
    data = several_labels()
    protocol = protocol_for(data)
    noisy = check_items(inject_noise(data, protocol, noise, seed=1), "noise")
    train = protocol.rows(data, "train")
    assert np.array_equal(noisy.y_clean, data.y) and noisy.label_name == data.label_name
    assert noisy.class_name[: data.classes] == data.class_name and noisy.classes > data.classes
    assert np.array_equal(protocol.rows(noisy, "train"), train)
    changed = np.flatnonzero(noisy.y != data.y)
    assert len(changed) > 5 and set(changed) <= set(train)
    old, new = (sum(len(one.label_sets[c]) for c in one.y) for one in (data, noisy))
    count = round(0.2 * sum(len(data.label_sets[c]) for c in data.y[train]))
    assert new - old == {"D": -count, "A": count, "U": 0}[noise[0]]


def test_noise_that_needs_single_labels_is_refused():
    data = several_labels()
    with pytest.raises(LikewiseError, match="ClassShift: needs one label per sample"):
        inject_noise(data, protocol_for(data), "ClassShift()", seed=1)
    with pytest.raises(LikewiseError, match="DropLabels: .* several labels"):
        inject_noise(items(), UnseenClasses(), "DropLabels()", seed=1)


def test_paths_are_whole_and_other_names_stay(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert absolute_path("data") == str(tmp_path / "data") and absolute_path("cub200") == "cub200"
    assert absolute_path("hf:data?image=x") == f"hf:{tmp_path / 'data'}?image=x"


def test_data_of_another_run_is_refused(run, features):
    data = load(features)
    check_fingerprint(run, data, features)
    with pytest.raises(LikewiseError, match="must be the data that .* trained"):
        check_fingerprint(run, items(), "toy")


def test_the_images_of_a_table_with_whole_paths_are_in_its_folders(tmp_path):
    table = tmp_path / "audit" / "corrected.csv"
    table.parent.mkdir()
    table.write_text(f"path,label\n{tmp_path}/photos/a/1.jpg,a\n{tmp_path}/photos/b/2.jpg,b\n")
    assert data_folders(Train(str(table))) == [str(table.parent), str(tmp_path / "photos")]
    table.write_text("path,label\na/1.jpg,a\n")
    assert data_folders(Train(str(table))) == [str(table.parent)]
    assert folders_in_table(tmp_path / "gone.csv") == []
