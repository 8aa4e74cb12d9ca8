"""Steps of `likewise apply`: folders that it wrote, moves of images in a data folder, and their reversal.

Two files record every step, under one random id: `corrected.applied.json` beside the table names the folder, and
`.likewise-applied.json` in that folder lists the files. A step is undone only if both have its id, so a record that came
with a table or a folder from another person or machine has no effect.
Entries are appended, before the first change of a step and after its reversal, and never changed. Paths in the record of
a folder are relative, and a step touches nothing outside of the data folder and its folder of removed images. No function
here replaces a file, and a file is deleted only if another file has the same bytes.
"""

from __future__ import annotations

import glob
import os
import re
import secrets
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path, PurePath
from typing import NamedTuple

from likewise.core.errors import LikewiseError, shown_names
from likewise.core.files import check_creatable, read_json, write_json
from likewise.core.image_files import IMAGE_SUFFIXES
from likewise.core.locks import folder_lock
from likewise.curate.audit.file_moves import move_file, rename_new, same_content, sync_folder

FOLDER_RECORD = ".likewise-applied.json"
"""Name of the record in a folder that `apply` wrote or changed; hidden files are no part of a data set."""
REMOVED_SUFFIX = "-removed"
"""Images that reviewers removed are moved to a folder beside the data folder, with this suffix."""


class Move(NamedTuple):
    """An image and its new place, both as whole paths; `change` is "same", "relabel" or "remove"."""

    source: str
    target: str
    change: str


# --- records -----------------------------------------------------------------------------------------------------------


def record_of(table: Path) -> Path:
    """Return the file beside a table that records the steps of `apply` with this table."""
    return table.with_name(f"{table.stem}.applied.json")


def read_steps(file: Path) -> list[dict]:
    """Return the steps of a record that were not undone, the last one at the end; an empty list if there is no record."""
    if not os.path.lexists(file):
        return []
    advice = "nothing was changed. Move this file away if it came from elsewhere or from an older version"
    if file.is_symlink() or not file.is_file():
        raise LikewiseError(f"apply: a record must be a regular file, but {file} is not; {advice}")
    entries, steps = read_json(file, "apply", hint=advice).get("steps"), {}
    for entry in entries if isinstance(entries, list) else [entries]:
        if isinstance(entry, dict) and isinstance(entry.get("undo"), str):
            steps.pop(entry["undo"], None)
        elif is_step(entry):
            steps[entry["id"]] = entry
        else:
            raise LikewiseError(f"apply: {file} must list the steps of apply, but it has {entry!r:.60}; {advice}")
    return list(steps.values())


def is_step(entry) -> bool:
    """Return whether an entry of a record has the fields of a step, in their types."""
    if not isinstance(entry, dict) or entry.get("how") not in ("to", "in-place"):
        return False
    pairs, folders = entry.get("files", []), entry.get("folders", [])
    if not isinstance(pairs, list) or not isinstance(folders, list) or not all(isinstance(one, list) for one in pairs):
        return False
    texts = [entry.get("id"), entry.get("table"), entry.get("folder"), *folders, *chain(*pairs)]
    if not all(isinstance(one, str) and is_path(one) for one in texts):
        return False
    folder = PurePath(entry["folder"])
    is_id = re.fullmatch("[0-9a-f]{32}", entry["id"]) is not None  # it is part of the names of files
    return is_id and folder.is_absolute() and bool(folder.name) and all(len(pair) == 2 for pair in pairs)


def is_path(text: str) -> bool:
    """Return whether the operating system takes a text as a path: without a zero byte and surrogates of no bytes."""
    with suppress(UnicodeEncodeError):
        return b"\0" not in os.fsencode(text)
    return False


def append_entry(file: Path, entry: dict) -> None:
    """Append an entry to a record and write it through to the disk; a damaged record raises and stays as it is."""
    read_steps(file)
    delete_leftovers(file)
    entries = read_json(file, "apply")["steps"] if file.exists() else []
    try:
        write_json(file, {"written by": "likewise apply", "steps": [*entries, entry]})
    except OSError as error:
        raise LikewiseError(f"apply: {file} must be writable ({error.strerror}); allow it, and try again") from None
    sync_folder(file.parent)


