"""The files of a table: a line a training in results.csv, failures with their reason, and all formats."""

import csv
from dataclasses import replace

import pytest
import torch
from likewise.config import Bench

from likewise.papers.executors import attempt
from likewise.papers.grid_plan import plan_grid
from likewise.papers.results_table import again, write_table

GRID = """
[settings]
data = "{data}"
sampler = "SamplesPerClass(batch=16, per_class=4)"
dim = 4
steps = 2
metrics = ["R@1"]
[axes]
seed = [0, 1, 2]
"""


@pytest.fixture
def config(features, tmp_path):
    file = tmp_path / "three seeds.toml"
    file.write_text(GRID.format(data=features), "utf-8")
    return Bench(str(file), out=str(tmp_path / "out"), device="cpu", quiet=True)


def test_finished_failed_and_missing_trainings_are_told_apart(config):
    plan = plan_grid(config, print)
    first, second, third = plan.runs
    attempt(first.job.config)
    plan = replace(plan, runs=[first, replace(second, error="train: no"), third])
    sheet = write_table(plan, config, torch.device("cpu"))
    with (plan.folder / "results.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["status"] for line in lines] == ["finished", "failed: train: no", "new"]
    assert float(lines[0]["R@1"]) == first.job.run.scores["metrics"]["R@1"] and lines[1]["R@1"] == lines[2]["R@1"] == ""
    assert sheet.failed == 1
    assert f"failed: seed 1: train: no. Again: {again(config, second)}" in sheet.notes
    assert again(config, second).endswith("--only 2")
    assert {file.name for file in plan.folder.iterdir()} >= {"table.md", "table.tex", "table.html", "table.csv"}
