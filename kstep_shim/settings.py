"""Settings of the shim: checking, exporting, and where K comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, get_args

from kstep_shim import variables
from kstep_shim.variables import Narrow, bad, one_of

DEFAULT_FRAMES: Final = 8


def check_frames(value: object, source: str) -> int:
    """Return `value` as a frame count.

    Parameters
    ----------
    value
        What somebody wrote.
    source
        Where it was written, for the message.

    Raises
    ------
    KStepError
        It is not a whole number from 1 to 16. It is never clipped.
    """
    highest = variables.MAX_FRAMES
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= highest:
        way_out = "1 means one frame per step, as without it"
        raise bad(source, value, variables.FRAMES_EXPECTED, way_out)
    return value


@dataclass(frozen=True)
class Settings:
    """What the user asked for.

    Parameters
    ----------
    frames
        K, the codec frames per engine step (1 to 16). None leaves the choice to
        ``KSTEP_SHIM_FRAMES`` and then to the default, 8. A value in the deploy YAML always wins.
    narrow
        Whether frames replay the one-query graph: ``auto`` (not on parts known to fault), ``on``
        or ``off``.
    strict
        A refusal in the head process is an error instead of K=1.
    disable
        Names of patches to leave out. Leaving out a required one means K=1.
    allow_untested
        Accept versions of the serving stack that this release was not tested with.
    status_dir
        Directory where each process writes its report as ``<pid>.json``.
    debug
        Log every decision of the installer.

    Raises
    ------
    KStepError
        A value is not one of those above.

    Examples
    --------
    >>> Settings(frames=4).frames
    4
    >>> Settings.from_environ({"KSTEP_SHIM_NARROW": "off"}).narrow
    'off'
    """

    frames: int | None = None
    narrow: Narrow = "auto"
    strict: bool = False
    disable: frozenset[str] = frozenset()
    allow_untested: bool = False
    status_dir: str | None = None
    debug: bool = False

    def __post_init__(self) -> None:
        if self.frames is not None:
            check_frames(self.frames, "Settings.frames")
        if self.narrow not in get_args(Narrow):
            raise bad("Settings.narrow", self.narrow, one_of(get_args(Narrow)), "omit it")
        disable: object = self.disable
        if isinstance(disable, str):
            raise bad("Settings.disable", disable, "a set of patch names", "use {...}")
        object.__setattr__(self, "disable", frozenset(self.disable))
        if self.status_dir is not None:
            object.__setattr__(self, "status_dir", os.fspath(self.status_dir))

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables; an empty one counts as unset.

        Parameters
        ----------
        environ
            The variables; the process environment when None.

        Raises
        ------
        KStepError
            A variable holds something else than its accepted tokens.
        """
        source = os.environ if environ is None else environ
        return cls(
            frames=variables.frames(source),
            narrow=variables.narrow(source) or "auto",
            strict=variables.flag(source, variables.STRICT),
            disable=variables.names(source, variables.DISABLE),
            allow_untested=variables.flag(source, variables.ALLOW_UNTESTED),
            status_dir=source.get(variables.STATUS_DIR) or None,
            debug=variables.flag(source, variables.DEBUG),
        )

    def check_status_dir(self) -> None:
        """Look at the file system, which neither parsing nor comparing settings does.

        Raises
        ------
        KStepError
            `status_dir` is there and not a directory.
        """
        if self.status_dir is not None and Path(self.status_dir).is_file():
            raise bad(
                variables.STATUS_DIR,
                self.status_dir,
                "a directory",
                f"or unset {variables.STATUS_DIR}",
            )

    def difference(self, other: Settings) -> str:
        """Return what differs from `other`, in words."""
        pairs = (
            (field.name, getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        )
        return ", ".join(
            f"{name}={ours!r} instead of {theirs!r}"
            for name, ours, theirs in pairs
            if ours != theirs
        )

    def to_environ(self) -> dict[str, str | None]:
        """Return every variable that arms a child process alike; None means it must be absent."""
        return {
            variables.SWITCH: "1",
            variables.FRAMES: None if self.frames is None else str(self.frames),
            variables.NARROW: self.narrow,
            variables.STRICT: "1" if self.strict else "0",
            variables.DISABLE: ",".join(sorted(self.disable)) or None,
            variables.ALLOW_UNTESTED: "1" if self.allow_untested else "0",
            variables.STATUS_DIR: self.status_dir,
            variables.DEBUG: "1" if self.debug else "0",
        }


def resolve_frames(
    *,
    yaml: int | None = None,
    argument: int | None = None,
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Return K and where it came from: YAML, ``install(frames=)``, Settings, environment, default.

    Raises
    ------
    KStepError
        The value that counts is not a whole number from 1 to 16.
    """
    if yaml is not None:
        return check_frames(yaml, "num_speculative_tokens + 1"), "yaml"
    if argument is not None:
        return check_frames(argument, "install(frames=)"), "install"
    if settings is not None and settings.frames is not None:
        return settings.frames, "settings"
    frames = variables.frames(os.environ if environ is None else environ)
    return (DEFAULT_FRAMES, "default") if frames is None else (frames, "environment")