def delete_leftovers(record: Path) -> None:
    """Delete the temporary files of a process that was killed while it wrote this record."""
    for aside in record.parent.glob(f".{glob.escape(record.name)}.*.part"):
        aside.unlink()


def new_step(how: str, table: Path, folder: Path) -> dict:
    """Return a step with a new random id."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return {"id": secrets.token_hex(16), "how": how, "table": str(table), "folder": str(folder), "time": now}


@contextmanager
def locked(*folders: Path) -> Iterator[None]:
    """Hold the locks of these folders; raise if another process works on one of them."""
    with ExitStack() as stack:
        for folder in dict.fromkeys(os.path.realpath(folder) for folder in folders):
            if not stack.enter_context(folder_lock(Path(folder))):
                raise LikewiseError(f"apply: another process must not work on {folder}, but one does; try again later")
        yield


# --- a new folder ------------------------------------------------------------------------------------------------------


def check_new_folder(to: str, table: Path, owner: str = "apply") -> dict | None:
    """Raise unless a folder is missing or empty, or holds only what the last step of this table wrote; return that step."""
    folder = Path(to).expanduser().absolute()
    if not os.path.lexists(folder) or is_empty(folder):
        check_creatable(folder, owner, "--to")  # before people review for an hour
        return None
    if (step := written_by(folder, read_steps(record_of(table)))) is None:
        raise LikewiseError(f"{owner}: --to must be a new or empty folder, but '{to}' exists; choose another one")
    check_deletable(folder, step, owner)
    return step


def is_empty(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())


def written_by(folder: Path, steps: Sequence[dict]) -> dict | None:
    """Return the last step in a folder, from its record, if it wrote the folder and is the last of these steps too."""
    if not steps or not folder.is_dir() or folder.is_symlink():
        return None
    made = read_steps(folder / FOLDER_RECORD)[-1:]
    return made[0] if made and made[0]["how"] == "to" and made[0]["id"] == steps[-1]["id"] else None


def check_deletable(folder: Path, step: dict, owner: str = "apply") -> None:
    """Raise if a folder has files that its step did not write, or whose bytes are not at their source, with their names."""
    kept = sorted(undeletable(folder, step))
    if kept:
        raise LikewiseError(
            f"{owner}: all files in {folder} must be as apply wrote them, with an original elsewhere, but {len(kept)} were added "
            f"or changed, or their original is gone: {shown_names(kept)}; nothing was deleted. Move them elsewhere, or keep "
            "the folder and choose a new one"
        )


def undeletable(folder: Path, step: dict) -> Iterator[str]:
    """Yield the paths below a folder that its step did not write, or whose bytes are not at their source."""
    source_of = {target: source for source, target in step.get("files", [])}
    made_folders = {str(parent) for target in source_of for parent in PurePath(target).parents}
    for place, folders, names in os.walk(folder):
        below = PurePath(os.path.relpath(place, folder))
        for target in (str(below / name) for name in folders):
            if target not in made_folders or (folder / target).is_symlink():
                yield target
        for target in (str(below / name) for name in names):
            if target not in source_of:
                if target != FOLDER_RECORD:
                    yield target
            elif not has_original(folder / target, source_of[target], folder):
                yield target


def has_original(copy: Path, source: str, folder: Path) -> bool:
    """Return whether the source of a copy has the same bytes, outside of the folder of the copy."""
    real = Path(os.path.realpath(source))
    outside = os.path.isabs(source) and not real.is_relative_to(os.path.realpath(folder))
    return outside and not copy.is_symlink() and same_content(real, copy)


def write_folder(folder: Path, moves: Sequence[Move], table: Path, copy: bool, say: Callable[[str], None]) -> None:
    """Write the new folder: hard links where the disk allows them, otherwise copies. It replaces that of the last step."""
    kept = [move for move in moves if move.target]
    with locked(table.parent):
        clear_interrupted(table)
        old, step = check_new_folder(str(folder), table), new_step("to", table, folder)
        aside = part_folder(folder, step["id"])  # a crash leaves no folder that looks complete
        append_entry(record_of(table), step)
        aside.mkdir(parents=True)
        files = [[os.path.realpath(move.source), os.path.relpath(move.target, folder)] for move in kept]
        append_entry(aside / FOLDER_RECORD, {**step, "files": files})
        part = aside / f".{FOLDER_RECORD}.copy.part"  # a name for `delete_leftovers`
        copied = sum(write_image(source, aside / target, copy, part) for source, target in files)
        if old is not None:
            delete_folder(folder, old)
            append_entry(record_of(table), {"undo": old["id"]})
        elif folder.exists():
            folder.rmdir()  # an empty one
        rename_new(aside, folder)
        sync_folder(folder.parent)
    if copied and not copy:
        say(f"apply: {copied} of {len(kept)} images were copied, because '{folder.parent}' cannot hold links to them")


def part_folder(folder: Path, step: str) -> Path:
    """Return the folder in which a step writes, until it is complete and gets its name."""
    return folder.with_name(f".likewise-{step}.part")


def write_image(source: str, target: Path, copy: bool, part: Path) -> bool:
    """Write an image at a new place, as a hard link if `copy` is False and the disk allows it; return whether it is a copy.

    Args:
        part: name of a copy until it is complete.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if not copy:
        with suppress(OSError):
            os.link(source, target)
            return False
    shutil.copy2(source, part)
    rename_new(part, target)  # some disks regard two names as equal, whose bytes differ
    return True


