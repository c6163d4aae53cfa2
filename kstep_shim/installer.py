"""The life cycle of the shim in one process: install, seal, uninstall.

This is the only module that imports wrapt. An `Installer` owns everything that one process knows
about the shim; `current` returns the one of this process.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from functools import reduce
from multiprocessing import parent_process
from types import ModuleType
from typing import Any

import wrapt

from kstep_shim import catalog, guards
from kstep_shim._logging import LOGGER
from kstep_shim.binding import SHIM_MARK, Gate
from kstep_shim.counters import Counters, counters
from kstep_shim.declaration import Patch, Side, State, Target
from kstep_shim.errors import KStepError
from kstep_shim.importing import ModuleWatcher
from kstep_shim.installation import Installation
from kstep_shim.report import PatchRecord, Report
from kstep_shim.settings import Settings, check_frames, resolve_frames, switched

NOT_INSTALLED = "not installed"


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
        setattr(self, SHIM_MARK, True)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _by_name, (self._self_target.module, self._self_target.qualname)


class Installer:
    """Installs a catalogue of patches in this process and takes it away again.

    A wrapper runs only while its gate is open. Gates of ``before_seal`` targets open when they are
    applied: they take the decisions, and in a process that has refused they are all that is left,
    so that the head can take stage 1 back to K=1 and a later process can stop its start-up. Every
    other gate opens when `seal` finds all required patches of its side in place, and never in the
    middle of serving.

    Parameters
    ----------
    patches
        The catalogue; `catalog.patches` when None.
    environ
        The environment to read and export to.
    tested
        Tested versions by distribution.
    """

    def __init__(
        self,
        patches: tuple[Patch, ...] | None = None,
        *,
        environ: MutableMapping[str, str] | None = None,
        tested: Mapping[str, tuple[str, ...]] = guards.TESTED_VERSIONS,
    ) -> None:
        self._patches = patches
        self._environ = os.environ if environ is None else environ
        self._tested = tested
        self._lock = threading.RLock()
        self._watcher = ModuleWatcher(wrapt.register_post_import_hook, self._module_ready)
        self._installation: Installation | None = None
        self._last: Installation | None = None
        self._reason = NOT_INSTALLED
        self._watching_from: int | None = None

    @property
    def installed(self) -> bool:
        """Whether `install` has been called here, refused or not, and not been undone."""
        return self._installation is not None

    @property
    def settings(self) -> Settings:
        """The settings in force, with `frames` resolved; the defaults when not installed."""
        return Settings() if self._installation is None else self._installation.settings

    @property
    def frames(self) -> int:
        """K of this process as far as it is known; 1 when the shim is not active here."""
        return self.status().frames

    @property
    def counters(self) -> Counters:
        """The counters of this process."""
        return counters()

    def problem(self) -> str | None:
        """Say why the shim is not active in this process, None when it is."""
        installation = self._installation
        return self._reason if installation is None else installation.problem()

    def install(self, settings: Settings | None = None, *, frames: int | None = None) -> Report:
        """See `kstep_shim.install`."""
        catalogue = self._catalogue()  # Imports modules, so not under the lock.
        with self._lock:
            if self._installation is None and switched(self._environ) is False:
                self._reason = "KSTEP_SHIM=0 in the environment"
                return self.status()
            resolved, source = self._resolve(settings, frames)
            if self._installation is not None:
                if resolved != self._installation.settings:
                    raise KStepError(
                        f"the shim is installed with {self._installation.settings}, so it cannot "
                        f"be with {resolved}: uninstall() it first"
                    )
                return self.status()
            installation = self._begin(resolved, source, catalogue)
            try:
                problem = self._early_problem(installation) or self._apply(installation)
                if problem is None:
                    installation.export()
                elif resolved.strict:
                    raise KStepError(f"the shim refuses: {problem}")
                else:
                    self._turn_off(installation, problem)
            except BaseException:
                self._end(installation)
                raise
            self._trace(installation)
            return self.status()

    def refuse(self, reason: str) -> Report:
        """Put in place only what a refusal needs to take effect; no effect when installed."""
        catalogue = self._catalogue()
        with self._lock:
            if self._installation is None:
                self._turn_off(self._begin(Settings(), "inactive", catalogue), reason)
            return self.status()

    def seal(
        self,
        side: Side,
        role: str,
        stage: int | None,
        *,
        frames: int | None = None,
        final: bool = True,
    ) -> None:
        """Decide once, at construction time, whether the patches of one side run.

        Parameters
        ----------
        side
            Whose required patches must be in place.
        role, stage
            What the report calls this process.
        frames
            K as the engine configuration has it (in the head: as the YAML has it); None keeps
            the resolved one.
        final
            False accepts patches whose module is not imported yet (the model's, when the runner
            is built). Seal again with True when it must be.

        Raises
        ------
        KStepError
            The one reason why K frames per step are not possible here. In the head this turns the
            shim off, and the caller takes stage 1 back to K=1 (or lets the error through when
            `settings.strict` is on). Anywhere else let it through: K positions are promised by
            then, so start-up must stop.
        """
        with self._lock:
            installation = self._installation
            if installation is None:
                raise KStepError(f"{role}: K frames per step are not possible: {self._reason}")
            if frames is not None:
                installation.frames = check_frames(frames, "num_speculative_tokens + 1")
                installation.source = "yaml" if side is Side.HEAD else "engine"
            reason = installation.seal_problem(side, final=final)
            if reason is not None:
                installation.refusal = reason
                if side is Side.HEAD:
                    self._turn_off(installation, reason)
                raise KStepError(f"{role}: K frames per step are not possible: {reason}")
            installation.ledger.open(side)
            first = side not in installation.sealed
            installation.sealed[side] = installation.frames
            installation.role, installation.stage = role, stage
            LOGGER.log(
                logging.INFO if first else logging.DEBUG, "kstep_shim: %s", self.status().summary()
            )
            installation.keep_report()

    def uninstall(self) -> Report:
        """See `kstep_shim.uninstall`."""
        with self._lock:
            installation = self._installation
            if installation is None:
                return self.status()
            problem = installation.ledger.detach_problem()
            if any(frames > 1 for frames in installation.sealed.values()):
                problem = "this process has promised K positions per step: restart it instead"
            if problem is not None:
                LOGGER.warning("kstep_shim: nothing was uninstalled: %s", problem)
                return replace(self.status(), reason=f"nothing was uninstalled: {problem}")
            self._end(installation)
            self._reason = NOT_INSTALLED
            return self.status()

    def status(self) -> Report:
        """See `kstep_shim.status`."""
        catalogue = self._catalogue()
        with self._lock:
            if self._installation is not None:
                return self._installation.report()
            if self._last is not None:
                records = self._last.ledger.records(catalogue)
            else:
                records = tuple(PatchRecord(patch.name, State.DISABLED) for patch in catalogue)
            return Report(
                active=False,
                reason=self._reason,
                frames=1,
                source="inactive",
                patches=records,
                counters=self.counters.snapshot(),
            )

    def forked(self) -> None:
        """Start afresh in a forked child; another thread may have held the lock."""
        self._lock = threading.RLock()
        if self._installation is not None:
            self._installation.forked()

    def _catalogue(self) -> tuple[Patch, ...]:
        return catalog.patches() if self._patches is None else self._patches

    def _resolve(self, settings: Settings | None, frames: int | None) -> tuple[Settings, str]:
        base = Settings.from_environ(self._environ) if settings is None else settings
        count, source = resolve_frames(argument=frames, settings=settings, environ=self._environ)
        return replace(base, frames=count), source

    def _begin(self, settings: Settings, source: str, catalogue: tuple[Patch, ...]) -> Installation:
        installation = Installation(settings, source, catalogue, self._environ, _ShimWrapper)
        self._installation = installation
        return installation

    def _end(self, installation: Installation) -> None:
        installation.end()
        self._installation, self._last = None, installation

    def _early_problem(self, installation: Installation) -> str | None:
        problem = installation.disabled_problem()
        if problem is None and not installation.settings.allow_untested:
            problem = guards.version_problem(self._tested)
        # A child was started by a head that has read the files already.
        if problem is None and parent_process() is None:
            problem = installation.static_problem()
        return problem

    def _turn_off(self, installation: Installation, reason: str) -> None:
        installation.turn_off(reason)
        LOGGER.warning("kstep_shim: one frame per step (K=1): %s", reason)
        self._apply(installation)

    def _apply(self, installation: Installation) -> str | None:
        problem = guards.wrapt_problem(wrapt.__version__)  # type: ignore[attr-defined]
        if problem is not None:
            return problem
        self._watching_from = threading.get_ident()
        try:
            for module in installation.ledger.modules:
                self._watcher.watch(module)
        finally:
            self._watching_from = None
        return installation.problem()

    def _module_ready(self, module: ModuleType) -> None:
        with self._lock:
            if self._installation is None:
                return
            late = self._watching_from == threading.get_ident()
            before = self._installation.problem()
            self._installation.ledger.attach(module, late=late)
            after = self._installation.problem()
            if after is not None and after != before and not late:
                LOGGER.warning("kstep_shim: %s", after)

    def _trace(self, installation: Installation) -> None:
        level = logging.INFO if installation.settings.debug else logging.DEBUG
        LOGGER.log(level, "kstep_shim: %s", installation.report())


def _by_name(module: str, qualname: str) -> Any:
    return reduce(getattr, qualname.split("."), importlib.import_module(module))


_CURRENT = Installer()
os.register_at_fork(after_in_child=_CURRENT.forked)


def current() -> Installer:
    """Return the installer of this process."""
    return _CURRENT
