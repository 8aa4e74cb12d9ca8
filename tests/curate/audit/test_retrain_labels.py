"""A run that is trained again with the labels of a review."""

import pytest
from likewise.config import Audit
from likewise.types import LikewiseError

from likewise.curate.audit.retrain_labels import find_run, retrain_with_decisions
from likewise.data import load
from likewise.data.dataset import inject_noise, make_protocol
from likewise.runs.folder import Run
from likewise.runs.open import read_config

AUDIT = Audit(device="cpu", workers=0, quiet=True)


def silent(_):
    pass


def test_decisions_of_a_review_train_again(run, tmp_path):
    settings = read_config(run)
    items = inject_noise(load(settings.data), make_protocol(settings), settings.noise, settings.seed)
    rows = make_protocol(settings).rows(items, "train").tolist()
    name, about = items.class_name[items.y[rows[-1]]], {"target": str(run.path)}
    labels = {rows[0]: name, rows[1]: None, rows[2]: "a new class"}
    found = retrain_with_decisions(about, labels, AUDIT, tmp_path, silent)
    assert found["changed"] == 1 and found["removed"] == 2  # a class that is not trained is dropped
    [folder] = tmp_path.glob("reviewed-*")
    assert Run(folder / "retrained").done and [row["metric"] for row in found["rows"]]
    assert retrain_with_decisions(about, labels, AUDIT, tmp_path, silent) == found  # the finished one is found
    assert find_run("nowhere", run.path / "audit") == run.path.absolute()  # the run was moved with its audit
    with pytest.raises(LikewiseError, match="the audited run must be at 'nowhere' to be trained again"):
        find_run("nowhere", tmp_path / "audit")