def clear_interrupted(table: Path) -> None:
    """Delete the incomplete folder of the last step with a table, and the step, if it was interrupted."""
    last = read_steps(record_of(table))[-1:]
    if last and last[0]["how"] == "to":
        folder = Path(last[0]["folder"])
        if delete_part(last[0]) or (folder.is_dir() and not has_step(folder, last[0])):
            append_entry(record_of(table), {"undo": last[0]["id"]})


def delete_part(step: dict) -> bool:
    """Delete the incomplete folder of a step, and return whether there was one."""
    aside = part_folder(Path(step["folder"]), step["id"])
    if not aside.is_dir() or aside.is_symlink():
        return False
    if (made := written_by(aside, [step])) is not None:
        delete_folder(aside, made)
    else:  # killed before its record was written
        delete_leftovers(aside / FOLDER_RECORD)
        aside.rmdir()
    return True


def delete_folder(folder: Path, step: dict) -> None:
    """Delete what a step wrote in a folder, and the folder; the record goes last, so that a crash can be continued.

    Files that another program adds or changes during the deletion are kept.
    """
    delete_leftovers(folder / FOLDER_RECORD)
    check_deletable(folder, step)
    source_of = {target: source for source, target in step.get("files", [])}
    for place, folders, names in os.walk(folder, topdown=False):
        for target in (Path(place, name) for name in names):
            source = source_of.get(str(target.relative_to(folder)))
            if source is not None and has_original(target, source, folder):
                target.unlink()
        for name in folders:
            os.rmdir(os.path.join(place, name))
    os.unlink(folder / FOLDER_RECORD)
    folder.rmdir()


# --- moves in the data folder ------------------------------------------------------------------------------------------


def removed_folder(root: Path) -> Path:
    """Return the folder of removed images, beside a data folder."""
    return root.with_name(root.name + REMOVED_SUFFIX)


def locate(root: Path, place: str) -> Path:
    """Return the path of an image of a step, checked to be below the data folder or its folder of removed images.

    Its folders must not be links, which could lead elsewhere.
    """
    path = Path(os.path.normpath(root / place))
    top = next((one for one in (root, removed_folder(root)) if path != one and path.is_relative_to(one)), None)
    if top is None:
        raise LikewiseError(
            f"apply: images must be below the data folder {root}, but '{path}' is not; give --root, or write a new folder with "
            "--to"
        )
    for parent in path.parents:
        if parent.is_relative_to(top) and (parent.is_symlink() or (parent.exists() and not parent.is_dir())):
            raise LikewiseError(
                f"apply: --in-place moves images between real folders of {root}, but '{parent}' is a "
                f"{'link' if parent.is_symlink() else 'file'}; write a new folder with --to"
            )
    return path


