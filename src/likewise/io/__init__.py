"""Files written atomically, locks, child processes, progress bars, image files."""
