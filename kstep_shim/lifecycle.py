"""The life cycle of the shim in one process: install, seal, uninstall."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from multiprocessing import parent_process
from types import ModuleType

from kstep_shim import catalog, guards, variables
from kstep_shim._logging import LOGGER
from kstep_shim.binding import WrapperFactory
from kstep_shim.counters import Counters, counters
from kstep_shim.declaration import Patch, State
from kstep_shim.errors import KStepError
from kstep_shim.importing import ModuleWatcher, RegisterHook
from kstep_shim.installation import Installation
from kstep_shim.report import PatchRecord, Report
from kstep_shim.settings import Settings, resolve_frames

NOT_INSTALLED = "not installed"


class Lifecycle:
    """Owns everything that one process knows about the shim.

    A wrapper runs only while its gate is open. Gates of ``before_seal`` targets open when they are
    applied: they take the decisions, and in a process that has refused they are all that is left,
    so that the head can take stage 1 back to K=1 and a later process can stop its start-up. Every
    other gate opens when `seal` finds all required patches of its side in place, and never in the
    middle of serving.

    Parameters
    ----------
    patches
        The catalogue; that of this release when None.
    environ
        The environment to read and export to.
    tested
        Tested versions by distribution.
    factory, register, wrapt_version
        How to make a wrapper, how to register an import hook, and which wrapt does both.
    """

    def __init__(
        self,
        patches: tuple[Patch, ...] | None,
        *,
        environ: MutableMapping[str, str],
        tested: Sequence[Mapping[str, str]],
        factory: WrapperFactory,
        register: RegisterHook,
        wrapt_version: str,
    ) -> None:
        self._patches = patches
        self._environ = environ
        self._tested = tested
        self._factory = factory
        self._wrapt_version = wrapt_version
        self._watcher = ModuleWatcher(register, self._module_ready)
        self._lock = threading.RLock()
        self._applying_in: int | None = None
        self._installation: Installation | None = None
        self._last: Installation | None = None
        self._reason = NOT_INSTALLED

    @property
    def installed(self) -> bool:
        """Whether `install` has been called here, refused or not, and not been undone."""
        return self._installation is not None

    @property
    def settings(self) -> Settings:
        """The settings in force, with `frames` resolved; the defaults when not installed."""
        return Settings() if self._installation is None else self._installation.settings

    @property
    def counters(self) -> Counters:
        """The counters of this process."""
        return counters()

    def refusal(self) -> str | None:
        """Say why the shim is not active in this process, None when it is."""
        installation = self._installation
        return self._reason if installation is None else installation.problem()

    def install(self, settings: Settings | None = None, *, frames: int | None = None) -> Report:
        """See `kstep_shim.install`."""
        catalogue = self._catalogue()  # Imports modules, so not under the lock.
        with self._lock:
            if self._installation is None and variables.switched(self._environ) is False:
                self._reason = "KSTEP_SHIM=0 in the environment"
                return self.status()
            resolved, source = self._resolve(settings, frames)
            if self._installation is not None:
                if resolved != self._installation.settings:
                    raise KStepError(
                        "the shim is installed with other settings "
                        f"({resolved.difference(self._installation.settings)}): uninstall() first"
                    )
                return self.status()
            installation = self._begin(resolved, source, catalogue)
            for warning in variables.unknown(self._environ) if parent_process() is None else ():
                LOGGER.warning("kstep_shim: %s", warning)
            try:
                problem = installation.early_problem(self._tested) or self._apply(installation)
                if problem is None:
                    installation.export()
                else:
                    self._turn_off(installation, problem)
            except BaseException:
                self._end(installation)
                raise
            self._trace("%s", installation.report())
            return self.status()

    def withdraw(
        self,
        reason: str,
        *,
        level: int = logging.WARNING,
        role: str | None = None,
        stage: int | None = None,
    ) -> Report:
        """Turn the shim off in the head; only what a refusal needs to take effect stays.

        The reason is logged once, at `level`. A process that names its role is reported in the
        status directory as well.

        Raises
        ------
        KStepError
            The settings are strict.
        """
        catalogue = self._catalogue()
        with self._lock:
            installation = self._installation or self._begin(Settings(), "inactive", catalogue)
            self._turn_off(installation, reason, level)
            if role is not None:
                installation.name(role, stage)
                installation.keep_report()
            return self.status()

    def uninstall(self) -> Report:
        """See `kstep_shim.uninstall`."""
        with self._lock:
            installation = self._installation
            if installation is None:
                return self.status()
            problem = installation.uninstall_problem()
            if problem is not None:
                LOGGER.warning("kstep_shim: nothing was uninstalled: %s", problem)
                return replace(self.status(), reason=f"nothing was uninstalled: {problem}")
            self._end(installation)
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
                off, why = State.DISABLED, self._reason
                records = tuple(PatchRecord(patch.name, off, why) for patch in catalogue)
            totals = self.counters.snapshot()
            return Report(False, self._reason, 1, "inactive", records, totals)

    def forked(self) -> None:
        """Start afresh in a forked child; another thread may have held the lock."""
        self._lock = threading.RLock()
        if self._installation is not None:
            self._installation.forked()

    def _catalogue(self) -> tuple[Patch, ...]:
        return catalog.patches() if self._patches is None else self._patches

    def _resolve(self, settings: Settings | None, frames: int | None) -> tuple[Settings, str]:
        base = Settings.from_environ(self._environ) if settings is None else settings
        base.check_status_dir()
        count, source = resolve_frames(argument=frames, settings=settings, environ=self._environ)
        return replace(base, frames=count), source

    def _begin(self, settings: Settings, source: str, catalogue: tuple[Patch, ...]) -> Installation:
        installation = Installation(
            settings, source, catalogue, self._environ, self._factory, self.status
        )
        self._installation, self._reason = installation, NOT_INSTALLED
        return installation

    def _end(self, installation: Installation) -> None:
        installation.end()
        self._installation, self._last = None, installation

    def _turn_off(
        self, installation: Installation, reason: str, level: int = logging.WARNING
    ) -> None:
        if installation.settings.strict:
            raise KStepError(f"the shim refuses, and KSTEP_SHIM_STRICT is on: {reason}")
        if installation.turn_off(reason):
            LOGGER.log(level, "kstep_shim: one frame per step (K=1): %s", installation.refusal)
            self._apply(installation)

    def _apply(self, installation: Installation) -> str | None:
        problem = guards.wrapt_problem(self._wrapt_version)
        if problem is not None:
            return problem
        self._applying_in = threading.get_ident()
        try:
            for module in installation.ledger.modules:
                self._watcher.watch(module)
        finally:
            self._applying_in = None
        return installation.problem()

    def _module_ready(self, module: ModuleType) -> None:
        with self._lock:
            installation = self._installation
            if installation is not None:
                late = self._applying_in == threading.get_ident()
                before = installation.problem()
                installation.ledger.attach(module, late=late)
                self._trace("%s is there%s", module.__name__, " already" if late else "")
                if not late:
                    installation.ledger.catch_up()
                after = installation.problem()
                if after not in (None, before) and not late:
                    LOGGER.warning("kstep_shim: %s", after)

    def _trace(self, message: str, *values: object) -> None:
        LOGGER.log(
            logging.INFO if self.settings.debug else logging.DEBUG,
            f"kstep_shim: {message}",
            *values,
        )
