"""The files of a search: settings to be read again, and every trial with its reason."""

import pytest
from likewise.config import Tune

from likewise.papers.grid import as_train, read_grid
from likewise.papers.tune import tune

pytest.importorskip("optuna")


@pytest.mark.slow
def test_the_best_settings_can_be_read_by_bench_and_tune(search_config):
    found = tune(search_config("lr=1e-4..1e-1 log", "loss.base=0..1", trials=2))
    grid = read_grid(found.folder / "best.toml")
    again = as_train(grid.settings, evaluate=False, device="cpu", allow_imports=False)
    assert again == found.best
    assert again.lr == found.about["best"]["values"]["lr"]
    assert grid.ranges == {"lr": "1e-4..1e-1 log", "loss.base": "0..1"}
    more = tune(
        Tune(str(found.folder / "best.toml"), trials=1, out=str(found.folder / "more"), device="cpu", quiet=True)
    )
    assert more.about["count"]["complete"] == 1


def test_what_fails_is_worth_nothing_and_listed_with_its_reason(search_config):
    found = tune(search_config("loss=Triplet()|Triplet(margin=-1.0)", "lr=1e-3|1e30", trials=8, sampler="random"))
    failed = [t for t in found.about["trials"] if t["state"] == "failed"]
    assert found.about["count"]["failed"] == len(failed)
    assert found.about["count"]["complete"] + len(failed) == 8
    assert all(t["value"] == 0 for t in failed)
    reasons = {(t["values"]["loss"], t["values"]["lr"]): t["reason"] for t in failed}
    assert "margin must be 0 or more" in reasons["Triplet(margin=-1.0)", "1e-3"]
    assert "z must be unit vectors" in reasons["Triplet()", "1e30"]
    assert found.about["best"]["values"] == {"loss": "Triplet()", "lr": "1e-3"}
