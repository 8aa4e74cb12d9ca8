"""Atomic file writes (temporary file, then rename), readers of .npz and JSON files, and checks of output paths.

Names of files and classes may hold bytes that are not UTF-8. Python reads them as lone surrogates (`os.fsdecode`), and every
file keeps them without loss: CSV files hold the bytes themselves, JSON files and HTML pages escape them as `\\udcff`, Parquet
files store a column with such a name as binary, and .npz files hold the surrogates.
"""

from __future__ import annotations

import csv
import errno
import json
import os
import secrets
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOBase
from pathlib import Path
from typing import IO

from likewise.core.errors import CONTROL_CHARACTERS, DiskFull, LikewiseError, causes

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of the operating system for "no space left": full disk, exceeded quota, file too large."""


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it replaces `path`, on an error the old file stays unchanged."""
    aside = path.with_name(f".{path.name[:40]}.{os.getpid()}-{secrets.token_hex(3)}.part")
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


def crc32_of(file: Path) -> int:
    """Return the CRC-32 of a file, read in blocks."""
    crc = 0
    with file.open("rb", buffering=0) as raw:
        while block := raw.read(2**24):
            crc = zlib.crc32(block, crc)
    return crc


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
    """Return the output path; raise if its suffix is wrong or it cannot be written, before any work begins."""
    path = Path(out).expanduser()
    if path.suffix.lower() != suffix:
        raise LikewiseError(f"{owner}: {flag} must end in {suffix}, got '{out}'")
    return check_output_file(out, owner, flag)


def names_folder(out: str) -> bool:
    """Whether an output path is that of a folder: it ends in a separator, or is a folder without the ending of a file."""
    return out.endswith(("/", os.sep)) or (not out.endswith(".npz") and os.path.isdir(os.path.expanduser(out)))


def check_output_file(out: str | os.PathLike, owner: str, flag: str = "--out") -> Path:
    """Return the path of an output file; raise if it is a folder, or if its folder is missing or cannot be written."""
    path = Path(out).expanduser()
    folder = path.absolute().parent
    if not os.path.isdir(folder):
        raise LikewiseError(f"{owner}: the folder of {flag} '{out}' does not exist; create it first")
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # a folder, a name that is too long, or one with a zero byte
        raise LikewiseError(
            f"{owner}: {flag} must be the name of a file, got '{out}' ({reason_of(error)}); choose another name"
        ) from None
    check_writable(folder, owner, flag)
    return path


def reason_of(error: Exception) -> str:
    """Return the text of the operating system for an error, or the error's own."""
    return getattr(error, "strerror", None) or first_line(error)


def check_writable(folder: Path, owner: str, flag: str = "--out") -> None:
    """Raise unless a file can be created in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise LikewiseError(
            f"{owner}: the folder of {flag} must be writable, but no file can be created in '{folder}' ({reason_of(error)}); "
            "choose another folder, or change its permissions"
        ) from None


def check_creatable(out: str | os.PathLike, owner: str, flag: str = "--out") -> None:
    """Raise unless this folder can be created, or files in it if it exists. Nothing is created."""
    path = Path(out).expanduser().absolute()
    above = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    if not above.is_dir():
        raise LikewiseError(
            f"{owner}: {flag} must be a folder, got '{out}', but '{above}' is a file; choose another one"
        )
    check_writable(above, owner, flag)


def make_folder(out: str | os.PathLike, owner: str) -> Path:
    """Create the output folder if it is missing, and return its path; raise if no file can be created in it."""
    path = Path(out).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise LikewiseError(
            f"{owner}: --out must be a folder, got '{out}' ({reason_of(error)}); choose another one"
        ) from None
    check_writable(path, owner)
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
    except (ValueError, RecursionError) as error:
        # Not UTF-8, not JSON, a number with too many digits, or nested too deeply.
        raise LikewiseError(f"{owner}: {file} is damaged ({str(error).splitlines()[0]}){hint and '; '}{hint}") from None
    if not isinstance(value, kind):
        problem = f"it holds a {type(value).__name__}, not a {kind.__name__}"
        raise LikewiseError(f"{owner}: {file} is damaged ({problem}){hint and '; '}{hint}")
    return value


def write_text(file: Path, text: str) -> None:
    """Write a text file in UTF-8, atomically. Bytes that are not UTF-8 are written as `\\udcff`, which JSON reads back."""
    with atomic_write(file) as aside:
        aside.write_text(text, "utf-8", "backslashreplace")


def write_json(file: Path, value) -> None:
    """Write a value as an indented JSON file, atomically."""
    write_text(file, json_text(value) + "\n")


def json_text(value) -> str:
    """Return a value as indented JSON for files and terminals: characters that control a terminal are escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return CONTROL_CHARACTERS.sub(lambda one: "\n" if one[0] == "\n" else f"\\u{ord(one[0]):04x}", text)


def write_csv(file: Path, head: Sequence[str], lines: Iterable[Sequence]) -> None:
    """Write a CSV file with this header and these rows, atomically; names keep their bytes."""
    with atomic_write(file) as aside, open_csv(aside, "w") as out:
        write_csv_lines(out, [head])
        write_csv_lines(out, lines)


def write_csv_lines(out: IO[str] | TextIOBase, lines: Iterable[Iterable]) -> None:
    """Write lines of CSV. A line with a carriage return is quoted as a whole: Python before 3.13 would not quote it."""
    plain = csv.writer(out, lineterminator="\n")
    quoted = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for line in lines:
        line = list(line)
        (quoted if any(isinstance(cell, str) and "\r" in cell for cell in line) else plain).writerow(line)


def open_csv(file: str | os.PathLike, mode: str = "r") -> IO[str]:
    """Open a CSV file of likewise for `csv`, to read or to write it: bytes that are not UTF-8 are lone surrogates."""
    encoding = "utf-8-sig" if mode == "r" else "utf-8"
    return open(file, mode, encoding=encoding, errors="surrogateescape", newline="")


def text_column(cells: Sequence[str]):
    """Return text as a column of a Parquet file: strings, or the bytes of all cells if one of them is not UTF-8.

    `text_cells` returns the same text in both cases.
    """
    import pyarrow as pa

    try:
        return pa.array(cells, pa.string())
    except UnicodeEncodeError:
        return pa.array([cell.encode("utf-8", "surrogateescape") for cell in cells], pa.binary())


def text_cells(column) -> list:
    """Return the cells of a column of a Parquet file as Python values; binary cells become text, as `text_column` got it."""
    import pyarrow as pa

    cells, kind = column.to_pylist(), column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [cell if cell is None else cell.decode("utf-8", "surrogateescape") for cell in cells]
    return cells
