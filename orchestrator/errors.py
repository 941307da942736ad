"""Errors a user can act on."""


class UserError(Exception):
    """One line that says what was given, what is allowed, and what to type instead. Ends a command with exit code 2."""


class LostRayError(Exception):
    """Ray has died under a launch, or does not do its work: nothing more can be trained. Finished runs are not concerned."""
