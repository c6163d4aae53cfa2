"""The one exception type of the package."""

from __future__ import annotations


class KStepError(RuntimeError):
    """The shim refuses to go on; the message names the cause and the way out.

    Parameters
    ----------
    message
        One line.
    usage
        Whether a setting, an option or a file that somebody gave cannot be used: commands then
        exit with 2 instead of 1.
    """

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage
