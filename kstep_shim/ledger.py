"""All bindings of one installation, and what they add up to per patch."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from kstep_shim.binding import Binding, WrapperFactory
from kstep_shim.declaration import Patch, Side, State
from kstep_shim.importing import loaded
from kstep_shim.report import PatchRecord

_BROKEN = (State.REFUSED, State.DISPLACED)


class Ledger:
    """The patches of one installation.

    Parameters
    ----------
    selected
        The patches to apply.
    disabled
        Those that the settings leave out; they only appear in the records.
    factory
        Builds the wrapper around an original.
    """

    def __init__(
        self, selected: tuple[Patch, ...], disabled: tuple[Patch, ...], factory: WrapperFactory
    ) -> None:
        self._bindings = {
            patch: tuple(Binding(target) for target in patch.targets) for patch in selected
        }
        self._disabled = disabled
        self._factory = factory
        self._open: set[Side] = set()

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that targets wait for, each once."""
        pending = (binding for binding in self._all() if binding.pending)
        return tuple(dict.fromkeys(binding.target.module for binding in pending))

    def attach(self, module: ModuleType, *, late: bool = False) -> None:
        """Apply what belongs in `module`; `late` says that it was there before the shim."""
        for patch, bindings in self._bindings.items():
            for binding in bindings:
                if binding.target.module == module.__name__ and binding.pending:
                    binding.attach(module, self._factory, late=late)
                    binding.gate.open |= bool(self._open & patch.sides) and binding.attached

    def catch_up(self) -> None:
        """Apply what waits for modules that are there all the same.

        An import that was past the finders, but not in `sys.modules` yet, when the hook for its
        module was registered goes unnoticed, so everybody who looks applies what he finds.
        """
        for name in self.modules:
            module = loaded(name)
            if module is not None:
                self.attach(module)

    def refresh(self) -> None:
        """Wrap again where a base class has replaced what an inherited target wraps."""
        for binding in self._all():
            binding.refresh(self._factory)

    def record(self, patch: Patch) -> PatchRecord:
        """Sum up one patch from the live state of its targets."""
        if patch not in self._bindings:
            return PatchRecord(patch.name, State.DISABLED, "left out by the settings")
        observed = [(*binding.observe(), binding.target) for binding in self._bindings[patch]]
        states = {state for state, _, _ in observed}
        for state in (*_BROKEN, State.REVERTED):
            if state in states:
                break
        else:
            state = min(states - {State.APPLIED}, key=list(State).index, default=State.APPLIED)
        reason = next((text for found, text, _ in observed if found is state and text), "")
        if state is State.PENDING:
            waiting = (target.module for found, _, target in observed if found is state)
            reason = f"waits for {next(waiting)}"
        return PatchRecord(patch.name, state, reason)

    def records(self, catalogue: tuple[Patch, ...]) -> tuple[PatchRecord, ...]:
        """Sum up every patch of the catalogue, in its order."""
        return tuple(self.record(patch) for patch in catalogue)

    def problem(self, side: Side | None = None) -> str | None:
        """Say which required patch stands in the way.

        With `side`, the required patches of that side that still wait for a module do, too.
        """
        for patch in self._bindings:
            if not patch.required:
                continue
            record = self.record(patch)
            unmet = side in patch.sides and record.state is not State.APPLIED
            if record.state in _BROKEN or unmet:
                return f"patch {patch.name} is {record.state.lower()}: {record.reason}"
        return None

    def waiting(self, side: Side) -> tuple[str, ...]:
        """The modules that required patches of `side` wait for."""
        found = (
            binding.target.module
            for patch, bindings in self._bindings.items()
            if patch.required and side in patch.sides
            for binding in bindings
            if binding.pending
        )
        return tuple(dict.fromkeys(found))

    def open(self, side: Side) -> None:
        """Let the wrappers of one side run."""
        self._open.add(side)
        for patch, bindings in self._bindings.items():
            for binding in bindings if side in patch.sides else ():
                binding.gate.open = binding.attached

    def close(self) -> None:
        """Make every wrapper pass-through again that needs a seal."""
        self._open.clear()
        for binding in self._all():
            binding.gate.open = binding.target.before_seal and binding.attached

    def detach_problem(self) -> str | None:
        """Say why nothing can be taken away."""
        return next((why for binding in self._all() if (why := binding.detach_problem())), None)

    def retire(self, *, keep_before_seal: bool = False) -> None:
        """Take everything away in reverse order, for good."""
        self._open.clear()
        for binding in reversed(list(self._all())):
            if not (keep_before_seal and binding.target.before_seal):
                binding.retire()

    def _all(self) -> Iterator[Binding]:
        for bindings in self._bindings.values():
            yield from bindings
