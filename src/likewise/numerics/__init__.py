"""Numerical methods without networks or runs: k-means, class densities, bootstrap, significance tests, the label-noise model."""
