"""Numerical methods without networks or runs: k-means, class densities, intervals, significance tests, the label-noise model."""
