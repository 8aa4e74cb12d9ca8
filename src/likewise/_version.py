"""The version of likewise, readable without importing anything else."""

__version__ = "0.1.0"
