"""The gallery of a run: all images by default, embedded once for its network, with the classes that trained."""

import numpy as np
import pytest
from likewise.config import Search
from likewise.types import Items, LikewiseError

from likewise.deploy.index.open_index import (
    count_rows,
    gallery_of_run,
    is_current,
    open_index,
    scope_of,
    trained_classes,
    write_all,
)
from likewise.runs.open import OpenRun


def settings(run, **more):
    return Search(target=str(run.path), device="cpu", workers=0, quiet=True, **more)


def test_all_images_are_embedded_once(picture_run, monkeypatch):
    items, made_by = gallery_of_run(picture_run, settings(picture_run), print)
    assert len(items) == 36 and made_by["row"].tolist() == [*range(36)]
    assert items.split.tolist() == ["train"] * 18 + ["test"] * 18
    tested, _ = gallery_of_run(picture_run, settings(picture_run, split="test"), print)
    np.testing.assert_allclose(items.x[18:], tested.x, atol=1e-5)  # float32, in batches of other sizes
    monkeypatch.setattr(OpenRun, "embed", lambda *_, **__: pytest.fail("embedded twice"))
    again, _ = gallery_of_run(picture_run, settings(picture_run), print)
    assert np.array_equal(again.x, items.x)


def test_a_changed_network_embeds_again(picture_run):
    first, _ = gallery_of_run(picture_run, settings(picture_run), print)
    file = picture_run.path / "all_embeddings.npz"
    assert is_current(file, picture_run)
    tensors = picture_run.load_tensors("model.safetensors")
    picture_run.save_tensors("model.safetensors", {k: v.flip(0) for k, v in tensors.items()})
    assert not is_current(file, picture_run)
    second, _ = gallery_of_run(picture_run, settings(picture_run), print)
    assert is_current(file, picture_run) and not np.allclose(first.x, second.x)


def test_what_is_searched_in_words(picture_run, pictures, tmp_path):
    cases = ("all", "all of {}", "36 images, 6 classes"), ("test", "the test split of {} only", "18 images, 3 classes")
    for split, text, count in cases:
        config = settings(picture_run, split=split)
        index, network = open_index(config, print)
        assert scope_of(config, network) == text.format(pictures.name) and count_rows(index.rows) == count
        assert index.about["made_by"]["trained"] == (["0 färg", "1 färg", "2 färg"] if split == "all" else [])
    np.savez(tmp_path / "z.npz", x=np.eye(3), label=[0, 0, 0])
    config = Search(str(tmp_path / "z.npz"))
    index, network = open_index(config, print)
    assert scope_of(config, network) == "z.npz" and count_rows(index.rows) == "3 rows, 1 class"
    with pytest.raises(LikewiseError, match="search: --split test is for a run folder, but '.*z.npz' is not one"):
        open_index(Search(str(tmp_path / "z.npz"), split="test"), print)


def test_rows_of_no_split_are_not_searched(picture_run, monkeypatch):
    opened = OpenRun(picture_run, device="cpu", workers=0, quiet=True)
    rows = opened.protocol.rows
    monkeypatch.setattr(
        type(opened.protocol),
        "rows",
        lambda self, items, part: rows(items, part)[:-1] if part == "test" else rows(items, part),
    )
    write_all(opened, picture_run.path / "all_embeddings.npz")
    assert np.load(picture_run.path / "all_embeddings.npz")["row"].tolist() == [*range(35)]


def test_trained_classes():
    items = Items("toy", np.array([0, 0, 1, 2]), ("a", "b", "c"), x=np.eye(4, dtype=np.float32))
    assert trained_classes(items) == []
    split = np.array(["train", "test", "test", "train"])
    items = Items("toy", items.y, items.class_name, x=items.x, split=split)
    assert trained_classes(items) == ["a", "c"]
