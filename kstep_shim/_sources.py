"""Source files of modules that are not imported: where they are, and what they define."""

from __future__ import annotations

import ast
import functools
import gc
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@contextmanager
def reading() -> Iterator[None]:
    """Check several targets together: each file is read once, and nothing of it is kept.

    Syntax trees are many objects and no garbage, so collecting would take as long as parsing.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        _parse_file.cache_clear()
        if collecting:
            gc.enable()


def locate(module: str) -> Path | None:
    """Return the source file of a module, None when there is none; no package is imported."""
    first, *rest = module.split(".")
    try:
        # A top-level name has no parent, so this looks without importing.
        spec: ModuleSpec | None = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return None
    name = first
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    path = Path(spec.origin)
    return path if path.suffix == ".py" and path.is_file() else None


@functools.lru_cache(maxsize=64)
def _parse_file(path: Path, modified: int) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


def parse(module: str) -> ast.Module:
    """Return the syntax tree of a module, an empty one when it has no source file."""
    path = locate(module)
    if path is None:
        return ast.Module(body=[], type_ignores=[])
    return _parse_file(path, path.stat().st_mtime_ns)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of one scope: those under if, try and with belong to it."""
    for statement in body:
        yield statement
        for field in ("body", "orelse", "finalbody"):
            if isinstance(statement, (ast.If, ast.Try, ast.With)):
                yield from _statements(getattr(statement, field, []))


def find(body: Sequence[ast.stmt], name: str) -> Definition | None:
    """Return the last definition of a name in a scope: that one counts at run time."""
    found = None
    for statement in _statements(body):
        if isinstance(statement, Definition) and statement.name == name:
            found = statement
    return found


def assigned(body: Sequence[ast.stmt], name: str) -> bool:
    """Whether a scope assigns to a name."""
    return any(
        isinstance(part, ast.Name) and part.id == name
        for statement in _statements(body)
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
        for part in ast.walk(target)
    )


def names_attribute(module: str, name: str) -> bool:
    """Whether a module's source names an attribute of anything; False without a source file."""
    path = locate(module)
    if path is None or name not in path.read_text():
        return False
    return any(
        isinstance(part, ast.Attribute) and part.attr == name for part in ast.walk(parse(module))
    )


def imports(module: str) -> dict[str, tuple[str, str]]:
    """Map each local name that a ``from`` import binds to its module and its name there."""
    path = locate(module)
    package = module if path is not None and path.name == "__init__.py" else _parent(module)
    found: dict[str, tuple[str, str]] = {}
    for statement in _statements(parse(module).body):
        if isinstance(statement, ast.ImportFrom):
            source = "." * statement.level + (statement.module or "")
            absolute = importlib.util.resolve_name(source, package) if statement.level else source
            for alias in statement.names:
                found[alias.asname or alias.name] = (absolute, alias.name)
    return found


def _parent(module: str) -> str:
    return module.rpartition(".")[0]
