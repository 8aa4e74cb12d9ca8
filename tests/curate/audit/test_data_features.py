"""Features of an audit without training: computed once, again if data or network differ, and which network computes them."""

from dataclasses import replace

import numpy as np
import pytest
from likewise.config import Audit
from likewise.types import LikewiseError
from messy_folder import make_messy_folder

from likewise.curate.audit.data_features import FEATURES_FILE, choose_backbone, read_images, write_features
from likewise.curate.audit.source import open_subject
from likewise.models.pretrained.available import Available
from likewise.runs.embeddings import origin

CONFIG = Audit(device="cpu", quiet=True, workers=0, backbone="efficientnet_lite0")


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    return make_messy_folder(tmp_path_factory.mktemp("data") / "photos", classes=3, per_class=4)


def test_features_are_computed_once_for_the_same_images_and_network(messy, tmp_path):
    config, said = replace(CONFIG, targets=(str(messy.root),), out=str(tmp_path / "audit")), []
    subject = open_subject(config, said.append)
    assert len(subject.items) == len(messy.good) and subject.items.root == str(messy.root) and subject.title == "photos"
    assert list(subject.items.path) == messy.good  # relative to the folder, without the broken ones
    assert any("skipped 3 of" in line for line in said) and not any("used again" in line for line in said)
    file = tmp_path / "audit" / FEATURES_FILE
    before = np.load(file)["x"]
    assert before.shape == (len(messy.good), 1280) and origin(file)["network"] == "efficientnet_lite0"
    again = open_subject(config, said.append)
    assert any("used again" in line for line in said)
    assert np.array_equal(again.splits["all"].e.z.numpy(), subject.splits["all"].e.z.numpy())


def test_other_images_or_another_network_are_computed_again(messy, tmp_path, monkeypatch):
    computed = []
    monkeypatch.setattr("likewise.score.embed_data.embed", lambda config, say, items, made_by: computed.append(made_by))
    config = replace(CONFIG, targets=(str(messy.root),))
    items = read_images(config, lambda line: None)
    file = tmp_path / FEATURES_FILE

    def stored(words):
        np.savez(file, x=np.ones((len(items), 2)), label=items.y, **words)

    write_features(config, items, "efficientnet_lite0", file, print)
    stored(computed[0])
    write_features(config, items, "efficientnet_lite0", file, lambda line: None)
    assert len(computed) == 1
    write_features(config, items, "mobilenet_v2", file, print)
    stored(computed[1])
    write_features(config, replace(items, y=items.y[::-1].copy()), "mobilenet_v2", file, print)
    weights = tmp_path / "w.pth"
    weights.write_bytes(b"one")
    write_features(replace(config, weights=str(weights)), items, "mobilenet_v2", file, print)
    assert len(computed) == 4 and len({tuple(words.items()) for words in computed}) == 4


def test_the_network_is_the_given_one_or_the_best_that_can_be_had(monkeypatch):
    assert choose_backbone(CONFIG)[0] == "efficientnet_lite0"
    monkeypatch.setattr("likewise.curate.audit.data_features.available_backbone", lambda: Available("b", "because"))
    assert choose_backbone(replace(CONFIG, backbone=None)) == ("b", "because")
    with pytest.raises(LikewiseError, match="--weights needs the name of its network"):
        choose_backbone(replace(CONFIG, backbone=None, weights="w.pth"))


def test_features_without_images_are_refused(tmp_path):
    np.savez(tmp_path / "z.npz", x=np.eye(4), label=[0, 0, 1, 1])
    with pytest.raises(LikewiseError, match="holds features and no images"):
        read_images(replace(CONFIG, targets=(str(tmp_path / "z.npz"),)), print)


def test_a_bad_folder_leaves_no_audit_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(LikewiseError, match="must hold one sub-folder per class"):
        open_subject(replace(CONFIG, targets=("photos",)), print)
    assert not (tmp_path / "audit").exists()
