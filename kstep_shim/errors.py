"""The one exception type of the package."""

from __future__ import annotations


class KStepError(RuntimeError):
    """The shim refuses to go on; the message names the cause and the way out."""
