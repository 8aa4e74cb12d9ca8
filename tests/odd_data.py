"""Odd tables, folders and files of embeddings, for tests of every command that reads them."""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from messy_folder import drawn

CLASSES = ("cat", "dog", "elk", "fox")
HEAD = "path,label\n"
ROWS = "".join(f"p/{name}/{n}.png,{name}\n" for name in CLASSES for n in range(4))
TABLE = HEAD + ROWS
"""A table of the sixteen images of `make_photos`."""


def make_photos(root: Path) -> Path:
    """Write four images of each of four classes below `root`/p, and return `root`."""
    rng = np.random.default_rng(0)
    for name in CLASSES:
        (root / "p" / name).mkdir(parents=True)
        pattern = rng.integers(0, 256, (5, 5, 3))
        for number in range(4):
            drawn(pattern, rng).save(root / "p" / name / f"{number}.png")
    return root


def with_path(path: bytes) -> bytes:
    """Return the table with another path in its first row."""
    return TABLE.encode().replace(b"p/cat/0.png", path, 1)


BAD_TABLES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "blank lines": (b"\n\n  \n", "it is empty"),
    "only a header": (HEAD.encode(), "only a header"),
    "a byte that is not UTF-8 in a label": (
        TABLE.encode().replace(b",cat", b",caf\xe9", 1),
        "line 2 holds the byte 0xe9",
    ),
    "a byte that is not UTF-8 in the header": (
        b"path,label,caf\xe9\n" + ROWS.encode().replace(b"\n", b",\n"),
        "line 1 holds the byte",
    ),
    "a path that is not UTF-8 and not there": (
        with_path(b"p/cat/caf\xe9.png"),
        "a name is not UTF-8, so the table may",
    ),
    "Latin-1": ("path,label\np/cät/0.png,cät\n".encode("latin-1"), "every image file must exist"),
    "UTF-16 with its mark": (TABLE.encode("utf-16"), "it is UTF-16; save it as UTF-8"),
    "UTF-16 big endian": (b"\xfe\xff" + TABLE.encode("utf-16-be"), "it is UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": (TABLE.encode("utf-16-le"), "line 1 holds a zero byte"),
    "a zero byte in a label": (TABLE.encode().replace(b",cat", b",c\0t", 1), "line 2 holds a zero byte"),
    "a quote that never ends": (TABLE.encode().replace(b",cat", b',"cat', 1), "not CSV .*; check its quotes"),
    "a field that is too long": (TABLE.encode().replace(b",cat", b"," + b"c" * 200_000, 1), "not CSV .*field larger"),
    "a doubled column": (TABLE.encode().replace(b"path,label", b"path,path", 1), "column 'path' more than once"),
    "too many cells": (TABLE.encode().replace(b"0.png,cat", b"0.png,cat,x", 1), "line 2 must have 2 cells .* got 3"),
    "too few cells": (TABLE.encode().replace(b"0.png,cat", b"0.png", 1), "line 2 must have 2 cells .* got 1"),
    "semicolons": (TABLE.replace(",", ";").encode(), "must be separated by commas"),
    "tabs": (TABLE.replace(",", "\t").encode(), "must be separated by commas"),
    "gzip": (gzip.compress(TABLE.encode()), "it is compressed with gzip; unpack it"),
    "a spreadsheet": (b"PK\x03\x04" + b"\0" * 50, "it is a zip archive"),
    "Parquet": (b"PAR1" + b"\0" * 50, "it is a Parquet file; rename it to .parquet"),
    "an empty label": (TABLE.encode().replace(b",cat", b",", 1), "label, but it is empty in .* line 2"),
    "a blank label": (TABLE.encode().replace(b",cat", b",   ", 1), "label, but it is empty in .* line 2"),
    "an empty path": (with_path(b""), "path must be a file name"),
    "a path twice": (with_path(b"p/cat/1.png"), "is in .* line 2 and in line 3"),
    "a path twice in two forms": (with_path(b"p/dog/../cat/1.png"), "listed once|two different labels|is in"),
    "a path to nothing": (with_path(b"p/cat/99.png"), "every image file must exist"),
    "a path to a folder": (with_path(b"p/cat"), "not a file"),
    "a path that is too long": (with_path(b"p/" + b"x" * 300 + b".png"), "every image file must exist"),
    "a path through a file": (with_path(b"p/cat/1.png/0.png"), "every image file must exist"),
    "no column of labels": (TABLE.encode().replace(b"label", b"weather", 1), "the column 'label' is missing"),
    "no column of paths": (TABLE.encode().replace(b"path", b"place", 1), "the column 'path' is missing"),
    "one class": (
        "".join(
            f"{a},cat\n" if "/" in a else f"{a},{b}\n" for a, b in (line.split(",") for line in TABLE.split())
        ).encode(),
        "class",
    ),
    "an unknown split": (
        b"path,label,split\n" + ROWS.encode().replace(b"\n", b",tset\n"),
        "split must be train, val, test",
    ),
    "a weight that is no number": (
        b"path,label,weight\n" + ROWS.encode().replace(b"\n", b",much\n"),
        "weight must be a number",
    ),
    "a box of three corners": (
        b"path,label,box\n" + ROWS.encode().replace(b"\n", b",0 0 1\n"),
        "box must be four numbers",
    ),
}
"""Name -> content of a .csv file that no command accepts, and what the error says."""

