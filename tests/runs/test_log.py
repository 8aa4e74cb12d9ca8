"""log.jsonl survives a crash and a resumed training."""

import json
import os

import pytest
from likewise.types import LikewiseError

from likewise.runs.folder import Run
from likewise.runs.log import TEST_PREFIX, best_test_epoch, read_log


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_the_log_survives_a_cut_line_and_rewinds(run):
    run.log([{"step": s, "loss": 1.0} for s in (10, 20, 30)])
    with (run.path / "log.jsonl").open("a") as file:
        file.write('{"step": 40, "lo')
    assert [line["step"] for line in run.read_log()] == [10, 20, 30]
    run.rewind_log(20)
    assert [line["step"] for line in run.read_log()] == [10, 20]
    for text in (b"\xff\xfe", b"7", b"[" * 100_000, b"1" * 5000):
        (run.path / "log.jsonl").write_bytes(b'{"step": 1}\n' + text + b'\n{"step": 2}\n')
        with pytest.raises(LikewiseError, match="line 2 of .*log.jsonl is damaged .*delete that line"):
            run.read_log()


def test_the_best_test_epoch_is_the_best_of_every_metric():
    lines = [{"step": 1, f"{TEST_PREFIX}R@1": 0.5, f"{TEST_PREFIX}MAP@R": 0.2}, {"step": 2, "loss": 1.0}]
    lines += [{"step": 3, f"{TEST_PREFIX}R@1": 0.4, f"{TEST_PREFIX}MAP@R": 0.3}]
    assert best_test_epoch(lines) == {"R@1": 0.5, "MAP@R": 0.3} and best_test_epoch(lines[1:2]) is None


@pytest.mark.parametrize(
    "line",
    [
        {"step": None}, {"step": "4"}, {"step": 1.5}, {"step": 4, "loss": "x"}, {"step": 4, "lr": [0.1]}, {"val R@1": "high"},
        {"test R@1": None}, {"sample_weights": 3}, {"relabelling": {"labels used": "all"}}, {"suspicion": {"edges": [0]}},
    ],
)  # fmt: skip
def test_values_of_another_type_are_an_error(tmp_path, line):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 0.5}\n' + json.dumps(line) + "\n")
    with pytest.raises(LikewiseError, match=r"line 2 of .*log.jsonl is damaged \(the value of .* has another type\)"):
        read_log(tmp_path)


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="the system cannot refuse links")
def test_lines_are_not_written_through_a_link(run, tmp_path):
    (tmp_path / "own.txt").write_text("the user's own text")
    (run.path / "log.jsonl").symlink_to(tmp_path / "own.txt")
    with pytest.raises(OSError, match="log.jsonl"):
        run.log([{"step": 1}])
    assert (tmp_path / "own.txt").read_text() == "the user's own text"
