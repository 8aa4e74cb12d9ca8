"""Training again with corrected labels: the table, the same queries for both, noise undone, and labels of a review."""

from dataclasses import replace

import numpy as np
import pytest
from likewise.config import Audit, Train
from likewise.protocols import ClassFolds, QueryGallery, SeenClasses, UnseenClasses
from likewise.types import LikewiseError

from likewise.curate.audit.retrain import find_run, retrain, retrain_with_decisions, split_column_protocol
from likewise.data import load
from likewise.data.dataset import inject_noise, make_protocol
from likewise.learn.training.fit import train
from likewise.runs.folder import Run
from likewise.runs.open import read_config
from likewise.runs.scores import read_per_query

AUDIT = Audit(device="cpu", workers=0, quiet=True)


def silent(_):
    pass


def given(run):
    """The run's settings, and its data with labels as it was given them."""
    settings = read_config(run)
    items = load(settings.data)
    return settings, inject_noise(items, make_protocol(settings), settings.noise, settings.seed)


def again(run, suggested, out, audit=AUDIT, **changes):
    settings, items = given(run)
    return retrain(run, replace(settings, **changes), items, suggested, audit, out, silent)


@pytest.fixture(scope="module")
def spoiled(features, tmp_path_factory):
    """A run with most of its labels wrong, and a part that validates."""
    return train(Train(
        data=features, out=str(tmp_path_factory.mktemp("runs") / "spoiled"), dim=8, steps=150, lr=3e-3, quiet=True,
        sampler="SamplesPerClass(batch=24, per_class=4)", protocol="UnseenClasses(val=0.2)", noise="Uniform(share=0.8)",
        device="cpu", loss="NormSoftmax()", average=0.0,
    ))  # fmt: skip


@pytest.mark.slow
def test_noise_undone_makes_it_better(spoiled, tmp_path):
    settings, items = given(spoiled)
    protocol = UnseenClasses(val=0.2)
    rows = {part: protocol.rows(items, part) for part in ("train", "val", "test")}
    trained = set(items.y[rows["train"]].tolist())
    wrong = [row for row in rows["train"] if items.y[row] != items.y_clean[row]]
    right = {int(row): int(items.y_clean[row]) if items.y_clean[row] in trained else None for row in wrong}
    found = again(spoiled, right, tmp_path)
    assert (
        found["changed"] + found["removed"] == len(wrong) and found["removed"] == list(right.values()).count(None) > 0
    )
    table = load(str(tmp_path / "retrained.parquet"))
    kept = np.asarray([row for row in range(len(items)) if right.get(row, 0) is not None])
    want = items.y.copy()
    want[wrong] = items.y_clean[wrong]
    assert np.array_equal(table.y, want[kept]) and np.array_equal(table.x, items.x[kept])
    for part in rows:
        assert np.array_equal(kept[np.flatnonzero(table.split == part)], np.intersect1d(rows[part], kept))
    new = read_config(Run(tmp_path / "retrained"))
    same = ("seed", "loss", "sampler", "epochs", "steps", "lr", "dim", "optimizer")
    assert new.noise is None and all(getattr(new, name) == getattr(settings, name) for name in same)
    before, after = (read_per_query(tmp_path / name, "test") for name in ("before.parquet", "after.parquet"))
    assert np.array_equal(before.row, rows["test"]) and np.array_equal(after.row, rows["test"])
    rows = {line["metric"]: line for line in found["rows"]}
    assert list(rows) == ["R@1", "R@10", "RP", "MAP@R"]
    for name, line in rows.items():
        assert line["before"] == pytest.approx(spoiled.scores["metrics"][name])  # as the run was scored
        assert line["before"] == pytest.approx(before.each[name].mean())
        assert line["after"] == pytest.approx(after.each[name].mean())
        assert line["low"] <= line["difference"] <= line["high"]
    assert rows["MAP@R"]["low"] > 0 and rows["MAP@R"]["p"] < 0.05
    assert f"B with {found['changed']} labels changed" in found["summary"] and "B is better by" in found["summary"]


def test_a_finished_one_is_found_and_another_is_refused(run, tmp_path):
    _, items = given(run)
    rows = make_protocol(read_config(run)).rows(items, "train").tolist()
    label = int(items.y[rows[-1]])
    first = again(run, {rows[0]: label}, tmp_path)
    stamp = (tmp_path / "retrained" / "done").stat().st_mtime_ns
    assert again(run, {rows[0]: label}, tmp_path) == first
    assert (tmp_path / "retrained" / "done").stat().st_mtime_ns == stamp
    with pytest.raises(LikewiseError, match=r"another run \(the data\)"):
        again(run, {rows[1]: label}, tmp_path)


