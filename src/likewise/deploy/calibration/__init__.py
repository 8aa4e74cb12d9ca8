"""Thresholds with a promise, "unknown" and probabilities of neighbours, from the validation classes of a run."""