def move_images(root: Path, moves: Sequence[Move], table: Path, say: Callable[[str], None]) -> None:
    """Move the images of a data folder, after recording the moves for `undo_step`."""
    with locked(table.parent, root):
        pairs = [(locate(root, one.source), locate(root, one.target)) for one in moves]
        check_links(pairs)
        step = new_step("in-place", table, root)
        append_entry(record_of(table), step)
        files = [[os.path.relpath(source, root), os.path.relpath(target, root)] for source, target in pairs]
        folders = [os.path.relpath(one, root) for one in missing_folders(target for _, target in pairs)]
        append_entry(root / FOLDER_RECORD, {**step, "files": files, "folders": folders})
        move_all(pairs, step["id"], f"`{undo_command(table)}` moves them back", say)


def move_all(pairs: Sequence[tuple[Path, Path]], step: str, advice: str, say: Callable[[str], None]) -> None:
    """Move files one by one; an error or an interrupt reports how many were moved, with the advice."""
    done = 0
    try:
        for source, target in pairs:
            target.parent.mkdir(parents=True, exist_ok=True)
            move_file(source, target, part_name(step))
            done += 1
    except OSError as error:
        raise LikewiseError(
            f"apply: every image must move, but '{source}' cannot move to '{target}' ({error.strerror}); {done} of {len(pairs)} "
            f"images were moved before it: {advice}"
        ) from None
    except KeyboardInterrupt:
        say(f"apply: interrupted after {done} of {len(pairs)} images: {advice}")
        raise


def part_name(step: str) -> str:
    """Return the name of a partial copy that a step makes, between two disks."""
    return f".likewise-{step}.part"


def undo_command(table: str | Path) -> str:
    return f"likewise apply {shlex.quote(str(table))} --undo"


def missing_folders(targets: Iterable[Path]) -> list[Path]:
    """Return the folders that do not exist yet and that these files need, parents first."""
    parents = {parent for target in targets for parent in target.parents}
    return sorted(parent for parent in parents if not parent.exists())


def check_images(moves: Sequence[Move]) -> None:
    """Raise if an image is missing, is no regular file or has no suffix of an image, before anything is changed."""
    missing = [move.source for move in moves if not os.path.isfile(move.source)]
    if missing:
        raise LikewiseError(
            f"apply: all images must exist, but {len(missing)} of {len(moves)} do not (first: {missing[0]}); if the table was "
            "applied with --in-place already, train on the folder, or reverse that with --undo"
        )
    others = [move.source for move in moves if PurePath(move.source).suffix.lower() not in IMAGE_SUFFIXES]
    if others:
        raise LikewiseError(
            f"apply: all files of the table must be images, but {len(others)} of {len(moves)} have another suffix (first: "
            f"{others[0]}); remove these lines"
        )


def check_links(pairs: Iterable[tuple[Path, Path]]) -> None:
    """Raise if an image is a relative link that would lead elsewhere from its new place."""
    for source, target in pairs:
        if source.is_symlink() and os.path.realpath(target.parent / os.readlink(source)) != os.path.realpath(source):
            raise LikewiseError(
                f"apply: a link must lead to its image from its new place too, but '{source}' is relative; write a new folder "
                "with --to"
            )


# --- undo --------------------------------------------------------------------------------------------------------------


def undo_step(table: Path, say: Callable[[str], None]) -> tuple[Path, list[Move]]:
    """Reverse the last step with a table, also an interrupted one; return its folder, and the images that were moved back."""
    with locked(table.parent):
        steps = read_steps(record_of(table))
        if not steps:
            raise LikewiseError(
                f"apply: --undo needs the record of an earlier call, but {record_of(table)} has none; nothing was applied from "
                "this table, or everything was undone"
            )
        step, folder, missing = steps[-1], Path(steps[-1]["folder"]), []
        if step["how"] == "to":
            moves = undo_folder(folder, steps, table)
        else:
            with locked(*{recorded_root(folder)} - {Path(os.path.realpath(table.parent))}):  # which is locked already
                check_last(folder, steps, table)
                moves, missing = undo_moves(folder, read_steps(folder / FOLDER_RECORD)[-1], table, say)
        append_entry(record_of(table), {"undo": step["id"]})
    if missing:
        raise LikewiseError(
            f"apply: all moved images must be at their new place, but {len(missing)} are neither there nor at their old place: "
            f"{shown_names(missing)}; the other {len(moves)} were moved back, and these cannot be. The full list is in "
            f"{folder / FOLDER_RECORD}"
        )
    return folder, moves


