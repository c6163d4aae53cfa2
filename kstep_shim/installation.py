"""One installation in one process: its settings, its bindings and what it has promised."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from multiprocessing import parent_process

from kstep_shim import guards
from kstep_shim.binding import WrapperFactory
from kstep_shim.catalog import select
from kstep_shim.counters import counters
from kstep_shim.declaration import Patch, Side
from kstep_shim.environment import Export
from kstep_shim.ledger import Ledger
from kstep_shim.report import Report
from kstep_shim.settings import Settings, check_frames
from kstep_shim.status_file import StatusFile


class Installation:
    """What `Installer` knows from one `install` to the next `uninstall`.

    Parameters
    ----------
    settings
        With `frames` resolved.
    source
        Where K comes from.
    catalogue
        Every patch; those that the settings leave out are only reported.
    environ
        The environment to export to.
    factory
        Builds the wrapper around an original.
    make_report
        Gives the report that goes into the status directory, from any thread.
    """

    def __init__(
        self,
        settings: Settings,
        source: str,
        catalogue: tuple[Patch, ...],
        environ: MutableMapping[str, str],
        factory: WrapperFactory,
        make_report: Callable[[], Report],
    ) -> None:
        self.settings = settings
        self.source = source
        self.frames = settings.frames or 1
        self.refusal: str | None = None
        self.sealed: set[Side] = set()
        self.role: str | None = None
        self.stage: int | None = None
        self._catalogue = catalogue
        self._selected, self._disabled = select(settings, catalogue)
        self.ledger = Ledger(self._selected, self._disabled, factory)
        self._environ = environ
        self._export = Export(environ)
        self._static: tuple[str | None] | None = None
        self._off = False
        directory = settings.status_dir
        self._file = None if directory is None else StatusFile(directory, make_report)

    def problem(self) -> str | None:
        """Say why K frames per step are not possible here, from the live objects."""
        return self.refusal if self.refusal is not None else self.ledger.problem()

    def early_problem(self, tested: Sequence[Mapping[str, str]]) -> str | None:
        """Say what speaks against patching at all, before any target is imported."""
        names = [patch.name for patch in self._disabled if patch.required]
        if names:
            return f"required patch {names[0]} is left out by the settings"
        problem = None if self.settings.allow_untested else guards.version_problem(tested)
        # A child was started by a head that has read the files already.
        return self.static_problem() if problem is None and parent_process() is None else problem

    def static_problem(self) -> str | None:
        """Check the files of all required patches, of every side, once."""
        if self._static is None:
            required = (patch for patch in self._selected if patch.required)
            problems = (
                (patch, problem)
                for patch in required
                if (problem := guards.static_patch_problem(patch))
            )
            with guards.reading():
                self._static = (next((f"patch {p.name}: {why}" for p, why in problems), None),)
        return self._static[0]

    def promise(self, frames: int, source: str) -> None:
        """Record the K that a configuration has; where it is what is known, so is its source."""
        check_frames(frames, "num_speculative_tokens + 1")
        if frames != self.frames or source == "yaml":
            self.frames, self.source = frames, source

    def import_waiting(self, side: Side) -> None:
        """Import what required patches of `side` wait for: its process needs it anyway."""
        for module in self.ledger.waiting(side) if self.refusal is None else ():
            try:
                importlib.import_module(module)
            except Exception as error:
                self.refusal = f"{module} cannot be imported: {error!r}"

    def seal_problem(self, side: Side) -> str | None:
        """Say why `side` cannot be sealed, after applying what can be applied by now."""
        if self.refusal is None and side is Side.HEAD:
            # Only the head can still take K back, so it answers for its children, too.
            self.refusal = guards.carrier_problem(self._environ) or self.static_problem()
        if self.refusal is None:
            self.ledger.catch_up()
            self.ledger.refresh()
            self.refusal = self.ledger.problem(side)
        return self.refusal

    def seal(self, side: Side, role: str, stage: int | None) -> None:
        """Let the wrappers of one side run."""
        self.ledger.open(side)
        self.sealed.add(side)
        self.name(role, stage)
        self.keep_report()

    def name(self, role: str, stage: int | None) -> None:
        """Note what this process is; it may be several things at once."""
        known = {role} if self.role is None else {role, *self.role.split(" and ")}
        ordered = [side.value for side in Side if side.value in known]
        self.role = " and ".join([*ordered, *sorted(known.difference(ordered))])
        self.stage = stage

    def uninstall_problem(self) -> str | None:
        """Say why nothing may be taken away."""
        if self.sealed and self.frames > 1:
            return "this process has promised K positions per step: restart it instead"
        return self.ledger.detach_problem()

    def export(self) -> None:
        """Arm the processes to come."""
        self._export.write(self.settings.to_environ())

    def turn_off(self, reason: str) -> bool:
        """Refuse: leave only the decision points in place, and arm nobody any more.

        Returns whether that is news; the first reason is the one that counts.
        """
        self.refusal = self.refusal or reason
        news, self._off = not self._off, True
        self.ledger.retire(keep_before_seal=True)
        self._export.restore()
        return news

    def end(self) -> None:
        """Take everything away."""
        self.ledger.retire()
        self._export.restore()
        if self._file is not None:
            self._file.stop()

    def forked(self) -> None:
        """Start afresh in a forked child: it has promised nothing and counted nothing."""
        self.sealed.clear()
        self.role = self.stage = None
        self.ledger.close()
        counters().clear()

    def report(self) -> Report:
        """Describe the installation as it is right now."""
        self.ledger.catch_up()
        problem = self.problem()
        sides = " and ".join(side.value for side in Side if side in self.sealed)
        return Report(
            active=problem is None,
            reason=problem or (f"sealed: {sides}" if sides else "installed, not sealed yet"),
            frames=self.frames if problem is None else 1,
            source=self.source if problem is None else "inactive",
            patches=self.ledger.records(self._catalogue),
            counters=counters().snapshot(),
            role=self.role,
            stage=self.stage,
        )

    def keep_report(self) -> None:
        """Keep the report in the status directory from now on, if one is set."""
        if self._file is not None:
            self._file.keep()