GOOD_TABLES: dict[str, bytes] = {
    "plain": TABLE.encode(),
    "UTF-8 with its mark": b"\xef\xbb\xbf" + TABLE.encode(),
    "CR LF": TABLE.replace("\n", "\r\n").encode(),
    "CR only": TABLE.replace("\n", "\r").encode(),
    "blank lines between": TABLE.replace("\n", "\n\n").encode(),
    "no line end": TABLE.encode().rstrip(b"\n"),
    "quoted": "".join(f'"{a}","{b}"\n' for a, b in (line.split(",") for line in TABLE.split())).encode(),
    "blanks around labels": TABLE.replace(",cat", ", cat ").encode(),
    "paths with ./": TABLE.replace("p/cat", "./p/cat").encode(),
    "paths with ../": TABLE.replace("p/cat", "p/dog/../cat").encode(),
}
"""Name -> content of a .csv file of the same sixteen images and labels."""


def bad_folders(root: Path) -> dict[str, tuple[Callable[[], object], str]]:
    """Return name -> a function that makes an odd folder at `root`, which no command accepts, and what the error says."""

    def image(*names: str) -> None:
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            drawn(np.full((5, 5, 3), 90), np.random.default_rng(len(name))).save(root / name)

    def sockets() -> None:
        image("cat/0.png")
        os.rename(root / "cat/0.png", root / "cat/0.txt")
        os.mkfifo(root / "cat/pipe.png")

    return {
        "missing": (lambda: None, "neither a known name nor an existing path|does not exist"),
        "empty": (lambda: root.mkdir(), "one sub-folder per class"),
        "a file": (lambda: root.write_text("x"), "suffix that is not supported"),
        "only loose images": (lambda: image("0.png", "1.png"), "one sub-folder per class|class folder|classes"),
        "empty classes": (lambda: [(root / n).mkdir(parents=True) for n in "ab"], "must hold images, got none"),
        "no images": (
            lambda: [(root / "a").mkdir(parents=True), (root / "a/x.txt").write_text("x")],
            "must hold images, got none",
        ),
        "only special files": (sockets, "must hold images, got none"),
        "only dangling links": (
            lambda: [(root / "a").mkdir(parents=True), os.symlink("nowhere.png", root / "a/0.png")],
            "must hold images, got none",
        ),
        "only a link in a circle": (
            lambda: [root.mkdir(), os.symlink("loop", root / "loop")],
            "one sub-folder per class",
        ),
        "only a link to itself": (lambda: [root.mkdir(), os.symlink(".", root / "loop")], "must hold images, got none"),
        "classes that differ in blanks": (lambda: image("cat/0.png", "cat /1.png"), "differ in more than the blanks"),
        "a blank class": (lambda: image("cat/0.png", "  /1.png"), "differ in more than the blanks"),
        "splits beside classes": (
            lambda: image("train/a/0.png", "test/a/0.png", "b/0.png"),
            "keep either only train, val, test",
        ),
    }


@contextmanager
def special_files(folder: Path) -> Iterator[list[str]]:
    """Make a named pipe, a socket and several odd links in a folder; yield their names. Reading the pipe would wait for ever."""
    os.mkfifo(folder / "pipe.png")
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(folder)  # the path of a socket has at most 107 bytes
        try:
            made.bind("socket.png")
        finally:
            os.chdir(here)
        os.symlink("nowhere.png", folder / "dangling.png")
        os.symlink("circle.png", folder / "circle.png")
        os.symlink(".", folder / "itself")
        os.symlink("..", folder / "above")
        yield ["above", "circle.png", "dangling.png", "itself", "pipe.png", "socket.png"]


