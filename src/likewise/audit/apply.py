"""Apply a corrected table to its images: a new folder of links, or moves in the data folder, with undo."""

from __future__ import annotations

import csv
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple

from likewise._notebook import table, view
from likewise.audit.read import read_about, read_samples
from likewise.config import Apply, check
from likewise.data.folder import split_folders
from likewise.data.table import read_table
from likewise.io.files import read_json, write_json
from likewise.types import Items, LikewiseError

REMOVED_SUFFIX = "-removed"
"""Images that reviewers removed are moved to a folder beside the data folder, with this suffix."""
MAX_SHOWN_MOVES = 10


class Move(NamedTuple):
    """An image and its new place, both as whole paths; `change` is "same", "relabel" or "remove"."""

    source: str
    target: str
    change: str


@dataclass(frozen=True)
class Applied:
    """The result of `apply`: `done` is "planned" (nothing was changed), "written" (a new folder), "moved" or "undone"."""

    done: str
    folder: Path  # the new folder, or the data folder
    moves: tuple[Move, ...]
    journal: Path | None = None  # file for --undo

    def lines(self) -> list[str]:
        """Return the result as sentences, with the first changes."""
        count = Counter(move.change for move in self.moves)
        verb = {"planned": "would change", "written": "wrote", "moved": "changed", "undone": "undid the changes of"}
        total = f"{verb[self.done]} {self.folder}: {count['relabel']} images relabelled, {count['remove']} removed"
        changed = [move for move in self.moves if move.change != "same"]
        base = self.folder.parent
        shown = [
            f"  {_below(m.source, base)} -> {_below(m.target, base) or 'removed'}" for m in changed[:MAX_SHOWN_MOVES]
        ]
        more = [f"  and {len(changed) - len(shown)} more"] if len(changed) > len(shown) else []
        return [total + f", {count['same']} unchanged" * bool(count["same"]), *shown, *more]

    @view
    def _repr_html_(self) -> str:
        return table(
            self.lines()[0], ("image", "new place"), [(m.source, m.target) for m in self.moves[:MAX_SHOWN_MOVES]]
        )


def apply(config: Apply, say: Callable[[str], None] = print) -> Applied:
    """Apply a corrected table to its images, as `config` states; without --to and --in-place nothing is changed."""
    check(config)
    file = find_table(config.table)
    journal = journal_of(file)
    if config.undo:
        return undo(journal)
    if config.to and config.in_place:
        raise LikewiseError("apply: --to and --in-place exclude each other, got both; choose one")
    if has_several_labels(file):
        return apply_label_sets(config, file)
    items = read_table(str(file))
    if items.box is not None:
        raise LikewiseError(
            f"apply: images must be whole, but {file.name} has boxes, which folders cannot express; train on the table"
        )
    if config.to:
        folder = Path(config.to).expanduser().absolute()
        moves = tuple(plan_copy(file, items, folder))
        return (
            Applied("planned", folder, moves)
            if config.dry_run
            else write_copy(folder, moves, journal, config.copy, say)
        )
    root = data_root(file, items, config.root)
    moves = tuple(plan_moves(file, items, root))
    if config.dry_run or not config.in_place:
        return Applied("planned", root, moves)
    return move_files(root, moves, journal)


def has_several_labels(file: Path) -> bool:
    """Return whether a table has the column `labels`, with several labels per sample."""
    if file.suffix.lower() != ".csv":
        return False
    with open(file, encoding="utf-8-sig", newline="") as text:
        return "labels" in next(csv.reader(text), [])


def apply_label_sets(config: Apply, file: Path) -> Applied:
    """Show the changes of a table with several labels per sample; folders cannot hold them, so the table itself is the result."""
    if config.to or config.in_place:
        raise LikewiseError(
            f"apply: an image in a class folder has one label, but {file.name} has several per image, which folders cannot "
            f"express; train on the table: likewise train {file}"
        )
    given, moves = given_labels(file), []
    with open(file, encoding="utf-8-sig", newline="") as text:
        for line in csv.DictReader(text):
            source = os.path.normpath(line.get("path") or f"row {line.get('row', '')}")
            before = given.pop(source, line["labels"])
            moves.append(Move(source, line["labels"], "same" if before == line["labels"] else "relabel"))
    moves += [Move(source, "", "remove") for source in given]
    return Applied("planned", file, tuple(moves))


