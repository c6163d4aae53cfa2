"""The environment variables: their names, the tokens they accept, and what is close to them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
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

# The attention builder of vllm-ascend takes at most 16 query positions per request.
MAX_FRAMES: Final = 16
FRAMES_EXPECTED: Final = f"a whole number from 1 to {MAX_FRAMES}"

Narrow = Literal["auto", "on", "off"]
Value = TypeVar("Value")

_FLAG_TOKENS: Final = {"0": False, "1": True}
_FRAME_TOKENS: Final = {str(frames): frames for frames in range(1, MAX_FRAMES + 1)}
_NARROW_TOKENS: Final = {name: name for name in get_args(Narrow)}


def bad(source: str, value: object, expected: str, way_out: str) -> KStepError:
    """Return the error for a value that somebody wrote somewhere."""
    return KStepError(
        f"{source}={value!r} is not valid: expected {expected}; {way_out}", usage=True
    )


def one_of(tokens: tuple[str, ...]) -> str:
    """Put the accepted tokens in words."""
    return "one of " + ", ".join(tokens)


def switched(environ: Mapping[str, str] | None = None) -> bool | None:
    """Return what ``KSTEP_SHIM`` says: True, False (an explicit 0), or None when it is unset.

    Raises
    ------
    KStepError
        It is neither 0 nor 1.
    """
    return _token(os.environ if environ is None else environ, SWITCH, _FLAG_TOKENS)


def frames(environ: Mapping[str, str]) -> int | None:
    """Return K as the environment has it."""
    return _token(environ, FRAMES, _FRAME_TOKENS, FRAMES_EXPECTED)


def narrow(environ: Mapping[str, str]) -> Narrow | None:
    """Return which graph frames should replay."""
    return cast("Narrow | None", _token(environ, NARROW, _NARROW_TOKENS))


def flag(environ: Mapping[str, str], name: str) -> bool:
    """Return a variable that is 0 or 1; 0 when it is unset."""
    return bool(_token(environ, name, _FLAG_TOKENS))


def names(environ: Mapping[str, str], name: str) -> frozenset[str]:
    """Return the names in a comma-separated variable."""
    text = environ.get(name, "")
    found = [part.strip() for part in text.split(",")] if text else []
    if not all(found):
        raise bad(name, text, "patch names with commas between them", f"or unset {name}")
    return frozenset(found)


def unknown(environ: Mapping[str, str]) -> Iterator[str]:
    """Say of each variable that looks like one of ours, and is none, what it may have meant.

    A warning and no refusal: another release may know the variable.
    """
    for name in sorted(environ):
        if name.startswith(SWITCH) and name not in VARIABLES:
            from difflib import get_close_matches

            near = get_close_matches(name, VARIABLES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(VARIABLES)}"
            yield f"{name} is no variable of this release and changes nothing: {hint}"


def _token(
    environ: Mapping[str, str], name: str, tokens: Mapping[str, Value], expected: str = ""
) -> Value | None:
    text = environ.get(name, "")
    if not text:
        return None
    if text not in tokens:
        raise bad(name, text, expected or one_of(tuple(tokens)), f"or unset {name}")
    return tokens[text]
