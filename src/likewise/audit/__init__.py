"""Audit: which labels are probably wrong, which pairs a model confuses, and what causes it."""
