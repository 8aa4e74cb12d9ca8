"""audit: a run or embeddings -> suspect labels, classes to merge, errors and their causes, near duplicates; a folder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from PIL import Image

from likewise._notebook import view
from likewise.audit.attribution import WAYS, explain
from likewise.audit.label_quality import SCORES, judge_part, measure
from likewise.audit.near_duplicates import Duplicates, near_duplicates
from likewise.audit.page import write_page
from likewise.audit.records import Explained, Subject, Verdicts
from likewise.audit.retrain import retrain
from likewise.audit.source import open_subject
from likewise.audit.write import write_tables
from likewise.config import Audit, check
from likewise.data.images import image_of
from likewise.io.files import make_folder, write_json
from likewise.io.progress import bar
from likewise.types import Items, LikewiseError


@dataclass(frozen=True, eq=False)
class Audited:
    """Where an audit stands, and what audit.json says."""

    folder: Path
    about: dict

    def __fspath__(self) -> str:
        """The folder, so that an audit can stand wherever a path can."""
        return str(self.folder)

    @view
    def _repr_html_(self) -> str:
        from likewise.audit.summary import findings_html

        return findings_html(self)


def audit(config: Audit, say: Callable[[str], None] = print) -> Audited:
    """Look at everything, write the folder, and act on it where asked."""
    check(config)
    subject = open_subject(config, say)
    folder = folder_for(subject, config)
    explained = explain(subject, config)
    verdicts = {}
    with bar("judge labels", len(subject.part), quiet=config.quiet) as progress:
        for name in subject.part:
            verdicts[name] = judge_part(subject, name, explained, config)
            progress.advance(1)
    copies = find_copies(subject, config)
    about = tell(subject, verdicts, explained, copies, config)
    (folder / "audit.json").unlink(missing_ok=True)  # half of an old audit and half of a new one are none
    write_tables(folder, subject, verdicts, explained, copies, about)
    finish(folder, subject, about, config)
    if config.retrain:
        about["retrain"] = act(subject, verdicts, config, folder, say)
        finish(folder, subject, about, config)
    return Audited(folder, about)


def finish(folder: Path, subject: Subject, about: dict, config: Audit) -> None:
    """What is written last: audit.json, by which a folder is an audit, and the page."""
    write_json(folder / "audit.json", plain(about))
    write_page(folder, lambda row: picture(subject.items, row), config.quiet)


def folder_for(subject: Subject, config: Audit) -> Path:
    """Where files go: into the run's folder, or audit/NAME."""
    usual = subject.run.path / "audit" if subject.run else Path("audit") / Path(config.targets[0]).stem
    return make_folder(config.out or usual, "audit")


def find_copies(subject: Subject, config: Audit) -> tuple[Int[np.ndarray, "N"], Int[np.ndarray, "N"], Duplicates]:
    """Near duplicates over all parts: the data's row and the part of each sample, and the pairs, by position."""
    row = np.concatenate([part.e.row.numpy() for part in subject.part.values()])
    which = np.concatenate([np.full(len(part.e.row), n) for n, part in enumerate(subject.part.values())])
    z = torch.cat([part.e.z for part in subject.part.values()])
    show = None if subject.items.path is None else lambda place: picture(subject.items, int(row[place]))
    with bar("look for copies", 100, quiet=config.quiet) as progress:
        found = near_duplicates(z, show, which, progress=progress.reach)
    if found.unread:
        subject.notes.append(f"{found.unread} pictures could not be read; copies of them are not seen")
    return row, which, found


def picture(items: Items, row: int) -> Image.Image | None:
    """A sample's picture, or None where it has none or it cannot be read."""
    if items.path is None:
        return None
    try:
        return image_of(items, row)
    except (LikewiseError, OSError):
        return None


def tell(subject: Subject, verdicts: dict[str, Verdicts], explained: Explained, copies: tuple, config: Audit) -> dict:
    """What audit.json says."""
    parts = {}
    for name, found in verdicts.items():
        e, judged = subject.part[name].e, found.judged
        parts[name] = {
            "samples": len(e.y), "classes": len(subject.part[name].names), "wrong": found.wrong,
            "flagged": int(found.flagged.sum()), "of_all": found.classes.of_all, "of_touched": found.classes.of_touched,
            "any": judged.any, "similar": judged.similar,
        }  # fmt: skip
    used = [name for name in SCORES if any(name in found.single for found in verdicts.values())]
    names, (_, which, pairs) = list(subject.part), copies
    between = [f"{names[which[a]]}-{names[which[b]]}" for a, b in zip(pairs.row, pairs.other)]
    items, first = subject.items, next(iter(subject.part))
    return {
        "target": str(config.targets[0]),
        "kind": "run" if subject.run else "embeddings",
        "title": subject.title,
        "root": str(Path(items.root).absolute()) if items.path is not None else "",
        "rows": len(items),
        "pictures": items.path is not None,
        "parts": parts,
        "scores": {"score": "chance that the label is right, by all of these", **{name: SCORES[name] for name in used}},
        "influence": WAYS[config.influence] if explained.causes is not None else "",
        "errors": {
            "queries": len(subject.test.e.y), "confusion": len(explained.found.confusion.query),
            "mis_similar": len(explained.found.mis_similar.query),
        },
        "duplicates": {way: between.count(way) for way in dict.fromkeys(between)},
        **measure(subject.part[first], verdicts[first], items),
        "notes": subject.notes,
        "verify": explained.verified,
        "retrain": None,
    }  # fmt: skip


def act(subject: Subject, verdicts: dict[str, Verdicts], config: Audit, folder: Path, say: Callable) -> dict:
    """Train anew on labels as the audit suggests them: the suggested one where it is likelier than not, else left out."""
    assert subject.run is not None and subject.settings is not None
    part, found = subject.part["train"], verdicts["train"]
    number = {name: c for c, name in enumerate(subject.items.class_name)}
    labels = {}
    for place in found.flagged.nonzero()[:, 0].tolist():
        sure = float(found.judged.confidence[place]) >= 0.5
        labels[int(part.e.row[place])] = number[part.names[int(found.judged.suggested[place])]] if sure else None
    return retrain(subject.run, subject.settings, subject.items, labels, config, folder, say)


def plain(value):
    """The same without NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
