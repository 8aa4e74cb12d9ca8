"""bench: every combination is a run, none is trained twice, and the table never shows a bare number."""

import csv
import re
import shlex
import shutil
from pathlib import Path

import pytest
from likewise.config import Bench
from likewise.errors import LikewiseError

from likewise.cli import main as cli
from likewise.learn.training import fit
from likewise.papers import bench as module
from likewise.papers.bench import bench
from likewise.papers.benchmark_table import BenchmarkTable, headline, lay_out
from likewise.papers.executors import LocalExecutor
from likewise.papers.grid import read_grid, table_names
from likewise.runs.folder import Run

SETTINGS = """
[settings]
data = "{data}"
sampler = "SamplesPerClass(batch=16, per_class=4)"
dim = 8
steps = 12
lr = 3e-3
metrics = ["R@1", "MAP@R"]
"""
GRID = f'title = "losses | noise"{SETTINGS}[axes]\n'


@pytest.fixture
def grid(features, tmp_path):
    """A grid file with these lines in the end, and settings of bench for it."""

    def grid(lines, above=GRID, **settings):
        file = tmp_path / "grid.toml"
        file.write_text(above.format(data=features) + lines, "utf-8")
        return Bench(str(file), **{"out": str(tmp_path / "out"), "device": "cpu", "quiet": True} | settings)

    return grid


