"""Gives torch the stand-in."""

from __future__ import annotations

import os
import sys

import torch

from softnpu import (
    compiled,
    device,
    distributed,
    generator,
    import_hooks,
    library,
    modules,
    operators,
    runtime,
    settings,
    triton_hook,
)

_libraries: list[torch.library.Library] = []


def activate() -> None:
    """Install everything, once."""
    if settings.active:
        return
    settings.active = True
    _allow_aliasing_ops()
    triton_hook.activate()
    _prepare_torchvision()
    library.activate(device.under_mode)
    generator.activate()
    device.activate()
    modules.install()
    operators.override_linear()
    compiled.activate()
    runtime.install_accelerator()
    distributed.activate()
    import_hooks.after("vllm_ascend.worker.worker", _load_custom_ops)


def _allow_aliasing_ops() -> None:
    # Custom ops of vllm-ascend return an argument. This torch, newer than theirs, warns of it, and
    # refuses it where the environment has CI set.
    os.environ.setdefault("TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING", "0")


def _prepare_torchvision() -> None:
    # A torchvision built for another torch cannot load its library of ops, which declares these.
    library = torch.library.Library("torchvision", "DEF")
    _libraries.append(library)
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    site = str(settings.site_dir())
    if site not in sys.path:
        sys.path.append(site)


def _load_custom_ops() -> None:
    # Otherwise dynamo meets the import of the ops while it traces the model.
    from vllm_ascend.utils import enable_custom_op

    enable_custom_op()
