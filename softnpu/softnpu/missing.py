"""Placeholders for what is not implemented.

A mock would let code work by accident. These objects can be looked up, annotated with and
inherited from, as module level code does, but calling one raises and is counted.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any, NoReturn

from softnpu import counters


class Missing:
    """Something of the real package which the stand-in lacks."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Missing:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Missing(f"{self._name}.{attribute}")

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        counters.missing[self._name] += 1
        raise NotImplementedError(f"softnpu: {self._name} is not implemented")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: object) -> Missing:
        return self

    def __ror__(self, other: object) -> Missing:
        return self

    def __repr__(self) -> str:
        return f"<softnpu missing {self._name}>"


class FakeModule(types.ModuleType):
    """A module whose unknown attributes are :class:`Missing`."""

    def __getattr__(self, attribute: str) -> Missing:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Missing(f"{self.__name__}.{attribute}")


def add_module(name: str, **attributes: Any) -> FakeModule:
    """Put a fake module into ``sys.modules`` and into its parent module."""
    module = FakeModule(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    vars(module).update(attributes)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)
    return module