def read_csv(folder, name="results.csv"):
    with (folder / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def shown(sheet, *row):
    """A row's cells as texts, by column."""
    layout = lay_out(sheet)
    return {", ".join(column): layout.shown[row, column] for column in layout.columns if (row, column) in layout.shown}


@pytest.fixture
def nobody(monkeypatch):
    """Call it, and nobody is there to train any more."""

    class Nobody(LocalExecutor):
        def __enter__(self):
            raise AssertionError("something is to be trained")

    return lambda: monkeypatch.setattr(module, "choose_executor", lambda config, say: Nobody(1))


def test_a_grid_is_trained_once_and_summed_up_by_hand(grid, nobody):
    config = grid('loss = ["MultiSimilarity()", "Triplet(margin=0.2)"]\nseed = [0, 1, 2]')
    sheet = bench(config)
    assert isinstance(sheet, BenchmarkTable)
    lines = read_csv(sheet.folder)
    assert [(r["cell"], r["loss"], r["seed"], r["status"]) for r in lines] == [
        (str(1 + 3 * place + seed), loss, str(seed), "finished")
        for place, loss in enumerate(("MultiSimilarity()", "Triplet(margin=0.2)"))
        for seed in range(3)
    ]
    for r in lines:
        run = Run(r["run"])
        assert run.about["identity"] == r["identity"] and run.about["data"] == r["data"]
        assert run.scores["metrics"]["MAP@R"] == float(r["MAP@R"])
        assert run.about["config"]["seed"] == int(r["seed"])
        assert r["device"] and r["torch"] and float(r["train_seconds"]) > 0 and r["sessions"] == "1"
        assert r["commit"] == (run.read_json("usage.json")["sessions"][0]["commit"] or "")
    assert (sheet.heads, headline(sheet)) == (("loss",), "losses | noise")
    values = [100 * float(r["MAP@R"]) for r in lines[:3]]
    mean = sum(values) / 3
    reach = 4.302652730 * (sum((v - mean) ** 2 for v in values) / 2) ** 0.5 / 3**0.5  # t of 0.975 with 2 degrees
    assert shown(sheet, "MultiSimilarity()")["MAP@R"].ours == f"{mean:.1f} ± {reach:.1f}"
    assert sheet.contest.metric == "R@1" and len(sheet.contest.pairs) == 1
    assert (sheet.folder / "means.png").stat().st_size > 5000
    nobody()
    assert bench(config) == sheet


def test_all_files_hold_the_same_numbers(grid):
    sheet = bench(grid("dim = [4, 8]\nseed = [0, 1]"))
    texts = {name: (sheet.folder / f"table.{name}").read_text("utf-8") for name in ("md", "tex", "html")}
    lines = read_csv(sheet.folder)
    for r in read_csv(sheet.folder, "table.csv"):
        values = [100 * float(one[r["metric"]]) for one in lines if one["dim"] == r["dim"]]
        assert float(r["mean"]) == pytest.approx(sum(values) / 2) and (r["n"], r["wanted"]) == ("2", "2")
        assert (r["low"], r["high"]) == ("", "")  # two seeds have no interval
        ours = shown(sheet, r["dim"])[r["metric"]].ours
        assert ours == f"{float(r['mean']):.1f} [{min(values):.1f} to {max(values):.1f}]"
        assert ours in texts["md"] and ours in texts["html"] and ours.replace("[", "{[}") in texts["tex"]
    assert all(Path(r["run"]).name in texts["html"] for r in lines) and "<svg" in texts["html"]
    assert "losses $|$ noise" in texts["tex"] and "mean over 2 seeds [lowest to highest]" in texts["md"]


def test_another_run_in_a_cells_folder_is_no_result_of_it(grid):
    """It is finished and scored, but it is not what the cell asks for: that is said, and its scores are not shown."""
    first = bench(grid("seed = [0, 1]"))
    runs = [Path(r["run"]) for r in read_csv(first.folder)]
    shutil.rmtree(runs[1])
    shutil.copytree(runs[0], runs[1])
    sheet = bench(grid("seed = [0, 1]"))
    (reason,) = [note for note in sheet.notes if note.startswith("failed: ")]
    assert reason.startswith("failed: seed 1: train: ") and "holds another run (seed: 0 there, 1 here)" in reason
    lines = read_csv(sheet.folder)
    assert lines[0]["status"] == "finished" and lines[1]["R@1"] == "" and lines[1]["run"] == ""


def test_more_metrics_are_measured_without_training_again(grid):
    lines = "seed = [0, 1]"
    first = bench(grid(lines))
    logs = {r["run"]: Run(r["run"]).read_log() for r in read_csv(first.folder)}
    sheet = bench(grid(lines, metrics=("R@1", "R@4")))
    assert list(shown(sheet, "all the same")) == ["R@1", "R@4"] and sheet.heads == ("setting",)
    assert shown(sheet, "all the same")["R@1"] == shown(first, "all the same")["R@1"]
    assert {r["run"]: Run(r["run"]).read_log() for r in read_csv(sheet.folder)} == logs


def test_a_failure_is_shown_with_its_reason_and_the_others_go_on(grid):
    sheet = bench(grid("lr = [3e-3, 1e30]\nseed = [0, 1]"))
    assert " to " in shown(sheet, "0.003")["R@1"].ours
    assert shown(sheet, "1e+30")["R@1"].ours == "-"
    reasons = [note for note in sheet.notes if note.startswith("failed: ")]
    assert [reason.split(": MultiS")[0] for reason in reasons] == [f"failed: lr 1e+30, seed {s}" for s in (0, 1)]
    assert "z must be unit vectors" in reasons[0]
    assert not any(note.startswith("Missing") for note in sheet.notes)  # they are listed as failed
    lines = read_csv(sheet.folder)
    assert [r["status"].split(":")[0] for r in lines] == ["finished", "finished", "failed", "failed"]
    assert lines[2]["MAP@R"] == "" and "failed: lr 1e+30" in (sheet.folder / "table.md").read_text("utf-8")


def test_the_command_that_is_named_trains_a_failed_cell_again(grid, monkeypatch, capsys):
    config, real = grid("dim = [4, 8]\nseed = [0, 1]"), fit.train

    def moody(config, **way):
        if config.seed == 1:
            raise LikewiseError("train: not today")
        return real(config, **way)

    with monkeypatch.context() as change:
        change.setattr(fit, "train", moody)
        with pytest.raises(SystemExit) as stop:
            cli.main(["bench", config.grid, "--out", config.out, "--device", "cpu", "--metrics", "R@1", "R@2"])
    said = " ".join(capsys.readouterr().out.split())
    assert stop.value.code == 1 and "failed: dim 8, seed 1: train: not today. Again: likewise bench " in said
    lines = Path(config.out, "table.md").read_text("utf-8").splitlines()
    (note,) = [line for line in lines if line.startswith("- failed: dim 8, seed 1: ")]
    command = shlex.split(note.partition(". Again: ")[2])
    assert command[0] == "likewise" and command[-2:] == ["--only", "4"]
    cli.main(command[1:])
    assert [r["status"] for r in read_csv(Path(config.out))] == ["finished", "new", "finished", "finished"]


def test_folds_are_scored_apart_and_together(grid):
    config = grid('protocol = ["ClassFolds(folds=2)"]\nlr = [3e-3, 1e30]\nseed = [0, 1]')
    sheet = bench(config)
    row = ("ClassFolds(folds=2)", "0.003")
    columns = ["separated, R@1", "separated, MAP@R", "concatenated, R@1", "concatenated, MAP@R"]
    assert list(shown(sheet, *row)) == list(shown(sheet, row[0], "1e+30")) == columns  # also where nothing is known
    lines = [r for r in read_csv(sheet.folder) if r["lr"] == "0.003"]
    assert [(r["cell"], r["seed"], r["fold"]) for r in lines] == [
        ("1", "0", "0"), ("1", "0", "1"), ("2", "1", "0"), ("2", "1", "1"),
    ]  # fmt: skip
    protocols = [Run(r["run"]).about["config"]["protocol"] for r in lines[:2]]
    assert "fold=0" in protocols[0] and "fold=1" in protocols[1]
    each = [sum(float(r["MAP@R"]) for r in lines if r["seed"] == seed) / 2 for seed in ("0", "1")]
    assert shown(sheet, *row)[columns[1]].ours.startswith(f"{100 * sum(each) / 2:.1f} [")
    assert shown(sheet, *row)[columns[3]].ours != shown(sheet, *row)[columns[1]].ours
    assert any("concatenated: their embeddings joined" in note for note in sheet.notes)
    assert "fold" in bench(grid("seed = [0]\nprotocol = ['ClassFolds(folds=2)']", list=True)).columns


def test_numbers_chosen_on_the_test_part_stand_apart(grid):
    assert shown(bench(grid("seed = [0]")), "all the same")["R@1"].of == "1 run"
    sheet = bench(grid('test_every = ["4"]\nseed = [0]'))
    (line,) = read_csv(sheet.folder)
    best = Run(line["run"]).scores["best_test_epoch"]
    found = shown(sheet, "4")
    assert list(found) == ["R@1", "MAP@R", "R@1 (best test epoch)", "MAP@R (best test epoch)"]
    assert [found[f"{m} (best test epoch)"].ours for m in ("R@1", "MAP@R")] == [
        f"{100 * best[m]:.1f}" for m in ("R@1", "MAP@R")
    ]
    assert any("selected on the test split" in note for note in sheet.notes)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('loss = ["Triplet()", "Triplet(margin=0.2)"]', "loss Triplet() and loss Triplet(margin=0.2) are the same run"),
        (
            'loss = ["Triplet(margn=2)"]',
            "loss Triplet(margn=2): Triplet has no argument 'margn'; did you mean 'margin'?",
        ),
        ('recipe = ["margin", "margn"]', "no 'margn'; did you mean 'margin'"),
        ("dim = [8, 0]", "bench: dim 0: train: dim must be 1 or more"),
        ('data = ["nowhere.npz"]', "nowhere.npz"),
    ],
)
def test_nothing_is_trained_when_one_cell_is_wrong(grid, tmp_path, lines, words):
    with pytest.raises(LikewiseError) as error:
        bench(grid(lines))
    assert words in str(error.value)
    assert not (tmp_path / "out").exists()


