"""Numerical methods without networks or runs: k-means, LDA, bootstrap, significance tests, the label-noise model."""
