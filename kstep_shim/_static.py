"""Checks of a target against the source file on disk, without importing anything of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kstep_shim._sources import assigned, find, imports, locate, parse
from kstep_shim.declaration import Kind, Target

_MAX_REEXPORTS = 8


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
    body: Sequence[ast.stmt] = parse(target.module).body
    class_node: ast.ClassDef | None = None
    for name in target.owner_names:
        found = find(body, name)
        if not isinstance(found, ast.ClassDef):
            imported = found is None and name in imports(target.module)
            owner = ".".join(target.owner_names)
            return None if imported else f"{target.path}: {owner} does not exist"
        class_node, body = found, found.body
    found = find(body, target.name)
    if target.kind is Kind.ADDED:
        taken = found is not None or assigned(body, target.name)
        return f"{target.path} exists already" if taken else None
    if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return _compare(target, found)
    if found is not None or assigned(body, target.name):
        return None
    if class_node is None:
        return f"{target.path} does not exist"
    return _inherited(target, class_node)


def _inherited(target: Target, class_node: ast.ClassDef) -> str | None:
    unknown: list[str] = []
    problems: list[str | None] = []
    for base in _lineage(target.module, class_node, unknown, set()):
        found = find(base.body, target.name)
        if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
            problems.append(_compare(target, found))
        elif assigned(base.body, target.name):
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
        found = find(parse(module).body, name)
        if isinstance(found, ast.ClassDef):
            return module, found
        imported = imports(module)
        if name not in imported:
            return None
        module, name = imported[name]
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
