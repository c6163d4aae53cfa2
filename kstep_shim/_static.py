"""Checks of a target against the source file on disk, without importing anything of it."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from kstep_shim.declaration import Kind, Target

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_MAX_REEXPORTS = 8


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


def missing_module(target: Target) -> str | None:
    """Say that the module of `target` is not installed."""
    if locate(target.module) is not None:
        return None
    if locate(target.module.partition(".")[0]) is None:
        return f"{target.distribution} is not installed (no {target.module})"
    return f"{target.path}: module {target.module} does not exist"


def static_problem(target: Target) -> str | None:
    """Compare `target` with its source file.

    Parameters
    ----------
    target
        The declaration to check.

    Returns
    -------
    str or None
        What differs, None when it agrees. A symbol whose definition cannot be followed on paper
        (assigned, or inherited from a computed base) counts as agreeing; the live check decides.
    """
    missing = missing_module(target)
    if missing is not None:
        return missing
    try:
        return _problem(target)
    except (OSError, SyntaxError, ValueError) as error:
        return f"{target.path}: the source of {target.module} cannot be read: {error}"


def _problem(target: Target) -> str | None:
    body: Sequence[ast.stmt] = _parse(target.module).body
    class_node: ast.ClassDef | None = None
    for name in target.owner_names:
        found = _find(body, name)
        if not isinstance(found, ast.ClassDef):
            imported = found is None and name in _imports(target.module)
            owner = ".".join(target.owner_names)
            return None if imported else f"{target.path}: {owner} does not exist"
        class_node, body = found, found.body
    found = _find(body, target.name)
    if target.kind is Kind.ADDED:
        taken = found is not None or _assigned(body, target.name)
        return f"{target.path} exists already" if taken else None
    if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return _compare(target, found)
    if found is not None or _assigned(body, target.name):
        return None
    if class_node is None:
        return f"{target.path} does not exist"
    return _inherited(target, class_node)


def _inherited(target: Target, class_node: ast.ClassDef) -> str | None:
    unknown: list[str] = []
    problems: list[str | None] = []
    for base in _lineage(target.module, class_node, unknown, set()):
        found = _find(base.body, target.name)
        if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
            problems.append(_compare(target, found))
        elif _assigned(base.body, target.name):
            problems.append(None)
    # The order here is not exactly the method resolution order, so one that fits is enough.
    if unknown or None in problems:
        return None
    return problems[0] if problems else f"{target.path} does not exist"


def _lineage(
    module: str, class_node: ast.ClassDef, unknown: list[str], seen: set[str]
) -> Iterator[ast.ClassDef]:
    """Yield the bases of a class, depth first, and note in `unknown` those it cannot find."""
    for base in class_node.bases:
        name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        place = _class_named(module, name)
        if place is None:
            unknown += [] if name == "object" else [name]
        elif (key := f"{place[0]}.{place[1].name}") not in seen:
            seen.add(key)
            yield place[1]
            yield from _lineage(*place, unknown, seen)


def _class_named(module: str, name: str) -> tuple[str, ast.ClassDef] | None:
    """Find a class by the name that a module knows it by, through a few re-exports."""
    for _ in range(_MAX_REEXPORTS):
        found = _find(_parse(module).body, name)
        if isinstance(found, ast.ClassDef):
            return module, found
        imports = _imports(module)
        if name not in imports:
            return None
        module, name = imports[name]
    return None


def _compare(target: Target, function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    static = "staticmethod" in decorators
    if static is not (target.kind is Kind.STATICMETHOD):
        return f"{target.path} is {'' if static else 'not '}a static method"
    if decorators & {"classmethod", "property", "cached_property"}:
        return f"{target.path} is not a plain function"
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names = tuple(argument.arg for argument in named)
    if names == target.parameters:
        return None
    return f"{target.path} takes ({', '.join(names)}) instead of ({', '.join(target.parameters)})"


@functools.lru_cache(maxsize=64)
def _parse_file(path: Path, modified: int) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


def _parse(module: str) -> ast.Module:
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


def _find(body: Sequence[ast.stmt], name: str) -> _Definition | None:
    # The last definition of a name is the one that counts at run time.
    found = None
    for statement in _statements(body):
        if isinstance(statement, _Definition) and statement.name == name:
            found = statement
    return found


def _assigned(body: Sequence[ast.stmt], name: str) -> bool:
    return any(
        isinstance(part, ast.Name) and part.id == name
        for statement in _statements(body)
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
        for part in ast.walk(target)
    )


def _imports(module: str) -> dict[str, tuple[str, str]]:
    """Map each local name that a ``from`` import binds to its module and its name there."""
    path = locate(module)
    package = module if path is not None and path.name == "__init__.py" else _parent(module)
    found: dict[str, tuple[str, str]] = {}
    for statement in _statements(_parse(module).body):
        if isinstance(statement, ast.ImportFrom):
            source = "." * statement.level + (statement.module or "")
            absolute = importlib.util.resolve_name(source, package) if statement.level else source
            for alias in statement.names:
                found[alias.asname or alias.name] = (absolute, alias.name)
    return found


def _parent(module: str) -> str:
    return module.rpartition(".")[0]
