"""What evaluation writes can be read again, and says where it comes from."""

import re

import numpy as np
import pytest
import torch
from likewise.types import Embedded, Items, LikewiseError
from PIL import Image

from likewise.data.augment import Plain
from likewise.data.class_folders import read_folder
from likewise.data.features import read_embeddings
from likewise.models.embedder import Embedder
from likewise.runs import embed
from likewise.runs.embed import embed_rows
from likewise.runs.embeddings import origin, rows_in, save_embeddings


def test_an_embedding_file_says_where_it_comes_from(run):
    said = origin(run.path / "embeddings.npz")
    assert said["checkpoint"] == "best" and said["similarity"] == "cosine"
    assert len(said["row"]) == run.scores["rows"]


def test_a_file_that_says_nothing_is_fine(tmp_path):
    np.savez(tmp_path / "z.npz", x=np.zeros((2, 2)))
    assert origin(tmp_path / "z.npz") == {} and origin(tmp_path / "z.npy") == {}


def test_what_others_call_so_is_no_row_and_no_word(tmp_path):
    for row in (list("abc"), np.zeros((3, 2), int), [0, 1], [4, 4, 5], [0.0, 1.0, 2.0], [-1, 0, 1]):
        np.savez(tmp_path / "z.npz", x=np.zeros((3, 2)), row=row, similarity=np.ones(3))
        said = origin(tmp_path / "z.npz")
        assert list(said) == ["row"] and rows_in(said, 3).tolist() == [0, 1, 2]
    assert rows_in({"row": np.array([7, 3, 5], np.uint8)}, 3).tolist() == [7, 3, 5]
    assert rows_in({}, 2).tolist() == [0, 1]


def test_a_way_of_comparing_that_there_is_not_is_told(tmp_path):
    np.savez(tmp_path / "z.npz", x=np.zeros((2, 2)), similarity=np.asarray("dot"))
    with pytest.raises(LikewiseError, match=r"similarity in z\.npz .* got 'dot'"):
        origin(tmp_path / "z.npz")
    (tmp_path / "z.npz").write_bytes(b"")
    with pytest.raises(LikewiseError, match=r"z\.npz is damaged .*save it again"):
        origin(tmp_path / "z.npz")


def test_who_asks_and_answers_is_what_the_protocol_said(tmp_path):
    ask, row = np.array([True, False, False]), torch.arange(3)
    items = Items("d", np.zeros(3, np.int64), ("a",), query=ask, gallery=~ask)
    e, made_by = Embedded(torch.eye(3), torch.zeros(3, dtype=torch.long), row), {"run": "r"}
    for sides, marked in ((None, ask), ((~ask, ask), ~ask), ((ask | True, ask | True), None)):
        save_embeddings(tmp_path / "z.npz", e, items, made_by, sides=sides)
        read = read_embeddings(str(tmp_path / "z.npz")).query
        assert (read is None) == (marked is None) and (marked is None or np.array_equal(read, marked))


def test_the_class_tree_is_stored(tmp_path):
    items = Items("d", np.array([0, 1, 0]), ("a", "b"), taxonomy={"a": ("top", "low"), "b": ("top",)})
    e = Embedded(torch.eye(3), torch.as_tensor(items.y), torch.arange(3))
    save_embeddings(tmp_path / "z.npz", e, items, {"run": "r"})
    assert read_embeddings(str(tmp_path / "z.npz")).taxonomy == items.taxonomy


def test_several_labels_are_stored(tmp_path):
    sets = {"label_name": ("a", "b"), "label_sets": ((0,), (0, 1))}
    items = Items("d", np.array([0, 1, 0]), ("a", "a|b"), **sets)
    e = Embedded(torch.eye(3), torch.as_tensor(items.y), torch.arange(3))
    save_embeddings(tmp_path / "z.npz", e, items, {"run": "r"})
    read = read_embeddings(str(tmp_path / "z.npz"))
    assert read.label_sets == items.label_sets and read.label_name == items.label_name and read.y.tolist() == [0, 1, 0]


def test_rows_that_cannot_be_written_are_kept_elsewhere(tmp_path, monkeypatch):
    """The folder is removed, or its disk is full, after the rows are computed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    items = Items("toy", np.array([0, 1]), ("a", "b"), path=("\udcff.png", "b.png"), root=str(tmp_path))
    e = Embedded(torch.eye(2), torch.tensor([0, 1]), torch.arange(2))
    with pytest.raises(LikewiseError, match=r"\(No such file.*\); the computed rows are in") as raised:
        save_embeddings(tmp_path / "gone" / "z.npz", e, items, {"network": "n"})
    kept = re.search(r"rows are in (\S+): ", str(raised.value))[1]
    assert read_embeddings(kept).path == (str(tmp_path / "\udcff.png"), str(tmp_path / "b.png"))


CPU = torch.device("cpu")


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    items = Items(
        name="toy", y=np.arange(30) % 5, class_name=tuple("abcde"), x=rng.normal(size=(30, 6)).astype(np.float32)
    )
    torch.manual_seed(0)
    return items, Embedder("features", 4, features=6)


def test_rows_come_in_the_order_asked_whatever_the_batch(toy, monkeypatch):
    items, network = toy
    rows = np.array([20, 3, 3, 29, 0, 11, 7])
    whole = embed_rows(network, items, rows, None, device=CPU, quiet=True)
    monkeypatch.setattr(embed, "ROWS_PER_BATCH", 2)
    parts = embed_rows(network, items, rows, None, device=CPU, quiet=True)
    assert whole.row.tolist() == rows.tolist()
    assert whole.y.tolist() == items.y[rows].tolist()
    out = network(torch.as_tensor(items.x[rows]))
    for e in (whole, parts):
        assert torch.allclose(e.z, out.z, atol=1e-6)
        assert torch.allclose(e.e, out.e, atol=1e-6)
        assert e.f is None
        assert not e.z.requires_grad
        assert e.z.dtype == torch.float32


def test_features_are_kept_on_request(toy):
    items, network = toy
    e = embed_rows(network, items, np.arange(4), None, device=CPU, features=True, quiet=True)
    assert torch.equal(e.f, torch.as_tensor(items.x[:4]))


@pytest.mark.parametrize("training", [True, False])
def test_the_network_works_in_evaluation_mode_and_gets_its_own_back(tmp_path, training, monkeypatch):
    for c in range(2):
        (tmp_path / f"c{c}").mkdir()
        for i in range(3):
            Image.new("RGB", (20, 20), (90 * c, 40 * i, 7)).save(tmp_path / f"c{c}" / f"{i}.png")
    items = read_folder(str(tmp_path))
    torch.manual_seed(0)
    network = Embedder("conv_small", 4, pretrained=False, size=16).train(training)
    before = {k: v.clone() for k, v in network.state_dict().items()}
    rows = np.arange(6)
    look = Plain(16, "none")
    six = embed_rows(network, items, rows, look, device=CPU, quiet=True)
    monkeypatch.setattr(embed, "IMAGES_PER_CPU_BATCH", 1)  # BatchNorm would differ by batch
    one = embed_rows(network, items, rows, look, device=CPU, quiet=True)
    assert torch.allclose(one.z, six.z, atol=1e-5)
    assert network.training is training
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} has changed"


def test_the_mode_comes_back_after_an_error_too(tmp_path):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.png").write_bytes(b"no picture")
    network = Embedder("conv_small", 4, pretrained=False, size=16).train()
    with pytest.raises(LikewiseError, match=r"a.png"):
        embed_rows(network, read_folder(str(tmp_path)), np.array([0]), Plain(16, "none"), device=CPU, quiet=True)
    assert network.training
