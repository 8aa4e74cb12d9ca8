"""bench: every combination is a run, none is trained twice, and the table never shows a bare number."""

import csv

import pytest
from scipy import stats

from likewise import cli
from likewise.configs import Bench
from likewise.errors import LikewiseError
from likewise.run import Run
from likewise.stages import bench as module
from likewise.stages.bench import bench, show

GRID = """
title = "losses | noise"
[settings]
data = "{data}"
sampler = "SamplesPerClass(batch=16, per_class=4)"
dim = 8
length = 12
lr = 3e-3
metrics = ["R@1", "MAP@R"]
[axes]
"""


@pytest.fixture
def grid(features, tmp_path):
    """A grid file with these lines in the end, and settings of bench for it."""

    def grid(lines, **settings):
        file = tmp_path / "grid.toml"
        file.write_text(GRID.format(data=features) + lines, "utf-8")
        return Bench(str(file), **{"out": str(tmp_path / "out"), "device": "cpu", "quiet": True} | settings)

    return grid


def read_csv(folder):
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_grid_is_trained_once_and_summed_up_by_hand(grid, monkeypatch):
    config = grid('loss = ["MultiSimilarity()", "Triplet(margin=0.2)"]\nseed = [0, 1, 2]')
    table = bench(config)
    lines = read_csv(table.folder)
    assert [(r["loss"], r["seed"], r["status"]) for r in lines] == [
        (loss, str(seed), "finished") for loss in ("MultiSimilarity()", "Triplet(margin=0.2)") for seed in range(3)
    ]
    for r in lines:
        run = Run(r["run"])
        assert run.about["identity"] == r["identity"]
        assert run.scores["metrics"]["MAP@R"] == float(r["MAP@R"])
        assert run.about["config"]["seed"] == int(r["seed"])
    assert table.columns == ["loss", "R@1", "MAP@R", "n"]
    values = [100 * float(r["MAP@R"]) for r in lines[:3]]
    mean = sum(values) / 3
    spread = (sum((v - mean) ** 2 for v in values) / 2) ** 0.5
    assert table.lines[0][2:] == [f"{mean:.1f} ± {4.302652730 * spread / 3**0.5:.1f}", "3"]  # t of 0.975 with 2 degrees
    text = (table.folder / "table.md").read_text("utf-8")
    assert f"| Triplet(margin=0.2) | {table.lines[1][1]} | {table.lines[1][2]} | 3 |" in text
    assert "95 % t-interval" in text
    monkeypatch.setattr(module, "Crew", None)  # nobody is there to train: all is finished
    assert bench(config) == table


def test_more_metrics_are_measured_without_training_again(grid):
    lines = "seed = [0, 1]"
    first = bench(grid(lines))
    logs = {r["run"]: Run(r["run"]).read_log() for r in read_csv(first.folder)}
    table = bench(grid(lines, metrics=("R@1", "R@4")))
    assert table.columns == ["R@1", "R@4", "n"]
    assert table.lines[0][0] == first.lines[0][0]
    assert {r["run"]: Run(r["run"]).read_log() for r in read_csv(table.folder)} == logs


def test_a_failure_is_shown_with_its_reason_and_the_others_go_on(grid):
    table = bench(grid("lr = [3e-3, 1e30]\nseed = [0, 1]"))
    assert "±" in table.lines[0][1]
    assert [line[-1] for line in table.lines] == ["2", "0 of 2"]
    assert table.lines[1][1:3] == ["-", "-"]
    (reason,) = [note for note in table.notes if note.startswith("failed: ")]
    assert reason.startswith("failed: lr 1e+30: MultiSimilarity: z must be unit vectors")
    lines = read_csv(table.folder)
    assert [r["status"].split(":")[0] for r in lines] == ["finished", "finished", "failed", "failed"]
    assert lines[2]["MAP@R"] == ""


def test_folds_are_scored_apart_and_together(grid):
    table = bench(grid('protocol = ["ClassFolds(folds=2)"]\nseed = [0, 1]'))
    assert [(line[1], line[-1]) for line in table.lines] == [("separated", "2"), ("concatenated", "2")]
    lines = read_csv(table.folder)
    assert [(r["seed"], r["fold"]) for r in lines] == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    protocols = [Run(r["run"]).about["config"]["protocol"] for r in lines[:2]]
    assert "fold=0" in protocols[0] and "fold=1" in protocols[1]
    each = [sum(float(r["MAP@R"]) for r in lines if r["seed"] == seed) / 2 for seed in ("0", "1")]
    assert table.lines[0][3].startswith(f"{100 * sum(each) / 2:.1f} ± ")
    assert table.lines[1][3] != table.lines[0][3]
    assert any("concatenated: their embeddings joined" in note for note in table.notes)


def test_numbers_chosen_on_the_test_part_stand_apart(grid):
    table = bench(grid("seed = [0]"))
    assert table.lines[0][:2] == [cell for cell in table.lines[0][:2] if cell.endswith(" (1 run)")]
    table = bench(grid('peek_every = ["4"]\nseed = [0]'))
    (line,) = read_csv(table.folder)
    best = Run(line["run"]).scores["best_test_epoch"]
    assert table.columns == ["peek_every", "R@1", "MAP@R", "R@1 (best test epoch)", "MAP@R (best test epoch)", "n"]
    assert table.lines[0][3:5] == [f"{100 * best[m]:.1f} (1 run)" for m in ("R@1", "MAP@R")]
    assert any("chosen by looking at the test part" in note for note in table.notes)


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
    assert "2 of 2 trainings are to be done" in out
    assert not (tmp_path / "out").exists()
    cli.main(words)
    out = capsys.readouterr().out
    assert " ± " in out
    assert "table.md" in out
    cli.main([*words, "--list"])
    assert "0 of 2 trainings are to be done" in capsys.readouterr().out


@pytest.mark.parity
def test_a_shown_mean_is_scipys_interval():
    values = [0.512, 0.534, 0.498, 0.521]
    low, high = stats.t.interval(0.95, 3, sum(values) / 4, stats.sem(values))
    assert show("R@1", values) == f"{100 * (low + high) / 2:.1f} ± {100 * (high - low) / 2:.1f}"
    assert show("rho", [0.25]) == "0.2500 (1 run)"  # no share
    assert show("R@1", [0.5, float("nan")]) == "nan"
    assert show("R@1", []) == "-"
