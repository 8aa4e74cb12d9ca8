"""The decision that follows from state, score and confidence."""

import pytest

from likewise.curate.audit.states import rare_states, suggested_decision


@pytest.mark.parametrize(
    ("state", "score", "confidence", "decision"),
    [
        ("ok", 0.7, None, "keep"),
        ("unknown", None, None, "keep"),
        ("off-topic", 0.9, None, "remove"),
        ("off-topic", None, 1.0, "remove"),  # never relabelled
        ("flagged", 0.1, 0.6, "relabel"),  # 0.9 * 0.6 = 0.54
        ("flagged", 0.4, 0.8, "remove"),  # 0.6 * 0.8 = 0.48
        ("flagged", 0.49, 0.9, "remove"),  # the given label is likelier than the suggested one
        ("flagged", 0.0, 0.5, "relabel"),
        ("conflict", 0.8, 1.0, "keep"),
        ("conflict", 0.2, 0.9, "relabel"),
        ("conflict", 0.5, 1.0, "remove"),  # two labels, equally likely
        ("conflict", 0.4, 0.6, "remove"),
    ],
)
def test_decisions(state, score, confidence, decision):
    assert suggested_decision(state, score, confidence) == decision


def test_states_that_some_sample_has():
    parts = {"train": {"states": {"ok": 3, "unknown": 1, "conflict": 0}}, "test": {}}
    assert rare_states({"parts": parts}) == ["unknown"]
