"""The report of a run: its picture, the labels most suspected with their files, and plain words where there is nothing."""

import shutil

import numpy as np
import pytest
from PIL import Image

from likewise import cli
from likewise.configs import Report, Train
from likewise.run import Run
from likewise.stages.report import report
from likewise.stages.train import train
from likewise.types import LikewiseError

NOISE = {"noise": "Uniform(share=0.3)", "evaluate": False}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A run that looked at the whole set, of features that tell the classes apart, so that it repairs labels."""
    folder, rng, y = tmp_path_factory.mktemp("judged"), np.random.default_rng(0), np.repeat(np.arange(16), 14)
    x = 3 * rng.normal(size=(16, 8))[y] + rng.normal(size=(len(y), 8))
    np.savez(folder / "clear.npz", x=x.astype(np.float32), label=y)
    return train(Train(
        data=str(folder / "clear.npz"), out=str(folder / "posterior"), dim=8, length="3e", quiet=True, device="cpu",
        confidence="LabelPosterior()", sampler="SamplesPerClass(batch=24, per_class=4)", log_every=2, **NOISE,
    ))  # fmt: skip


def test_the_labels_most_suspected_are_those_of_the_file_the_worst_first(judged, tmp_path):
    told = report(Report((str(judged.path),), out=str(tmp_path / "new"), top=7))[0]
    assert told.picture == tmp_path / "new" / "posterior.png" and Image.open(told.picture).size[0] == 1650
    with np.load(judged.path / "trust.npz") as file:
        columns = {name: file[name] for name in file.files}
    by_hand = sorted(range(len(columns["row"])), key=lambda i: (-columns["suspicion"][i], columns["weight"][i]))[:7]
    assert [one.row for one in told.suspects] == columns["row"][by_hand].tolist()
    for one, i in zip(told.suspects, by_hand, strict=True):
        assert one.given == columns["given"][i] and one.suspicion == columns["suspicion"][i]
        assert one.label == (columns["label"][i] if columns["label"][i] != columns["given"][i] else None)
        assert one.path is None  # features have no files
    assert any(one.label for one in told.suspects)
    many = (columns["suspicion"] >= 0.5).sum()
    assert told.note == f"{judged.path}: {many} of {len(columns['row'])} labels have a suspicion of 0.5 or more"


def test_pictures_come_with_their_paths(pictures, small, tmp_path):
    data = shutil.copytree(pictures, tmp_path / "pictures")
    settings = small | {"length": "3", "confidence": "ProcSim()", "log_every": 1} | NOISE
    run = train(Train(data=str(data), out=str(tmp_path / "run"), **settings))
    told = report(Report((str(run.path),), top=3))[0]
    assert told.picture == run.path / "trust.png" and told.picture.exists()
    files = sorted(str(file) for file in data.rglob("*.png"))
    assert [one.path for one in told.suspects] == [files[one.row] for one in told.suspects]
    assert all(one.label is None for one in told.suspects)  # ProcSim doubts, it does not suggest
    shutil.rmtree(data)
    told = report(Report((str(run.path),), top=3))[0]
    assert "without their paths" in told.note and not any(one.path for one in told.suspects) and len(told.suspects) == 3


def test_an_unfinished_run_is_drawn_without_its_suspects(judged, tmp_path):
    run = Run(shutil.copytree(judged.path, tmp_path / "half"))
    (run.path / "trust.npz").unlink()
    told = report(Report((str(run.path),)))[0]
    assert told.picture.exists() and told.suspects == [] and "finished" in told.note


def test_the_command(judged, tmp_path, capsys):
    other = shutil.copytree(judged.path, tmp_path / "other")
    cli.main(["report", str(judged.path), str(other), "--out", str(tmp_path / "out"), "--top", "2"])
    out = capsys.readouterr().out
    assert out.count("given label") == 2 and (tmp_path / "out" / "other.png").exists()


def test_what_cannot_be_shown_is_said(judged, finished, tmp_path):
    copy = shutil.copytree(judged.path, tmp_path / "posterior")
    cases = {
        "at least one": (), "not a run folder": (str(tmp_path),), "has no confidence": (str(finished.path),),
    }  # fmt: skip
    for words, runs in cases.items():
        with pytest.raises(LikewiseError, match=words):
            report(Report(runs))
    with pytest.raises(LikewiseError, match="one name"):
        report(Report((str(judged.path), str(copy)), out=str(tmp_path)))
    with pytest.raises(LikewiseError, match="top must be 0 or more"):
        report(Report((str(copy),), top=-1))
    (copy / "trust.npz").write_bytes(b"no archive")
    with pytest.raises(LikewiseError, match="damaged"):
        report(Report((str(copy),)))
    (copy / "log.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    with pytest.raises(LikewiseError, match="nothing of trust yet"):
        report(Report((str(copy),)))
