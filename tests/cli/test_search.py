"""`likewise search`: settings that cannot work are refused first; known, unknown and new classes of a calibrated run."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
from likewise.config import Calibrate, Search, Train

import likewise
from likewise.cli.commands import run as run_command
from likewise.deploy.calibration.calibrate import calibrate
from likewise.deploy.index.search_index import search
from likewise.learn.training.fit import train
from likewise.runs.calibration import read_calibration


def look(target, query, **settings):
    return search(Search(target=str(target), query=str(query), device="cpu", workers=0, quiet=True, **settings))


@pytest.fixture(scope="module")
def many_classes(tmp_path_factory):
    """A calibrated run on the features of 120 classes, 40 of them for validation, and the features."""
    folder, rng = tmp_path_factory.mktemp("many"), np.random.default_rng(0)
    y = np.repeat(np.arange(120), 8)
    x = (rng.normal(size=(120, 16))[y] + 0.35 * rng.normal(size=(960, 16))).astype(np.float32)
    split = np.array(["train", "val", "test"])[y % 3]
    np.savez(folder / "x.npz", x=x, label=y, split=split)
    run = train(Train(
        data=str(folder / "x.npz"), out=str(folder / "run"), sampler="SamplesPerClass(batch=24, per_class=4)", dim=8, steps=30,
        lr=3e-3, quiet=True, device="cpu",
    ))  # fmt: skip
    calibrate(Calibrate(run=str(run.path), device="cpu", quiet=True))
    return run, folder, x


def test_from_calibration_to_unknown_and_to_a_new_class(many_classes, tmp_path, capsys):
    """The threshold is that of the index, `unknown` follows from it, and --add reports the confusions of a new class."""
    run, folder, x = many_classes
    how = {"device": "cpu", "workers": 0, "quiet": True}
    shop = str(tmp_path / "shop")
    search(Search(str(run.path), save=shop, split="test", **how))
    stored = read_calibration(tmp_path / "shop")
    assert stored.gallery == {"rows": 320, "classes": 40} and stored.unknown.value is not None
    assert stored.unknown.classes == 40 and stored.unknown.rate == pytest.approx(
        0.1
    )  # 4 of 40: the smallest that 40 promise
    found = search(Search(shop, query="18", **how))
    assert found.decision["threshold"] == stored.unknown.value
    assert found.decision["unknown"] == (found[0]["similarity"] < stored.unknown.value)
    assert found.decision["probability"] == stored.probability(np.array([found[0]["similarity"]]))[0]
    # a class that is in no split, halfway between two rows that are known
    made = (x[16] + x[40]) / 2 + 0.05 * np.random.default_rng(1).normal(size=(12, 16))
    np.savez(folder / "new.npz", x=made.astype(np.float32), label=np.full(12, 500))
    capsys.readouterr()
    run_command("search", Search(shop, query="18", add=str(folder / "new.npz"), json=True, **how))
    told = json.loads(capsys.readouterr().out)
    (report,) = told["new_classes"]
    z = likewise.load(run.path, device="cpu")(made.astype(np.float32))
    gallery = np.load(run.path / "embeddings.npz")
    sims = z @ gallery["x"].T
    taken = gallery["class_name"][sims.argmax(1)][sims.max(1) >= stored.unknown.value]
    assert {one["class"]: one["images"] for one in report["before"]} == dict(Counter(taken.tolist()))
    assert report["class"] == "500" and report["images"] == 12 and report["reason"] == ""
    after = read_calibration(tmp_path / "shop")
    assert after.gallery == {"rows": 332, "classes": 41} and told["threshold"] == after.unknown.value


def test_a_rate_that_cannot_be_promised(many_classes, tmp_path):
    run, _, _ = many_classes
    copy = shutil.copytree(run.path, tmp_path / "run")
    calibrate(Calibrate(run=str(copy), far=0.001, device="cpu", quiet=True))
    found = look(copy, 18)
    assert found.decision["unknown"] is None and 0 < found.decision["probability"] < 1
    assert "40 validation classes can promise a false-accept rate of 0.1" in found.decision["reason"]