def test_list_and_table_on_the_command_line(grid, tmp_path, capsys):
    config = grid("seed = [0, 1]")
    words = ["bench", config.grid, "--out", config.out, "--device", "cpu"]
    cli.main([*words, "--list"])
    out = capsys.readouterr().out
    assert out.count(" new ") == 2
    assert "2 of 2 trainings are not finished" in out
    assert not (tmp_path / "out").exists()
    cli.main(words)
    out = capsys.readouterr().out
    assert re.search(r"\[\d+\.\d to \d+\.\d\]", out)
    assert "table.html (and .md, .tex, .csv)" in out
    cli.main([*words, "--list"])
    assert "0 of 2 trainings are not finished" in capsys.readouterr().out


def test_a_grid_without_trainings_is_drawn_at_once(tmp_path, monkeypatch, capsys):
    file, out = tmp_path / "toy.toml", tmp_path / "out"
    file.write_text('title = "A toy"\nnote = "As printed."\nthen = ["toy_bounds"]\n', "utf-8")
    monkeypatch.setattr(module, "choose_device", None)
    monkeypatch.setattr(module, "plan_grid", None)  # no data is read
    cli.main(["bench", str(file), "--out", str(out), "--quick"])
    said = capsys.readouterr().out
    assert "A toy" in said and "As printed." in said and "table.html" in said and "results.csv" not in said
    assert {f.name for f in out.iterdir()} == {"table.html", "table.md", "toy_bounds.png", "toy_bounds.csv"}
    page, text = ((out / f"table.{kind}").read_text("utf-8") for kind in ("html", "md"))
    assert page.count("data:image/png;base64,") == 1 and 'id="table"' not in page and "As printed." in page
    assert text.startswith("# A toy\n\n![Confidences with two lower bounds](toy_bounds.png)\n\n- As printed.\n- ")
    assert bench(Bench(str(file), list=True)).lines == []
    with pytest.raises(LikewiseError, match="trains nothing, got --data, --only"):
        bench(Bench(str(file), data="cub200", only=("1",)))


