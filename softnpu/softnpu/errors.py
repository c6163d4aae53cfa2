"""Errors of the stand-in."""

from __future__ import annotations


class HostReadError(RuntimeError):
    """Data would have passed between the host and the device where that is forbidden."""
