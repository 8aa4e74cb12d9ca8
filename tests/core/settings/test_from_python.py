"""Python values as settings: what the command line would have written."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from likewise.config import Evaluate, Noise, Report, Search, Train
from likewise.errors import LikewiseError

from likewise import losses, noise, terms
from likewise.core.settings.from_python import make_config, plain_settings
from likewise.runs.folder import Run


def test_values_become_what_flags_would_be(tmp_path):
    made = make_config(
        Train, data=tmp_path, loss=losses.Triplet(margin=0.1), terms=[terms.SelfDistillation], steps=40, seed=np.int64(3),
        lr=torch.tensor(0.5), metrics="R@1", crop_scale=[0.2, 1.0], freeze_bn=np.bool_(True), warmup=np.int32(2), dim=4,
    )  # fmt: skip
    assert made == Train(
        data=str(tmp_path), loss=made.loss, terms=("SelfDistillation()",), steps=40, seed=3, lr=0.5, metrics=("R@1",),
        crop_scale=(0.2, 1.0), freeze_bn=True, warmup="2", dim=4,
    )  # fmt: skip
    assert made.loss.startswith("Triplet(margin=0.1") and type(made.seed) is int and made.freeze_bn is True
    assert make_config(Noise, data="d", model=noise.Uniform(share=0.2), out=Path("n.csv")).model.startswith("Uniform(")


def test_runs_are_paths_and_one_stands_for_several(tmp_path):
    run = Run(tmp_path / "run")
    assert make_config(Report, runs=run).runs == (str(run.path),)
    assert make_config(Report, runs=[run, "z.npz"]).runs == (str(run.path), "z.npz")
    assert make_config(Search, target=run, query=3, remove=np.array([1, 2])) == Search(
        str(run.path), query="3", remove=(1, 2)
    )


def test_a_name_that_is_no_setting_suggests_the_nearest():
    with pytest.raises(LikewiseError, match=r"train has no setting 'loss_function'.*It takes: data, root"):
        plain_settings(Train, {"loss_function": "Triplet()"})
    with pytest.raises(LikewiseError, match=r"has no setting 'metric'; did you mean 'metrics'\?"):
        plain_settings(Evaluate, {"metric": ("R@1",)})


def test_a_setting_that_takes_numbers_or_text_keeps_numbers():
    @dataclass
    class Both:
        value: int | str = 0

    Both.__annotations__["value"] = int | str
    assert plain_settings(Both, {"value": 3}) == {"value": 3}


class Mine(losses.Triplet):
    """A loss of the user's own."""


def test_a_class_of_ones_own_keeps_its_module_and_a_function_is_refused():
    assert plain_settings(Train, {"loss": Mine})["loss"] == f"{__name__}.Mine()"
    assert plain_settings(Train, {"loss": losses.Triplet})["loss"] == "Triplet()"
    with pytest.raises(LikewiseError, match="cannot be the function .*; name it as text, 'my_module.test_a_class"):
        plain_settings(Train, {"loss": test_a_class_of_ones_own_keeps_its_module_and_a_function_is_refused})


def test_a_single_value_stands_for_a_tuple_of_one():
    assert plain_settings(Search, {"remove": 5})["remove"] == (5,)
