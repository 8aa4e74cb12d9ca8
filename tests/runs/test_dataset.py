"""The data of a run."""

import numpy as np
import pytest

from likewise.config import Train
from likewise.data import load
from likewise.io.files import cache_folder
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.runs.dataset import (
    absolute_path,
    check_fingerprint,
    data_folders,
    folders_in_table,
    marks_queries,
    outside_files_warning,
    protocol_for,
)
from likewise.types import Items, LikewiseError


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
    assert outside_files_warning(inside, [str(tmp_path / "data")]) == "" == outside_files_warning([], [])
    for file in (tmp_path / "data2" / "x.png", tmp_path / "x.png", tmp_path / "data" / "away" / "x.png"):
        told = outside_files_warning([*inside, str(file)], ["", str(tmp_path / "link")])
        assert told.startswith(
            f"1 of 4 images that the embeddings file names are outside of the data folders (first: {file})"
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


def test_paths_are_whole_and_other_names_stay(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert absolute_path("data") == str(tmp_path / "data") and absolute_path("cub200") == "cub200"
    assert absolute_path("hf:data?image=x") == f"hf:{tmp_path / 'data'}?image=x"


def test_data_of_another_run_is_refused(run, features):
    data = load(features)
    check_fingerprint(run, data, features)
    with pytest.raises(LikewiseError, match="must be the data that .* was trained with"):
        check_fingerprint(run, items(), "toy")


def test_the_images_of_a_table_with_whole_paths_are_in_its_folders(tmp_path):
    table = tmp_path / "audit" / "corrected.csv"
    table.parent.mkdir()
    table.write_text(f"path,label\n{tmp_path}/photos/a/1.jpg,a\n{tmp_path}/photos/b/2.jpg,b\n")
    assert data_folders(Train(str(table))) == [str(table.parent), str(tmp_path / "photos")]
    table.write_text("path,label\na/1.jpg,a\n")
    assert data_folders(Train(str(table))) == [str(table.parent)]
    assert folders_in_table(tmp_path / "gone.csv") == []
