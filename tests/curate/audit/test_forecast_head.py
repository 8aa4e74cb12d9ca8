"""The head of a forecast: its file, labels of a review, and its fit with given and reviewed labels."""

import numpy as np
import pytest
import torch
from audit_folder import write_audit
from likewise.types import LikewiseError

from likewise.curate.audit.forecast_head import HEADS_FILE, ForecastHead, read_head, refit_head
from likewise.curate.audit.read import read_findings
from likewise.labels.many_heads import HeadSettings


def make_head(classes=24, size=10, wrong=60, as_given=True):
    """Gaussian classes: the first half trains with wrong labels, the other half tests."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), size)
    x = rng.standard_normal((classes, 12))[y] * np.linspace(2, 0.1, 12) + rng.standard_normal((len(y), 12))
    train = y < classes // 2
    given, rows = y.copy(), rng.permutation(np.flatnonzero(train))[:wrong]
    given[rows] = (y[rows] + rng.integers(1, classes // 2, wrong)) % (classes // 2)
    tensors = (torch.as_tensor(one) for one in (np.arange(len(y)), given, train, x.astype(np.float32)))
    return ForecastHead(*tensors, as_given, 3), torch.as_tensor(y)


def test_it_is_read_again(tmp_path):
    assert read_head(tmp_path) is None
    head, _ = make_head()
    head.write(tmp_path)
    again = read_head(tmp_path)
    assert (
        torch.equal(again.row, head.row)
        and torch.equal(again.given, head.given)
        and torch.equal(again.train, head.train)
    )
    torch.testing.assert_close(again.x, head.x, rtol=2**-10, atol=1e-4)  # half precision
    assert again.scored_as_given is True and again.seed == 3
    broken = dict(np.load(tmp_path / HEADS_FILE)) | {"row": np.arange(3)}
    np.savez(tmp_path / HEADS_FILE, **broken)
    with pytest.raises(LikewiseError, match="must fit together, but do not; audit again"):
        read_head(tmp_path)


def test_labels_of_a_review(tmp_path):
    findings = read_findings(write_audit(tmp_path))  # rows 0-2 wren, 3-5 robin, 6-8 tit, 9-11 owl
    row = torch.tensor([0, 3, 4, 6, 7])
    given = torch.tensor([5, 2, 2, 0, 0])
    head = ForecastHead(row, given, row < 6, torch.zeros(5, 2), False, 0)
    labels = {0: "robin", 3: None, 4: "jay", 7: "jay", 11: "tit"}  # jay is new, row 11 is not among the heads
    found = head.number_labels(findings, labels).tolist()
    assert found[:2] == [2, -1] and found[3] == 0 and found[2] == found[4] > 5
    assert head.given.tolist() == [5, 2, 2, 0, 0]


def test_correct_labels_gain_and_equal_ones_do_not():
    head, true = make_head()
    gain = {row["metric"]: row for row in refit_head(head, true, HeadSettings(dim=8, epochs=6))}
    assert list(gain) == ["R@1", "MAP@R"]
    for row in gain.values():
        assert row["difference"] == pytest.approx(row["after"] - row["before"]) and 0 < row["before"] < 1
    assert gain["MAP@R"]["low"] <= gain["MAP@R"]["difference"] <= gain["MAP@R"]["high"]
    assert gain["MAP@R"]["difference"] > 0
    same = refit_head(head, head.given, HeadSettings(dim=8, epochs=2))
    assert [row["difference"] for row in same] == [0, 0] and same[0]["low"] is None and same[0]["reason"]


def test_test_rows_are_scored_as_the_forecast_says():
    settings = HeadSettings(dim=8, epochs=2)
    head, true = make_head()
    reviewed = torch.where(
        head.train, head.given, torch.where(true % 2 == 0, -1, true)
    )  # half of the test rows removed
    given = refit_head(head, reviewed, settings)
    other, _ = make_head(as_given=False)
    own = refit_head(other, reviewed, settings)
    assert given[0]["before"] == refit_head(head, head.given, settings)[0]["before"]
    assert own[1]["before"] > given[1]["before"]  # fewer classes to confuse
    assert refit_head(other, torch.where(head.train, head.given, -1), settings) == []  # nothing is left to score