def test_nothing_outside_the_train_part_is_touched(run, tmp_path):
    settings, items = given(run)
    protocol = make_protocol(settings)
    rows = {part: protocol.rows(items, part).tolist() for part in ("train", "val", "test")}
    outside = {row: 0 for part in ("val", "test") for row in rows[part][:3]} | {rows["test"][5]: None}
    own = {row: int(items.y[row]) for row in rows["train"]}
    found = again(run, outside | own, tmp_path)
    assert (
        found["changed"] == found["removed"] == 0 and found["rows"] == [] and "nothing was trained" in found["summary"]
    )
    assert not any(tmp_path.glob("corrected*")) and not (tmp_path / "retrained").exists()
    again(run, outside | {rows["train"][0]: None}, tmp_path)
    table = load(str(tmp_path / "retrained.parquet"))
    assert len(table) == len(items) - 1 and np.array_equal(table.y, np.delete(items.y, rows["train"][0]))


def test_pictures(picture_run, tmp_path):
    _, items = given(picture_run)
    rows = make_protocol(read_config(picture_run)).rows(items, "train")
    found = again(picture_run, {int(rows[0]): int(items.y[rows[-1]])}, tmp_path)
    table = load(str(tmp_path / "retrained.csv"))
    assert found["changed"] == 1 and (table.y != items.y).nonzero()[0].tolist() == [rows[0]]
    assert [line["before"] for line in found["rows"]] == pytest.approx(list(picture_run.scores["metrics"].values()))


def test_training_samples_that_answer_keep_their_labels_for_both(features, settings, tmp_path):
    own = settings | {"protocol": "SeenClasses(gallery='train')", "out": str(tmp_path / "seen"), "steps": 4}
    closed = train(Train(**own))
    _, items = given(closed)
    rows = SeenClasses(gallery="train").rows(items, "train")
    (tmp_path / "audit").mkdir()
    found = again(closed, {int(row): None for row in rows[:5]}, tmp_path / "audit")
    before, after = (read_per_query(tmp_path / "audit" / name, "test") for name in ("before.parquet", "after.parquet"))
    assert found["removed"] == 5 and np.array_equal(before.relevant, after.relevant)
    assert found["rows"][0]["before"] == pytest.approx(closed.scores["metrics"]["R@1"])


def test_bad_input(run, tmp_path):
    _, items = given(run)
    row = int(make_protocol(read_config(run)).rows(items, "train")[0])
    with pytest.raises(LikewiseError, match=f"8 classes .*got 23 for row {row}"):
        again(run, {row: 23}, tmp_path)
    with pytest.raises(LikewiseError, match="got 'untrained'"):
        again(run, {row: 1}, tmp_path, replace(AUDIT, checkpoint="untrained"))

    class Odd(UnseenClasses.__base__):
        def rows(self, items, part): ...

    with pytest.raises(LikewiseError, match="must support a `split` column, got Odd"):
        split_column_protocol(Odd())


def test_decisions_of_a_review_train_again(run, tmp_path):
    settings, items = given(run)
    rows = make_protocol(settings).rows(items, "train").tolist()
    name, about = items.class_name[items.y[rows[-1]]], {"target": str(run.path)}
    labels = {rows[0]: name, rows[1]: None, rows[2]: "a new class"}
    found = retrain_with_decisions(about, labels, AUDIT, tmp_path, silent)
    assert found["changed"] == 1 and found["removed"] == 2  # a class that is not trained is dropped
    [folder] = tmp_path.glob("reviewed-*")
    assert Run(folder / "retrained").done and [row["metric"] for row in found["rows"]]
    assert retrain_with_decisions(about, labels, AUDIT, tmp_path, silent) == found  # the finished one is found
    assert find_run("nowhere", run.path / "audit") == run.path.absolute()  # the run was moved with its audit
    with pytest.raises(LikewiseError, match="must be at 'nowhere'"):
        find_run("nowhere", tmp_path / "audit")


def test_protocols_that_go_by_the_split():
    assert isinstance(split_column_protocol(ClassFolds(fold=2)), UnseenClasses)
    assert split_column_protocol(UnseenClasses(train=0.7, val=0.1)).train == 0.5
    assert split_column_protocol(QueryGallery(val=0.1, gallery="shop")).gallery == "shop"
    seen = split_column_protocol(SeenClasses(test=0.3, gallery="train", seed=4))
    assert seen.own_split and seen.gallery == "train"
