"""The entry point that vLLM calls in every process that holds a patch target."""

from __future__ import annotations

import os


def register() -> None:
    """Install the shim when ``KSTEP_SHIM`` asks for it.

    A process that did not ask pays for two look-ups and imports nothing. One that did and cannot
    be armed logs one ERROR line and serves one frame per step.

    Raises
    ------
    KStepError
        Only with ``KSTEP_SHIM_STRICT=1``: a setting is not valid or the shim refuses.
    """
    if os.environ.get("KSTEP_SHIM", "") in ("", "0"):
        return
    from kstep_shim._logging import LOGGER
    from kstep_shim.errors import KStepError

    strict = os.environ.get("KSTEP_SHIM_STRICT") == "1"
    try:
        from kstep_shim.installer import current

        try:
            current().install()
        except KStepError as error:
            if strict:
                raise
            LOGGER.error("kstep_shim: one frame per step (K=1): %s", error)
            if not current().installed:
                # The YAML may still promise K positions; a refusal takes them back.
                current().withdraw(str(error))
    except Exception as error:
        # vLLM lets an exception of this callable kill the process the first time it calls it.
        if strict:
            raise
        LOGGER.error("kstep_shim: one frame per step (K=1), it cannot be installed: %r", error)
