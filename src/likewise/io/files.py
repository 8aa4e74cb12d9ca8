"""Files that are whole or not there: written aside and renamed; and whether a place can be written to."""

from __future__ import annotations

import csv
import errno
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from likewise.errors import DiskFull, LikewiseError, causes

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""How a system says that no more can be written."""


@contextmanager
def write_aside(path: Path) -> Iterator[Path]:
    """Write to a file beside `path`, then put it in its place: the old one survives whatever goes wrong."""
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(3)}.part")
    try:
        yield aside
        with aside.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    except Exception as error:
        # torch raises its own error while it handles the system's; safetensors keeps only the words of the system's
        full = any(getattr(one, "errno", None) in FULL for one in causes(error))
        if full or any(os.strerror(number) in str(error) for number in FULL):
            raise DiskFull(
                f"run: there is no room left on the disk for {path}; what was there before is untouched. "
                "Free some space and run the same command again"
            ) from None
        raise
    finally:
        aside.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Where things are kept that can be made again: `likewise` in `$XDG_CACHE_HOME`, or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "likewise"


def load_arrays(file: str | os.PathLike, owner: str, advice: str, names: Sequence[str], need: bool = True) -> dict:
    """Return the arrays of an .npz file by name; nothing is unpickled.

    Args:
        owner: who speaks in the error about a damaged file; `advice` says what to do then.
        names: read these alone; `need`: all of them must be there.
    """
    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names if need or name in arrays.files}
    except Exception as error:  # numpy, zipfile and zlib raise many kinds for damaged files
        raise LikewiseError(f"{owner}: {file} is damaged ({first_line(error)}); {advice}") from None


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def check_out(out: str, suffix: str, owner: str, flag: str = "--out") -> Path:
    """Where to write, known to be possible before the work begins."""
    path = Path(out).expanduser()
    if path.suffix.lower() != suffix:
        raise LikewiseError(f"{owner}: {flag} must end in {suffix}, got '{out}'")
    if not path.absolute().parent.is_dir():
        raise LikewiseError(f"{owner}: the folder of {flag} '{out}' does not exist; make it first")
    return path


def make_folder(out: str | os.PathLike, owner: str) -> Path:
    """A folder to write into, made where it is not there."""
    path = Path(out).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LikewiseError(f"{owner}: --out must be a folder, got '{out}' ({error.strerror})") from None
    return path


def read_json(file: Path, owner: str, kind: type = dict, hint: str = ""):
    """Return the value in a JSON file. Content that is not UTF-8, not JSON or not of this kind is a `LikewiseError`.

    Args:
        hint: what to do about a damaged file.
    """
    try:
        value = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # no text, no JSON, a number of too many digits, nested too deeply
        raise LikewiseError(f"{owner}: {file} is damaged ({str(error).splitlines()[0]}){hint and '; '}{hint}") from None
    if not isinstance(value, kind):
        found = f"it holds a {type(value).__name__}, not a {kind.__name__}"
        raise LikewiseError(f"{owner}: {file} is damaged ({found}){hint and '; '}{hint}")
    return value


def write_json(file: Path, value) -> None:
    with write_aside(file) as aside:
        aside.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def write_csv(file: Path, head: Sequence[str], lines: Iterable[Sequence]) -> None:
    with write_aside(file) as aside, aside.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows([head, *lines])
