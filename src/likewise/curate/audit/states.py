"""States of audited samples, and the decision that an audit suggests: keep the label, relabel the sample, or remove it."""

from __future__ import annotations

from typing import Literal

STATE_DESCRIPTIONS = {
    "ok": "the label is at least as likely right as wrong",
    "flagged": "the label is more likely wrong than right",
    "conflict": "an exact copy of the image has another label",
    "off-topic": "the image probably fits no class",
    "unknown": "the label cannot be scored",
}
"""State of an audited sample -> its meaning."""

SuggestedDecision = Literal["keep", "relabel", "remove"]

RARE_STATES = ("conflict", "off-topic", "unknown")
"""States that a summary names only if some sample has them."""

REVIEWED_STATES = ("flagged", "conflict", "off-topic")
"""States of samples that people should look at, and that a retraining changes."""

MIN_RELABEL_PROBABILITY = 0.5
"""Smallest probability of the suggested label with which a sample is relabelled."""


def suggested_decision(state: str, score: float | None, confidence: float | None) -> SuggestedDecision:
    """Return what to do with a sample, from the state, label score and confidence that the audit found.

    A suspect label is replaced if the suggested label is likelier than not, otherwise the sample is removed. Of exact copies with
    several labels, the label that is likelier than not stays; if there is none, all copies are removed. A sample that fits no
    class is never relabelled.
    Formula: P(suggested label) = (1 - score) * confidence
    """
    if state == "off-topic":
        return "remove"
    if state not in ("flagged", "conflict") or score is None or score > 0.5:
        return "keep"
    likely = (1 - score) * (confidence or 0.0)
    return "relabel" if likely >= MIN_RELABEL_PROBABILITY and likely > score else "remove"


def rare_states(about: dict) -> list[str]:
    """Return the states of `RARE_STATES` that some sample has, from the content of audit.json."""
    counts = [part.get("states", {}) for part in about["parts"].values()]
    return [state for state in RARE_STATES if any(count.get(state) for count in counts)]
