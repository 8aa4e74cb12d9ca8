"""Hand-made calibrations for tests."""

from likewise.runs.calibration import Calibration, Threshold


def threshold(value=0.5, **settings):
    given = {"rate": 0.01, "smallest_rate": 0.002, "observed": 0.004, "true_accepts": 0.9, "classes": 30}
    return Threshold(
        value, **given | {"reason": "" if value is not None else "30 classes promise 0.2 at best"} | settings
    )


def make_calibration(value=0.5, similarity="cosine", **settings):
    """A threshold at `value`, and a probability that rises from 0 at similarity 0 to 1 at similarity 1."""
    given = {
        "pair": threshold(0.6),
        "unknown": threshold(value),
        "knot_sim": (0.0, 1.0),
        "knot_probability": (0.0, 1.0),
    }
    return Calibration(similarity, **given | {"about": {"checkpoint": "best"}} | settings)
