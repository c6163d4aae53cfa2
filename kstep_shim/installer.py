"""The installer of this process, and the wrappers that it puts in place.

This is the only module that imports wrapt; the life cycle itself is in `kstep_shim.lifecycle`.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Mapping, MutableMapping, Sequence
from functools import reduce
from typing import Any

import wrapt

from kstep_shim import guards
from kstep_shim._logging import LOGGER
from kstep_shim.binding import SHIM_MARK, Gate
from kstep_shim.declaration import Patch, Side, Target
from kstep_shim.errors import KStepError
from kstep_shim.lifecycle import Lifecycle

__all__ = ["Installer", "current"]


class _BoundShimWrapper(wrapt.BoundFunctionWrapper):  # type: ignore[type-arg]
    """What a patched method gives when it is looked up; it is pickled by name."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        target: Target = self._self_parent._self_target
        if self._self_instance is None:
            return _by_name, (target.module, target.qualname)
        return getattr, (self._self_instance, target.name)


class _ShimWrapper(wrapt.FunctionWrapper):  # type: ignore[type-arg]
    """A wrapper that is recognised as ours and asks its gate at every call."""

    __bound_function_wrapper__ = _BoundShimWrapper

    def __init__(self, original: Any, target: Target, gate: Gate) -> None:
        super().__init__(original, target.wrapper, enabled=gate)
        self._self_target = target
        self._self_unbound: dict[Any, Any] = {}
        setattr(self, SHIM_MARK, target.path)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        bound = super().__get__(instance, owner)
        if instance is not None:
            return bound
        # cloudpickle goes by name only for what is the same object each time it is looked up.
        return self._self_unbound.setdefault(owner, bound)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _by_name, (self._self_target.module, self._self_target.qualname)


def _by_name(module: str, qualname: str) -> Any:
    return reduce(getattr, qualname.split("."), importlib.import_module(module))


class Installer(Lifecycle):
    """The life cycle of a catalogue of patches, carried out with wrapt.

    Parameters
    ----------
    patches
        The catalogue; that of this release when None.
    environ
        The environment to read and export to; that of the process when None.
    tested
        The tested stacks, each its versions by distribution.
    """

    def __init__(
        self,
        patches: tuple[Patch, ...] | None = None,
        *,
        environ: MutableMapping[str, str] | None = None,
        tested: Sequence[Mapping[str, str]] = guards.TESTED_STACKS,
    ) -> None:
        super().__init__(
            patches,
            environ=os.environ if environ is None else environ,
            tested=tested,
            factory=_ShimWrapper,
            register=wrapt.register_post_import_hook,
            wrapt_version=wrapt.__version__,  # type: ignore[attr-defined]
        )

    def seal(self, side: Side, role: str, stage: int | None, *, frames: int | None = None) -> None:
        """Decide once, at construction time, whether the patches of one side run.

        Modules that required patches of this side still wait for are imported now.

        Parameters
        ----------
        side
            Whose required patches must be in place.
        role, stage
            What the report calls this process.
        frames
            K as the engine configuration has it (in the head: as the YAML has it); None keeps
            the resolved one.

        Raises
        ------
        KStepError
            `frames` is not a whole number from 1 to 16, or the one reason why K frames per step
            are not possible here. In the head the caller then calls `withdraw` and takes stage 1
            back to K=1. Anywhere else let it through: K positions are promised by then, so
            start-up must stop.
        """
        installation = self._installation
        if installation is not None:
            installation.import_waiting(side)  # Imports modules, so not under the lock.
        with self._lock:
            reason = self._reason
            if installation is not None:
                if frames is not None:
                    installation.promise(frames, "yaml" if side is Side.HEAD else "engine")
                reason = installation.seal_problem(side) or ""
            if installation is None or reason:
                raise KStepError(f"{role}: several frames per step are not possible: {reason}")
            level = logging.DEBUG if side in installation.sealed else logging.INFO
            installation.seal(side, role, stage)
            LOGGER.log(level, "kstep_shim: %s", installation.report().summary())


_CURRENT = Installer()
os.register_at_fork(after_in_child=_CURRENT.forked)


def current() -> Installer:
    """Return the installer of this process."""
    return _CURRENT
