"""Code which runs around the import of other modules, and modules which are not installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Execute = Callable[[ModuleType], None]
Around = Callable[[Execute, ModuleType], None]
Make = Callable[[str], ModuleType]


class _Finder(MetaPathFinder):
    def __init__(self) -> None:
        self.hooks: dict[str, Around] = {}
        self._searching: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        around = self.hooks.get(fullname)
        if around is None or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching.discard(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: around(execute, module)  # type: ignore[method-assign]
        return spec


_finder = _Finder()


def around(name: str, hook: Around) -> None:
    """Let ``hook(execute, module)`` run the code of the module when it gets imported."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.hooks[name] = hook


def after(name: str, function: Callable[[], None]) -> None:
    """Call ``function`` once the module has been imported."""

    def hook(execute: Execute, module: ModuleType) -> None:
        execute(module)
        function()

    around(name, hook)


class _Substitute(Loader):
    def __init__(self, make: Make) -> None:
        self._make = make

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._make(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _LastResort(MetaPathFinder):
    def __init__(self) -> None:
        self.modules: dict[str, Make] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        make = self.modules.get(fullname)
        return make and ModuleSpec(fullname, _Substitute(make), is_package=True)


_last_resort = _LastResort()


def otherwise(name: str, make: Make) -> None:
    """Let ``make(name)`` stand for a module which is not installed, once it gets imported."""
    if _last_resort not in sys.meta_path:
        sys.meta_path.append(_last_resort)
    _last_resort.modules[name] = make
