"""The one kind of error a user is meant to read. It lives apart from the nouns so that it can be caught without torch."""


class LikewiseError(ValueError):
    """A problem a user can act on. Its text says what must hold, what came, and what to do."""
