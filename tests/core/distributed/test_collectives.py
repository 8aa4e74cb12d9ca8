"""Several processes add up, share out and gather as one would by itself, gradients included."""

import pytest
import torch
from likewise.errors import LikewiseError
from ranks_work import SAMPLES, collectives, start_all

from likewise.core.distributed import collectives as ranks
from likewise.core.distributed.process_group import joined

X = [[sample + SAMPLES * column for column in range(4)] for sample in range(SAMPLES)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return {1: [collectives()], **start_all(tmp_path_factory.mktemp("meet"), "collectives")}


@pytest.fixture(params=[1, 2, 3])
def found(request, answers):
    """What every process found, one after another."""
    return answers[request.param]


def test_alone_nothing_is_copied():
    assert ranks.world() == (0, 1)
    x = torch.ones(3, requires_grad=True)
    assert ranks.gathered(x, 3) is x and ranks.total(x) is x and ranks.copied(x) is x and ranks.summed(x) is x
    assert not ranks.highest(x).requires_grad


def test_what_the_environment_says_about_the_others_must_make_sense(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert ranks.started() == 1
    for text in ("x", "", "0", "-1", "2.0", "9" * 50):
        monkeypatch.setenv("WORLD_SIZE", text)
        with pytest.raises(LikewiseError, match=f"WORLD_SIZE must be a number of processes, got '{text}'"):
            ranks.started()
    complete = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, text, words in (
        ("RANK", None, "with WORLD_SIZE=2, RANK must be set too; start the processes with torchrun"),
        ("MASTER_PORT", None, "MASTER_PORT must be set too"), ("RANK", "2", "RANK must be a number from 0 to 1, got '2'"),
        ("RANK", "x", "RANK must be"), ("MASTER_PORT", "99999", "MASTER_PORT must be a number from 1 to 65535"),
    ):  # fmt: skip
        for known, value in (complete | {name: text}).items():
            monkeypatch.delenv(known, raising=False) if value is None else monkeypatch.setenv(known, value)
        with pytest.raises(LikewiseError, match=words), joined(torch.device("cpu")):
            pass
    monkeypatch.setenv("MASTER_PORT", "29500")
    ranks.check_process_variables()


def test_shares_follow_each_other_and_differ_by_one_at_most(found):
    for me, one in enumerate(found):
        for count, shares in one["shares"].items():
            assert [i for s in shares for i in range(count)[s]] == list(range(count))
            sizes = [s.stop - s.start for s in shares]
            assert len(shares) == len(found) and max(sizes) - min(sizes) <= 1
            assert one["my shares"][count] == shares[me]


def test_gathered_by_hand(found):
    """Value sum_i (sum_j<=i x_j)^2, so the slope of x_j is 2 sum_i>=j sum_k<=i x_k."""
    sums = [[sum(X[k][c] for k in range(i + 1)) for c in range(4)] for i in range(SAMPLES)]
    slopes = [[2.0 * sum(sums[i][c] for i in range(j, SAMPLES)) for c in range(4)] for j in range(SAMPLES)]
    for me, one in enumerate(found):
        assert one["gathered"].tolist() == X
        assert one["gathered slope"].tolist() == slopes[SAMPLES * me // len(found) : SAMPLES * (me + 1) // len(found)]


def test_gathered_keeps_whole_numbers_truth_values_and_empty_shares(found):
    for one in found:
        assert one["gathered int"].dtype == torch.int64 and one["gathered int"].tolist() == X
        assert one["gathered bool"].dtype == torch.bool
        assert one["gathered bool"].tolist() == [[value % 3 == 0 for value in row] for row in X]
        assert one["gathered few"].tolist() == [0.0, 1.0]


def test_sums_by_hand(found):
    many = len(found)
    whole = [sum(me + 1 for me in range(many)), sum(2 * me for me in range(many))]
    for me, one in enumerate(found):
        assert one["total"].tolist() == one["summed"].tolist() == whole
        assert one["total slope"].tolist() == [sum((other + 1) * 2 * t for other in range(many)) for t in whole]
        assert one["summed slope"].tolist() == [2 * t for t in whole]
        assert one["copied"].tolist() == [2, -1]
        assert one["copied slope"].tolist() == [sum((other + 1) * 2 * w for other in range(many)) for w in (2, -1)]
        assert one["total given"].tolist() == one["summed given"].tolist() == [me + 1, 2 * me], "what is given stays"


def test_copied_and_summed_together_are_one_function(found):
    """Value (sum_r (r + 1) w)^2 for each w: every process has its whole gradient."""
    factor = sum(me + 1 for me in range(len(found)))
    for one in found:
        assert one["copied summed slope"].tolist() == [2 * factor * factor * w for w in (3, 5)]


def test_highest_by_hand(found):
    for me, one in enumerate(found):
        assert one["highest"].tolist() == [len(found) - 1, 0] and one["highest int"].tolist() == [len(found) - 1, 3]
        assert one["highest given"].tolist() == [me, -me]
