"""Run the same commands with two checkouts and compare every number that they write.

    python tools/compare_versions.py OLD NEW --out compared/            # all parts, about 10 minutes for each checkout
    python tools/compare_versions.py OLD NEW --out compared/ --parts audit bench

Results of a checkout that are complete in `--out` are used again. Values of time, speed, memory, paths and versions are left
out. The exit code is 1 if a number differs.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

GLYPHS = "glyphs(classes=40)"
SHORT = ("--backbone", "conv_small", "--size", "28", "--dim", "32", "--epochs", "3", "--seed", "1", "--quiet")
PARTS = {
    "demo": [("demo", "--out", "demo", "--quiet")],
    "train": [
        (
            "train",
            GLYPHS,
            "--noise",
            "Uniform(share=0.3)",
            "--protocol",
            "UnseenClasses(val=0.2)",
            "--out",
            "plain",
            *SHORT,
        ),
        ("train", GLYPHS, "--noise", "Uniform(share=0.3)", "--robust", "--out", "robust", *SHORT),
        ("evaluate", "robust", "--metrics", "R@1", "MAP@R", "NMI", "AMI", "AUROC", "--out", "evaluated.json"),
        ("evaluate", "plain", "--split", "train", "--metrics", "R@1", "P@1", "MAP@R", "--out", "evaluated_train.json"),
        ("embed", "robust", GLYPHS, "--out", "z.npz"),
        ("compare", "plain", "robust", "--csv", "compared.csv"),
        ("calibrate", "plain", "--far", "0.05"),
        ("hierarchy", "robust"),
        ("report", "plain", "robust", "--out", "report.html"),
    ],
    "audit": [
        ("train", GLYPHS, "--noise", "Semantic(share=0.2)", "--out", "noisy", *SHORT),
        ("audit", "noisy", "--forecast"),
        ("embed", "noisy", GLYPHS, "--out", "z.npz"),
        ("audit", "z.npz", "--out", "audit"),
    ],
    "bench": [("bench", "procsim-table5", "--quick", "--only", "seed=0", "--out", "table5")],
    "losses": [
        ("train", GLYPHS, "--recipe", recipe, "--out", recipe, *SHORT)
        for recipe in ("proxy-anchor", "margin", "procsim", "prism", "s2sd", "drml-pa", "soft-triple")
    ],
    "published": [("published", "--csv", "published.csv")],
}
"""Part -> the commands of `likewise` that it runs, in a folder of its own."""

CHANGING_NAMES = re.compile(
    r"time|seconds|minutes|speed|per_s|memory|bytes|path|version|digest|fingerprint|machine|host|created|date|usage|energy|pid|started|commit|^run$"
)
"""Names of values that differ from call to call, or that name the files of a checkout."""


def main(words: Sequence[str] | None = None) -> int:
    asked = parse(words)
    folders = [
        run_parts(Path(home), Path(asked.out) / side, asked.parts) for side, home in zip("ab", (asked.old, asked.new))
    ]
    differences = 0
    for part in asked.parts:
        old, new = (dict(values_below(folder / part)) for folder in folders)
        differing = [name for name in old if name in new and not equal(old[name], new[name])]
        missing = sorted(old.keys() ^ new.keys())
        differences += len(differing) + len(missing)
        print(f"{part}: {len(old)} values, {len(differing)} differ, {len(missing)} are in one checkout only")
        for name in differing[: asked.most]:
            print(f"  {name}: {old[name]!r} -> {new[name]!r}")
        for name in missing[: asked.most]:
            print(f"  {name}: only in {asked.old if name in old else asked.new}")
    return int(differences > 0)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("old", help="folder of a checkout")
    flags.add_argument("new", help="folder of another checkout")
    flags.add_argument("--out", required=True, help="folder of the results of both")
    flags.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="what to run")
    flags.add_argument("--most", type=int, default=20, help="number of differences that are printed for each part")
    return flags.parse_args(words)


def run_parts(home: Path, out: Path, parts: Sequence[str]) -> Path:
    """Run the commands of all parts with a checkout, unless they are complete, and return the folder of the results."""
    environment = {**os.environ, "PYTHONPATH": str(home.resolve() / "src"), "OMP_NUM_THREADS": "1"}
    for part in parts:
        folder = out / part
        if (folder / "complete").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for number, words in enumerate(PARTS[part]):
            print(f"{home}: likewise {' '.join(words)}", flush=True)
            call = [sys.executable, "-P", "-m", "likewise", *words]
            done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True)
            (folder / f"output{number}.txt").write_text(done.stdout)
            if done.returncode:
                sys.exit(
                    f"compare_versions: exit code {done.returncode} of likewise {' '.join(words)}\n{done.stderr[-2000:]}"
                )
        (folder / "complete").touch()
    return out


def values_below(folder: Path) -> Iterator[tuple[str, object]]:
    """Yield (file and place, value) of all numbers and texts in the JSON, CSV, NPZ and Parquet files of a folder."""
    import numpy as np
    import pyarrow.parquet

    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if file.suffix == ".json":
            yield from leaves(name, json.loads(file.read_text("utf-8")))
        elif file.suffix == ".jsonl":
            yield from leaves(name, [json.loads(line) for line in file.read_text("utf-8").splitlines()])
        elif file.suffix == ".csv":
            rows = csv.DictReader(file.read_text("utf-8").splitlines())
            yield from leaves(name, [{str(key): value for key, value in row.items()} for row in rows])
        elif file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                yield from ((f"{name}:{key}", arrays[key]) for key in arrays if not CHANGING_NAMES.search(key))
        elif file.suffix == ".parquet":
            table = pyarrow.parquet.read_table(file)
            yield from ((f"{name}:{key}", table[key].to_pylist()) for key in table.column_names)


def leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield (place, value) of every leaf of nested dicts and lists."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if not CHANGING_NAMES.search(str(key)):
                yield from leaves(f"{name}:{key}", inside)
    elif isinstance(value, list):
        for number, inside in enumerate(value):
            yield from leaves(f"{name}:{number}", inside)
    else:
        yield name, value


def equal(a: object, b: object) -> bool:
    """Whether two values are equal; NaN equals NaN."""
    import numpy as np

    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return a == b or (isinstance(a, float) and isinstance(b, float) and a != a and b != b)


if __name__ == "__main__":
    sys.exit(main())
