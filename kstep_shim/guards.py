"""Reasons not to patch: versions, signatures on live objects, and how children get armed.

Each function returns None when all is well, or the one sentence that says what is wrong. None of
them imports the serving stack.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from kstep_shim._sources import reading
from kstep_shim._static import static_problem
from kstep_shim.declaration import Kind, Patch, Target

__all__ = [
    "MISSING",
    "PLATFORM",
    "TESTED_STACKS",
    "carrier_problem",
    "live_problem",
    "reading",
    "resolve_owner",
    "static_patch_problem",
    "static_problem",
    "untested",
    "version_problem",
    "wrapt_problem",
]

#: The stacks that this release was tested with, each as a whole; without vllm-ascend on CUDA.
TESTED_STACKS: Final[tuple[Mapping[str, str], ...]] = (
    MappingProxyType({"vllm": "0.26.0", "vllm-ascend": "0.26.0rc1", "vllm-omni": "0.26.0"}),
    MappingProxyType({"vllm": "0.26.0", "vllm-omni": "0.26.0"}),
    MappingProxyType({"vllm": "0.30.0", "vllm-ascend": "0.30.0rc2", "vllm-omni": "0.30.0"}),
)
#: What an NPU's stack has and CUDA's has not.
PLATFORM: Final = "vllm-ascend"
#: Releases with which no stack can be made, and why.
_UNFIT: Final = MappingProxyType(
    {("vllm-omni", "0.28.0"): "it and vllm-ascend 0.28.0rc1 do not fit each other, shim or not"}
)
PLUGIN_GROUP: Final = "vllm.general_plugins"
PLUGIN_NAME: Final = "kstep_shim"
MISSING: Final = object()


def installed_version(distribution: str) -> str | None:
    """Return the version from the metadata of a distribution, None without metadata."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def untested(tested: Sequence[Mapping[str, str]] = TESTED_STACKS) -> tuple[str, ...]:
    """Name the installed distributions that are not of the tested stack that most of them are of.

    A local part such as ``+cpu`` names a build of the same sources and is ignored. Of those that
    are not installed vllm-ascend alone counts, beside the others, because it is what makes an NPU's
    stack; whether another's absence matters is for the targets to say.
    """
    names = dict.fromkeys(name for stack in tested for name in stack)
    found = {name: version for name in names if (version := installed_version(name)) is not None}
    if found.keys() == names.keys() - {PLATFORM}:
        found[PLATFORM] = ""
    odd = [
        tuple(name for name in found if _public(found[name]) != _public(stack.get(name, "")))
        for stack in tested
    ]
    return min(odd, key=len, default=())


def version_problem(tested: Sequence[Mapping[str, str]] = TESTED_STACKS) -> str | None:
    """Say which installed distributions make up no stack that this release was tested with."""
    odd = {name: installed_version(name) or "" for name in untested(tested)}
    if not odd:
        return None
    described = " and ".join(f"{n} {v}" if v else f"{n} left out" for n, v in odd.items())
    for (name, version), why in _UNFIT.items():
        if _public(odd.get(name, "")) == version:
            described += f" ({why})"
    stacks = "; ".join(", ".join(f"{n} {v}" for n, v in stack.items()) for stack in tested)
    return (
        f"not tested with {described}, only with: {stacks}; install one of these, set "
        "KSTEP_SHIM_ALLOW_UNTESTED=1 to try it anyway, or KSTEP_SHIM=0 to do without the shim"
    )


def wrapt_problem(found: str) -> str | None:
    """Say why a version of wrapt cannot be used."""
    if _public(found) == "2.2.0":
        return "wrapt 2.2.0 is refused (it breaks built-in descriptors): install 2.2.1 or newer"
    if not Version("1.17") <= Version(found) < Version("3"):
        return f"wrapt {found} is refused: install wrapt>=1.17,<3,!=2.2.0"
    return None


def resolve_owner(target: Target, module: ModuleType) -> Any:
    """Return the object whose attribute `target` is, MISSING when a name on the way is gone."""
    owner: Any = module
    for name in target.owner_names:
        owner = inspect.getattr_static(owner, name, MISSING)
        if owner is MISSING:
            return MISSING
    return owner


def live_problem(target: Target, owner: Any) -> str | None:
    """Compare the declaration of `target` with the attribute that `owner` has right now."""
    if owner is MISSING:
        return f"{target.path}: {'.'.join(target.owner_names)} does not exist"
    found = inspect.getattr_static(owner, target.name, MISSING)
    if target.kind is Kind.ADDED:
        return None if found is MISSING else f"{target.path} exists already"
    if found is MISSING:
        return f"{target.path} does not exist"
    # A wrapt proxy passes isinstance for what it wraps, so this sees through other tools.
    static = isinstance(found, staticmethod)
    if static is not (target.kind is Kind.STATICMETHOD):
        return f"{target.path} is {'' if static else 'not '}a static method"
    if isinstance(found, (classmethod, property)) or not callable(getattr(owner, target.name)):
        return f"{target.path} is not a plain function but a {type(found).__name__}"
    innermost = inspect.unwrap(getattr(owner, target.name))
    try:
        signature = inspect.signature(innermost).parameters.values()
    except (TypeError, ValueError) as error:
        return f"the parameters of {target.path} cannot be read: {error}"
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = tuple(entry.name for entry in signature if entry.kind not in variadic)
    if parameters != target.parameters:
        return (
            f"{target.path} takes ({', '.join(parameters)}) "
            f"instead of ({', '.join(target.parameters)})"
        )
    return None


def static_patch_problem(patch: Patch) -> str | None:
    """Check the files of one patch."""
    return next((problem for target in patch.targets if (problem := static_problem(target))), None)


def allowed_plugins(environ: Mapping[str, str]) -> list[str] | None:
    """Return the names that ``VLLM_PLUGINS`` lets through, as vLLM reads it: spaces count."""
    allowed = environ.get("VLLM_PLUGINS")
    return None if allowed is None else allowed.split(",")


def carrier_problem(environ: Mapping[str, str], bootstrap: Path | None = None) -> str | None:
    """Say why no spawned process would be armed: neither the plugin nor the bootstrap gets there.

    Parameters
    ----------
    environ
        The environment that the children will inherit.
    bootstrap
        The bootstrap directory; the one of this package when None.
    """
    entry_points: Iterable[importlib.metadata.EntryPoint] = importlib.metadata.entry_points(
        group=PLUGIN_GROUP
    )
    discoverable = any(entry_point.name == PLUGIN_NAME for entry_point in entry_points)
    allowed = allowed_plugins(environ)
    filtered = allowed is not None and PLUGIN_NAME not in allowed
    if discoverable and not filtered:
        return None
    directory = (bootstrap or Path(__file__).parent / "bootstrap").resolve()
    honoured = not (sys.flags.ignore_environment or sys.flags.isolated or sys.flags.no_site)
    entries = environ.get("PYTHONPATH", "").split(os.pathsep)
    if honoured and any(entry and Path(entry).resolve() == directory for entry in entries):
        return None
    if filtered:
        return (
            f"VLLM_PLUGINS={environ['VLLM_PLUGINS']} keeps the plugin out of stage 1: add "
            f"{PLUGIN_NAME} to it"
        )
    return (
        f"nothing would arm stage 1: the entry point {PLUGIN_GROUP}: {PLUGIN_NAME} is not "
        "installed here, and the bootstrap directory is not in effect (use `kstep-shim run`)"
    )


def _public(version: str) -> str:
    try:
        return Version(version).public
    except InvalidVersion:
        return version
