"""log.jsonl: one JSON object a line, in the order of training steps."""

from __future__ import annotations

import json
from pathlib import Path

from likewise.errors import LikewiseError
from likewise.io.files import write_aside

FILE = "log.jsonl"

TEST_PREFIX = "test "
"""Prefix of a metric of the test part that training measured on the way (`test_every`)."""


def append_log(folder: Path, lines: list[dict]) -> None:
    """Append lines to the log of a run folder."""
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def read_log(folder: Path) -> list[dict]:
    """Return the lines of the log; a last line that a crash cut short is left out."""
    file, lines = folder / FILE, []
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
        lines.append(line)
    return lines


def rewind_log(folder: Path, step: int) -> None:
    """Remove the lines after `step`, which a resumed training computes again."""
    kept = [line for line in read_log(folder) if line.get("step", 0) <= step]
    with write_aside(folder / FILE) as file:
        file.write_text("".join(json.dumps(line) + "\n" for line in kept), "utf-8")


def best_test_epoch(lines: list[dict]) -> dict[str, float] | None:
    """Return the best value of each metric that training measured on the test split on the way (`test_every`).

    Chosen by test labels: for comparison with papers that report this, and for nothing else.
    """
    seen: dict[str, list[float]] = {}
    for line in lines:
        for key, value in line.items():
            if key.startswith(TEST_PREFIX):
                seen.setdefault(key.removeprefix(TEST_PREFIX), []).append(value)
    return {name: max(values) for name, values in seen.items()} or None
