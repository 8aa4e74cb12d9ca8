"""Embeddings whose cosines are closer than ranking resolves."""

import numpy as np
import pytest
from score.by_hand import score

from likewise.score.score_table import show_scores


@pytest.mark.parametrize(("offset", "noted"), [(0, False), (100, False), (1000, True), (10_000, True)])
def test_embeddings_of_one_direction_are_noted(tmp_path, capsys, offset, noted):
    """A common component of `offset` times the spread of a coordinate: the order of cosines is rounding from about 1e4 on."""
    rng, y = np.random.default_rng(0), np.arange(120) % 12
    x = rng.normal(size=(12, 16))[y] + 0.1 * rng.normal(size=(120, 16)) + offset
    np.savez(tmp_path / "z.npz", x=x.astype(np.float32), label=y)
    found = score(tmp_path / "z.npz")
    assert ("note" in found) == noted and "note" not in score(tmp_path / "z.npz", similarity="euclidean")
    if noted:
        show_scores({"test split": found})
        assert "nearly one direction" in capsys.readouterr().out
