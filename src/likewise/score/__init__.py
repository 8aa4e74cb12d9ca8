"""Scores: metrics, evaluation of runs and embeddings, intervals, comparison."""
