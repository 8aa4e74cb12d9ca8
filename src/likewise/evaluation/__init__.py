"""Scores of runs and embeddings: scoring, comparison, baselines, error overlap, learned hierarchies."""