def test_what_is_there_can_be_summed_up_without_training(grid):
    lines = "seed = [0, 1]"
    bench(grid(lines, only=("seed=0",)))
    sheet = bench(grid(lines, train=False))
    assert [len(e.values) for e in sheet.entries] == [1, 1]
    assert [r["status"] for r in read_csv(sheet.folder)] == ["finished", "new"]


def test_a_row_that_no_paper_prints_is_named_before_anything_is_trained(grid, tmp_path):
    lines = '[[axes.method]]\nname = "ours"\npublished = "{}"\n[published]\npaper = "procsim"\ntable = "5"'
    lines = lines.replace("[[axes.method]]", "seed = [0]\n[[axes.method]]")
    with pytest.raises(LikewiseError, match="'ProcSin'; did you mean 'ProcSim'"):
        bench(grid(lines.format("ProcSin")))
    assert not (tmp_path / "out").exists()
    assert len(bench(grid(lines.format("ProcSim"), list=True)).lines) == 1


def test_only_some_cells_are_trained_and_the_others_named_as_missing(grid):
    lines = "dim = [4, 8]\nseed = [0, 1]"
    sheet = bench(grid(lines, only=("dim=8", "seed=1")))
    assert [r["status"] for r in read_csv(sheet.folder)] == ["new", "new", "new", "finished"]
    assert "Missing: 3 of 4 trainings: 4, 0; 4, 1; 8, 0" in sheet.notes
    assert (shown(sheet, "8")["R@1"].of, shown(sheet, "4")["R@1"].ours) == ("1 of 2", "-")
    listed = bench(grid(lines, only=("3", "4"), list=True))
    assert [line[:4] for line in listed.lines] == [["3", "8", "0", "new"], ["4", "8", "1", "finished"]]
    sheet = bench(grid(lines, only=("3",)))
    assert [r["status"] for r in read_csv(sheet.folder)] == ["new", "new", "finished", "finished"]
    assert " to " in shown(sheet, "8")["R@1"].ours and "Missing: 2 of 4 trainings: 4, 0; 4, 1" in sheet.notes
    with pytest.raises(LikewiseError, match="no dim called '16'"):
        bench(grid(lines, only=("dim=16",)))


def test_tables_share_their_runs_unless_out_says_otherwise(grid, tmp_path, monkeypatch, nobody):
    monkeypatch.chdir(tmp_path)
    first = bench(grid("dim = [4, 8]\nseed = [0]", out=None))
    assert first.folder == Path("bench/grid")
    assert {Path(r["run"]).parent for r in read_csv(first.folder)} == {Path("bench/runs")}
    config = grid("dim = [8]\nseed = [0]", out=None)
    other = Path(config.grid).rename(tmp_path / "other.toml")
    nobody()
    second = bench(Bench(str(other), device="cpu", quiet=True))
    assert second.folder == Path("bench/other") and shown(second, "8")["R@1"].ours == shown(first, "8")["R@1"].ours


PAPER = f"""
base = "procsim-table5"
[published]
dataset = "CUB200"
{SETTINGS}
backbone = "features"
[axes]
seed = [7, 8]
noise.without = ["semantic 0.1", "semantic 0.2", "semantic 0.5", "uniform 0.1", "uniform 0.2"]
[[axes.method]]
name = "mine"
loss = "Triplet(margin=0.4)"
published = "ProcSim"
[[axes.method]]
name = "new"
"""


