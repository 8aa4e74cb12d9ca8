"""The one kind of error a user is meant to read. It lives apart from the nouns so that it can be caught without torch."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that steer a terminal, break lines or turn the direction of text, and bytes that are no text."""


class LikewiseError(ValueError):
    """A problem a user can act on. Its text says what must hold, what came, and what to do."""


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
