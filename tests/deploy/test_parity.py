"""Embeddings of an export beside those of the run."""

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.deploy.export import compare
from likewise.deploy.model import Model


class Fake(Model):
    similarity = "cosine"

    def __init__(self):
        pass

    def __call__(self, x):
        return x


def test_parity_by_hand():
    own = np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32)
    found = compare(Fake(), lambda x: x + np.float32(2**-14), own, "lines")
    assert found.difference == pytest.approx(2**-14, rel=1e-3) and found.samples == 3
    other = (own + np.float32(2**-14)).astype(float)
    cosines = [float(a @ b / np.sqrt(a @ a) / np.sqrt(b @ b)) for a, b in zip(own.astype(float), other, strict=True)]
    assert found.cosine == pytest.approx(min(cosines), abs=1e-9) and found.neighbours == 1
    assert str(found).startswith(
        "3 lines: embeddings differ by 6.1e-05 at most (up to 0.0001 is allowed), cosine 1.000000"
    )
    alone = compare(Fake(), lambda x: x, own[:1], "line")
    assert alone.neighbours is None and "are equal to the bit" in str(alone) and "neighbour" not in str(alone)
    for wrong in (lambda x: x * np.nan, lambda x: x + 1, lambda x: x[:, :1]):
        with pytest.raises(LikewiseError, match="nothing was written"):
            compare(Fake(), wrong, own, "lines")
