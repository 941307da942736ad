"""Errors a user can act on."""


class UserError(Exception):
    """One line that says what was given, what is allowed, and what to type instead. Ends a command with exit code 2."""


class LostRayError(Exception):
    """Ray has died under a launch, or does not do its work: nothing more can be trained. Finished runs are not concerned."""


class StuckError(Exception):
    """A search asks for nothing, and has not finished. It is a fault of the search; the launch would wait for ever."""


def storable(text: str) -> str:
    """Text that every file takes. Half a letter, as Python makes of a file name that is not UTF-8, is escaped."""
    return text.encode(errors="backslashreplace").decode()


def printable(text: str) -> str:
    """Text from elsewhere in one line that every terminal takes as it is meant: other characters are escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
