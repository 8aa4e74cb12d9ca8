"""The one kind of error a user is meant to read. It lives apart from the nouns so that it can be caught without torch."""

from collections.abc import Iterable
from difflib import get_close_matches


class LikewiseError(ValueError):
    """A problem a user can act on. Its text says what must hold, what came, and what to do."""


def nearest_name(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: "; did you mean 'x'?", or a full stop where nothing is near."""
    known = {n.casefold(): n for n in names}
    close = get_close_matches(name.casefold(), known, 1, 0.6)
    return f"; did you mean '{known[close[0]]}'?" if close else "."
