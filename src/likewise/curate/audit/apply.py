"""Apply a corrected table to its images: a new folder of links, or moves in the data folder, with undo."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple

from likewise.core.errors import print_text, printable, shown_names
from likewise.core.notebook import table, view
from likewise.core.settings import Apply, check
from likewise.core.types import Items, LikewiseError
from likewise.curate.audit.apply_steps import (
    Move,
    check_images,
    move_images,
    record_of,
    removed_folder,
    undo_command,
    undo_step,
    write_folder,
)
from likewise.curate.audit.read import read_about, read_samples
from likewise.data.class_folders import split_folders, sub_folders
from likewise.data.table import read_table
from likewise.data.tabular import read_sheet

MAX_SHOWN_MOVES = 10
MAX_NAME_BYTES = 255
"""Longest file name that common file systems take."""
MAX_ORIGIN = 50
"""Most characters of the old folder's name in the new name of an image."""
MAX_AGE_SECONDS = 60.0
"""Time by which a table may be older than its audit: both may have been copied together."""


PLAN_ADVICE = "add --to FOLDER for a corrected copy of links, or --in-place to move the files"
"""What follows a plan."""


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
        if self.done == "undone" and not self.moves:
            return [f"undid the last call: {self.folder} is as before it"]
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
    file = find_table(config.table, config.undo)
    if config.undo:
        if config.to or config.in_place or config.dry_run:
            raise LikewiseError(
                "apply: --undo excludes --to, --in-place and --dry-run, got one of them; reverse the last call first"
            )
        return undo(file, say)
    if config.to and config.in_place:
        raise LikewiseError("apply: --to and --in-place exclude each other, got both; choose one")
    column = read_sheet(str(file)).column
    if "labels" in column:
        return apply_label_sets(config, file, column)
    items = read_table(str(file))
    if items.box is not None:
        raise LikewiseError(
            f"apply: images must be whole, but {file.name} has boxes, which folders cannot express; train on the table"
        )
    if items.path is None:
        raise LikewiseError(
            f"apply: the table must name image files, but {file.name} has no column path; train on the table"
        )
    check_age(file)
    root = Path(config.to).expanduser().absolute() if config.to else data_root(file, config.root)
    moves = tuple(plan_copy(file, items, root) if config.to else plan_moves(file, items, root))
    root = root if config.to else Path(os.path.realpath(root))
    check_images([move for move in moves if move.target])
    if config.dry_run or not (config.to or config.in_place):
        return Applied("planned", root, moves)
    with files_at_fault(f"reverse the call with `{undo_command(file)}`"):
        if config.to:
            write_folder(root, moves, file, config.copy, say)
        else:
            move_images(root, moves, file, say)
    return Applied("written" if config.to else "moved", root, moves, record_of(file))


def undo(table: Path, say: Callable[[str], None] = print) -> Applied:
    """Reverse the last `apply` of a table, also one that was interrupted."""
    with files_at_fault("run the same command again, which continues"):
        folder, moves = undo_step(table, say)
        return Applied("undone", folder, tuple(moves))


@contextmanager
def files_at_fault(advice: str) -> Iterator[None]:
    """Turn an error of the file system into one with advice."""
    try:
        yield
    except OSError as error:
        place, reason = error.filename or "a file", error.strerror or error
        raise LikewiseError(
            f"apply: files must be readable and writable, got '{reason}' for {place}; no image is lost: {advice}"
        ) from None


def check_age(file: Path) -> None:
    """Raise if a table is older than the audit beside it: images that are new in the audit would count as removed."""
    audit = file.with_name("audit.csv")
    if audit.exists() and audit.stat().st_mtime > file.stat().st_mtime + MAX_AGE_SECONDS:
        raise LikewiseError(
            f"apply: the table must be newer than the audit beside it, but {file.name} is older than {audit.name}; finish the "
            "review again"
        )


