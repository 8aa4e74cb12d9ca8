"""Grids of trainings: plans, executors (local, Ray, Slurm), benchmark tables, tuning."""
