#!/usr/bin/env python3
"""Run the checks that a change must pass besides the tests: tools/check.py [--fast].

`--fast` leaves out pyright, which takes a minute or more; the others take seconds. The counts of
`tools/advice.py` come last, and fail nothing.
"""

import subprocess
import sys

from environment import HERE, ensure

FAST = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("codespell_lib",),
)
"""Modules of the environment, and their arguments. Their settings are in pyproject.toml."""


def main(arguments: list[str]) -> int:
    """Run one tool after another and return the exit code of the first that fails, or 0."""
    if arguments not in ([], ["--fast"]):
        print(f"check: the only argument is --fast, got {' '.join(arguments)}", file=sys.stderr)
        return 2
    python = ensure("developers")
    slow = () if arguments else (("pyright", "--pythonpath", python),)
    for words in (*FAST, *slow):
        print("check:", *words, flush=True)
        code = subprocess.call([python, "-P", "-m", *words], cwd=HERE)
        if code:
            print(f"check: {words[0]} failed with exit code {code}", file=sys.stderr)
            return code
    subprocess.call([python, "-P", "tools/advice.py"], cwd=HERE)
    print("check: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
