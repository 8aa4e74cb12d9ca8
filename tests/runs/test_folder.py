import errno
import json
import os
import pickle
import random
import socket

import pytest
import torch
from likewise.errors import RunBusy
from likewise.types import LikewiseError
from safetensors.torch import save_file

from likewise.core.locks import HeartbeatLock, LockHeld
from likewise.runs import folder as module
from likewise.runs.folder import FORMAT, TEST_PREFIX, Run, best_test_epoch, find_target, identity


@pytest.fixture
def run(tmp_path):
    made = Run(tmp_path / "run")
    made.path.mkdir()
    made.write_json("config.json", {"format": FORMAT, "identity": "x", "data": "y", "config": {}})
    return made


def test_a_full_disk_leaves_the_old_file(run, monkeypatch):
    run.save_tensors("model.safetensors", {"a": torch.ones(3)})
    run.save_state({"step": 1})
    before = {p.name: p.read_bytes() for p in run.path.iterdir()}

    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    for write in (
        lambda: run.save_tensors("model.safetensors", {"a": torch.zeros(3)}),
        lambda: run.save_state({"step": 2}),
        lambda: run.write_json("config.json", {}),
        lambda: run.rewind_log(0),
    ):
        with pytest.raises(LikewiseError, match="no space left on the disk.*unchanged"):
            write()
    assert {p.name: p.read_bytes() for p in run.path.iterdir()} == before


def test_what_was_found_out_about_a_network_goes_with_it():
    """Else a run that is trained anew would be judged by what was measured of the one before."""
    from likewise.papers.figures.detection import DETECTION_FILE

    assert {"scores.json", "per_query.parquet", DETECTION_FILE} <= set(module.RESULT_FILES)


def test_opening_someone_elses_run_executes_nothing(run, tmp_path):
    mark = tmp_path / "mark"

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {mark}",)

    (run.path / "state.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(LikewiseError, match="must be a checkpoint of plain tensors"):
        run.load_state()
    torch.save({"step": Evil()}, run.path / "state.pt")
    with pytest.raises(LikewiseError, match="must be a checkpoint of plain tensors"):
        run.load_state()
    (run.path / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(LikewiseError, match="is damaged"):
        run.load_tensors("model.safetensors")
    assert not mark.exists()


def test_folders_that_are_no_runs(tmp_path, run):
    with pytest.raises(LikewiseError, match="it has no config.json"):
        _ = Run(tmp_path).about
    run.write_json("config.json", {"format": FORMAT + 1, "identity": "x", "data": "y", "config": {}})
    with pytest.raises(LikewiseError, match="newer version of likewise"):
        _ = run.about
    for odd in (
        {"format": FORMAT},
        {"format": "1", "identity": "x", "config": {}},
        {"format": 1, "identity": [], "config": {}},
    ):
        run.write_json("config.json", odd)
        with pytest.raises(LikewiseError, match="must have format, identity, data and config"):
            _ = run.about
    for text in ("{", "[1]", "[" * 100_000, f'{{"format": {"9" * 5000}}}', "\xff"):
        (run.path / "config.json").write_text(text, "latin-1")
        with pytest.raises(LikewiseError, match="config.json is damaged"):
            _ = run.about
    with pytest.raises(LikewiseError, match="has no model.safetensors yet"):
        run.load_tensors("model.safetensors")
    assert run.load_state() is None and run.scores is None
    for text in ('{"metrics": {', "[]", '{"metrics": {"R@1": "high"}}', '{"metrics": [1]}', "{}"):
        (run.path / "scores.json").write_text(text)
        with pytest.raises(LikewiseError, match="scores.json is damaged .*delete it"):
            _ = run.scores
    assert run.environment == {}
    for text in ("[]", '{"versions": []}', '{"device": "cpu"}'):
        (run.path / "environment.json").write_text(text)
        with pytest.raises(LikewiseError, match="environment.json is damaged.*delete it"):
            _ = run.environment


def test_one_flipped_bit_is_noticed(run):
    """In the tensors, in their names, in the records of the archive. A flip that changes nothing may pass."""
    a, m = torch.randn(5, 7), torch.randn(40)
    run.save_tensors("best.safetensors", {"a": a, "count": torch.tensor(3)})
    run.save_state({"step": 3, "m": m})
    chance = random.Random(0)
    for name, load, same in (
        ("best.safetensors", lambda: run.load_tensors("best.safetensors"), lambda t: torch.equal(t["a"], a)),
        ("state.pt", run.load_state, lambda s: s["step"] == 3 and torch.equal(s["m"], m)),
    ):
        whole, told = (run.path / name).read_bytes(), []
        for _ in range(150):
            damaged = bytearray(whole)
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
            (run.path / name).write_bytes(damaged)
            try:
                assert same(load()), "other weights, and not a word"
            except LikewiseError as error:
                told.append(str(error))
        assert len(told) > 75 and all(f"{name} " in text and "estore a copy" in text for text in told)
        (run.path / name).write_bytes(b"")
        with pytest.raises(LikewiseError, match=f"{name} .*damaged"):
            load()


def test_tensors_of_runs_without_a_digest_are_read(run):
    save_file({"a": torch.ones(3)}, run.path / "model.safetensors")
    assert run.load_tensors("model.safetensors")["a"].sum() == 3


def test_identity_depends_on_settings_and_data_not_on_order():
    assert identity({"a": 1, "b": 2}, "d") == identity({"b": 2, "a": 1}, "d")
    assert len({identity({"a": 1}, "d"), identity({"a": 2}, "d"), identity({"a": 1}, "e")}) == 3


def test_one_process_trains_in_a_folder(run):
    with run.owned():
        assert (run.path / "lock").exists()
        with (
            pytest.raises(RunBusy, match=f"{os.getpid()} on {socket.gethostname()}"),
            run.owned(),
        ):
            pass
        assert (run.path / "lock").exists()
    assert not (run.path / "lock").exists()
    (run.path / "lock").write_text("damaged")
    with (
        pytest.raises(RunBusy, match="unknown on an unknown machine.*delete .*lock"),
        run.owned(),
    ):
        pass


def test_a_folder_that_another_process_takes_now_is_busy(run, monkeypatch):
    def contested(lock):
        raise LockHeld(lock.file, None)

    monkeypatch.setattr(HeartbeatLock, "acquire", contested)
    with pytest.raises(RunBusy, match="is just locking .*; try again"), run.owned():
        pass


def test_a_target_that_is_not_there_is_named():
    with pytest.raises(LikewiseError, match="compare: there is no 'nowhere'"):
        find_target("nowhere", "compare")


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
    with pytest.raises(LikewiseError, match=r"line 2 of .* another type"):
        Run(tmp_path).read_log()


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="the system cannot refuse links")
def test_lines_are_not_written_through_a_link(run, tmp_path):
    (tmp_path / "own.txt").write_text("the user's own text")
    (run.path / "log.jsonl").symlink_to(tmp_path / "own.txt")
    with pytest.raises(OSError, match="log.jsonl"):
        run.log([{"step": 1}])
    assert (tmp_path / "own.txt").read_text() == "the user's own text"
