"""Exporting the settings to the processes to come, and taking that back exactly."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from kstep_shim._logging import LOGGER


class Export:
    """What was written to an environment, and what was there before."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = environ
        self._before: dict[str, str | None] = {}
        self._written: dict[str, str | None] = {}

    def write(self, variables: Mapping[str, str | None]) -> None:
        """Set each variable, or remove it where the value is None."""
        for name, value in variables.items():
            self._before.setdefault(name, self._environ.get(name))
            self._written[name] = value
            self._put(name, value)

    def restore(self) -> None:
        """Put back what was there, except where somebody else has written since."""
        for name, before in self._before.items():
            if self._environ.get(name) == self._written[name]:
                self._put(name, before)
            else:
                LOGGER.warning("kstep_shim: %s was changed after install(); left as it is", name)
        self._before.clear()
        self._written.clear()

    def _put(self, name: str, value: str | None) -> None:
        if value is None:
            self._environ.pop(name, None)
        else:
            self._environ[name] = value