def recorded_root(folder: Path) -> Path:
    """Return the data folder of a step; raise if it is not at its place."""
    if not folder.is_dir() or os.path.realpath(folder) != str(folder) or is_empty(folder):
        raise LikewiseError(
            f"apply: the data folder of the last step must be at its place, but {folder} is missing, empty or a link; bring it "
            "back, and try again"
        )
    return folder


def has_step(folder: Path, step: dict) -> bool:
    """Return whether the record of a folder has this step, and it was not undone."""
    return any(one["id"] == step["id"] for one in read_steps(folder / FOLDER_RECORD))


def check_last(folder: Path, steps: Sequence[dict], table: Path) -> None:
    """Raise unless the last step with a table is the last step in its folder."""
    step, there = steps[-1], read_steps(folder / FOLDER_RECORD)
    if not has_step(folder, step):
        advice = f"if another disk belongs there, mount it; otherwise move {record_of(table)} away"
        if os.path.lexists(folder / FOLDER_RECORD):
            append_entry(record_of(table), {"undo": step["id"]})
            advice = "--undo again reverses the step before it, if there is one"
        raise LikewiseError(
            f"apply: {folder / FOLDER_RECORD} must have the step that is to be undone, but it has not: the step was interrupted "
            f"before its first change, or its record came from elsewhere; nothing was changed; {advice}"
        )
    if there[-1]["id"] != step["id"]:
        raise LikewiseError(
            f"apply: the last step in {folder} must be undone first, but it came from another table; run "
            f"`{undo_command(there[-1]['table'])}`"
        )


def undo_folder(folder: Path, steps: Sequence[dict], table: Path) -> list[Move]:
    """Delete the folder that the last step wrote, and what an interrupted one left."""
    was_part = delete_part(steps[-1])
    if (made := written_by(folder, steps)) is not None:
        delete_folder(folder, made)
    elif not was_part and os.path.lexists(folder) and not is_empty(folder):
        check_last(folder, steps, table)
    return []


def check_pairs(pairs: Sequence[tuple[Path, Path]], record: Path) -> None:
    """Raise unless all old and new places of a step differ and are names of images."""
    places = Counter(chain(*pairs))
    odd = [str(place) for place, count in places.items() if count > 1 or place.suffix.lower() not in IMAGE_SUFFIXES]
    if odd:
        raise LikewiseError(
            f"apply: {record} must name each image once, but it has {shown_names(odd)} twice or as an image; nothing was "
            "changed. Move this file away if it came from elsewhere"
        )


def undo_moves(root: Path, step: dict, table: Path, say: Callable[[str], None]) -> tuple[list[Move], list[str]]:
    """Move images back, all or none; return the moves, and the images that are at neither place."""
    back: list[tuple[Path, Path]] = []
    twice: list[tuple[Path, Path]] = []
    taken, missing = [], []
    pairs = [(locate(root, old), locate(root, new)) for old, new in reversed(step.get("files", []))]
    check_pairs(pairs, root / FOLDER_RECORD)
    for old, new in pairs:
        if not os.path.lexists(new):
            if not os.path.lexists(old):
                missing.append(str(new))
        elif not os.path.lexists(old):
            back.append((new, old))
        elif same_content(old, new):
            twice.append((old, new))
        else:
            taken.append(str(old))
    if taken:
        raise LikewiseError(
            f"apply: the old places of all images must be free, but {len(taken)} have another file: {shown_names(taken)}; "
            "nothing was changed. Move these files elsewhere, and try again"
        )
    for old, new in twice:  # a crash between copy and deletion, or a copy that the user made
        if same_content(old, new):  # still
            os.unlink(new)
    move_all(back, step["id"], f"`{undo_command(table)}` continues", say)
    for folder in {path.parent for pair in pairs for path in pair}:
        (folder / part_name(step["id"])).unlink(missing_ok=True)
    for place in reversed(step.get("folders", [])):
        with suppress(OSError):  # it has other files
            locate(root, os.path.join(place, "*")).parent.rmdir()
    append_entry(root / FOLDER_RECORD, {"undo": step["id"]})
    return [Move(str(new), str(old), "relabel" if new.is_relative_to(root) else "remove") for new, old in back], missing
