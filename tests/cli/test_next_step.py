"""The command that follows a command: its words, and that each of them parses."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from likewise.config import (
    Apply,
    Audit,
    Bench,
    Calibrate,
    Clean,
    Compare,
    Demo,
    Doctor,
    Embed,
    Evaluate,
    Export,
    Hierarchy,
    List,
    Noise,
    Published,
    Receive,
    Report,
    Review,
    Search,
    Send,
    ShowRecipe,
    Train,
    Tune,
)

from likewise.cli import main as cli
from likewise.cli.commands import COMMANDS
from likewise.cli.next_step import FOLLOWING, next_words

RUN = SimpleNamespace(path=Path("runs/a b"), scores={"R@1": 0.5})
NO_TEST_SPLIT = SimpleNamespace(path=Path("runs/a"), scores=None)
SEEN = SimpleNamespace(corrected=Path("audit/x/corrected.csv"))
FEATURES = SimpleNamespace(corrected=Path("audit/x/corrected.csv"), features=Path("audit/x/corrected.npz"))
NOT_SEEN = SimpleNamespace(corrected=None)
AUDITED = SimpleNamespace(
    folder=Path("audit/x"), about={"kind": "data", "parts": {"all": {"states": {"ok": 3, "flagged": 1}}}}
)
RIGHT = SimpleNamespace(
    folder=Path("audit/x"), about={"kind": "data", "parts": {"all": {"states": {"ok": 3, "flagged": 0}}}}
)
PLANNED = SimpleNamespace(done="planned", folder=Path("photos"))
UNDONE = SimpleNamespace(done="undone", folder=Path("new"))
TUNED = SimpleNamespace(final=SimpleNamespace(trainings=({"run": "runs/1"}, {"run": "runs/2"})))


def cleaned(reviewed, folder=None):
    applied = folder and SimpleNamespace(folder=Path(folder))
    return SimpleNamespace(audited=AUDITED, reviewed=reviewed, applied=applied)


CASES = [
    ("demo", Demo(), "", {"run": RUN}, "report 'runs/a b'"),
    ("clean", Clean("p"), "p", cleaned(SEEN, "new"), "train new"),
    ("clean", Clean("p"), "p", cleaned(SEEN), "train audit/x/corrected.csv"),
    ("clean", Clean("p"), "p", cleaned(NOT_SEEN), "review audit/x"),
    ("clean", Clean("p", to="new"), "p --to new", cleaned(NOT_SEEN), "clean p --to new"),
    ("audit", Audit(("p",)), "p", AUDITED, "review audit/x"),
    ("audit", Audit(("p",)), "p", RIGHT, "train p"),
    ("audit", Audit(("a", "b"), overlap=True), "a b --overlap", None, "report a b"),
    ("review", Review("audit/x"), "audit/x", SEEN, "train audit/x/corrected.csv"),
    ("review", Review("audit/x"), "audit/x", NOT_SEEN, "review audit/x"),
    ("apply", Apply("t.csv"), "t.csv", PLANNED, "apply t.csv --to corrected"),
    ("apply", Apply("t.csv", to="n", dry_run=True), "t.csv --to n --dry-run", PLANNED, "apply t.csv --to n"),
    ("apply", Apply("t.csv", in_place=True), "t.csv --in-place --dry-run", PLANNED, "apply t.csv --in-place"),
    ("apply", Apply("t.csv"), "t.csv", SimpleNamespace(done="moved", folder=Path("photos")), "train photos"),
    ("apply", Apply("t.csv", undo=True), "t.csv --undo", UNDONE, "apply t.csv"),
    ("send", Send("z.npz", to="csv", out="t.csv"), "", None, "receive t.csv --from csv --into received.csv"),
    ("receive", Receive("t.csv", "csv", "audit/x"), "", SimpleNamespace(kind="decisions"), "review audit/x"),
    ("receive", Receive("t.csv", "csv", "l.csv"), "", SimpleNamespace(kind="labels"), "train l.csv"),
    ("receive", Receive("t.parquet", "parquet", "z.npz"), "", SimpleNamespace(kind="embeddings"), "audit z.npz"),
    ("train", Train("p"), "p", RUN, "report 'runs/a b'"),
    ("train", Train("p"), "p", NO_TEST_SPLIT, "search runs/a --serve"),
    ("train", Train("p", evaluate=False), "p --no-evaluate", RUN, "evaluate 'runs/a b'"),
    ("evaluate", Evaluate("runs/a"), "runs/a", {"checkpoint": "best"}, "report runs/a"),
    ("evaluate", Evaluate("z.npy", labels="y.csv"), "", {}, "audit z.npy --labels y.csv"),
    ("compare", Compare("runs/a", "runs/b/per_query.parquet"), "", None, "report runs/a runs/b"),
    ("compare", Compare("runs/a", "runs/b", on="x.csv"), "", None, "report runs/b"),
    ("report", Report(("runs/a", "runs/b")), "", None, "search runs/a --serve"),
    ("search", Search("runs/a", query="3"), "", None, "search runs/a --serve"),
    ("search", Search("z.npz", query="a.jpg", model="runs/a"), "", None, "search z.npz --model runs/a --serve"),
    ("search", Search("runs/a", save="s.index"), "", None, "search s.index --serve"),
    ("search", Search("runs/a", serve=True), "", None, "search runs/a --query 0"),
    ("calibrate", Calibrate("runs/a"), "", None, "search runs/a --serve"),
    ("export", Export("runs/a"), "", None, "search runs/a --serve"),
    ("embed", Embed("runs/a", "p", "z.npz"), "", None, "search z.npz --serve"),
    ("doctor", Doctor(), "", {"backbone": {"name": "resnet50"}}, "clean FOLDER"),
    ("doctor", Doctor(), "", {"backbone": {"name": None}}, "demo"),
    ("bench", Bench(list=True), "--list", None, "bench procsim-table5 --quick"),
    ("bench", Bench("influence-table1", list=True), "influence-table1 --list", None, "bench influence-table1 --quick"),
    ("bench", Bench("g.toml", list=True), "g.toml --list --jobs 2", None, "bench g.toml --jobs 2"),
    ("bench", Bench("procsim-table5:print"), "", None, "published --paper procsim"),
    ("bench", Bench("g.toml"), "g.toml --jobs 2", None, "bench g.toml --jobs 2 --list"),
    ("tune", Tune("g.toml"), "g.toml --trials 9", SimpleNamespace(final=None), "tune g.toml --trials 9 --final-runs 3"),
    ("tune", Tune("g.toml"), "g.toml", TUNED, "report runs/1 runs/2"),
    ("list", List(), "", None, "list losses"),
    ("list", List("recipes"), "recipes", {"recipes": {"triplet": ""}}, "recipe triplet"),
    ("list", List("tables"), "tables", None, "bench --list"),
    ("list", List("losses"), "losses", None, "train --help"),
    ("recipe", ShowRecipe("triplet", data="sop"), "", None, "recipe triplet defaults --data sop"),
    ("recipe", ShowRecipe("triplet", "margin"), "", None, "recipe margin"),
    ("recipe", ShowRecipe("triplet", "defaults"), "", None, "recipe triplet"),
    ("published", Published(), "", None, "bench --list"),
    ("noise", Noise("p", "Uniform()", "n"), "", SimpleNamespace(table=Path("n/noisy.csv")), "train n/noisy.csv --robust"),
    ("hierarchy", Hierarchy("runs/a"), "", None, "report runs/a"),
]  # fmt: skip
"""Command, its settings, its words, what of its result is used, and the words of the next command."""


@pytest.mark.parametrize(("name", "config", "words", "result", "wanted"), CASES, ids=[f"{c[0]}-{c[4]}" for c in CASES])
def test_the_next_command_parses(name, config, words, result, wanted):
    following = next_words(name, config, words.split(), result)
    assert shlex.join(following) == wanted
    called, *rest = following
    assert called in COMMANDS and ("--help" in rest or cli.parse(called, rest))


def test_every_command_has_a_next_one():
    assert set(FOLLOWING) == set(COMMANDS) == {case[0] for case in CASES}


def test_a_sent_audit_receives_the_decisions(tmp_path):
    (tmp_path / "audit.json").write_text("{}")
    config = Send(str(tmp_path), to="label-studio", out="tasks")
    wanted = ["receive", "tasks", "--from", "label-studio", "--into", str(tmp_path)]
    assert next_words("send", config, [], None) == wanted


@pytest.mark.parametrize(("device", "trained"), [("cpu", "audit/x/corrected.npz"), ("cuda", "new")])
def test_without_a_gpu_a_head_is_trained_on_the_corrected_features(monkeypatch, device, trained):
    monkeypatch.setattr("likewise.core.devices.choose_device", lambda name: SimpleNamespace(type=device))
    assert next_words("clean", Clean("p", to="new"), ["p", "--to", "new"], cleaned(FEATURES, "new")) == [
        "train",
        trained,
    ]


def test_a_run_on_features_is_searched_by_row(tmp_path):
    for features, wanted in ((1280, ["--query", "0"]), (None, ["--serve"])):
        (tmp_path / "config.json").write_text(json.dumps({"features": features}))
        assert next_words("report", Report((str(tmp_path),)), [], None) == ["search", str(tmp_path), *wanted]
