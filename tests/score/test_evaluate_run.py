"""The network of a run on its own splits: what is written, and a note where many test labels look wrong."""

import numpy as np
import pytest
from likewise.config import Evaluate, Train

from likewise.cli import main as cli
from likewise.learn.training.fit import train
from likewise.report.run_analysis import notes_of
from likewise.report.section import ReportTarget
from likewise.runs.open import OpenRun
from likewise.score.evaluate import evaluate_run

SAID = "test labels look wrong, which lowers the scores; see `likewise audit RUN`"


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A run on 24 well separated classes of 20 vectors, with 10 % of the test labels exchanged; and their number."""
    folder, rng = tmp_path_factory.mktemp("noisy"), np.random.default_rng(0)
    y = np.repeat(np.arange(24), 20)
    x = (rng.normal(size=(24, 16))[y] + 0.4 * rng.normal(size=(480, 16))).astype(np.float32)
    wrong = (y >= 12) & (rng.random(480) < 0.1)
    given = np.where(wrong, 12 + (y + rng.integers(1, 12, 480)) % 12, y)
    np.savez(folder / "toy.npz", x=x, label=given, split=np.where(y < 12, "train", "test"))
    run = train(Train(
        data=str(folder / "toy.npz"), out=str(folder / "run"), dim=12, steps=20, quiet=True, device="cpu",
        sampler="SamplesPerClass(batch=24, per_class=4)",
    ))  # fmt: skip
    return run, int((given != y).sum())


def test_wrong_test_labels_are_counted_in_the_scores_the_terminal_and_the_report(noisy, capsys):
    run, planted = noisy
    found = run.scores["wrong_labels"]
    assert found["of"] == 240 and 0.7 * planted <= found["count"] <= 1.4 * planted
    says = f"about {found['count']} of 240 {SAID}"
    cli.main(["evaluate", str(run.path), "--device", "cpu"])
    assert says in capsys.readouterr().out
    assert any(line.startswith(says) for line in notes_of(ReportTarget("mine", run, scores=run.scores)))
    assert "wrong_labels" not in evaluate_run(
        OpenRun(run, device="cpu", quiet=True), Evaluate(str(run.path), metrics=("R@1",), split="train")
    )


def test_right_labels_are_not_mentioned(settings, tmp_path):
    rng, y = np.random.default_rng(0), np.repeat(np.arange(24), 20)
    x = (rng.normal(size=(24, 16))[y] + 0.4 * rng.normal(size=(480, 16))).astype(np.float32)
    np.savez(tmp_path / "toy.npz", x=x, label=y)
    run = train(Train(**settings | {"data": str(tmp_path / "toy.npz"), "steps": 5}))
    assert run.scores["rows"] == 240 and "wrong_labels" not in run.scores
