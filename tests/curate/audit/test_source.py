"""What an audit looks at: parts that are disjoint and complete, labels numbered, and files that cannot be audited."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from likewise.config import Audit, Train
from likewise.types import LikewiseError
from messy_folder import make_messy_folder
from torch.nn import functional as F

from likewise.core.files import write_csv
from likewise.curate.audit.audit import audit
from likewise.curate.audit.read import read_findings
from likewise.curate.audit.source import (
    BROKEN_FILE,
    FEATURES_FILE,
    UNSPLIT_NAME,
    choose_backbone,
    open_subject,
    read_images,
    write_features,
)
from likewise.curate.review.consensus import corrected
from likewise.curate.review.store import Decision
from likewise.data import load
from likewise.data.dataset import make_protocol
from likewise.learn.training.fit import train
from likewise.models.pretrained.available import Available
from likewise.runs.embeddings import origin
from likewise.runs.open import OpenRun, read_config


def opened(target, **changes):
    return open_subject(
        Audit(targets=(str(target),), device="cpu", workers=0, quiet=True, **changes), lambda text: None
    )


def test_a_run(run):
    found = opened(run.path)
    items, protocol = load(read_config(run).data), make_protocol(read_config(run))
    assert list(found.splits) == ["train", "val", "test"] and found.linear and found.notes == []
    for name, part in found.splits.items():
        rows = protocol.rows(items, name)
        assert np.array_equal(part.e.row, rows)
        assert [part.names[c] for c in part.e.y] == [items.class_name[c] for c in items.y[rows]]
        assert set(part.e.y.tolist()) == set(range(len(part.names)))
        torch.testing.assert_close(part.e.z, F.normalize(part.e.e, dim=1))
    head = OpenRun(run, device="cpu").network.head.fc
    train_part = found.splits["train"].e
    torch.testing.assert_close(F.linear(train_part.f, head.weight, head.bias), train_part.e)
    assert found.loss(train_part.z, train_part.y).shape == train_part.y.shape


def test_features_are_what_the_head_sees(features, settings):
    """With layer_norm too, which comes between the pooled feature and the head."""
    run = train(Train(**settings | {"layer_norm": True, "steps": 3, "evaluate": False}))
    found = opened(run.path)
    head, e = OpenRun(run, device="cpu").network.head.fc, found.test.e
    torch.testing.assert_close(F.linear(e.f, head.weight, head.bias), e.e)


def test_training_samples_that_answer_stay_in_their_part(features, settings):
    run = train(Train(**settings | {"protocol": "SeenClasses(gallery='train')", "steps": 3, "evaluate": False}))
    found = opened(run.path)
    rows = [part.e.row.tolist() for part in found.splits.values()]
    assert sorted(sum(rows, [])) == list(range(288)) and len(found.test.e.row) == 288
    assert len(found.splits["test"].e.row) < 288


def test_a_network_that_diverged(run):
    from safetensors.torch import load_file, save_file

    for file in run.path.glob("*.safetensors"):
        tensors = load_file(file)
        save_file({k: v * torch.nan if k == "embedder.head.fc.bias" else v for k, v in tensors.items()}, file)
    with pytest.raises(LikewiseError, match=r"288 are not \(first: row 0\)"):
        opened(run.path)


def save(folder, x, **columns):
    np.savez(folder / "z.npz", x=x, **columns)
    return folder / "z.npz"


def test_embeddings(tmp_path):
    x = np.random.default_rng(0).normal(size=(8, 3)) * 5
    labels = ["b", "a"] * 4
    found = opened(save(tmp_path, x, label=labels))
    assert (
        list(found.splits) == [UNSPLIT_NAME]
        and found.test is found.splits[UNSPLIT_NAME]
        and found.splits[UNSPLIT_NAME].names == ("a", "b")
    )
    assert found.test.e.y.tolist() == [1, 0] * 4 and found.loss is None and found.run is None
    torch.testing.assert_close(found.test.e.z.norm(dim=1), torch.ones(8))
    split = ["train", "train", "train", "", "val", "test", "test", "test"]
    found = opened(save(tmp_path, x, label=labels, split=split))
    assert {name: part.e.row.tolist() for name, part in found.splits.items()} == {
        "train": [0, 1, 2], "val": [4], "test": [5, 6, 7],
    }  # fmt: skip
    assert any("1 of 8 rows are junk or have no split" in note for note in found.notes)
    (tmp_path / "new.csv").write_text("label\n" + "c\n" * 4 + "d\n" * 4)
    found = opened(tmp_path / "z.npz", labels=str(tmp_path / "new.csv"))
    assert found.items.class_name == ("c", "d") and list(found.splits) == ["train", "val", "test"]
    assert any(note.startswith(f"labels are read from {tmp_path / 'new.csv'}") for note in found.notes)
    found = opened(save(tmp_path, x, label=labels, similarity="euclidean"))
    assert any("trained for raw distances" in note for note in found.notes)


def test_what_cannot_be_audited(run, tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 3))
    file, label = save(tmp_path, x, label=[0, 0, 1, 1]), [0, 0, 1, 1]
    for name, value in (("data", "x"), ("checkpoint", "last"), ("verify", True), ("retrain", True)):
        with pytest.raises(LikewiseError, match=f"--{name} must be used with a run"):
            opened(file, **{name: value})
    with pytest.raises(LikewiseError, match="--labels must be used with"):
        opened(run.path, labels="x.csv")
    for targets in ((), ("a", "b")):
        with pytest.raises(LikewiseError, match=f"got {len(targets)}; use --overlap"):
            open_subject(Audit(targets=targets), print)
    with pytest.raises(LikewiseError, match="'nowhere' is neither"):
        opened("nowhere", backbone="efficientnet_lite0")
    for target in (run.path, file):
        with pytest.raises(LikewiseError, match="--backbone must be used with data"):
            opened(target, backbone="efficientnet_lite0")
    x[2] = 0
    with pytest.raises(LikewiseError, match=r"1 of 4 are \(first: row 2\)"):
        opened(save(tmp_path, x, label=label))
    with pytest.raises(LikewiseError, match="must have two samples or more, got 1"):
        opened(save(tmp_path, x[:2], label=label[:2], split=["train", "test"]))


def test_data_that_changed(run, tmp_path):
    config = json.loads((run.path / "config.json").read_text())
    np.savez(tmp_path / "other.npz", x=np.eye(12), label=np.repeat(np.arange(4), 3))
    with pytest.raises(LikewiseError, match="data that .* was trained with"):
        opened(run.path, data=str(tmp_path / "other.npz"))
    config["config"]["data"] = str(tmp_path / "gone.npz")
    (run.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(LikewiseError, match="neither a known name nor"):
        opened(run.path)


def test_rows_of_one_group_or_of_two_are_audited_without_evidence(tmp_path):
    """A fold that leaves out a group leaves no samples to compare with."""
    x = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
    for groups in (1, 2, 4):
        np.savez(tmp_path / "z.npz", x=x, label=np.arange(24) % 4, group=np.arange(24) % groups)
        found = audit(Audit((str(tmp_path / "z.npz"),), out=str(tmp_path / "a"), device="cpu", quiet=True), list)
        assert found.about["parts"]["all"]["states"]["unknown"] == 24


def test_junk_alone_cannot_be_audited(tmp_path):
    np.savez(tmp_path / "z.npz", x=np.eye(6), label=np.arange(6) % 2, junk=np.ones(6, bool))
    with pytest.raises(LikewiseError, match="all 6 rows of 'z' are junk"):
        opened(tmp_path / "z.npz")


def test_the_votes_and_the_folder_are_checked_before_the_network_runs(run, tmp_path, monkeypatch):
    monkeypatch.setattr(OpenRun, "embed", lambda *_, **__: pytest.fail("the network ran"))
    (tmp_path / "taken").touch()
    with pytest.raises(LikewiseError, match="--out must be a folder, got '.*taken'"):
        opened(run.path, out=str(tmp_path / "taken"))
    with pytest.raises(LikewiseError, match="nothing.csv cannot be read"):
        opened(run.path, out=str(tmp_path / "a"), votes=str(tmp_path / "nothing.csv"))


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
    assert any(line.endswith(f"the whole list: {tmp_path / 'audit' / BROKEN_FILE}") for line in said)
    listed = (tmp_path / "audit" / BROKEN_FILE).read_text("utf-8").splitlines()
    assert listed[0] == "row,path,reason" and len(listed) == 1 + 3
    file = tmp_path / "audit" / FEATURES_FILE
    before = np.load(file)["x"]
    assert before.shape == (len(messy.good), 1280) and origin(file)["network"] == "efficientnet_lite0"
    again = open_subject(config, said.append)
    assert any("used again" in line for line in said)
    assert np.array_equal(again.splits["all"].e.z.numpy(), subject.splits["all"].e.z.numpy())


def test_other_images_or_another_network_are_computed_again(messy, tmp_path, monkeypatch):
    computed = []
    monkeypatch.chdir(tmp_path)
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
    monkeypatch.setattr("likewise.curate.audit.source.available_backbone", lambda: Available("b", "because"))
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


def test_a_table_keeps_its_columns_for_the_corrected_table(messy, tmp_path):
    """The last line of the table is a broken image, which is no row; the junk row is not audited, and stays."""
    words = {name: str(number) for number, name in enumerate(sorted({path.split("/")[0] for path in messy.good}), 3)}
    classes = [path.split("/")[0] for path in messy.good]
    lines = [
        [path, words[name], name, f"{n}.50", int(n == 2)] for n, (path, name) in enumerate(zip(messy.good, classes))
    ]
    head = ("path", "label", "class_name", "price", "junk")
    write_csv(tmp_path / "shop.csv", head, [*lines, [messy.broken[0], *lines[0][1:]]])
    out = tmp_path / "audit"
    data = replace(CONFIG, targets=(str(tmp_path / "shop.csv"),), out=str(out), root=str(messy.root))
    found = read_findings(audit(data, lambda line: None).folder)
    made = [Decision(0, "", "ann", "sample", "1", "relabel", classes[-1], "")]
    table = corrected(found, made, found.about["root"])
    whole = [[str(messy.root / path), *map(str, rest), row] for row, (path, *rest) in enumerate(lines)]
    whole[1][1:3] = [words[classes[-1]], classes[-1]]
    assert [list(line) for line in table] == [[*head, "row"], *whole]
