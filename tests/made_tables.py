"""Data folders of small files, and audits with corrected tables beside them, for tests of `likewise apply`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from likewise.core.files import write_csv
from likewise.curate.audit.apply_steps import FOLDER_RECORD, record_of

RECORDS = (FOLDER_RECORD, record_of(Path("corrected.csv")).name)


def write_files(root: Path, paths) -> None:
    """Write a file at each path below a folder; its content is unique."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(os.fsencode(f"image {path}"))


def write_table(file: Path, root: Path, labels: dict[str, str]) -> Path:
    """Write a table of path and label, with whole paths."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_csv(file, ("path", "label"), ((root / path, label) for path, label in labels.items()))
    return file


def write_audit(folder: Path, root: Path, given: dict[str, str], corrected: dict[str, str]) -> Path:
    """Write an audit of images with their given labels, and return the corrected table beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"title": "photos", "root": str(root), "rows": len(given), "pictures": True}
    (folder / "audit.json").write_text(json.dumps(about))
    names = ("row", "path", "label", "score", "state", "suggested", "confidence", "margin", "reason", "split")
    lines = ((row, path, label, 0.9, "ok", *[""] * 5) for row, (path, label) in enumerate(given.items()))
    write_csv(folder / "audit.csv", names, lines)
    return write_table(folder / "corrected.csv", root, corrected)


def files(root: Path) -> dict[str, str]:
    """All files below a folder by path, without the records that `apply` keeps, and their temporary files after a kill."""
    found = (Path(folder, name) for folder, _, names in os.walk(root) for name in names if not is_record(name))
    return {file.relative_to(root).as_posix(): os.fsdecode(file.read_bytes()) for file in found}


def is_record(name: str) -> bool:
    return any(record in name for record in RECORDS)
