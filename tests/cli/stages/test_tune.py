import pytest
from likewise.config import Tune
from likewise.errors import LikewiseError

from likewise.cli.stages.tune import tune

pytest.importorskip("optuna")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LikewiseError, match=r"nowhere\.toml"):
        tune(Tune(str(tmp_path / "nowhere.toml"), ranges=("lr=1e-4..1e-2 log",), out=str(tmp_path / "out")))
