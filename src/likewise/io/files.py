"""Atomic file writes (temporary file, then rename), readers of .npz and JSON files, and checks of output paths."""

from __future__ import annotations

import csv
import errno
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from likewise.errors import DiskFull, LikewiseError, causes

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of the operating system for "no space left": full disk, exceeded quota, file too large."""


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it replaces `path`, on an error the old file stays unchanged."""
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(3)}.part")
    try:
        yield aside
        with aside.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    except Exception as error:
        # torch wraps the OSError in an error of its own; safetensors keeps only the text of the OSError
        full = any(getattr(cause, "errno", None) in DISK_FULL_ERRNOS for cause in causes(error))
        if full or any(os.strerror(number) in str(error) for number in DISK_FULL_ERRNOS):
            raise DiskFull(
                f"run: no space left on the disk to write {path}; the previous file is unchanged. "
                "Free some space and run the same command again"
            ) from None
        if isinstance(error, OSError) and error.filename == str(aside):
            error.filename = str(path)  # the name that the user knows
        raise
    finally:
        with suppress(OSError):  # a read-only disk, or a file that was never made: the first error counts
            aside.unlink(missing_ok=True)


def no_link(path: str, flags: int) -> int:
    """Open a file that is changed in place, as `opener` of `open`; raise OSError for a link.

    A folder from elsewhere may have a link in place of the file, to a file of the user's.
    """
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def cache_folder() -> Path:
    """Return the folder of files that can be rebuilt: `likewise` in `$XDG_CACHE_HOME`, or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "likewise"


def load_arrays(
    file: str | os.PathLike,
    owner: str,
    advice: str,
    names: Sequence[str] | Mapping[str, tuple[str, int]],
    need: bool = True,
) -> dict:
    """Return the arrays of an .npz file by name, without unpickling.

    Args:
        owner: command or component named at the start of the error about a damaged file.
        advice: end of that error: what the user can do.
        names: the arrays to read; or array -> letters of its kinds of dtype, and its dimensions: {"row": ("iu", 1)}.
        need: whether a missing array is an error; otherwise it is left out of the result.
    """
    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in names if need or name in arrays.files}
    except Exception as error:  # numpy, zipfile and zlib raise many types for damaged files
        raise LikewiseError(f"{owner}: {file} is damaged ({first_line(error)}); {advice}") from None
    for name, (kinds, dimensions) in names.items() if isinstance(names, Mapping) else ():
        if name in found and (found[name].dtype.kind not in kinds or found[name].ndim != dimensions):
            got = f"{found[name].dtype} of shape {found[name].shape}"
            raise LikewiseError(f"{owner}: {file} is damaged (the array {name} is {got}); {advice}")
    return found


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or the name of its type if the text is empty."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def check_output_path(out: str, suffix: str, owner: str, flag: str = "--out") -> Path:
    """Return the output path; raise if its suffix is wrong or its folder is missing, before any work begins."""
    path = Path(out).expanduser()
    if path.suffix.lower() != suffix:
        raise LikewiseError(f"{owner}: {flag} must end in {suffix}, got '{out}'")
    if not path.absolute().parent.is_dir():
        raise LikewiseError(f"{owner}: the folder of {flag} '{out}' does not exist; create it first")
    if not os.access(path.absolute().parent, os.W_OK):
        raise LikewiseError(f"{owner}: the folder of {flag} '{out}' is read-only; choose another one")
    if path.is_dir():
        raise LikewiseError(f"{owner}: {flag} must be a file, but '{out}' is a folder; choose another name")
    return path


def make_folder(out: str | os.PathLike, owner: str) -> Path:
    """Create the output folder if it is missing, and return its path."""
    path = Path(out).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LikewiseError(f"{owner}: --out must be a folder, got '{out}' ({error.strerror})") from None
    return path


def read_json(file: Path, owner: str, kind: type = dict, hint: str = ""):
    """Return the value in a JSON file; raise `LikewiseError` if the file is not UTF-8, not JSON or not of type `kind`.

    Args:
        owner: command or component named at the start of the error.
        kind: the expected Python type of the value.
        hint: end of the error: what the user can do about a damaged file.
    """
    try:
        value = json.loads(file.read_text("utf-8"))
    except (
        ValueError,
        RecursionError,
    ) as error:  # not UTF-8, not JSON, a number with too many digits, nested too deeply
        raise LikewiseError(f"{owner}: {file} is damaged ({str(error).splitlines()[0]}){hint and '; '}{hint}") from None
    if not isinstance(value, kind):
        problem = f"it holds a {type(value).__name__}, not a {kind.__name__}"
        raise LikewiseError(f"{owner}: {file} is damaged ({problem}){hint and '; '}{hint}")
    return value


def write_json(file: Path, value) -> None:
    """Write a value as an indented JSON file, atomically."""
    with atomic_write(file) as aside:
        aside.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def write_csv(file: Path, head: Sequence[str], lines: Iterable[Sequence]) -> None:
    """Write a CSV file with this header and these rows, atomically."""
    with atomic_write(file) as aside, aside.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows([head, *lines])
