from likewise.config import Calibrate

from likewise.cli.stages.calibrate import calibrate


def test_a_run_without_enough_classes_is_told_so(run):
    found = calibrate(Calibrate(str(run.path), far=0.01, device="cpu", quiet=True))
    assert found.calibration.pair.value is None and (run.path / "calibration.json").exists()
    assert "4 validation classes can promise" in found.calibration.pair.reason
