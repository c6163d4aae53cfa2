"""A small stack to patch: its source, its patches, and an installer for them."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from kstep_shim.declaration import Kind, Patch, Side, Target
from kstep_shim.installer import Installer

SOURCE = """
class Base:
    def inherited(self, value):
        return ["inherited", value]

class Runner(Base):
    def __init__(self, *args, **kwargs):
        self.built = True

    def method(self, value, *, extra=None):
        return ["method", value]

    @staticmethod
    def static(value, width):
        return ["static", value]

def function(value):
    return ["function", value]
"""

_NAMES = itertools.count()


def note(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Call through and leave a mark, so that a wrapper that ran twice shows."""
    return [*wrapped(*args, **kwargs), "wrapped"]


def build(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> None:
    """Mark an instance built through the wrapper."""
    wrapped(*args, **kwargs)
    instance.wrapped = True


def patch(name: str, *targets: Target, side: Side = Side.WORKER, **more: Any) -> Patch:
    """Declare a patch without its prose."""
    return Patch(
        name=name, summary=name, targets=targets, sides=frozenset({side}), why="because", how="so",
        remove_when="never", **more,
    )  # fmt: skip


def target(module: str, qualname: str, *parameters: str, **more: Any) -> Target:
    """Declare a target that leaves a mark."""
    return Target("stub", module, qualname, parameters, **{"wrapper": note, **more})


def standard_patches(module: str) -> tuple[Patch, ...]:
    """Declare one patch of every kind."""
    return (
        patch("runner", target(module, "Runner.__init__", "self", wrapper=build, before_seal=True)),
        patch("method", target(module, "Runner.method", "self", "value", "extra")),
        patch("static", target(module, "Runner.static", "value", "width", kind=Kind.STATICMETHOD)),
        patch("inherited", target(module, "Runner.inherited", "self", "value")),
        patch("added", target(module, "Runner.added", kind=Kind.ADDED, wrapper=property(repr))),
        patch("function", target(module, "function", "value"), required=False),
        patch(
            "core", target(module, "Base.inherited", "self", "value"), side=Side.ENGINE_CORE,
            required=False,
        ),
    )  # fmt: skip


@dataclass
class Stack:
    """A module of its own for one test, and an installer with an environment of its own."""

    directory: Path
    source: str = SOURCE
    environ: MutableMapping[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"kstep_stub_{next(_NAMES)}")

    def __post_init__(self) -> None:
        (self.directory / f"{self.name}.py").write_text(self.source)
        importlib.invalidate_caches()
        self.patches = standard_patches(self.name)

    def load(self) -> ModuleType:
        """Import the module."""
        return importlib.import_module(self.name)

    def installer(self, *patches: Patch, **more: Any) -> Installer:
        """Make an installer for `patches`, or for one of every kind."""
        return Installer(patches or self.patches, environ=self.environ, tested=(), **more)

    def only(self, name: str, **changes: Any) -> Patch:
        """Return one of the standard patches with its first target changed."""
        found = next(patch for patch in self.patches if patch.name == name)
        return replace(found, targets=(replace(found.targets[0], **changes),))


def raw_attributes(module: Any) -> dict[str, Any]:
    """Return the raw objects of a stub module that the standard patches touch."""
    found = {f"Runner.{name}": value for name, value in vars(module.Runner).items()}
    found |= {f"Base.{name}": value for name, value in vars(module.Base).items()}
    return found | {"function": module.function}


@contextmanager
def on_path(directory: Path) -> Iterator[None]:
    """Make the modules of `directory` importable for a while."""
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        for name in [name for name in sys.modules if name.startswith("kstep_stub_")]:
            del sys.modules[name]
