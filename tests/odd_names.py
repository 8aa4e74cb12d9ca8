"""Class folders with any names that a file system allows: other encodings, line breaks, terminal commands, quotes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from messy_folder import drawn

CLASS_BYTES = (
    b"caf\xe9",  # Latin-1
    b"\xff\xfe\x80",
    b"a\nb\r",
    b"tab\tquote\",'comma",
    b"\x1b[31mred\x1b]0;title\x07",  # terminal commands
    "rtl \u202etac\u2066".encode(),
    "e\u0301te\u0301".encode(),  # NFD
    "\u00e9t\u00e9".encode(),  # NFC of the same
    b"Cat",
    b"cat",
    b"--help",
    b"</script><b>&amp;",
    b"=1+1|2",
    b"[red]rich[/red]",
    b"$HOME `id` {x} %s",
    "\U0001f408 ".strip().encode() + b"\xf0\x9f",  # a truncated character
)
"""Names of the classes, as bytes."""

FILE_BYTES = (
    b"\xff.png",
    b" lead\r.png",
    b'-x\n,".png',
    b"caf\xe9\x1b[2J.png",
    b"n" * 240 + b".png",
    b"5\x85\xe2\x80\xa8.png",
)
"""Names of the images of a class, as bytes."""


def make_odd_names(
    root: Path, classes: int = len(CLASS_BYTES), per_class: int = len(FILE_BYTES), seed: int = 0
) -> list[bytes]:
    """Write small images under odd names below `root`; return their paths relative to it in the order of the folder reader."""
    rng, found = np.random.default_rng(seed), []
    for name in CLASS_BYTES[:classes]:
        folder = os.path.join(os.fsencode(root), name)
        os.makedirs(folder)
        pattern = rng.integers(0, 256, (5, 5, 3))
        for file in FILE_BYTES[:per_class]:
            with open(os.path.join(folder, file), "wb") as out:
                drawn(pattern, rng).save(out, "PNG")
            found.append(name + b"/" + file)
    return sorted(found, key=lambda path: [os.fsdecode(part) for part in path.split(b"/")])
