"""Files written atomically, processes, progress bars, image files."""
