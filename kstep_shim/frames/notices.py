"""Say a thing once, count how often it was meant, and remember it last."""

from __future__ import annotations

import logging
from collections import Counter

logger = logging.getLogger("vllm.kstep_shim")


class Notices:
    """Log each distinct message once and count every occurrence.

    One instance belongs to one owner (a runner, a test); a second owner starts with nothing said.

    Attributes
    ----------
    counts : collections.Counter
        Occurrences per key, logged or not.
    last_key, last_message : str or None
        The most recent notice, so that a caller can count or quote why something was declined.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.last_key: str | None = None
        self.last_message: str | None = None

    def notify(self, key: str, message: str, level: int = logging.WARNING) -> None:
        """Record `message` under `key`; log it at `level` if `key` is new to this owner."""
        self.counts[key] += 1
        self.last_key, self.last_message = key, message
        if self.counts[key] == 1:
            logger.log(level, "%s", message)

    def forget_last(self) -> None:
        """Clear the last notice (the counts stay), before a question that may go unanswered."""
        self.last_key = self.last_message = None


#: Used by calls that name no owner, as the documented signatures do.
process_notices = Notices()
