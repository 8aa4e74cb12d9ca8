"""The audit from end to end: its folder for every kind of loss, head, protocol and file, and what it refuses."""

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from likewise.config import Audit, Train
from likewise.types import LikewiseError
from PIL import Image

from likewise.core.files import read_json
from likewise.curate.audit.audit import audit, without_nan
from likewise.curate.audit.copy_evidence import load_image
from likewise.curate.audit.label_probability import ALONE_REASON
from likewise.curate.audit.label_quality import SCORE_DESCRIPTIONS
from likewise.curate.audit.proof import SUGGESTIONS_NOTE
from likewise.curate.audit.read import read_findings
from likewise.curate.audit.source import folder_of
from likewise.curate.audit.states import STATE_DESCRIPTIONS
from likewise.curate.audit.summary import findings_html
from likewise.data import load
from likewise.data.dataset import make_protocol
from likewise.learn.training.fit import train
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun, read_config

FILES = {
    "audit.json", "audit.csv", "audit.parquet", "pairs.csv", "causes.csv", "classes.csv", "duplicates.csv", "neighbours.npz",
    "audit.html",
}  # fmt: skip


def look(target, out, **changes):
    settings = {"device": "cpu", "workers": 0, "quiet": True, "max_errors": 3, "max_classes": 2, "k": 4} | changes
    return audit(Audit(targets=(str(target),), out=str(out), **settings), say=lambda text: None)


