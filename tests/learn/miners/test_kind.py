import pytest
from likewise.miners import HardPairs, SemiHard
from likewise.types import LikewiseError

from likewise.learn.miners._kind import check_miner_kind


def test_a_miner_must_yield_what_the_loss_uses():
    check_miner_kind(None, "pairs", "Circle", "HardPairs()")
    check_miner_kind(HardPairs(), "pairs", "Circle", "HardPairs()")
    check_miner_kind(SemiHard(), "triplets", "Triplet", "SemiHard()")
    with pytest.raises(
        LikewiseError, match=r"Circle: miner must yield pairs, got SemiHard, which yields triplets; use HardPairs\(\)"
    ):
        check_miner_kind(SemiHard(), "pairs", "Circle", "HardPairs()")
