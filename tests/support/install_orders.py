"""Install before or after the real stack is imported, and take the shim out again.

Run as a script: the process must not have imported the stack before.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any


def layers_of_ours() -> list[str]:
    """Targets of the catalogue that something of the shim is still around or on."""
    from kstep_shim.binding import SHIM_MARK
    from kstep_shim.catalog import patches
    from kstep_shim.declaration import Kind
    from kstep_shim.guards import MISSING, resolve_owner

    found = []
    for target in (target for patch in patches() for target in patch.targets):
        owner = resolve_owner(target, importlib.import_module(target.module))
        layer = inspect.getattr_static(owner, target.name, MISSING)
        if target.kind is Kind.ADDED and layer is not MISSING:
            found.append(target.path)
        while target.kind is not Kind.ADDED and layer is not None:
            if getattr(layer, SHIM_MARK, None) is not None:
                found.append(target.path)
            layer = getattr(layer, "__wrapped__", None)
    return found


def play(order: str) -> dict[str, Any]:
    """Play `order`: S installs, I imports the whole stack."""
    import kstep_shim

    for step in order:
        if step == "S":
            kstep_shim.install(frames=4)
        else:
            importlib.import_module("kstep_shim.demo.preload")
            importlib.import_module("vllm_ascend.model_executor.warmup.kernel_warmup")
    armed = kstep_shim.status()
    wrapped = len(layers_of_ours())
    undone = kstep_shim.uninstall()
    return {
        "states": {record.name: record.state.value for record in armed.patches},
        "reason": armed.reason,
        "wrapped": wrapped,
        "undone": undone.reason,
        "left": layers_of_ours(),
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(play(sys.argv[1])) + "\n")
