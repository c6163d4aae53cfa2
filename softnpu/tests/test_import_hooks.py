"""Hooks around the import of other modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from softnpu import import_hooks


@pytest.fixture
def module_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"hooked_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_after(module_name: str) -> None:
    seen = []
    import_hooks.after(module_name, lambda: seen.append(sys.modules[module_name].value))
    importlib.import_module(module_name)
    importlib.import_module(module_name)
    assert seen == [1]


def test_around(module_name: str) -> None:
    def hook(execute: import_hooks.Execute, module: ModuleType) -> None:
        execute(module)
        vars(module)["value"] += 1

    import_hooks.around(module_name, hook)
    assert importlib.import_module(module_name).value == 2


def test_a_missing_module_stays_missing() -> None:
    import_hooks.after("nowhere_at_all", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        importlib.import_module("nowhere_at_all")


def test_otherwise_stands_for_what_is_not_installed() -> None:
    for name in ("nothing_here", "nothing_here.below"):
        import_hooks.otherwise(name, ModuleType)
    below = importlib.import_module("nothing_here.below")
    assert sys.modules["nothing_here"].below is below


def test_otherwise_leaves_alone_what_is_installed(module_name: str) -> None:
    import_hooks.otherwise(module_name, ModuleType)
    assert importlib.import_module(module_name).value == 1