def apply_label_sets(config: Apply, file: Path, column: dict[str, list]) -> Applied:
    """Show the changes of a table with several labels per sample; folders cannot hold them, so the table itself is the result."""
    if config.to or config.in_place:
        raise LikewiseError(
            f"apply: an image in a class folder has one label, but {file.name} has several per image, which folders cannot "
            f"express; train on the table: likewise train {file}"
        )
    given, moves = given_labels(file), []
    places = column.get("path") or [f"row {row}" for row in column.get("row", range(len(column["labels"])))]
    for place, labels in zip(places, map(str, column["labels"]), strict=True):
        source = os.path.normpath(place)
        before = given.pop(source, labels)
        moves.append(Move(source, labels, "same" if before == labels else "relabel"))
    moves += [Move(source, "", "remove") for source in given]
    return Applied("planned", file, tuple(moves))


def find_table(place: str, undo: bool = False) -> Path:
    """Return the corrected table: the given file, or corrected.csv of the given audit folder or of a run's audit.

    Args:
        undo: the record of earlier calls is enough.
    """
    given = Path(place).expanduser().absolute()
    places = [given, given / "corrected.csv", given / "audit" / "corrected.csv"]
    found = next((f for f in places if f.is_file() or (undo and not f.is_dir() and record_of(f).is_file())), None)
    if found is None:
        raise LikewiseError(
            f"apply: the table must be a corrected.csv, or the folder of an audit that was reviewed, got '{place}'; "
            "finish a review first: likewise review AUDIT"
        )
    return found


def data_root(file: Path, root: str | None) -> Path:
    """Return the folder of class folders: `root`, or that of the audit beside the table. It is never guessed."""
    about = file.with_name("audit.json")
    stored = read_about(about)["root"] if root is None and about.exists() else root
    if not stored:
        raise LikewiseError(
            f"apply: the folder of the class folders must be known, but there is no audit beside {file.name}; give it with --root"
        )
    folder = Path(stored).expanduser().absolute()
    if not folder.is_dir() or os.path.realpath(folder) == os.path.realpath(folder.anchor):
        raise LikewiseError(
            f"apply: the data folder must be a folder of class folders, got '{stored}'; give it with --root"
        )
    return folder


def plan_copy(file: Path, items: Items, folder: Path) -> Iterable[Move]:
    """Yield the links of a new folder: split (if the table has splits), class, file name; names stay unique."""
    given, taken = given_labels(file), {}
    for row, source in enumerate(_files(items)):
        label = items.class_name[items.y[row]]
        place = folder / ("" if items.split is None else str(items.split[row])) / class_folder(label)
        relabelled = given.pop(source, label) != label
        yield Move(source, unique(place / PurePath(source).name, source, taken), "relabel" if relabelled else "same")
    yield from (Move(source, "", "remove") for source in given)


def plan_moves(file: Path, items: Items, root: Path) -> Iterable[Move]:
    """Yield the moves of images whose class folder differs from their label, and of images that reviewers removed."""
    given, splits, taken = given_places(file), split_folders(str(root)), {}
    check_class_folders(given, splits, root)
    real, new_label = Path(os.path.realpath(root)), {}
    for row, source in enumerate(_files(items)):
        new_label.setdefault(below(source, root), set()).add(items.class_name[items.y[row]])
    for image, names in new_label.items():
        if len(names) > 1:
            raise LikewiseError(
                f"apply: an image must have one label, but '{image}' has {shown_names(sorted(names))}; remove lines of the table"
            )
    places = {image: place_of(image, splits) for image in new_label}
    classes = {label for top in splits or [""] for label in sub_folders(str(real / top))}
    if not given and not any(classes & labels for labels in new_label.values()):
        raise LikewiseError(
            f"apply: the labels of the table must be class folders of {root}, but none is; give --root, the folder of the class "
            "folders, or write a new folder with --to"
        )

    def free(path: str) -> bool:
        return not os.path.lexists(path)

    for image, (label,) in new_label.items():
        given.pop(image, None)
        source, place = str(real / image), places[image]
        if place.label.strip() != label:  # tables have labels without blanks at their ends
            target = real / place.split / class_folder(label) / image.name
            yield Move(source, unique(target, source, taken, free), "relabel")
    for image in given:
        source, target = str(real / image), removed_folder(real) / image
        yield Move(source, unique(target, source, taken, free), "remove")


