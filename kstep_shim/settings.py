"""Settings of the shim and their environment variables: parsing, checking, exporting."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal, TypeVar, cast, get_args

from kstep_shim.errors import KStepError

SWITCH: Final = "KSTEP_SHIM"
FRAMES: Final = "KSTEP_SHIM_FRAMES"
NARROW: Final = "KSTEP_SHIM_NARROW"
STRICT: Final = "KSTEP_SHIM_STRICT"
DISABLE: Final = "KSTEP_SHIM_DISABLE"
ALLOW_UNTESTED: Final = "KSTEP_SHIM_ALLOW_UNTESTED"
STATUS_DIR: Final = "KSTEP_SHIM_STATUS_DIR"
DEBUG: Final = "KSTEP_SHIM_DEBUG"
VARIABLES: Final = (
    SWITCH, FRAMES, NARROW, STRICT, DISABLE, ALLOW_UNTESTED, STATUS_DIR, DEBUG,
)  # fmt: skip

DEFAULT_FRAMES: Final = 8
# The attention builder of vllm-ascend takes at most 16 query positions per request.
MAX_FRAMES: Final = 16

Value = TypeVar("Value")
Narrow = Literal["auto", "on", "off"]
_FRAMES_EXPECTED: Final = f"a whole number from 1 to {MAX_FRAMES}"


def _bad(source: str, value: object, expected: str, way_out: str) -> KStepError:
    return KStepError(f"{source}={value!r} is not valid: expected {expected}; {way_out}")


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
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_FRAMES:
        raise _bad(source, value, _FRAMES_EXPECTED, "1 means one frame per step, as without it")
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
            raise _bad("Settings.narrow", self.narrow, _one_of(get_args(Narrow)), "omit it")
        disable: object = self.disable
        if isinstance(disable, str):
            raise _bad("Settings.disable", disable, "a set of patch names", "use {...}")
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
        variables = os.environ if environ is None else environ
        frames = _token(variables, FRAMES, _FRAME_TOKENS, _FRAMES_EXPECTED)
        narrow = _token(variables, NARROW, {name: name for name in get_args(Narrow)})
        return cls(
            frames=frames,
            narrow="auto" if narrow is None else cast(Narrow, narrow),
            strict=_flag(variables, STRICT),
            disable=_names(variables, DISABLE),
            allow_untested=_flag(variables, ALLOW_UNTESTED),
            status_dir=variables.get(STATUS_DIR) or None,
            debug=_flag(variables, DEBUG),
        )

    def check_status_dir(self) -> None:
        """Look at the file system, which neither parsing nor comparing settings does.

        Raises
        ------
        KStepError
            `status_dir` is there and not a directory.
        """
        if self.status_dir is not None and Path(self.status_dir).is_file():
            raise _bad(STATUS_DIR, self.status_dir, "a directory", f"or unset {STATUS_DIR}")

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
            SWITCH: "1",
            FRAMES: None if self.frames is None else str(self.frames),
            NARROW: self.narrow,
            STRICT: "1" if self.strict else "0",
            DISABLE: ",".join(sorted(self.disable)) or None,
            ALLOW_UNTESTED: "1" if self.allow_untested else "0",
            STATUS_DIR: self.status_dir,
            DEBUG: "1" if self.debug else "0",
        }


def switched(environ: Mapping[str, str] | None = None) -> bool | None:
    """Return what ``KSTEP_SHIM`` says: True, False (an explicit 0), or None when it is unset.

    Raises
    ------
    KStepError
        It is neither 0 nor 1.
    """
    return _token(os.environ if environ is None else environ, SWITCH, _FLAG_TOKENS)


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
    variables = os.environ if environ is None else environ
    frames = _token(variables, FRAMES, _FRAME_TOKENS, _FRAMES_EXPECTED)
    return (DEFAULT_FRAMES, "default") if frames is None else (frames, "environment")


_FLAG_TOKENS: Final = {"0": False, "1": True}
_FRAME_TOKENS: Final = {str(frames): frames for frames in range(1, MAX_FRAMES + 1)}


def _one_of(tokens: tuple[str, ...]) -> str:
    return "one of " + ", ".join(tokens)


def _token(
    variables: Mapping[str, str], name: str, tokens: Mapping[str, Value], expected: str = ""
) -> Value | None:
    text = variables.get(name, "")
    if not text:
        return None
    if text not in tokens:
        raise _bad(name, text, expected or _one_of(tuple(tokens)), f"or unset {name}")
    return tokens[text]


def _flag(variables: Mapping[str, str], name: str) -> bool:
    return bool(_token(variables, name, _FLAG_TOKENS))


def _names(variables: Mapping[str, str], name: str) -> frozenset[str]:
    text = variables.get(name, "")
    names = [part.strip() for part in text.split(",")] if text else []
    if not all(names):
        raise _bad(name, text, "patch names with commas between them", f"or unset {name}")
    return frozenset(names)
