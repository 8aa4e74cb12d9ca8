"""The run folder: identity, artifacts, usage, environment, and opening a run."""
