"""log.jsonl: the log of a training, one JSON object per line, in the order of the steps."""

from __future__ import annotations

import json
from pathlib import Path

from likewise.core.argument_checks import misfit
from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, no_link

LOG_FILE = "log.jsonl"

LINE_TYPES = {
    "step": int, "loss": float | None, "lr": dict[str, float], "images_per_s": float, "sample_weights": dict[str, float],
    "relabelling": dict[str, float],
    "suspicion": {
        "edges": [float, float], "right": list[int], "wrong": list[int] | None, "weight": list[float | None],
        "threshold": float | None,
    },
}  # fmt: skip
"""Types of the entries of a line that training and the report read again."""

TEST_PREFIX = "test "
"""Prefix of the metrics that training measures on the test split (`test_every`)."""


def append_log(folder: Path, lines: list[dict]) -> None:
    """Append lines to the log of a run folder."""
    with open(folder / LOG_FILE, "a", encoding="utf-8", opener=no_link) as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def read_log(folder: Path) -> list[dict]:
    """Return the lines of the log, without a last line that a crash has truncated."""
    file, lines = folder / LOG_FILE, []
    texts = file.read_bytes().splitlines() if file.exists() else []
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text.decode())
            if not isinstance(line, dict):
                raise ValueError(f"a {type(line).__name__} instead of an object")
        except (ValueError, RecursionError) as error:
            if number == len(texts):
                break
            raise LikewiseError(f"run: line {number} of {file} is damaged ({error}); delete that line") from None
        scores = {name: float for name in line if name.startswith(("val ", TEST_PREFIX))}
        if (wrong := misfit(line, LINE_TYPES | scores)) is not None:
            raise LikewiseError(
                f"run: line {number} of {file} is damaged (the value of {wrong} has another type); delete that line"
            )
        lines.append(line)
    return lines


def rewind_log(folder: Path, step: int) -> None:
    """Remove the lines after `step`, which a resumed training computes again."""
    kept = [line for line in read_log(folder) if line.get("step", 0) <= step]
    with atomic_write(folder / LOG_FILE) as file:
        file.write_text("".join(json.dumps(line) + "\n" for line in kept), "utf-8")


def best_test_epoch(lines: list[dict]) -> dict[str, float] | None:
    """Return the best value of each metric that training measured on the test split (`test_every`); None if it did not.

    These values are selected by test labels. Use them only to compare with papers that report such values.
    """
    seen: dict[str, list[float]] = {}
    for line in lines:
        for key, value in line.items():
            if key.startswith(TEST_PREFIX):
                seen.setdefault(key.removeprefix(TEST_PREFIX), []).append(value)
    return {name: max(values) for name, values in seen.items()} or None
