"""Many trainings: grids, executors (local, Ray, Slurm), benchmark tables, tuning."""
