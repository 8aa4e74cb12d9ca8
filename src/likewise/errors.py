"""Errors for users: LikewiseError and its kinds, suggestions for misspelt names. Without torch."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that steer a terminal, break lines or turn the direction of text, and bytes that are no text."""


class LikewiseError(ValueError):
    """A problem a user can act on. Its text says what must hold, what came, and what to do."""


class RunBusy(LikewiseError):
    """Another process trains in the folder of the run."""


class DiskFull(LikewiseError):
    """A file could not be written because the disk, or the user's share of it, is full."""


class OutOfMemory(LikewiseError):
    """The memory of the host or of a GPU is exhausted."""


MEMORY_WORDS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "alloc_failed",
    "size calculation overflowed",
)
"""How torch reports that an allocation failed, in lower case: it has no class of its own for the host's memory."""


def nearest_name(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: "; did you mean 'x'?", or a full stop where nothing is near."""
    known = {n.casefold(): n for n in names}
    close = get_close_matches(name.casefold(), known, 1, 0.6)
    return f"; did you mean '{known[close[0]]}'?" if close else "."


def printable(text: str, keep: str = "") -> str:
    """Return the text with control characters written out, such as `\\x1b`: names in data may hold what steers a terminal.

    Args:
        keep: control characters that stay, such as line breaks.
    """
    return CONTROLS.sub(lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], text)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and the errors that it was raised from or while handling, newest first."""
    seen: list[BaseException] = []
    now: BaseException | None = error
    while now is not None and now not in seen:
        yield now
        seen.append(now)
        now = now.__cause__ or now.__context__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error reports exhausted memory: of Python, of torch on the host, of a GPU."""
    named = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    words = str(error).lower() if isinstance(error, RuntimeError) else ""
    return isinstance(error, MemoryError) or named or any(w in words for w in MEMORY_WORDS)


def memory_sentence(error: BaseException, advice: str) -> str:
    """Exhausted memory in one sentence, with the size that was asked for where the error states it."""
    size = re.search(r"ried to allocate ([\d.]+ \w+)", str(error)) or re.search(
        r"allocate ([\d.]+ [KMGTPE]iB)", str(error)
    )
    return f"memory is exhausted{f' (an allocation of {size[1]} failed)' if size else ''}; {advice}"


@contextmanager
def memory_errors(owner: str, advice: str) -> Iterator[None]:
    """Raise `OutOfMemory` in place of the errors that `is_out_of_memory` knows."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(f"{owner}: {memory_sentence(error, advice)}") from None
