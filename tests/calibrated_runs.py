"""Fixtures: a run with 12 validation classes, and its calibration."""

import dataclasses
import shutil

import pytest
from likewise.config import Calibrate, Train

from likewise.deploy.calibration.calibrate import calibrate
from likewise.learn.training.fit import train
from likewise.runs.folder import Run


@pytest.fixture(scope="session")
def with_validation(features, tmp_path_factory):
    """A finished run: 6 classes train, 12 validate, 6 test."""
    return train(Train(
        data=features, out=str(tmp_path_factory.mktemp("runs") / "val"), dim=8, steps=40, lr=3e-3, quiet=True, device="cpu",
        sampler="SamplesPerClass(batch=24, per_class=4)", protocol="UnseenClasses(train=0.75, val=0.667)", validate_every="20",
    ))  # fmt: skip


@pytest.fixture(scope="session")
def calibrated_once(with_validation, tmp_path_factory):
    """The run in another folder, calibrated with rates that 12 classes can promise."""
    folder = shutil.copytree(with_validation.path, tmp_path_factory.mktemp("runs") / "calibrated")
    return calibrate(Calibrate(str(folder), far=0.4, device="cpu", quiet=True))


@pytest.fixture
def open_run(with_validation, tmp_path):
    """The run in a folder of the test's own, not calibrated."""
    return Run(shutil.copytree(with_validation.path, tmp_path / "run ü"))


@pytest.fixture
def calibrated(calibrated_once, open_run):
    """The calibration of `open_run`, which has its files from now on."""
    for name in ("calibration.json", "calibration.npz", "calibration.png"):
        shutil.copy(calibrated_once.run / name, open_run.path)
    return dataclasses.replace(calibrated_once, run=open_run.path)
