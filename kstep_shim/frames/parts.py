"""Which NPU parts have to do without which optional speed-up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

#: Environment variables that name the part, in the order in which they are asked.
PART_VARIABLES = ("SOC_VERSION", "ASCEND_SOC_VERSION")
#: Setting that overrides the list of parts: ``auto``, ``on`` or ``off``.
NARROW_VARIABLE = "KSTEP_SHIM_NARROW"

#: Parts on which capturing the one-query graph is known to fault.
_NARROW_BLOCKED_PREFIXES = ("ascend910_93", "ascend910c", "ascend910b")


def part_name(environ: Mapping[str, str] | None = None) -> str:
    """Lower-cased name of the NPU part, or an empty string when nothing names it.

    The environment wins over the device, so that a container can correct a generic device name.
    """
    environ = os.environ if environ is None else environ
    for variable in PART_VARIABLES:
        name = environ.get(variable, "").strip()
        if name:
            return name.lower()
    return _device_name().strip().lower()


def _device_name() -> str:
    npu: Any = getattr(torch, "npu", None)
    try:
        return str(npu.get_device_name()) if npu is not None else ""
    except Exception:
        return ""  # no device, or one that the driver does not name


def narrow_allowed(part: str, setting: str = "auto") -> bool:
    """Whether the one-query graph may be captured and replayed on `part`.

    Parameters
    ----------
    part : str
        Part name in any case; an empty one is an unidentified part, which is allowed.
    setting : str
        ``on`` and ``off`` decide alone; ``auto`` (or empty) asks the list of parts.

    Raises
    ------
    ValueError
        For any other setting.
    """
    setting = setting.strip().lower() or "auto"
    if setting not in ("auto", "on", "off"):
        raise ValueError(f"{NARROW_VARIABLE}={setting!r}: expected auto, on or off")
    if setting != "auto":
        return setting == "on"
    return not part.lower().startswith(_NARROW_BLOCKED_PREFIXES)


def skipped_warmups(part: str, ngram_armed: bool = True) -> frozenset[str]:
    """Kernel warm-up families of vllm-ascend that should not run on `part`.

    On 910B only the rejection sampler's is skipped, and only where n-gram drafts are armed;
    everywhere else, an unidentified part included, penalties and rejection sampler both are.
    """
    if part.lower().startswith("ascend910b"):
        return frozenset({"rejection_sampler"}) if ngram_armed else frozenset()
    return frozenset({"penalties", "rejection_sampler"})