def lines(folder, name="audit.csv"):
    with open(Path(folder) / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def keeps_the_contract(found):
    """What every audit's folder must be; gives its findings."""
    assert {file.name for file in found.folder.iterdir()} >= FILES
    read, about = read_findings(found.folder), json.loads((found.folder / "audit.json").read_text("utf-8"))
    cells, part = lines(found.folder), {row: sample.split or "all" for row, sample in read.sample.items()}
    assert len(cells) == len(read.sample) == sum(one["samples"] for one in about["parts"].values())
    assert Counter(part.values()) == {name: one["samples"] for name, one in about["parts"].items()}
    for line in cells:
        for name in about["scores"]:
            assert line[name] == "" or 0 <= float(line[name]) <= 1, (name, line)
        state, suspect = line["state"], line["score"] != "" and float(line["score"]) < 0.5
        assert state in STATE_DESCRIPTIONS
        assert state in ("unknown", "off-topic") if line["score"] == "" else state != "unknown"
        assert (
            bool(line["suggested"])
            == (suspect and state != "off-topic")
            == (state == "flagged" or (state == "conflict" and suspect))
        )
        assert line["reason"] or state in ("ok", "flagged")
        assert line["suggested"] != line["label"]
    for name, one in about["parts"].items():
        states = Counter(s.state for row, s in read.sample.items() if part[row] == name)
        assert {state: count for state, count in one["states"].items() if count} == states
        assert one["flagged"] == states["flagged"] and bool(one["unknown_reason"]) == bool(states["unknown"])
        known = [s for row, s in read.sample.items() if part[row] == name and s.score is not None]
        assert 0 <= one["wrong"] <= one["samples"] if known else one["wrong"] is None
    assert {part[c["row"]] for c in ({"row": int(line["row"])} for line in lines(found.folder, "causes.csv"))} <= {
        "train"
    }
    for name, rows in (("confusion", about["errors"]["confusion"]), ("mis-similar", about["errors"]["mis_similar"])):
        pairs = [pair for pair in read.pair.values() if pair.type == name]
        distance = [pair.distance for pair in pairs]
        assert len(pairs) == rows and distance == sorted(distance, reverse=name == "mis-similar")
    with np.load(found.folder / "neighbours.npz") as kept:
        assert sorted(kept["row"]) == sorted(read.sample) and kept["near"].shape == (len(read.sample), 6)
        assert all(part[a] == part[b] and a != b for a, near in zip(kept["row"], kept["near"]) for b in near if b >= 0)
    return read


def causes_in(found, errors):
    """Every error has its causes, in both directions, sorted, and each place once."""
    table = lines(found.folder, "causes.csv")
    assert len({(line["kind"], line["error"]) for line in table}) == errors
    for error in {(line["kind"], line["error"]) for line in table}:
        for way, sign in (("harmful", -1), ("helpful", 1)):
            mine = [line for line in table if (line["kind"], line["error"], line["direction"]) == (*error, way)]
            values = [sign * float(line["influence"]) for line in mine]
            assert [int(line["place"]) for line in mine] == [1, 2, 3, 4] and values == sorted(values)


@pytest.fixture(scope="module")
def make(features, tmp_path_factory):
    """A run of a few steps on features."""

    def made(name="run", **changes):
        settings = {
            "data": features, "sampler": "SamplesPerClass(batch=24, per_class=4)", "dim": 8, "steps": 6, "lr": 3e-3,
            "quiet": True, "device": "cpu", "evaluate": False, "out": str(tmp_path_factory.mktemp("runs") / name),
        }  # fmt: skip
        return train(Train(**settings | changes), lambda text: None)

    return made


@pytest.fixture(scope="module")
def proxy(make, tmp_path_factory):
    """Clear classes, some labels wrong on purpose, a part that validates, losses kept."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(16), 16)
    file = tmp_path_factory.mktemp("clear") / "clear.npz"
    np.savez(file, x=rng.normal(size=(16, 12))[y] * 1.5 + rng.normal(size=(256, 12)), label=y)
    return make(
        "proxies", data=str(file), loss="NormSoftmax()", noise="Uniform(share=0.2)", protocol="UnseenClasses(val=0.2)",
        steps=60, record_losses=True, validate_every="30",
    )  # fmt: skip


@pytest.fixture(scope="module")
def audited(proxy, tmp_path_factory):
    return look(proxy.path, tmp_path_factory.mktemp("audits") / "proxy")


def test_a_run_with_wrong_labels(proxy, audited):
    read = keeps_the_contract(audited)
    settings = read_config(proxy)
    protocol, about = make_protocol(settings), audited.about
    items = load(settings.data)
    assert list(about["parts"]) == ["train", "val", "test"] and sorted(read.sample) == list(range(len(items)))
    for row in protocol.rows(items, "test"):
        assert read.sample[row].split == "test"
    assert about["kind"] == "run" and about["title"].startswith("proxies: NormSoftmax(") and not about["pictures"]
    assert about["influence"].startswith("finite step") and about["notes"] == []
    causes_in(audited, 3 + 3 + 2)
    training = {"loss", "loss_over_time", "self_gradient", "influence"}
    assert set(about["scores"]) == set(about["measured"]) == {"score", *SCORE_DESCRIPTIONS} >= training
    for one in about["measured"].values():
        assert {"AUROC", "AP", "recall", "curve", "share"} == set(one) and 0 <= one["AUROC"] <= 1
    assert (
        about["measured"]["score"]["AUROC"] > 0.9 and 0 <= about["suggested"]["votes"] <= about["suggested"]["lenient"]
    )
    own = [line for line in lines(audited.folder) if line["split"] == "test"]
    assert all(line["loss"] == line["influence"] == "" != line["vote"] for line in own)


def test_the_truth_never_reaches_a_score(proxy, audited, tmp_path, monkeypatch):
    """The same labels from a table that does not know the true ones."""

    class Blind(OpenRun):
        @property
        def noisy_items(self):
            return replace(super().noisy_items, y_clean=None)

    monkeypatch.setattr("likewise.curate.audit.source.OpenRun", Blind)
    found = look(proxy.path, tmp_path)
    assert found.about["measured"] is None and found.about["suggested"] is None
    for name in sorted(FILES - {"audit.json", "audit.html", "neighbours.npz", "audit.parquet"}):
        assert_same_table(tmp_path / name, audited.folder / name)


def assert_same_table(a, b):
    """Equal cell by cell; numbers to 1e-5, because libraries of linear algebra may sum in another order the next time."""
    with a.open(newline="") as first, b.open(newline="") as second:
        rows = list(csv.reader(first)), list(csv.reader(second))
    assert len(rows[0]) == len(rows[1]) > 0
    for one, other in zip(*rows, strict=True):
        for x, y in zip(one, other, strict=True):
            try:
                assert float(x) == pytest.approx(float(y), abs=1e-5, rel=1e-5), (one, other)
            except ValueError:
                assert x == y


@pytest.mark.slow
def test_causes_by_lissa(proxy, audited, tmp_path):
    found = look(proxy.path, tmp_path, influence="lissa")
    keeps_the_contract(found)
    causes_in(found, 8)
    assert found.about["influence"] != audited.about["influence"]
    for kept in ("pairs.csv", "classes.csv", "duplicates.csv"):
        assert (tmp_path / kept).read_bytes() == (audited.folder / kept).read_bytes()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"loss": "MultiSimilarity()"}, []),
        ({"loss": "Triplet(miner=SemiHard())"}, []),
        ({"loss": "Triplet(miner=DistanceWeighted())", "layer_norm": True}, []),
        ({"loss": "LiftedStructure()"}, ["although this run's loss compares raw embeddings"]),
        ({"loss": "Hierarchical(loss=ProxyAnchor(), coarse=3)", "steps": 20}, []),
        ({"loss": "CrossBatchMemory(loss=MultiSimilarity(), size=64)"}, []),
        ({"loss": "ProxyAnchor()", "head": "MLP(layers=1)", "protocol": "SeenClasses()"}, []),
        ({"loss": "SoftTriple()", "protocol": "SeenClasses(gallery='train')"}, []),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_every_kind_of_run(make, changes, says, tmp_path):
    run = make(**changes)
    found = look(run.path, tmp_path)
    read = keeps_the_contract(found)
    causes_in(found, 8)
    notes = [note for note in found.about["notes"] if "do not separate the classes" not in note]  # a small part may not
    assert len(notes) == len(says) and all(text in note for text, note in zip(says, notes))
    assert found.about["measured"] is None and "loss_over_time" not in found.about["scores"]
    rows = make_protocol(read_config(run)).rows(load(read_config(run).data), "train")
    assert sorted(row for row, one in read.sample.items() if one.split == "train") == rows.tolist()


def test_a_head_that_is_not_linear(make, tmp_path):
    run = make(loss="NormSoftmax()", head="MLP(hidden=16)")
    found = look(run.path, tmp_path / "finite", verify=True)
    keeps_the_contract(found)
    assert lines(found.folder, "causes.csv") == [] and found.about["influence"] == "" and found.about["verify"] is None
    assert any("they need a linear head" in note for note in found.about["notes"])
    assert "loss" in found.about["scores"] and "self_gradient" not in found.about["scores"]


def test_networks_before_and_within_training(proxy, make, tmp_path):
    found = look(proxy.path, tmp_path / "untrained", checkpoint="untrained")
    keeps_the_contract(found)
    assert lines(found.folder, "causes.csv") == [] and "loss" not in found.about["scores"]
    assert found.about["notes"] == ["an untrained network has no loss, so causes of errors are not computed"]
    half = make("half", loss="NormSoftmax()", steps=3)
    (half.path / "done").unlink()
    found = look(half.path, tmp_path / "half")
    causes_in(found, 8)
    assert found.about["notes"] == ["this run is not finished; its last checkpoint is audited"]


def test_queries_and_gallery(make, tmp_path):
    rng, y = np.random.default_rng(0), np.repeat(np.arange(12), 8)
    x, place = rng.normal(size=(12, 6))[y] + rng.normal(size=(96, 6)), np.tile(np.arange(8), 12)
    split, test = np.where(y < 6, "train", "test"), y >= 6
    np.savez(
        tmp_path / "shop.npz", x=x, label=y, split=split, query=test & (place < 3), gallery=test & (place >= 3),
        group=np.where(place < 2, -1, 10 * y + place), camera=np.where(place < 1, "", np.char.add("c", (place % 3).astype(str))),
    )  # fmt: skip
    found = look(make(data=str(tmp_path / "shop.npz"), loss="NormSoftmax()").path, tmp_path / "audit")
    keeps_the_contract(found)
    for line in lines(found.folder):
        row = int(line["row"])
        assert (line["query"], line["gallery"]) == (
            str(int(y[row] >= 6 and row % 8 < 3)),
            str(int(y[row] >= 6 and row % 8 > 2)),
        )
        assert line["group"] == ("" if row % 8 < 2 else str(10 * y[row] + row % 8))
        assert line["camera"] == ("" if row % 8 < 1 else f"c{row % 8 % 3}")


@pytest.mark.slow
def test_acting_on_it(proxy, tmp_path):
    found = look(proxy.path, tmp_path, verify=True, retrain=True, seed=1)
    keeps_the_contract(found)
    verify, again = found.about["verify"], found.about["retrain"]
    assert verify["pairs"] == 6 and {row["method"] for row in verify["rows"]} >= {"finite, pairs", "finite, classes"}
    assert "over 6 pairs: " in verify["summary"] and "over 2 classes: " in verify["summary"]
    flagged = found.about["parts"]["train"]["flagged"]
    assert again["changed"] + again["removed"] == flagged > 0 and len(again["rows"]) == 4
    new, old = load(str(tmp_path / "retrained.parquet")), [s for s in lines(found.folder) if s["split"] == "train"]
    assert Run(tmp_path / "retrained").done and (new.split == "train").sum() == len(old) - again["removed"]
    text = (tmp_path / "audit.html").read_text("utf-8")
    assert "Verification of the causes" in text and "Retraining with the suggested labels" in text


@pytest.fixture(scope="module")
def spotted(tmp_path_factory):
    """Embeddings with their pictures: a picture twice in two parts, and one each that is gone, broken and blank."""
    folder = tmp_path_factory.mktemp("spots")
    rng, names = np.random.default_rng(0), []
    for row in range(24):
        noise = rng.integers(0, 256, (12, 12, 3)).astype(np.uint8)
        Image.fromarray(noise).resize((48, 48), Image.Resampling.BICUBIC).save(folder / f"{row}.png")
        names.append(f"{row}.png")
    (folder / "20.png").write_bytes((folder / "3.png").read_bytes())
    (folder / "5.png").unlink()
    (folder / "6.png").write_bytes(b"no picture")
    Image.new("RGB", (48, 48), "grey").save(folder / "7.png")
    y = np.repeat(['owl, [red] "x"', "line\nbreak", "<b>naïve 日本</b>", "=cmd()"], 6)
    x = rng.normal(size=(4, 8))[np.repeat(np.arange(4), 6)] * 3 + rng.normal(size=(24, 8))
    np.savez(folder / "z.npz", x=x, label=y, path=names, split=np.where(np.arange(24) < 12, "train", "test"))
    return folder


def test_embeddings_with_pictures(spotted, tmp_path):
    found = look(spotted / "z.npz", tmp_path)
    read = keeps_the_contract(found)
    assert found.about["kind"] == "embeddings" and found.about["pictures"] and found.about["root"] == str(spotted)
    assert found.about["duplicates"] == {"train-test": 1} and [(d.row, d.other, d.kind) for d in read.duplicates] == [
        (3, 20, "same")
    ]
    assert [(s.row, s.state, s.reason, s.decision) for s in read.off_topic] == [
        (6, "off-topic", "unreadable image", "remove"), (7, "off-topic", "blank image", "remove")
    ]  # fmt: skip
    assert read.sample[5].state != "off-topic"  # a missing file says nothing about its sample
    assert "Unreadable image. Probability 1" in (tmp_path / "audit.html").read_text("utf-8")
    assert "2 images could not be read, so near duplicates of them are not found" in found.about["notes"]
    assert {s.label for s in read.sample.values()} == {'owl, [red] "x"', "line\nbreak", "<b>naïve 日本</b>", "=cmd()"}
    text = (tmp_path / "audit.html").read_text("utf-8")
    assert "<b>naïve" not in text and "data:image/jpeg;base64" in text
    assert load_image(load(str(spotted / "z.npz")), 5) is None and load_image(load(str(spotted / "z.npz")), 4).size == (
        48,
        48,
    )


def vectors(folder, labels, dim=6, **columns):
    """z.npy and a table of labels."""
    labels = list(labels)
    number = np.unique(labels, return_inverse=True)[1]
    rng = np.random.default_rng(0)
    np.save(
        folder / "z.npy", rng.normal(size=(number.max() + 1, dim))[number] * 2 + rng.normal(size=(len(labels), dim))
    )
    with open(folder / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([("label", *columns), *zip(labels, *columns.values())])
    return look(folder / "z.npy", folder / "audit", labels=str(folder / "labels.csv"))


def test_vectors_without_a_model(tmp_path):
    found = vectors(tmp_path, np.repeat(["wren", "owl", "crow"], 20))
    keeps_the_contract(found)
    assert list(found.about["parts"]) == ["all"] and found.about["title"] == "z.npy" and found.about["rows"] == 60
    assert lines(found.folder, "causes.csv") == [] and {line["split"] for line in lines(found.folder)} == {""}
    assert found.about["notes"][0].endswith("the file has embeddings without their network")


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (["a"] * 9, "there is one class"),
        ([f"c{i}" for i in range(9)], "every class has one sample"),
        (["a", "b"], "every class has one sample"),
        (["a", "a"], "there is one class"),
    ],
)
def test_labels_that_nobody_can_judge_are_unknown(tmp_path, labels, reason):
    found = vectors(tmp_path, labels)
    read, part = keeps_the_contract(found), json.loads((found.folder / "audit.json").read_text())["parts"]["all"]
    assert part["wrong"] is part["of_all"] is None and part["unknown_reason"] == reason and part["states"]["ok"] == 0
    assert {(one.score, one.state) for one in read.sample.values()} == {(None, "unknown")}
    assert {one.kind for one in read.classes} == {"unknown"} and read.suspects == []
    page = (found.folder / "audit.html").read_text("utf-8")
    assert (
        "how many of their labels are wrong is unknown" in page and "0.0%</td>" not in page and reason in page.lower()
    )
    assert (
        "No label is flagged" not in page and "unknown" in findings_html(found) and "0.0%" not in findings_html(found)
    )


def test_samples_alone_in_their_class_are_not_counted_as_wrong(tmp_path):
    found = vectors(tmp_path, [*np.repeat(["a", "b"], 20), "c", "d", "e"])
    read, part = keeps_the_contract(found), found.about["parts"]["all"]
    assert part["wrong"] < 3 and part["classes"] == 5 and part["states"]["unknown"] == 3
    assert {read.sample[row].reason for row in (40, 41, 42)} == {part["unknown_reason"]} == {ALONE_REASON}
    assert [one.kind for one in read.classes] == ["clean", "clean", "unknown", "unknown", "unknown"]
    known = [one.score for one in read.sample.values() if one.score is not None]
    assert part["wrong"] == pytest.approx(sum(1 - score for score in known), abs=1e-4)


def test_two_names_for_one_class_are_found(tmp_path):
    labels = np.repeat([f"class {c:02}" for c in range(12)], 30).astype(object)
    labels[:30:2] = "second name"
    rng = np.random.default_rng(1)
    z = rng.normal(size=(12, 8))[np.repeat(np.arange(12), 30)] * 2 + rng.normal(size=(360, 8))
    np.save(tmp_path / "z.npy", z)
    with open(tmp_path / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([["label"], *([label] for label in labels)])
    found = look(tmp_path / "z.npy", tmp_path / "audit", labels=str(tmp_path / "labels.csv"))
    read = keeps_the_contract(found)
    [one] = read.merges()
    assert {one.label, one.partner} == {"class 00", "second name"} and one.overlap is not None and one.overlap > 0.5
    other = {line["label"]: line["state"] for line in lines(found.folder, "classes.csv") if line["kind"] != "merge"}
    assert len(other) == 11 and set(other.values()) == {"distinct"}
    assert "class 00 and second name, probability" in (found.folder / "audit.html").read_text("utf-8")


def test_errors_and_names_that_cross_the_splits_of_a_run(make, tmp_path):
    """Row 3, of a training class, has a label of a test class; the last test class is a second name of the first class."""
    rng, y = np.random.default_rng(2), np.repeat(np.arange(16), 24)
    x = rng.normal(size=(16, 12))[np.where(y == 15, 0, y)] * 1.5 + rng.normal(size=(384, 12))
    y[3] = 12
    np.savez(tmp_path / "crossed.npz", x=x, label=[f"class {c:02}" for c in y])
    found = look(make("crossed", data=str(tmp_path / "crossed.npz"), steps=10).path, tmp_path / "audit")
    read = keeps_the_contract(found)
    assert read.sample[3].split == "test" and read.sample[0].split == "train"
    assert read.sample[3].state == "flagged" and read.sample[3].suggested in ("class 00", "class 15")
    assert {(one.label, one.partner) for one in read.classes if one.kind == "merge"} == {
        ("class 00", "class 15"),
        ("class 15", "class 00"),
    }
    assert len(read.exemplars("test", "class 00", 3)) == 3  # of another split


def test_rows_in_no_part_are_told(tmp_path):
    split = np.array(["train"] * 20 + ["test"] * 19 + [""])
    found = vectors(tmp_path, np.repeat(["a", "b", "c", "d"], 10), split=split)
    read = keeps_the_contract(found)
    assert 39 not in read.sample and len(read.sample) == 39 and found.about["rows"] == 40
    assert "1 of 40 rows are junk or have no split, and are not audited" in found.about["notes"]


@pytest.mark.slow
def test_no_errors_asked_for(proxy, tmp_path):
    found = look(proxy.path, tmp_path / "none", max_errors=0, max_classes=0)
    keeps_the_contract(found)
    assert lines(found.folder, "causes.csv") == [] and "influence" not in found.about["scores"]
    found = look(proxy.path, tmp_path / "all", max_errors=10**9, max_classes=10**9, k=1)
    kinds = Counter(line["kind"] for line in lines(found.folder, "causes.csv") if line["direction"] == "harmful")
    assert kinds["confusion"] == found.about["errors"]["confusion"] and kinds["group"] > 1
    found = look(proxy.path, tmp_path / "k", max_errors=1, max_classes=0, k=10**6)
    rows = Counter((line["error"], line["kind"], line["direction"]) for line in lines(found.folder, "causes.csv"))
    assert set(rows.values()) == {found.about["parts"]["train"]["samples"]}


def test_where_the_folder_stands(run, tmp_path, monkeypatch):
    assert folder_of(Audit(targets=(str(run.path),), out=str(tmp_path / "a" / "b"))) == tmp_path / "a" / "b"
    assert folder_of(Audit(targets=(str(run.path),))) == run.path / "audit"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "z.npy").write_text("")
    assert folder_of(Audit(targets=("far/z.npy",))) == Path("audit/z") and (tmp_path / "audit" / "z").is_dir()
    assert folder_of(Audit(targets=("far/",))) == Path("audit/far")
    assert folder_of(Audit(targets=("glyphs(size=32)",))) == Path("audit/glyphs-size-32")
    (tmp_path / "file").write_text("")
    with pytest.raises(LikewiseError, match=r"--out must be a folder, got '.*file' \(File exists\)"):
        folder_of(Audit(targets=("x",), out=str(tmp_path / "file")))


def test_json_has_no_nan():
    assert without_nan({"a": [1.0, float("nan"), {"b": float("inf")}], "c": "x", "d": 1}) == {
        "a": [1, None, {"b": None}],
        "c": "x",
        "d": 1,
    }


@pytest.mark.slow
def test_a_training_that_cannot_be_done_leaves_a_whole_audit(run, tmp_path, monkeypatch):
    """And one that is interrupted while it writes is no audit, rather than half of two."""
    look(run.path, tmp_path)

    def stop(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("likewise.curate.audit.audit.retrain_with_suggestions", stop)
    with pytest.raises(KeyboardInterrupt):
        look(run.path, tmp_path, retrain=True, max_errors=1)
    assert len({cause for kind, cause in read_findings(tmp_path).causes if kind == "confusion"}) == 1
    monkeypatch.setattr("likewise.curate.audit.write.write_parquet", stop)
    with pytest.raises(KeyboardInterrupt):
        look(run.path, tmp_path, max_errors=2)
    with pytest.raises(LikewiseError, match="the folder must have audit.json"):
        read_findings(tmp_path)


def test_a_retraining_is_compared_with_the_forecast(run, tmp_path, monkeypatch):
    row = {
        "metric": "R@1",
        "before": 0.5,
        "after": 0.51,
        "difference": 0.01,
        "low": 0.0,
        "high": 0.02,
        "p": 0.1,
        "reason": "",
    }
    result = {"rows": [row], "summary": "better", "changed": 3, "removed": 1}
    monkeypatch.setattr("likewise.curate.audit.retrain.retrain", lambda *given: result)
    look(run.path, tmp_path, retrain=True, forecast=True)
    about, proof = read_json(tmp_path / "forecast.json", "audit"), read_json(tmp_path / "proof.json", "audit")
    [part] = proof["parts"]
    assert (
        proof["reviewed"] == about["suspects"]
        and proof["labels"] == "suggestions"
        and proof["reason"] == about["reason"]
    )
    assert part["of"] == "network" and part["note"].startswith(SUGGESTIONS_NOTE)
    assert [one["metric"] for one in part["rows"]] == ([] if about["reason"] else ["R@1"])
    assert "suggests, without a review." in (tmp_path / "audit.html").read_text("utf-8")
    look(run.path, tmp_path)
    assert not (tmp_path / "forecast.json").exists() and not (tmp_path / "proof.json").exists()


def test_a_run_on_pictures(picture_run, pictures, tmp_path):
    found = look(picture_run.path, tmp_path)
    read = keeps_the_contract(found)
    assert found.about["pictures"] and found.about["root"] == str(pictures) and found.about["notes"] == []
    assert all((pictures / one.path).is_file() for one in read.sample.values())
    assert bool(lines(tmp_path, "causes.csv")) == bool(found.about["errors"]["confusion"])
    assert "data:image/jpeg;base64" in (tmp_path / "audit.html").read_text("utf-8") or not read.suspects
