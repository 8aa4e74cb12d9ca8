"""embed to a folder: shards, which continue after a kill, and which every command reads like a file."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from likewise.config import Audit, Embed, Evaluate, Report, Search, Send, Train
from likewise.types import LikewiseError

from likewise.core.vectors import Vectors
from likewise.curate.audit.audit import audit
from likewise.curate.exchange.transfer import send
from likewise.data import load
from likewise.data.fingerprint import fingerprint
from likewise.deploy.index.search_index import search
from likewise.learn.training.fit import train
from likewise.report.write_report import report
from likewise.runs.embeddings import origin, rows_in, with_paths_below_root
from likewise.score.embed_data import embed
from likewise.score.evaluate import evaluate


def write(run, data, out, **settings):
    how = {"quiet": True, "device": "cpu", "workers": 0} | settings
    return embed(Embed(run=str(run.path), data=str(data), out=str(out), **how), say=settings.pop("say", lambda line: None))


@pytest.fixture
def on_disk(monkeypatch):
    """Nothing is small enough to be read at once."""
    monkeypatch.setattr("likewise.data.features.MAX_LOADED_BYTES", 0)


def test_shards_hold_what_a_file_holds(picture_run, pictures, tmp_path, on_disk):
    z = write(picture_run, pictures, f"{tmp_path}/z/", shard_rows=10, dtype="float32")
    write(picture_run, pictures, tmp_path / "z.npz")
    shards, file = load(str(tmp_path / "z")), load(str(tmp_path / "z.npz"))
    assert isinstance(z, Vectors) and z.shape == (36, 8)
    np.testing.assert_allclose(shards.x[:], file.x, atol=1e-6)
    for name in ("y", "class_name", "path", "split", "query", "taxonomy"):
        assert np.array_equal(getattr(shards, name), getattr(file, name)), name
    about, want = origin(tmp_path / "z"), origin(tmp_path / "z.npz")
    assert rows_in(about, 36).tolist() == rows_in(want, 36).tolist() == list(range(36))
    assert {n: about[n] for n in ("run", "checkpoint", "similarity")} == {n: str(want[n]) for n in want if n != "row"}
    assert with_paths_below_root(shards, tmp_path / "z").path == with_paths_below_root(file, tmp_path / "z.npz").path


@pytest.fixture
def two(run, features, tmp_path):
    """The embeddings of the run as a file and as shards of 100 rows, both of float32."""
    write(run, features, tmp_path / "file.npz")
    write(run, features, f"{tmp_path}/shards/", shard_rows=100, dtype="float32")
    return tmp_path / "file.npz", tmp_path / "shards"


def test_evaluate_and_search_read_shards(two, on_disk, tmp_path):
    scores = [evaluate(Evaluate(target=str(target), device="cpu", quiet=True))["metrics"] for target in two]
    assert scores[0] == scores[1]
    found = [search(Search(target=str(target), query="7", k=3, device="cpu")) for target in two]
    assert [[(one["row"], one["similarity"]) for one in hits] for hits in found][0] == [
        (one["row"], one["similarity"]) for one in found[1]
    ]
    search(Search(target=str(two[1]), save=str(tmp_path / "index"), device="cpu"))
    assert search(Search(target=str(tmp_path / "index"), query="7", k=3, device="cpu"))[0]["row"] == found[0][0]["row"]


def test_audit_and_send_read_shards(two, on_disk, tmp_path):
    for target in two:
        audit(Audit(targets=(str(target),), out=str(tmp_path / f"audit {target.stem}"), device="cpu", quiet=True))
        send(Send(target=str(target), to="csv", out=str(tmp_path / f"{target.stem}.csv")))
    csv = [(tmp_path / f"audit {name}" / "audit.csv").read_text() for name in ("file", "shards")]
    assert csv[0] == csv[1] and csv[0].count("\n") == 289
    assert (tmp_path / "file.csv").read_text() == (tmp_path / "shards.csv").read_text()


def test_report_reads_shards(two, on_disk, tmp_path):
    page = report(Report(runs=(str(two[1]),), out=str(tmp_path / "page.html"), device="cpu", quiet=True))
    assert Path(page).stat().st_size > 10_000
    report(Report(runs=(str(two[1]),), device="cpu", quiet=True, out=None))
    assert not (two[1] / "report.html").exists()


def test_train_on_shards_is_train_on_the_file(two, on_disk, tmp_path, monkeypatch):
    fingerprints = {fingerprint(load(str(target))) for target in two}
    assert len(fingerprints) == 1
    runs = [
        train(Train(
            data=str(target), out=str(tmp_path / f"run {target.stem}"), dim=4, steps=6, quiet=True, device="cpu",
            sampler="SamplesPerClass(batch=24, per_class=4)",
        ))
        for target in two
    ]  # fmt: skip
    assert runs[0].scores["metrics"] == runs[1].scores["metrics"]
    assert runs[0].about["features"] == runs[1].about["features"] == 8
    write(runs[1], two[1], f"{tmp_path}/again/")  # embed reads shards, too
    write(runs[1], two[0], tmp_path / "again.npz")
    np.testing.assert_allclose(load(f"{tmp_path}/again").x[:], load(f"{tmp_path}/again.npz").x, atol=2**-11)


def test_half_precision_is_the_default(run, features, tmp_path):
    write(run, features, f"{tmp_path}/z/")
    told = json.loads((tmp_path / "z" / "shards.json").read_text())
    assert (told["dtype"], told["rows"], told["width"], told["shard_rows"]) == ("float16", 288, 8, 65_536)
    assert np.load(tmp_path / "z" / "z-00000.npy").dtype == np.float16


def test_a_finished_folder_is_not_computed_again(run, features, tmp_path, monkeypatch):
    said = []
    write(run, features, f"{tmp_path}/z/", shard_rows=100)
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "z").glob("?-*")}
    monkeypatch.setattr("likewise.score.embed_data.embed_rows", None)  # nothing is embedded
    how = {"quiet": True, "device": "cpu", "workers": 0, "shard_rows": 100}
    embed(Embed(run=str(run.path), data=features, out=str(tmp_path / "z"), **how), say=said.append)
    assert said == [f"3 of 3 shards in {tmp_path / 'z'} are complete and are kept"]
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "z").glob("?-*")} == before


def test_a_damaged_shard_is_written_again_and_the_others_are_kept(run, features, tmp_path):
    write(run, features, f"{tmp_path}/z/", shard_rows=100)
    whole = {file.name: file.read_bytes() for file in (tmp_path / "z").iterdir()}
    first = (tmp_path / "z" / "z-00000.npy").stat().st_mtime_ns
    (tmp_path / "z" / "z-00001.npy").write_bytes(whole["z-00001.npy"][:300])  # half written
    with pytest.raises(LikewiseError, match=r"shard z-00001\.npy of .* is damaged .* write it again"):
        load(str(tmp_path / "z"))
    write(run, features, f"{tmp_path}/z/", shard_rows=100)
    assert {file.name: file.read_bytes() for file in (tmp_path / "z").glob("z-*")} == {
        name: content for name, content in whole.items() if name.startswith("z-")
    }
    assert (tmp_path / "z" / "z-00000.npy").stat().st_mtime_ns == first
    assert len(load(str(tmp_path / "z"))) == 288


def test_other_networks_data_and_settings_are_refused(run, features, tmp_path):
    write(run, features, f"{tmp_path}/z/", shard_rows=100)
    with np.load(features) as arrays:
        np.savez(tmp_path / "other.npz", x=arrays["x"] + 1, label=arrays["label"])
    for settings, message in (
        ({"dtype": "int8"}, "--dtype: float16 there, int8 now"),
        ({"layer": "feature"}, "--layer: embedding there, feature now"),
        ({"checkpoint": "untrained"}, r"network: \w{12}\.\.\. there, \w{12}\.\.\. now"),
        ({"shard_rows": 99}, "--shard-rows: 100 there, 99 now"),
    ):
        with pytest.raises(LikewiseError, match=message):
            write(run, features, f"{tmp_path}/z/", **{"shard_rows": 100} | settings)
    with pytest.raises(LikewiseError, match=r"same network, data and settings .*data: \w{12}\.\.\. there"):
        write(run, tmp_path / "other.npz", f"{tmp_path}/z/", shard_rows=100)
    with pytest.raises(LikewiseError, match="--dtype needs a folder of shards"):
        write(run, features, tmp_path / "z.npz", dtype="int8")
    with pytest.raises(LikewiseError, match="has other content"):
        write(run, features, f"{run.path}/")
    with pytest.raises(LikewiseError, match="shard_rows must be 1 or more, got 0"):
        write(run, features, f"{tmp_path}/new/", shard_rows=0)
    assert len(load(str(tmp_path / "z"))) == 288


def test_a_folder_is_written_by_one_command_at_a_time(run, features, tmp_path):
    from likewise.core.locks import folder_lock

    (tmp_path / "z").mkdir()
    with folder_lock(tmp_path / "z"), pytest.raises(LikewiseError, match="one is writing shards into"):
        write(run, features, f"{tmp_path}/z/")


def test_labels_with_several_words_and_class_trees(run, tmp_path):
    x = np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32)
    np.savez(tmp_path / "sets.npz", x=x, labels=np.array(["red|dress", "red", "dress", "blue", "red|dress", "blue|red"]))
    words = np.array(["bee", "ant", "cat", "ant", "bee", "cat"])
    coarse = np.array(["insect", "insect", "mammal"] * 2)[[0, 1, 2, 1, 0, 2]]
    np.savez(tmp_path / "tree.npz", x=x, label=words, coarse=coarse)
    for name in ("sets", "tree"):
        write(run, tmp_path / f"{name}.npz", f"{tmp_path}/{name}/", shard_rows=4)
        want, found = load(str(tmp_path / f"{name}.npz")), load(str(tmp_path / name))
        assert (found.label_name, found.label_sets, found.class_name, found.taxonomy) == (
            want.label_name, want.label_sets, want.class_name, want.taxonomy,
        )  # fmt: skip
        assert found.y.tolist() == want.y.tolist()


@pytest.mark.process
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_command_continues(run, features, tmp_path):
    """A real process is killed between two shards; the next one keeps the finished shards, and the result is the same."""
    words = ["embed", str(run.path), features, "--out", f"{tmp_path}/z/", "--shard-rows", "3", "--device", "cpu", "--workers", "0"]
    index = tmp_path / "z" / "shards.json"
    killed = subprocess.Popen([sys.executable, "-m", "likewise", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and killed.poll() is None:
        if index.exists() and len(json.loads(index.read_text())["shards"]) >= 5:
            break
        time.sleep(0.002)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait(60) == -signal.SIGKILL
    kept = set(json.loads(index.read_text())["shards"])
    assert 5 <= len(kept) < 96
    with pytest.raises(LikewiseError, match=r"must hold 96 shards, but \d+ are missing \(first: z-000\d\d\.npy\)"):
        load(str(tmp_path / "z"))
    before = {number: (tmp_path / "z" / f"z-{int(number):05d}.npy").stat().st_mtime_ns for number in kept}
    ended = subprocess.run([sys.executable, "-m", "likewise", *words], capture_output=True, text=True, check=True)
    assert f"{len(kept)} of 96 shards" in ended.stdout and "288 embeddings of 8 numbers" in ended.stdout
    assert {number: (tmp_path / "z" / f"z-{int(number):05d}.npy").stat().st_mtime_ns for number in kept} == before
    assert not list((tmp_path / "z").glob(".*"))
    write(run, features, f"{tmp_path}/whole/", shard_rows=3)
    for file in sorted(Path(tmp_path, "whole").glob("?-*")):
        assert np.array_equal(read(file), read(tmp_path / "z" / file.name)), file.name


def read(file):
    """Return the vectors of a shard, or its labels."""
    found = np.load(file)
    return found["label"] if file.suffix == ".npz" else found


def test_progress_has_the_time_left(run, features, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("likewise.core.progress.LINE_INTERVAL_SECONDS", 0)
    write(run, features, f"{tmp_path}/z/", shard_rows=100, quiet=False)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("embed ")]
    assert [line.split()[1] for line in lines] == ["100/288", "200/288", "288/288"]
    assert all(line.endswith(" s left") for line in lines)
