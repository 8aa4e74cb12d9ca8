"""A calibration from embeddings: its parts agree with each other, and what it needs."""

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.deploy.calibration.fit_calibration import Target, at_most, build_calibration
from likewise.runs.calibration import Validation, check


def held(classes=30, each=8, spread=0.5, similarity="cosine"):
    rng, y = np.random.default_rng(0), np.repeat(np.arange(classes), each)
    z = rng.normal(size=(classes, 8))[y] + spread * rng.normal(size=(len(y), 8))
    return Validation(z.astype(np.float32), y, tuple(f"class {c}" for c in range(classes)), similarity)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_its_parts_agree(similarity):
    data, steps = held(similarity=similarity), []
    made = build_calibration(data, Target(rate=0.2), lambda: steps.append(1))
    check(made)
    assert len(steps) == 3 and made.pair.observed <= 0.2 and made.unknown.observed <= 0.2
    unit = data.z / np.linalg.norm(data.z, axis=1, keepdims=True)
    sim = unit @ unit.T if similarity == "cosine" else -np.linalg.norm(data.z[:, None] - data.z, axis=2)
    apart = data.y[:, None] != data.y
    # classes of one size: the mean over pairs of classes is that over pairs of images; one pair may sit at the threshold
    assert (sim >= made.pair.value)[apart].mean() == pytest.approx(made.pair.observed, abs=1e-4)
    other = np.where(apart, sim, -np.inf).max(1)
    assert made.is_unknown(other).mean() == pytest.approx(1 - made.unknown.observed, abs=0.01)
    own = np.where(apart | np.eye(len(sim), dtype=bool), -np.inf, sim).max(1)
    assert made.prevalence == pytest.approx((own >= other).mean(), abs=1e-6)
    assert np.all(np.diff(made.probability(np.linspace(sim.min(), sim.max(), 50))) >= 0)
    assert len(made.curves["pair_bound"]) == len(made.curves["pair_errors"]) <= 200


def test_few_classes_and_lonely_images():
    with pytest.raises(LikewiseError, match="there must be 3 validation classes or more, got 2"):
        build_calibration(held(2), Target())
    with pytest.raises(LikewiseError, match="a validation class must have two images or more"):
        build_calibration(held(20, 1), Target())
    assert build_calibration(held(3), Target()).pair.value is None


def test_rows_of_all_classes_as_equally_as_possible():
    label = np.repeat([3, 5, 9], [50, 4, 20])
    kept = at_most(np.arange(74), label, 20)
    assert len(kept) == 20 and (np.diff(kept) > 0).all()
    assert np.bincount(label[kept])[[3, 5, 9]].tolist() == [8, 4, 8]
    assert at_most(np.arange(74), label, 74).tolist() == list(range(74))
