"""One target in this process: put the wrapper there, look at it, take it away.

State is never remembered when it can be looked up: `Binding.observe` reads the live attribute.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

from kstep_shim.declaration import Kind, State, Target
from kstep_shim.guards import MISSING, live_problem, resolve_owner
from kstep_shim.too_late import copies, has_instance

# Every wrapper of this package names its target here, whichever installer made it.
SHIM_MARK: Final = "_self_kstep_shim"


class Gate:
    """The switch of one wrapper: closed means that calls go straight to the original."""

    __slots__ = ("open",)

    def __init__(self, is_open: bool = False) -> None:
        self.open = is_open

    def __call__(self) -> bool:
        return self.open


# Builds a wrapper around an original: (original, declaration, gate) -> object to put in place.
WrapperFactory = Callable[[Any, Target, Gate], Any]


class Binding:
    """What one installation did about one target.

    A new installation makes new bindings, so a wrapper that somebody still holds after
    `retire` keeps its own closed gate and stays inert for good.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.gate = Gate(target.before_seal)
        self._refusal: str | None = None
        self._owner: Any = MISSING
        self._raw: Any = MISSING
        self._original: Any = MISSING
        self._replacement: Any = MISSING
        self._met = False
        self._retired = False

    @property
    def attached(self) -> bool:
        """Whether this binding has put something in place and not taken it away."""
        return self._replacement is not MISSING

    @property
    def pending(self) -> bool:
        """Whether the target has not been met yet."""
        return not self._met and not self._retired and self._refusal is None

    def attach(self, module: ModuleType, factory: WrapperFactory, *, late: bool = False) -> None:
        """Patch the target in `module`, or remember why not. Only a pending binding changes."""
        if not self.pending:
            return
        try:
            self._attach(module, factory, late)
        except Exception as error:
            # An import hook must never raise: the importer would retry without the patch.
            self._refusal = f"{self.target.path} cannot be patched: {error!r}"

    def _attach(self, module: ModuleType, factory: WrapperFactory, late: bool) -> None:
        target = self.target
        owner = resolve_owner(target, module)
        self._refusal = live_problem(target, owner)
        if self._refusal is not None:
            return
        if target.kind is Kind.RELIED_ON:
            self._owner, self._met = owner, True
            return
        raw = vars(owner).get(target.name, MISSING)
        if target.kind is Kind.ADDED:
            replacement = target.wrapper
        else:
            self._original = inspect.getattr_static(owner, target.name)
            marks = (getattr(layer, SHIM_MARK, None) for layer in _layers(self._original))
            if target.path in marks:
                self._refusal = f"{target.path} is wrapped by another kstep_shim already"
                return
            stale = next(copies(owner, target, self._original), None)
            if stale is not None:
                self._refusal = f"{target.path} was copied by {stale} before the shim came"
                return
            if late and target.before_seal and target.name == "__init__" and has_instance(owner):
                self._refusal = f"a {target.owner_names[-1]} was built before the shim came"
                return
            replacement = factory(self._original, target, self.gate)
        setattr(owner, target.name, replacement)
        self._owner, self._raw, self._replacement = owner, raw, replacement
        self._met = True

    def refresh(self, factory: WrapperFactory) -> None:
        """Wrap again where an inherited original was replaced in the base class since."""
        if self.attached and self._mine(self._current()) and self._base() is not self._original:
            self._detach()
            self._met = False
            self.attach(sys.modules[self.target.module], factory)

    def observe(self) -> tuple[State, str]:
        """Return the state of the target as it is right now, and the reason."""
        if self._refusal is not None:
            return State.REFUSED, self._refusal
        if self.pending:
            return State.PENDING, ""
        if self._retired:
            return (State.REVERTED if self._met else State.DISABLED), ""
        module = sys.modules.get(self.target.module)
        if self.target.kind is Kind.RELIED_ON:
            owner = self._owner if module is None else resolve_owner(self.target, module)
            changed = live_problem(self.target, owner)
            return (State.DISPLACED, changed) if changed else (State.APPLIED, "")
        if module is not None and not self._reached_from(resolve_owner(self.target, module)):
            return State.DISPLACED, f"{self.target.path}: the module names another object now"
        current = self._current()
        if self._mine(current):
            if not any(layer is self._original for layer in _layers(self._base())):
                return State.DISPLACED, f"{self.target.path} was replaced in its base class"
            return State.APPLIED, ""
        if any(self._mine(layer) for layer in _layers(current)):
            return State.APPLIED, f"{self.target.path} is wrapped again by {_describe(current)}"
        return State.DISPLACED, f"{self.target.path} was replaced by {_describe(current)}"

    def detach_problem(self) -> str | None:
        """Say why `retire` would undo somebody else's work."""
        if not self.attached or self._mine(self._current()):
            return None
        return f"{self.target.path} was changed by {_describe(self._current())} after the shim"

    def retire(self) -> None:
        """Put the very object back that was there, or nothing where there was nothing, for good."""
        self._retired = True
        self.gate.open = False
        if self.attached:
            self._detach()

    def _detach(self) -> None:
        if self._raw is MISSING:
            delattr(self._owner, self.target.name)
        else:
            setattr(self._owner, self.target.name, self._raw)
        self._replacement = MISSING

    def _reached_from(self, owner: Any) -> bool:
        """Whether what the module names now still leads to the patched attribute.

        vllm-ascend puts a subclass in place of the scheduler class, which inherits ours.
        """
        if owner is self._owner:
            return True
        if not (isinstance(owner, type) and issubclass(owner, self._owner)):
            return False
        found = inspect.getattr_static(owner, self.target.name, MISSING)
        return any(self._mine(layer) for layer in _layers(found))

    def _current(self) -> Any:
        return vars(self._owner).get(self.target.name, MISSING)

    def _mine(self, candidate: Any) -> bool:
        return candidate is self._replacement

    def _base(self) -> Any:
        """The attribute that ours hides, as the base classes have it now."""
        if self._raw is not MISSING or self.target.kind is Kind.ADDED:
            return self._original
        found = (vars(base) for base in self._owner.__mro__[1:])
        return next((names[self.target.name] for names in found if self.target.name in names), None)


def _layers(outermost: Any) -> Iterator[Any]:
    """Walk from a wrapper inwards; a bound wrapper stands for the one it was bound from."""
    layer, seen = outermost, set[int]()
    while layer is not None and id(layer) not in seen:
        seen.add(id(layer))
        yield layer
        yield getattr(layer, "_self_parent", None)
        layer = getattr(layer, "__wrapped__", None)


def _describe(found: Any) -> str:
    if found is MISSING:
        return "nothing (it was deleted)"
    module = getattr(found, "__module__", None) or type(found).__module__
    return f"{type(found).__name__} of {module}"
