"""Print the files of `likewise` that a command visits, in the order of their first call, and count them and the changes of room.

    python tools/walk.py train birds/ --robust

A file counts once one of its functions is called; code that runs when a module is imported does not count. Other processes
that the command starts, and threads, are not followed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent / "src" / "likewise"


def visited(call: Callable[[], object], home: Path = HOME) -> list[str]:
    """Call a function and return the files below `home` whose functions it calls, in order."""
    found: dict[str, None] = {}
    top = f"{home}/"

    def see(frame, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(top) and not imports(frame):
            found.setdefault(code.co_filename.removeprefix(top))

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(found)


def imports(frame) -> bool:
    """Whether a frame runs below the import of a module: validators of default arguments do."""
    above = frame.f_back
    while above is not None:
        if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(str(HOME)):
            return True
        above = above.f_back
    return False


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("command", nargs=argparse.REMAINDER, help="the words after `likewise`")
    return flags.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    from likewise.cli.main import main as command

    asked = parse(words)
    files = visited(lambda: command(asked.command))
    print("\n".join(files))
    rooms = [file.partition("/")[0] for file in files]
    changes = sum(a != b for a, b in itertools.pairwise(rooms))
    print(f"{len(files)} files, {changes} changes of room")


if __name__ == "__main__":
    main()
