"""From a messy folder to corrected labels, with the real server: audit, review, table, folder of links, training, undo."""

import csv
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from likewise.config import Clean, Train
from likewise.errors import LikewiseError
from messy_folder import make_messy_folder

from likewise.cli.main import main
from likewise.curate.audit.audit import Audited
from likewise.curate.clean import Cleaned, clean, head_seconds, show_cleaned
from likewise.curate.review.review_page import Reviewed
from likewise.learn.training.fit import train
from likewise.learn.training.loop import StepTimer

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
httpx = pytest.importorskip("httpx", reason="the server is asked by httpx")

TOKEN = "a-token-of-24-characters"


@pytest.mark.process
@pytest.mark.slow
def test_a_messy_folder_becomes_a_clean_one(tmp_path, monkeypatch, capsys):
    messy = make_messy_folder(tmp_path / "photos", classes=4, per_class=6)
    monkeypatch.chdir(tmp_path)
    votes = [
        f'"{path}",{who},"{path.split("/")[0]}"'
        for path in messy.good
        if path != messy.copy[1]
        for who in ("ann", "bob")
    ]
    votes += [f'"{messy.copy[1]}",{who},"{messy.copy[0].split("/")[0]}"' for who in ("ann", "bob")]
    (tmp_path / "votes.csv").write_text("\n".join(["sample,worker,label", *votes]), "utf-8")
    words = [
        "clean",
        "photos",
        "--votes",
        "votes.csv",
        "--backbone",
        "efficientnet_lite0",
        "--to",
        "clean",
        "--port",
        "0",
        "--no-browser",
    ]
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "LIKEWISE_TOKEN": TOKEN}
    process = subprocess.Popen(
        [sys.executable, "-m", "likewise", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=here,
    )
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if line.startswith("review: http"):
            break
    assert any("copies" in line.lower() for line in printed), printed
    base = printed[-1].split()[1].partition("/?")[0]
    with httpx.Client(base_url=base, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60) as page:
        with open("audit/photos/audit.csv", newline="") as file:
            row = {line["path"]: line["row"] for line in csv.DictReader(file)}
        wrong, lonely = row[messy.copy[1]], row[messy.good[-1]]
        relabel = {"item": wrong, "choice": "relabel", "label": messy.copy[0].split("/")[0]}
        choices = [relabel, {"item": lonely, "choice": "remove"}]
        assert page.post("/api/decide", json={"reviewer": "ann", "choices": choices}).status_code == 200
        assert page.post("/api/finish").json()["written"] is True
    rest, _ = process.communicate(timeout=600)
    assert process.returncode == 0 and "1 images relabelled, 1 removed" in rest
    assert "audit/photos/corrected.npz: the corrected features, to train a head fast" in rest
    trained = tmp_path / "clean" if torch.cuda.is_available() else "audit/photos/corrected.npz"
    assert f"\nnext: likewise train {trained}\n" in rest
    about = json.loads((tmp_path / "audit/photos/audit.json").read_text())
    assert about["kind"] == "data" and about["votes"]["samples"] == len(messy.good) and about["votes"]["workers"] == 2
    with open("audit/photos/consensus.csv", newline="", encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    assert first["path"] == messy.copy[1] and first["consensus"] == messy.copy[0].split("/")[0]

    with open("audit/photos/corrected.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == ["path", "label", "row"] and len(table) == len(messy.good) - 1
    clean = sorted(str(p.relative_to(tmp_path / "clean")) for p in (tmp_path / "clean").rglob("[!.]*.*"))
    assert len(clean) == len(table) and "lonely lily" not in os.listdir("clean")
    assert len(os.listdir(f"clean/{messy.copy[0].split('/')[0]}")) == 7
    assert all(os.path.exists(messy.root / path) for path in messy.good)  # the user's files stay

    train = [
        "train",
        "audit/photos/corrected.csv",
        "--backbone",
        "conv_small",
        "--size",
        "32",
        "--steps",
        "1",
        "--quiet",
    ]
    main(["train", "audit/photos/corrected.npz", "--steps", "1", "--quiet", "--out", "runs/head"])
    assert (tmp_path / "runs/head/scores.json").exists()
    main([*train, "--out", "runs/table"])
    assert (tmp_path / "runs/table/scores.json").exists()
    main(["apply", "audit/photos", "--undo"])
    assert not (tmp_path / "clean").exists() and "undid" in capsys.readouterr().out


def test_a_folder_that_exists_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean" / "file").touch()
    with pytest.raises(SystemExit):
        main(["clean", str(tmp_path), "--to", str(tmp_path / "clean")])
    assert "--to must be a new or empty folder" in capsys.readouterr().err


def test_a_foreign_host_and_a_weak_token_are_found_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("likewise.curate.clean.audit", lambda *_: pytest.fail("the audit began"))
    config = Clean(str(tmp_path), out=str(tmp_path / "audit"), host="192.0.2.1", browser=False)
    with pytest.raises(LikewiseError, match="clean: 192.0.2.1:8017 cannot be served"):
        clean(config, list)
    monkeypatch.setenv("LIKEWISE_TOKEN", "short")
    with pytest.raises(LikewiseError, match="clean: .*LIKEWISE_TOKEN"):
        clean(config, list)


def test_the_time_of_a_head_is_that_of_its_training(tmp_path, monkeypatch):
    """The sixth step takes a second and ends 7 seconds after the start, so that the steps left take a second each."""
    x, label = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32), np.arange(64) % 8
    np.savez(tmp_path / "z.npz", x=x, label=label)
    monkeypatch.setattr("likewise.curate.clean.StepTimer", lambda: StepTimer(iter((5.0, 6.0)).__next__))
    monkeypatch.setattr("likewise.curate.clean.time", SimpleNamespace(monotonic=iter((0.0, 7.0)).__next__))
    config = Train(str(tmp_path / "z.npz"), out=str(tmp_path / "run"), device="cpu", evaluate=False, quiet=True)
    steps = train(config, list).read_log()[-1]["step"]
    assert head_seconds(tmp_path / "z.npz", "cpu") == 7 + steps - 6
    monkeypatch.undo()
    np.savez(tmp_path / "z.npz", x=x[:2], label=[0, 1])
    assert head_seconds(tmp_path / "z.npz", "cpu") is None


def test_without_decisions_the_missing_folder_has_its_reason(tmp_path, capsys):
    reviewed = Reviewed(tmp_path / "decisions.sqlite", 0, 0)
    show_cleaned(Cleaned(Audited(tmp_path, {}), reviewed, None), Clean("photos", to="new"))
    assert "so neither the corrected table nor the folder new was written" in capsys.readouterr().out
