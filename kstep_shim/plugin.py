"""The entry point that vLLM calls in every process that holds a patch target."""

from __future__ import annotations

import os


def register() -> None:
    """Install the shim when ``KSTEP_SHIM`` asks for it.

    A process that did not ask pays for one look-up and imports nothing. One that did and cannot
    be armed logs one ERROR line and serves one frame per step.

    Raises
    ------
    KStepError
        Only with ``KSTEP_SHIM_STRICT=1``: a setting is not valid or the shim refuses.
    """
    if os.environ.get("KSTEP_SHIM", "") not in ("", "0"):
        _install()


def _install() -> None:
    import logging

    from kstep_shim._logging import LOGGER
    from kstep_shim.errors import KStepError

    strict = os.environ.get("KSTEP_SHIM_STRICT") == "1"
    try:
        from kstep_shim.installer import current

        if current().installed:
            return  # By the program itself, or by an earlier call.
        try:
            current().install()
        except KStepError as error:
            if strict:
                raise
            # The YAML may still promise K positions, so refusing takes more than not installing.
            current().withdraw(str(error), level=logging.ERROR)
    except Exception as error:
        # vLLM lets an exception of this callable kill the process the first time it calls it.
        if strict:
            raise
        LOGGER.error("kstep_shim: one frame per step (K=1), it cannot be installed: %r", error)
