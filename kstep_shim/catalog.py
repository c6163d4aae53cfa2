"""The ordered list of patches and the lookup by name."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module

from kstep_shim._sources import names_attribute
from kstep_shim.declaration import Head, Patch
from kstep_shim.errors import KStepError
from kstep_shim.guards import installed_version
from kstep_shim.settings import Settings

# Names of modules in kstep_shim.patches, in the order in which they are applied.
_PATCH_MODULES: tuple[str, ...] = (
    "stage_config",
    "scheduler",
    "hand_over",
    "runner",
    "input_batch",
    "talker",
    "output_limits",
    "model_forward",
    "one_query",
    "min_tokens",
    "verify",
    "parse_output",
    "bookkeeping",
    "drafter",
    "draft_metadata",
    "warmup",
)

PATCHES: tuple[Patch, ...]
#: The kind of head of each tested stack, in the order of `guards.TESTED_STACKS`; for documents,
#: because `installed_head` looks at what is there.
TESTED_HEADS = (Head.STOP_ROW, Head.STOP_ROW, Head.CODEC)
_TALKER = "vllm_omni.model_executor.models.minicpmo_4_5.minicpmo_4_5_omni_tts"


@functools.cache
def patches() -> tuple[Patch, ...]:
    """Return every patch of this release for the stack of this environment, in order."""
    return for_stack(platform(), installed_head())


def every_patch() -> tuple[Patch, ...]:
    """Return every patch of this release with the targets of all stacks."""
    return tuple(import_module(f"kstep_shim.patches.{name}").PATCH for name in _PATCH_MODULES)


def platform() -> str:
    """Name the platform of the installed stack: ``npu`` with vllm-ascend, else ``cuda``."""
    return "cuda" if installed_version("vllm-ascend") is None else "npu"


@functools.cache
def installed_head() -> Head:
    """Tell the kind of head of the installed Talker by what its source names, not its version."""
    return Head.CODEC if names_attribute(_TALKER, "_penalty_histories") else Head.STOP_ROW


def for_stack(
    platform: str, head: Head, catalogue: Iterable[Patch] | None = None
) -> tuple[Patch, ...]:
    """Return the patches with the targets that one stack has; those with none are left out.

    Alternatives, such as the NPU and the CUDA runner, are targets of different platforms or heads.
    """
    found = []
    for patch in every_patch() if catalogue is None else catalogue:
        targets = tuple(
            target
            for target in patch.targets
            if target.platform in (None, platform) and target.head in (None, head)
        )
        if targets:
            found.append(patch if targets == patch.targets else replace(patch, targets=targets))
    return tuple(found)


def find(name: str, catalogue: Iterable[Patch] | None = None) -> Patch:
    """Return the patch called `name`.

    Raises
    ------
    KStepError
        There is no such patch; the message lists those that there are.
    """
    known = {patch.name: patch for patch in (patches() if catalogue is None else catalogue)}
    if name not in known:
        raise KStepError(
            f"there is no patch called {name!r}: KSTEP_SHIM_DISABLE and Settings.disable take "
            f"{', '.join(known) or 'no name at all'}",
            usage=True,
        )
    return known[name]


def select(
    settings: Settings, catalogue: Iterable[Patch] | None = None
) -> tuple[tuple[Patch, ...], tuple[Patch, ...]]:
    """Return the patches to apply and those that ``settings.disable`` names, each in order.

    Raises
    ------
    KStepError
        ``settings.disable`` names a patch that does not exist.
    """
    known = tuple(patches() if catalogue is None else catalogue)
    off = {find(name, known).name for name in sorted(settings.disable)}
    return (
        tuple(patch for patch in known if patch.name not in off),
        tuple(patch for patch in known if patch.name in off),
    )


def __getattr__(name: str) -> tuple[Patch, ...]:
    if name == "PATCHES":
        return patches()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
