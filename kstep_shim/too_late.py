"""Signs that the shim came too late: copies of a target, and objects built without the wrapper."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kstep_shim.declaration import Target


def copies(owner: Any, target: Target, original: Any) -> Iterator[str]:
    """Name the places that hold `original` under another roof, where the wrapper cannot reach."""
    if isinstance(owner, type):
        for subclass in _subclasses(owner):
            if any(value is original for value in list(vars(subclass).values())):
                yield f"{subclass.__module__}.{subclass.__qualname__}"
        return
    for name, module in list(sys.modules.items()):
        if module is not owner and getattr(module, "__dict__", {}).get(target.name) is original:
            yield name


def has_instance(owner: type) -> bool:
    """Whether an object of this class, or of one derived from it, is in use."""

    def alive() -> bool:
        # An instance refers to its class, and this looks for that at the speed of C.
        found = gc.get_referrers(owner, *_subclasses(owner))
        return any(owner in type(candidate).__mro__ for candidate in found)

    with _all_objects():
        if not alive():
            return False
        gc.collect()  # What is only garbage does not count.
        return alive()


@contextmanager
def _all_objects() -> Iterator[None]:
    """Let the collector see what vLLM has frozen once its engine was built."""
    if not gc.get_freeze_count():
        yield
        return
    gc.unfreeze()
    try:
        yield
    finally:
        gc.freeze()


def _subclasses(owner: type) -> Iterator[type]:
    found: list[type] = type.__subclasses__(owner)
    for subclass in found:
        yield subclass
        yield from _subclasses(subclass)
