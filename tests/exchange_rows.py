"""Rows for the round trips of tests/exchange: 10,000 with labels that break careless writers, as embeddings and as an audit."""

import csv
import json

import numpy as np

LABELS = (
    "wren", "Zaunkönig, klein", 'a "quoted" bird', "two\nlines", "=cmd|' /C calc'!A0", "鳥 🐦", "NA", "2020-01-01", "007", "1",
    "None", "nan", "true", "a\tb;c|d", "<b>&amp;'", "-", "row", "%20/..",
)  # fmt: skip
SPLITS = ("train", "val", "test")
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8ffff3f00057e02feda5b5b4f"
    "0000000049454e44ae426082"
)
"""A PNG of one pixel; bytes after its end are ignored by decoders."""


def write_vectors(folder, n=10_000, d=16, splits=SPLITS):
    """Write z.npz: unit vectors, rows from n - 1 to 0, labels of `LABELS`; return the file."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    file = folder / "z.npz"
    np.savez(
        file,
        x=x,
        label=np.asarray([LABELS[i % len(LABELS)] for i in range(n)]),
        row=np.arange(n)[::-1],
        split=np.asarray([splits[i % len(splits)] for i in range(n)]),
        path=np.asarray([f"/birds/ü {i}, 'a'.jpg" for i in range(n)]),
        camera=np.asarray([f"c{i % 3}" for i in range(n)]),
    )
    return file


def write_audit(folder, n=10_000, images=False, split=True):
    """Write an audit of n rows: every 10th is flagged, with the next label suggested; return its folder.

    With `images`, every row has a file of its own bytes.
    """
    place, root = folder / "audit", folder / "images"
    place.mkdir(parents=True)
    root.mkdir()
    with open(place / "audit.csv", "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(
            ["row", "path", "label", "score", "state", "suggested", "confidence", "margin", "reason", "split", "camera"]
        )
        for row in range(n):
            path, wrong = f"ü {row}, 'a'.png", row % 10 == 3
            suggested = [LABELS[(row + 1) % len(LABELS)], 0.9, 0.5, 'far, "from"\nits class'] if wrong else [""] * 4
            score = (row + 1) / (4 * n) if wrong else 0.5 + row / (3 * n)
            part = SPLITS[row % 3] if split else ""
            lines.writerow(
                [
                    row,
                    path,
                    LABELS[row % len(LABELS)],
                    score,
                    "flagged" if wrong else "ok",
                    *suggested,
                    part,
                    f"c{row % 2}",
                ]
            )
            if images:
                (root / path).write_bytes(PNG + str(row).encode())
    about = {"title": "birds", "root": str(root), "rows": n, "pictures": True, "parts": {}}
    (place / "audit.json").write_text(json.dumps(about))
    return place


def arrays(file):
    """Return the arrays of a .npz file in the order of their rows."""
    with np.load(file, allow_pickle=False) as loaded:
        found = {name: loaded[name] for name in loaded.files}
    order = np.argsort(found["row"])
    return {name: one[order] if one.ndim else one for name, one in found.items()}


def assert_same_vectors(sent, received):
    """Assert that two .npz files hold the same rows: vectors bit by bit, and all columns."""
    a, b = arrays(sent), arrays(received)
    assert str(b.pop("similarity")) == "cosine"
    assert a.keys() == b.keys()
    for name in a:
        if name == "x":
            assert b["x"].dtype == np.float32
            np.testing.assert_array_equal(a["x"].view(np.uint32), b["x"].view(np.uint32))
        else:
            assert a[name].tolist() == b[name].tolist(), name