def find_table(place: str) -> Path:
    """Return the corrected table: the given file, or corrected.csv of the given audit folder or of a run's audit."""
    given = Path(place).expanduser().absolute()
    places = [given, given / "corrected.csv", given / "audit" / "corrected.csv"]
    found = next((file for file in places if file.is_file()), None)
    if found is None:
        raise LikewiseError(
            f"apply: the table must be a corrected.csv, or the folder of an audit that was reviewed, got '{place}'; "
            "finish a review first: likewise review AUDIT"
        )
    return found


def data_root(file: Path, items: Items, root: str | None) -> Path:
    """Return the folder of class folders: `root`, that of the audit beside the table, or the common folder of all images."""
    if root is not None:
        return Path(root).expanduser().absolute()
    about = file.with_name("audit.json")
    if about.exists() and (stored := read_about(about)["root"]):
        return Path(stored)
    return Path(os.path.commonpath([os.path.dirname(path) for path in _files(items)])).parent


def plan_copy(file: Path, items: Items, folder: Path) -> Iterable[Move]:
    """Yield the links of a new folder: split (if the table has splits), class, file name; names stay unique."""
    given, taken = given_labels(file), set()
    for row, source in enumerate(_files(items)):
        label = items.class_name[items.y[row]]
        place = folder / ("" if items.split is None else str(items.split[row])) / class_folder(label)
        relabelled = given.pop(source, label) != label
        yield Move(source, unique(place / PurePath(source).name, source, taken), "relabel" if relabelled else "same")
    yield from (Move(source, "", "remove") for source in given)


def plan_moves(file: Path, items: Items, root: Path) -> Iterable[Move]:
    """Yield the moves of images whose class folder differs from their label, and of images that reviewers removed."""
    given, splits, taken = given_labels(file), split_folders(str(root)), set()
    for row, source in enumerate(_files(items)):
        place, label = place_of(source, root, splits), items.class_name[items.y[row]]
        given.pop(source, None)
        if place.label != label:
            target = root / place.split / class_folder(label) / PurePath(source).name
            yield Move(source, unique(target, source, taken, free=lambda path: not os.path.lexists(path)), "relabel")
    for source in given:
        target = root.with_name(root.name + REMOVED_SUFFIX) / os.path.relpath(source, root)
        yield Move(source, str(target), "remove")


def given_labels(file: Path) -> dict[str, str]:
    """Return image -> label before the review, from the audit beside a corrected table; {} without an audit.

    Images that the corrected table lacks were removed by the reviewers.
    """
    if not (file.with_name("audit.json").exists() and file.with_name("audit.csv").exists()):
        return {}
    about = read_about(file.with_name("audit.json"))
    samples = read_samples(file.with_name("audit.csv"), about)[0].values()
    return {os.path.normpath(os.path.join(about["root"], one.path)): one.label for one in samples if one.path}


class Place(NamedTuple):
    """Where an image is in a folder of class folders; `split` is "" without split folders."""

    split: str
    label: str


def place_of(source: str, root: Path, splits: list[str]) -> Place:
    """Return the split and class folder of an image below the data folder, whose split folders are `splits`."""
    try:
        parts = PurePath(source).relative_to(root).parts
    except ValueError:
        raise LikewiseError(
            f"apply: images must be below the data folder {root}, but '{source}' is not; give --root, or write a new folder "
            "with --to"
        ) from None
    depth = 1 if parts[0] in splits else 0
    if len(parts) < depth + 2:
        raise LikewiseError(
            f"apply: images must be in class folders below {root}, but '{source}' is not; write a new folder with --to"
        )
    return Place(parts[0] if depth else "", parts[depth])


def class_folder(label: str) -> str:
    """Return a label as the name of a folder; raise if it cannot be one."""
    if label in ("", ".", "..") or label.startswith(".") or {"/", "\\", "\0"} & set(label):
        raise LikewiseError(
            f"apply: a class name must be usable as a folder name, got {label!r}; rename the class, or train on the table"
        )
    return label


def unique(target: Path, source: str, taken: set[str], free: Callable[[str], bool] = lambda path: True) -> str:
    """Return a path that no other image has: the target, with the old folder's name or a number if it is taken."""
    stem, suffix, number = target.stem, target.suffix, 1
    name = str(target)
    while name.casefold() in taken or not free(name):
        old = PurePath(source).parent.name
        name = str(target.with_name(f"{stem}-from-{old}{f'-{number}' if number > 1 else ''}{suffix}"))
        number += 1
    taken.add(name.casefold())  # some file systems ignore case
    return name