def below(source: str, *roots: str | Path) -> PurePath:
    """Return the path of an image below its data folder, named directly or through links."""
    for root in roots:
        for top in (root, os.path.realpath(root)):
            if PurePath(source).is_relative_to(top) and PurePath(source) != PurePath(top):
                return PurePath(source).relative_to(top)
    raise LikewiseError(
        f"apply: images must be below the data folder {roots[0]}, but '{source}' is not; give --root, or write a new folder with "
        "--to"
    )


def given_places(file: Path) -> dict[PurePath, str]:
    """Return image -> label before the review, with paths below the data folder; see `given_labels`."""
    given = given_labels(file)
    root = read_about(file.with_name("audit.json"))["root"] if given else ""
    return {below(source, root): label for source, label in given.items()}


def check_class_folders(given: dict[PurePath, str], splits: list[str], root: Path) -> None:
    """Raise unless every audited image is in the folder of its label before the review."""
    for image, label in given.items():
        if (name := place_of(image, splits).label) != label:
            raise LikewiseError(
                f"apply: images must be in class folders of {root}, but '{image}' is in '{name}' and had the label '{label}'; "
                "give --root, or write a new folder with --to"
            )


def given_labels(file: Path) -> dict[str, str]:
    """Return image -> label before the review, from the audit beside a corrected table; {} without an audit.

    Images that the corrected table lacks were removed by the reviewers.
    """
    if not (file.with_name("audit.json").exists() and file.with_name("audit.csv").exists()):
        return {}
    about = read_about(file.with_name("audit.json"))
    samples = read_samples(file.with_name("audit.csv"), about).values()
    return {os.path.normpath(os.path.join(about["root"], one.path)): one.label for one in samples if one.path}


class Place(NamedTuple):
    """Where an image is in a folder of class folders; `split` is "" without split folders."""

    split: str
    label: str


def place_of(image: PurePath, splits: list[str]) -> Place:
    """Return the split and class folder of an image, from its path below a data folder whose split folders are `splits`."""
    depth = 1 if image.parts[0] in splits else 0
    if len(image.parts) < depth + 2:
        raise LikewiseError(
            f"apply: images must be in class folders of the data folder, but '{image}' is not; give --root, or write a new "
            "folder with --to"
        )
    return Place(image.parts[0] if depth else "", image.parts[depth])


def class_folder(label: str) -> str:
    """Return a label as the name of a folder; raise if it cannot be one."""
    odd = label.startswith((".", "__MACOSX")) or {"/", "\\", "\0"} & set(label)  # hidden folders are not read
    if not label or odd or len(os.fsencode(label)) > MAX_NAME_BYTES:
        raise LikewiseError(
            f"apply: a class name must be usable as a folder name, got {label!r}; rename the class, or train on the table"
        )
    return label


def unique(target: Path, source: str, taken: dict[str, int], free: Callable[[str], bool] = lambda path: True) -> str:
    """Return a path that no other image has: the target, with the old folder's name or a number if it is taken.

    Args:
        taken: the paths of earlier calls, and the next number for a target and an old folder.
    """
    stem, suffix, origin = target.stem, target.suffix, PurePath(source).parent.name[:MAX_ORIGIN]
    name, numbered = str(target), f"{target}\0{origin}"
    number = taken.get(numbered, 1)
    while name.casefold() in taken or not free(name):
        end = f"-from-{origin}{f'-{number}' if number > 1 else ''}{suffix}"
        while stem and len(os.fsencode(stem + end)) > MAX_NAME_BYTES:
            stem = stem[:-1]
        name = str(target.with_name(stem + end))
        number += 1
    taken |= {name.casefold(): 0, numbered: number}  # some file systems ignore case
    return name


def _files(items: Items) -> list[str]:
    assert items.path is not None
    return [os.path.normpath(os.path.join(items.root, path)) for path in items.path]


def _below(path: str, base: Path) -> str:
    return printable(os.path.relpath(path, base) if PurePath(path).is_relative_to(base) else path)


def show_applied(found: Applied, config: Apply) -> None:
    """Print the changes, and what can follow them."""
    print_text("\n".join(found.lines()))
    if found.done == "planned" and not config.dry_run:
        if not found.folder.is_file():  # with several labels per image the table itself is the result
            print_text(f"nothing was changed; {PLAN_ADVICE}")
    elif found.journal:
        print_text(f"undo: {undo_command(config.table)}")
