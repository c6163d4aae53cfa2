"""The environment that arms a deployment from outside: for ``kstep-shim env`` and ``run``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from kstep_shim.guards import PLUGIN_NAME, allowed_plugins
from kstep_shim.settings import DEFAULT_FRAMES, Settings
from kstep_shim.variables import SWITCH

BOOTSTRAP: Final = Path(__file__).parent / "bootstrap"
#: vLLM's first Ray executor copies the variables with these prefixes to its workers (the second,
#: which is the default, copies all). KSTEP_SHIM itself has no underscore after it, so a prefix
#: that ends in one would leave the switch behind.
RAY_PREFIXES: Final = "VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"
RAY_PREFIX: Final = SWITCH
RAY_COPIES_ALL: Final = "VLLM_USE_RAY_V2_EXECUTOR_BACKEND"


def split_list(text: str | None) -> list[str]:
    """Return the names in a comma-separated variable."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def launch_environment(
    environ: Mapping[str, str],
    *,
    frames: int | None = None,
    status_dir: str | None = None,
    strict: bool = False,
    bootstrap: bool = False,
    ray: bool = False,
) -> dict[str, str]:
    """Return the variables to set, with their values, so that a deployment comes up armed.

    Parameters
    ----------
    environ
        The environment to start from; valid settings in it are kept.
    frames
        K; what `environ` says, then the default, when None.
    status_dir
        Where each process writes its report.
    strict
        Make a refusal in the head process an error.
    bootstrap
        Put the bootstrap directory first on ``PYTHONPATH``.
    ray
        Let vLLM copy the settings to Ray workers.

    Raises
    ------
    KStepError
        A ``KSTEP_SHIM_*`` variable of `environ` is not valid.
    """
    found = Settings.from_environ(environ)
    settings = replace(
        found,
        frames=frames or found.frames or DEFAULT_FRAMES,
        status_dir=status_dir or found.status_dir,
        strict=strict or found.strict,
    )
    defaults = Settings().to_environ()
    wanted = {
        name: value
        for name, value in settings.to_environ().items()
        if value is not None and (name == SWITCH or value != defaults[name])
    }
    allowed = allowed_plugins(environ)
    if allowed is not None and PLUGIN_NAME not in allowed:
        wanted["VLLM_PLUGINS"] = ",".join([*filter(None, allowed), PLUGIN_NAME])
    if bootstrap:
        wanted["PYTHONPATH"] = _with_bootstrap(environ.get("PYTHONPATH", ""))
    if ray:
        prefixes = split_list(environ.get(RAY_PREFIXES))
        wanted[RAY_PREFIXES] = ",".join(dict.fromkeys([*prefixes, RAY_PREFIX]))
    return wanted


def _with_bootstrap(path: str) -> str:
    others = [entry for entry in path.split(os.pathsep) if entry and entry != str(BOOTSTRAP)]
    return os.pathsep.join([str(BOOTSTRAP), *others])