def check_new_folder(to: str, journal: Path, owner: str = "apply") -> None:
    """Raise unless a folder does not exist, is empty, or was written by the last call with the same table."""
    folder = Path(to).expanduser().absolute()
    if is_own_folder(folder, journal) or not folder.exists():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise LikewiseError(f"{owner}: --to must be a new or empty folder, but '{to}' exists; choose another one")


def is_own_folder(folder: Path, journal: Path) -> bool:
    """Return whether the last call with a table wrote this folder; it is then replaced."""
    return journal.exists() and read_json(journal, "apply").get("written") == str(folder)


def journal_of(table: Path) -> Path:
    """Return the file that records what was applied from a table, for --undo."""
    return table.with_name(f"{table.stem}.applied.json")


def write_copy(folder: Path, moves: tuple[Move, ...], journal: Path, copy: bool, say: Callable[[str], None]) -> Applied:
    """Write the new folder: hard links where the disk allows them, otherwise copies."""
    check_new_folder(str(folder), journal)
    kept = tuple(move for move in moves if move.target)
    check_sources(kept)
    aside = folder.with_name(f".{folder.name}.part")  # a crash leaves no folder that looks complete
    shutil.rmtree(aside, ignore_errors=True)
    copied = 0
    for move in kept:
        target = aside / os.path.relpath(move.target, folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        copied += copy or not _linked(move.source, target)
        if not target.exists():
            shutil.copy2(move.source, target)
    if is_own_folder(folder, journal):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()
    aside.rename(folder)
    if copied and not copy:
        say(f"apply: {copied} of {len(kept)} images were copied, because '{folder.parent}' cannot hold links to them")
    write_json(journal, {"written": str(folder)})
    return Applied("written", folder, moves, journal)


def move_files(root: Path, moves: tuple[Move, ...], journal: Path) -> Applied:
    """Move the images, after writing the journal that `undo` reads."""
    if journal.exists():
        raise LikewiseError(f"apply: this table was applied already ({journal}); use --undo first")
    check_sources(moves)
    write_json(journal, {"root": str(root), "moves": [list(move) for move in moves]})
    for move in moves:
        os.makedirs(os.path.dirname(move.target), exist_ok=True)
        os.rename(move.source, move.target)
    return Applied("moved", root, moves, journal)


def check_sources(moves: tuple[Move, ...]) -> None:
    """Raise if an image is missing, before anything is changed."""
    missing = [move.source for move in moves if not os.path.isfile(move.source)]
    if missing:
        raise LikewiseError(
            f"apply: all images must exist, but {len(missing)} of {len(moves)} do not (first: {missing[0]}); if the table was "
            "applied with --in-place already, train on the folder"
        )


def undo(journal: Path) -> Applied:
    """Reverse the last `apply` of a table, also one that was interrupted."""
    if not journal.exists():
        raise LikewiseError(
            f"apply: --undo needs the journal of an earlier call, but there is no {journal}; nothing was applied from this table"
        )
    stored = read_json(journal, "apply", hint="")
    if "written" in stored:
        folder = Path(stored["written"])
        shutil.rmtree(folder, ignore_errors=True)
        journal.unlink()
        return Applied("undone", folder, ())
    moves = tuple(Move(*move) for move in stored["moves"])
    moved = [move for move in moves if os.path.lexists(move.target) and not os.path.lexists(move.source)]
    lost = [move for move in moves if not os.path.lexists(move.target) and not os.path.lexists(move.source)]
    for move in reversed(moved):
        os.makedirs(os.path.dirname(move.source), exist_ok=True)
        os.rename(move.target, move.source)
        with suppress(OSError):  # folders that `apply` created and that are empty now
            os.removedirs(os.path.dirname(move.target))
    if lost:
        raise LikewiseError(
            f"apply: {len(lost)} of {len(moves)} images are neither at their old nor at their new place (first: "
            f"{lost[0].target}); the others were moved back. Restore these, then delete {journal}"
        )
    journal.unlink()
    return Applied("undone", Path(stored["root"]), tuple(moved))


def _linked(source: str, target: Path) -> bool:
    """Create a hard link to the image itself, and return whether the disk allows it."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        return False
    return True


def _files(items: Items) -> list[str]:
    assert items.path is not None
    return [os.path.normpath(os.path.join(items.root, path)) for path in items.path]


def _below(path: str, base: Path) -> str:
    return os.path.relpath(path, base) if PurePath(path).is_relative_to(base) else path
