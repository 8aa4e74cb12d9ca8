"""audit: find wrong labels, classes to merge, retrieval errors with their causes, and near duplicates; write a folder."""

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
from likewise.audit.attribution import INFLUENCE_METHODS, explain
from likewise.audit.label_quality import SCORE_DESCRIPTIONS, measure, score_split
from likewise.audit.near_duplicates import Duplicates, near_duplicates
from likewise.audit.page import write_page
from likewise.audit.records import ExplainedErrors, SplitQuality, Subject
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
    """The folder of an audit, and the content of its audit.json."""

    folder: Path
    about: dict

    def __fspath__(self) -> str:
        """Return the folder, so that an audit can be used as a path."""
        return str(self.folder)

    @view
    def _repr_html_(self) -> str:
        from likewise.audit.summary import findings_html

        return findings_html(self)


def audit(config: Audit, say: Callable[[str], None] = print) -> Audited:
    """Audit a run or a file of embeddings, write the audit folder, and retrain with the suggested labels if configured."""
    check(config)
    subject = open_subject(config, say)
    folder = folder_for(subject, config)
    explained = explain(subject, config)
    quality = {}
    with bar("score labels", len(subject.splits), quiet=config.quiet) as progress:
        for name in subject.splits:
            quality[name] = score_split(subject, name, explained, config)
            progress.advance(1)
    copies = find_duplicates(subject, config)
    about = build_summary(subject, quality, explained, copies, config)
    (folder / "audit.json").unlink(missing_ok=True)  # a folder with files of two audits must not look complete
    write_tables(folder, subject, quality, explained, copies, about)
    finish(folder, subject, about, config)
    if config.retrain:
        about["retrain"] = retrain_with_suggestions(subject, quality, config, folder, say)
        finish(folder, subject, about, config)
    return Audited(folder, about)


def finish(folder: Path, subject: Subject, about: dict, config: Audit) -> None:
    """Write audit.json, which marks the folder as a complete audit, and the page."""
    write_json(folder / "audit.json", without_nan(about))
    write_page(folder, lambda row: load_image(subject.items, row), config.quiet)


def folder_for(subject: Subject, config: Audit) -> Path:
    """Create and return the output folder: `audit` in the run's folder, or audit/NAME for a file of embeddings."""
    default = subject.run.path / "audit" if subject.run else Path("audit") / Path(config.targets[0]).stem
    return make_folder(config.out or default, "audit")


def find_duplicates(subject: Subject, config: Audit) -> tuple[Int[np.ndarray, "N"], Int[np.ndarray, "N"], Duplicates]:
    """Find near duplicates over all splits.

    Returns the data row and the split number of each sample, and the pairs as positions in these arrays.
    """
    row = np.concatenate([split.e.row.numpy() for split in subject.splits.values()])
    split_of = np.concatenate([np.full(len(split.e.row), n) for n, split in enumerate(subject.splits.values())])
    z = torch.cat([split.e.z for split in subject.splits.values()])
    show = None if subject.items.path is None else lambda place: load_image(subject.items, int(row[place]))
    with bar("find near duplicates", 100, quiet=config.quiet) as progress:
        found = near_duplicates(z, show, split_of, progress=progress.reach)
    if found.unread:
        subject.notes.append(f"{found.unread} images could not be read, so near duplicates of them are not found")
    return row, split_of, found


def load_image(items: Items, row: int) -> Image.Image | None:
    """Return the image of a row; None if the data has no images, or if this one cannot be read."""
    if items.path is None:
        return None
    try:
        return image_of(items, row)
    except (LikewiseError, OSError):
        return None


def build_summary(
    subject: Subject, quality: dict[str, SplitQuality], explained: ExplainedErrors, copies: tuple, config: Audit
) -> dict:
    """Return the content of audit.json."""
    splits = {}
    for name, found in quality.items():
        e, scored = subject.splits[name].e, found.quality
        splits[name] = {
            "samples": len(e.y), "classes": len(subject.splits[name].names), "wrong": found.wrong,
            "flagged": int(found.flagged.sum()), "of_all": found.classes.of_all, "of_touched": found.classes.of_touched,
            "any": scored.any, "similar": scored.similar,
        }  # fmt: skip
    used = [name for name in SCORE_DESCRIPTIONS if any(name in found.single for found in quality.values())]
    names, (_, split_of, pairs) = list(subject.splits), copies
    between = [f"{names[split_of[a]]}-{names[split_of[b]]}" for a, b in zip(pairs.row, pairs.other)]
    items, first = subject.items, next(iter(subject.splits))
    return {
        "target": str(config.targets[0]),
        "kind": "run" if subject.run else "embeddings",
        "title": subject.title,
        "root": str(Path(items.root).absolute()) if items.path is not None else "",
        "rows": len(items),
        "pictures": items.path is not None,
        "parts": splits,
        "scores": {
            "score": "probability that the label is right, by all of these scores",
            **{name: SCORE_DESCRIPTIONS[name] for name in used},
        },
        "influence": INFLUENCE_METHODS[config.influence] if explained.causes is not None else "",
        "errors": {
            "queries": len(subject.test.e.y), "confusion": len(explained.pairs.confusion.query),
            "mis_similar": len(explained.pairs.mis_similar.query),
        },
        "duplicates": {names: between.count(names) for names in dict.fromkeys(between)},
        **measure(subject.splits[first], quality[first], items),
        "notes": subject.notes,
        "verify": explained.verified,
        "retrain": None,
    }  # fmt: skip


def retrain_with_suggestions(
    subject: Subject, quality: dict[str, SplitQuality], config: Audit, folder: Path, say: Callable
) -> dict:
    """Train again with the labels that the audit suggests.

    A flagged sample gets the suggested label if its confidence is at least 0.5; otherwise it is dropped.
    """
    assert subject.run is not None and subject.settings is not None
    split, found = subject.splits["train"], quality["train"]
    number = {name: c for c, name in enumerate(subject.items.class_name)}
    labels = {}
    for place in found.flagged.nonzero()[:, 0].tolist():
        sure = float(found.quality.confidence[place]) >= 0.5
        labels[int(split.e.row[place])] = number[split.names[int(found.quality.suggested[place])]] if sure else None
    return retrain(subject.run, subject.settings, subject.items, labels, config, folder, say)


def without_nan(value):
    """Return a value with NaN and infinity replaced by None, because JSON has neither."""
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
