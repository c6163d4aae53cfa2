"""What torch.compile saw of stage 1, with and without the shim."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

from kstep_shim.demo.scenario import GraphMode, StageShape
from kstep_shim.demo.stage import bring_up, prepare_environment

SHAPE = StageShape(mode=GraphMode.PIECEWISE)


def seen(frames: int) -> Any:
    """The compiler's own counters after a stage came up."""
    return partial(_seen, frames)


def _seen(frames: int) -> dict[str, Any]:
    prepare_environment()
    import torch  # noqa: F401
    from torch._dynamo.utils import counters

    sizes = (1, 2, 3, 4, 8, 16, 24, 32)
    bring_up(replace(SHAPE, frames=frames, shim=frames > 1, capture_sizes=sizes))
    return {
        "breaks": dict(counters["graph_break"]),
        "graphs": counters["stats"]["unique_graphs"],
        "calls": counters["stats"]["calls_captured"],
        "frames": dict(counters["frames"]),
    }


def pickles() -> dict[str, list[str]]:
    """Targets of the catalogue that cannot be pickled, by pickler."""
    prepare_environment()
    import importlib

    import cloudpickle

    import kstep_shim
    from kstep_shim.catalog import patches
    from kstep_shim.guards import resolve_owner

    kstep_shim.install(frames=4)
    importlib.import_module("vllm_ascend.model_executor.warmup.kernel_warmup")
    failed: dict[str, list[str]] = {"pickle": [], "cloudpickle": []}
    for target in (target for patch in patches() for target in patch.targets):
        owner = resolve_owner(target, importlib.import_module(target.module))
        for found in (owner, getattr(owner, target.name)):
            if isinstance(found, ModuleType | property):
                continue
            for name, dump in (("pickle", pickle.dumps), ("cloudpickle", cloudpickle.dumps)):
                try:
                    same = pickle.loads(dump(found)) == found
                except Exception:
                    same = False
                if not same:
                    failed[name].append(target.path)
    return failed


def too_late() -> str:
    """Install after an engine was built at K=1."""
    engine = bring_up(StageShape())
    import kstep_shim

    reason = kstep_shim.install(frames=4).reason
    del engine
    return reason
