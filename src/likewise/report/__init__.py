"""The report: one HTML page about runs, made of sections."""