def test_printed_numbers_stand_beside_ours_and_what_differs_is_said(grid):
    sheet = bench(grid("", PAPER))
    mine, new = (shown(sheet, name)["uniform 0.5, R@1"] for name in ("mine", "new"))
    mean = sum(100 * float(r["R@1"]) for r in read_csv(sheet.folder) if r["method"] == "mine") / 2
    assert mine.ours.startswith(f"{mean:.1f} [") and mine.ours.endswith("†") and mine.printed == "60.8"
    assert mine.difference == f"{round(mean, 1) - 60.8:+.1f}".replace("-", "\N{MINUS SIGN}")
    assert new.printed == "" and "†" not in new.ours  # the paper has no such method
    title = headline(sheet)
    assert "not a reproduction: data toy.npz, not cub200; loss Triplet(margin=0.4), not MultiSimilarity(" in title
    assert "backbone features, not resnet50" in title
    assert "seed" not in title
    assert shown(sheet, "LSD")["uniform 0.5, R@1"].printed == "57.2"  # only printed
    assert not any("semantic" in place for place in shown(sheet, "mine"))  # the file leaves that column out
    text = (sheet.folder / "table.md").read_text("utf-8")
    assert f"(60.8, {mine.difference})" in text and "published only" in text


def test_cells_are_listed_without_the_data(tmp_path, monkeypatch, capsys):
    """Only the states of the trainings need it; a --root that is given must hold it."""
    monkeypatch.chdir(tmp_path)
    cli.main(["bench", "procsim-table1:print", "--list", "--only", "method=MS", "seed=1", "noise=none"])
    said = " ".join(capsys.readouterr().out.split())
    assert "as printed" in said and "1 of 210 cells; add --root" in said
    table = bench(Bench("training-strategies-table4", list=True, device="cpu"))
    assert table.columns == ["cell", "method", "seed"] and len(table.lines) == 24 * 5
    assert table.lines[0] == ["1", "ImageNet", "0"] and table.lines[-1] == ["120", "R-Triplet", "4"]
    for wrong in ({"root": str(tmp_path)}, {"set": ("lr=-1",)}):
        with pytest.raises(LikewiseError):
            bench(Bench("training-strategies-table4", list=True, device="cpu", **wrong))
    assert not list(tmp_path.iterdir())


def test_without_a_grid_the_tables_are_listed():
    table = bench(Bench(list=True))
    found = dict(table.lines)
    assert list(found) == table_names() and found["influence-table1"] == read_grid("influence-table1").title
    assert found["procsim-table1"].endswith("table 1); also procsim-table1:print")
    with pytest.raises(LikewiseError, match="must be the name of a paper's table or a .toml file, got none"):
        bench(Bench())


def test_the_papers_tables_can_be_planned_in_small(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = [name for name in table_names() if not read_grid(name).is_figure_only]
    for name in trained[::8]:  # the tests of tables lay all of them out
        table = bench(Bench(name, quick=True, list=True, device="cpu"), say=lambda line: None)
        assert table.folder == Path("bench") / f"{name}-quick" and 4 <= len(table.lines) <= 100
        assert {line[-2] for line in table.lines} == {"new"} and "of" in table.notes[0]
        assert len({line[-1] for line in table.lines}) == len(table.lines)
    assert not (tmp_path / "bench").exists()


@pytest.mark.slow
def test_a_papers_table_in_small_on_the_command_line(tmp_path, capsys):
    small = ["steps=1", "sampler.batch=24", "data=glyphs(classes=24, per_class=6)"]
    words = ["bench", "influence-table1", "--quick", "--set", *small, "--device", "cpu", "--out", str(tmp_path)]
    cli.main([*words, "--quiet"])
    assert "table.html" not in capsys.readouterr().out
    cli.main(words)
    said = " ".join(capsys.readouterr().out.split())
    assert all(name in said for name in ("ProxyNCA++", "ProxyAnchor", "SoftTriple")) and "over 2 seeds" in said
    assert "Most wrong classes: two runs of one method share" in said
    assert "In the study" not in said and "69.04" not in said  # glyphs are not the paper's birds
    assert (tmp_path / "overlap.png").stat().st_size > 5000
    assert {Run(r["run"]).about["config"]["steps"] for r in read_csv(tmp_path)} == {1}
