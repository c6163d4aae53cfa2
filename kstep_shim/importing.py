"""Running a callback once a module is complete, whoever is importing it and however far it is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

ModuleCallback = Callable[[ModuleType], None]
# wrapt.register_post_import_hook, handed in so that the installer stays its only importer.
RegisterHook = Callable[[ModuleCallback, str], None]


class _WatchedSpec(ModuleSpec):
    """The spec of a module that is still executing; it tells when the import system is done."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_initializing" and not value:
            _finish(self)


def _finish(spec: ModuleSpec) -> None:
    """Run the callbacks of a spec, once, whichever thread comes first."""
    callbacks: list[Callable[[str], None]] = spec.__dict__.pop("_kstep_callbacks", [])
    spec.__class__ = ModuleSpec
    for callback in callbacks:
        callback(spec.name)


class ModuleWatcher:
    """Calls back for each watched module when it is, or becomes, completely imported.

    wrapt calls a hook at once when a module is in `sys.modules`, even while its body still runs,
    and not again when it is done. It cannot unregister a hook either, so a module gets one hook
    for as long as that has not fired, however often `watch` is called.
    """

    def __init__(self, register: RegisterHook, callback: ModuleCallback) -> None:
        self._register = register
        self._callback = callback
        self._hooked: set[str] = set()
        self._registering = threading.local()

    def watch(self, name: str) -> None:
        """Call back for the module called `name`: now if it is complete, later otherwise."""
        if name in self._hooked and name not in sys.modules:
            return
        self._hooked.add(name)
        self._registering.name = name
        try:
            self._register(self._fired, name)
        finally:
            self._registering.name = None

    def _fired(self, module: ModuleType) -> None:
        name = module.__name__
        self._hooked.discard(name)
        # Called by the import system, the body has run although the module is still marked.
        at_once = getattr(self._registering, "name", None) == name
        if not (at_once and is_initialising(module) and self._follow(module)):
            self._callback(module)

    def _follow(self, module: ModuleType) -> bool:
        spec = module.__spec__
        if spec is None or type(spec) not in (ModuleSpec, _WatchedSpec):
            return False
        callbacks = spec.__dict__.setdefault("_kstep_callbacks", [])
        if self._finished not in callbacks:
            callbacks.append(self._finished)
        spec.__class__ = _WatchedSpec
        if not is_initialising(module):
            # The importing thread finished between the two looks and may have missed the callback.
            _finish(spec)
        return True

    def _finished(self, name: str) -> None:
        module = sys.modules.get(name)
        if module is None:
            self.watch(name)  # The import failed; the next attempt counts.
        else:
            self._callback(module)


def is_initialising(module: ModuleType) -> bool:
    """Whether the body of `module` is still being executed by the import system."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def loaded(name: str) -> ModuleType | None:
    """Return a module that is completely imported, None otherwise; nothing is imported."""
    module = sys.modules.get(name)
    return None if module is None or is_initialising(module) else module
