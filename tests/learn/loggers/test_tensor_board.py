"""Event files as TensorBoard itself reads them."""

import pytest
from likewise.loggers import TensorBoard
from likewise.types import LikewiseError

from likewise.core.errors import require_package


def curves(folder):
    """Name -> [(step, value)], from all event files of a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {name: [(e.step, e.value) for e in read.Scalars(name)] for name in read.Tags()["scalars"]}


def test_what_is_told_is_read_back(tmp_path):
    logger = TensorBoard()
    key = logger.start("birds", tmp_path, {"dim": 8}, None)
    logger.log(10, {"loss": 0.5, "lr/head": 0.25})
    logger.log(20, {"loss": 0.25})
    logger.end({"test R@1": 0.75})
    assert curves(tmp_path / key) == {
        "loss": [(10, 0.5), (20, 0.25)], "lr/head": [(10, 0.25)], "test R@1": [(20, 0.75)],
    }  # fmt: skip


def test_going_on_adds_and_beginning_anew_empties(tmp_path):
    first, again, anew = TensorBoard(), TensorBoard(), TensorBoard()
    key = first.start("birds", tmp_path, {}, None)
    first.log(10, {"loss": 0.5})
    first.end(None)
    again.start("birds", tmp_path, {}, key)
    again.log(20, {"loss": 0.25})
    again.end({})
    assert curves(tmp_path / key) == {"loss": [(10, 0.5), (20, 0.25)]}
    (tmp_path / key / "mine.txt").write_text("a note")
    anew.start("birds", tmp_path, {}, None)
    anew.log(10, {"loss": 1.0})
    anew.end({})
    assert curves(tmp_path / key) == {"loss": [(10, 1.0)]} and (tmp_path / key / "mine.txt").exists()


def test_a_missing_package_is_said_with_its_extra():
    require_package("json", "Somebody")
    with pytest.raises(LikewiseError, match=r"WandB: .*pip install 'likewise\[no_such\]'"):
        require_package("no_such", "WandB")