def bad_embeddings(folder: Path) -> dict[str, tuple[str, str]]:
    """Write files of embeddings that no command accepts; return name -> file and what the error says."""
    x, y = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32), np.arange(24) % 4
    arrays = {
        "no labels": ({"x": x}, "must hold the labels"),
        "too few labels": ({"x": x, "label": y[:20]}, "has 24 rows, but label has 20"),
        "labels in two columns": ({"x": x, "label": np.stack([y, y], 1)}, r"must have the shape \(N,\)"),
        "one label": ({"x": x, "label": np.array(3)}, r"must have the shape \(N,\)"),
        "fractions": ({"x": x, "label": y + 0.5}, "a label must be a whole number"),
        "NaN as label": ({"x": x, "label": np.where(y, y, np.nan)}, "label, but it is empty"),
        "infinity as label": ({"x": x, "label": np.where(y, y, np.inf)}, "a label must be a whole number"),
        "empty labels": ({"x": x, "label": np.array([""] * 24)}, "label, but it is empty"),
        "Python objects": (
            {"x": x, "label": np.array(["a", None] * 12, object)},
            "Python objects, which are not unpickled",
        ),
        "too few paths": ({"x": x, "label": y, "path": np.array(["a"] * 3)}, "has 24 rows, but path has 3"),
        "too few names": ({"x": x, "label": y, "class_name": np.array(["a", "b"])}, "one name per row"),
        "NaN": ({"x": np.where(x > 1, np.nan, x), "label": y}, "must be finite"),
        "one column": ({"x": x[:, 0], "label": y}, r"must have the shape \(N, F\)"),
        "no rows": ({"x": x[:0], "label": y[:0]}, r"must have the shape \(N, F\)"),
        "words": ({"x": x.astype(str), "label": y}, "must be numbers"),
        "complex numbers": ({"x": x.astype(complex), "label": y}, "must be numbers"),
        "vectors twice": ({"x": x, "z": x, "label": y}, "both x and z"),
        "no vectors": ({"q": x, "label": y}, "under the name x"),
        "one row": ({"x": x[:1], "label": y[:1]}, "1 results|two samples|1 classes|row 0 alone|divided"),
    }
    found = {}
    for name, (columns, message) in arrays.items():
        np.savez(folder / f"{name}.npz", **columns)
        found[name] = (f"{name}.npz", message)
    content = {"empty": b"", "text": b"hello", "cut": (folder / "NaN.npz").read_bytes()[:600]}
    for name, raw in content.items():
        for suffix in ("npz", "parquet"):
            (folder / f"{name}.{suffix}").write_bytes(raw)
            found[f"{name} {suffix}"] = (
                f"{name}.{suffix}",
                "cannot be read as NumPy data|Python objects|not a readable Parquet",
            )
    return found


def bad_labels(folder: Path) -> dict[str, tuple[str, str]]:
    """Write files of labels that do not fit 24 vectors in v.npy; return name -> file and what the error says."""
    content = {
        "short.csv": ("label\n" + "a\n" * 20, "has 24 rows and .* has 20"),
        "long.csv": ("label\n" + "a\n" * 30, "has 24 rows and .* has 30"),
        "empty.csv": ("", "it is empty"),
        "head.csv": ("label\n", "only a header"),
        "column.csv": ("Label\n" + "a\n" * 24, "did you mean 'label'"),
        "twice.csv": (
            "row,label\n" + "".join(f"{n % 12},{n % 4}\n" for n in range(24)),
            "column row of .* 12 are missing",
        ),
        "from one.csv": (
            "row,label\n" + "".join(f"{n + 1},{n % 4}\n" for n in range(24)),
            "column row of .* 1 are missing",
        ),
        "gaps.csv": (
            "row,label\n" + "".join(f"{n or ''},{n % 4}\n" for n in range(24)),
            "column row of .* 1 are missing",
        ),
        "short.txt": ("a\n" * 20, "has 24 rows and .* has 20"),
        "blank.txt": ("a\n\n" * 12, "has 24 rows and .* has 23"),
        "latin.txt": ("caf\udce9\n" * 24, "line 1 holds the byte 0xe9"),
        "labels.json": ("[]", "labels are read from .npy, .csv or .txt"),
        "empty.npy": ("", "cannot be read as NumPy data"),
    }
    for name, (text, _) in content.items():
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    found = {name: (name, message) for name, (_, message) in content.items()}
    np.save(folder / "short.npy", np.arange(20))
    return found | {
        "short.npy": ("short.npy", "has 24 rows and short.npy has 20"),
        "none": ("none.csv", "cannot be read"),
    }
