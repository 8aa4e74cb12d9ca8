"""The sections of the report page, one module each."""

NAMES = (
    "scores",
    "curves",
    "map",
    "galleries",
    "compared",
    "labels",
    "confusion",
    "distances",
    "spectrum",
    "calibration",
    "noise",
    "overlap",
    "tree",
    "notes",
)
"""Modules of this package in the order of the page. Each module defines `SECTION`."""
