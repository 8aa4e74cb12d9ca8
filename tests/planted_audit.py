"""Embeddings with planted wrong labels, and a forecast of a review, for those who read them."""

import numpy as np

from likewise.core.files import write_json
from likewise.curate.audit.read import FORECAST_FILE


def write_features(file, wrong=24, split=False, classes=14, size=12):
    """Write Gaussian classes, of whose labels some are wrong, as embeddings; return the true labels."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), size)
    x = 2 * rng.standard_normal((classes, 16))[y] + rng.standard_normal((len(y), 16))
    given, rows = y.copy(), rng.permutation(len(y))[:wrong]
    given[rows] = (y[rows] + rng.integers(1, classes, wrong)) % classes
    more = {"split": np.where(y % 2, "test", "train")} if split else {}
    np.savez(file, z=x.astype(np.float32), y=given, **more)
    return y


def write_forecast(folder, **changes):
    line = {"gain": 0.02, "low": -0.01, "high": 0.05}
    none = dict.fromkeys(line, 0.0)
    about = {
        "order": "suspicion", "reason": "", "suspects": 40, "flat_at": 20, "start": {"R@1": 0.5, "MAP@R": 0.3},
        "curve": [
            {"k": 0, "wrong": 0, "minutes": 0, "R@1": none, "MAP@R": none},
            {"k": 20, "wrong": 15, "minutes": 1.3, "R@1": line, "MAP@R": line},
            {"k": 40, "wrong": 20, "minutes": 2.6, "R@1": line, "MAP@R": line},
        ],
    } | changes  # fmt: skip
    write_json(folder / FORECAST_FILE, about)
    return about
