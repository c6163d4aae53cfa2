"""Several codec frames per engine step for the MiniCPM-o 4.5 Talker, on the released stack.

Importing this package has no effect and loads neither torch, vllm nor wrapt. `install` patches
the stack in this process and arms the processes that it starts; `uninstall` takes it all back.

Examples
--------
>>> import kstep_shim
>>> report = kstep_shim.install(frames=4)  # doctest: +SKIP
>>> print(report)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstep_shim.errors import KStepError
    from kstep_shim.report import Report
    from kstep_shim.settings import Settings

__all__ = [
    "KStepError",
    "Report",
    "Settings",
    "__version__",
    "install",
    "is_active",
    "status",
    "uninstall",
]

__version__ = "0.1.0"

_LAZY = {
    "KStepError": "kstep_shim.errors",
    "Report": "kstep_shim.report",
    "Settings": "kstep_shim.settings",
}


def install(settings: Settings | None = None, *, frames: int | None = None) -> Report:
    """Arm this process and, through the environment, the processes that it will start.

    Calling it again with the same settings changes nothing. Targets that are imported already are
    patched at once, the others when they are imported.

    Parameters
    ----------
    settings
        What to do; read from the ``KSTEP_SHIM_*`` variables when None. Given, they replace those
        variables, except that ``frames=None`` still leaves the choice to ``KSTEP_SHIM_FRAMES``.
    frames
        K; goes before ``settings.frames``. The deploy YAML goes before both.

    Returns
    -------
    Report
        Inactive, with the reason, when the shim is vetoed (``KSTEP_SHIM=0``) or refuses.

    Raises
    ------
    KStepError
        A setting is not valid, the shim is installed with other settings, or it refuses and
        ``strict`` is on.

    Examples
    --------
    >>> install(frames=4).frames  # doctest: +SKIP
    4
    """
    from kstep_shim.installer import current

    return current().install(settings, frames=frames)


def uninstall() -> Report:
    """Put every patched attribute and every environment variable back as it was.

    Nothing at all is changed, and the report says why, when somebody else has wrapped a patched
    attribute since, or when this process has already promised K positions per step.

    Returns
    -------
    Report
        Inactive when all is back; still active when it was refused.

    Examples
    --------
    >>> uninstall().active  # doctest: +SKIP
    False
    """
    from kstep_shim.installer import current

    return current().uninstall()


def status() -> Report:
    """Return what the shim is doing in this process, looked up in the live objects.

    Returns
    -------
    Report
        Inactive, with every patch DISABLED, before `install`.

    Examples
    --------
    >>> status().reason  # doctest: +SKIP
    'not installed'
    """
    from kstep_shim.installer import current

    return current().status()


def is_active() -> bool:
    """Return whether the shim is installed here and nothing speaks against it.

    Returns
    -------
    bool
        ``status().active``.

    Examples
    --------
    >>> is_active()  # doctest: +SKIP
    False
    """
    return status().active


def __getattr__(name: str) -> object:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
