"""Embedding rows: the network in evaluation mode, rows in the order asked, and nothing left behind."""

import numpy as np
import pytest
import torch
from likewise.types import Items, LikewiseError
from PIL import Image

from likewise.data.augment import Plain
from likewise.data.folder import read_folder
from likewise.models.embedder import Embedder
from likewise.runs.embed import embed_rows

CPU = torch.device("cpu")


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    items = Items(
        name="toy", y=np.arange(30) % 5, class_name=tuple("abcde"), x=rng.normal(size=(30, 6)).astype(np.float32)
    )
    torch.manual_seed(0)
    return items, Embedder("features", 4, features=6)


def test_rows_come_in_the_order_asked_whatever_the_batch(toy):
    items, network = toy
    rows = np.array([20, 3, 3, 29, 0, 11, 7])
    whole = embed_rows(network, items, rows, None, device=CPU, quiet=True)
    parts = embed_rows(network, items, rows, None, device=CPU, batch=2, quiet=True)
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
def test_the_network_works_in_evaluation_mode_and_gets_its_own_back(tmp_path, training):
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
    one = embed_rows(network, items, rows, look, device=CPU, batch=1, quiet=True)  # BatchNorm would differ by batch
    six = embed_rows(network, items, rows, look, device=CPU, batch=6, quiet=True)
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
