"""The device type ``npu``, mapped to the CPU.

``torch.device("npu")`` stays a device which says ``npu``; a torch call that takes such a device
works on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

_CPU = torch.device("cpu")


def is_npu(device: object) -> bool:
    """Say whether ``device`` names the npu."""
    if isinstance(device, torch.device):
        return device.type == "npu"
    return isinstance(device, str) and (device == "npu" or device.startswith("npu:"))


def to_cpu(device: Any) -> Any:
    """Map a name of the npu to the CPU and leave everything else as it is."""
    return _CPU if is_npu(device) else device


class NpuOnCpu(TorchFunctionMode):
    """Rewrites the device of every torch call and drops pinning.

    Dynamo traces this code, hence its plain style.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs) if kwargs else {}
        if func is torch.device:
            return func(*args, **options)
        if _is_transfer(func, args, options):
            # On one device torch would return the same tensor; a bus makes a copy.
            options = {name: to_cpu(value) for name, value in options.items()}
            source = args[0]
            result = func(*tuple(to_cpu(value) for value in args), **options)
            if (
                result is source
                or result.untyped_storage()._cdata == source.untyped_storage()._cdata
            ):
                return result.clone()
            return result
        if "device" in options:
            options["device"] = to_cpu(options["device"])
        if options.get("pin_memory"):
            options["pin_memory"] = False
        if any(is_npu(value) for value in args if not isinstance(value, torch.Tensor)):
            args = tuple(to_cpu(value) for value in args)
        name = getattr(func, "__name__", "")
        if name == "pin_memory":
            return args[0]
        if name == "is_pinned":
            return False
        return func(*args, **options)


def _is_transfer(func: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> bool:
    if func is torch.Tensor.cpu:
        return True
    if func is not torch.Tensor.to:
        return False
    device = options.get("device", args[1] if len(args) > 1 else None)
    return isinstance(device, torch.device) or is_npu(device) or device == "cpu"


_mode = NpuOnCpu()


def activate() -> None:
    """Make ``npu`` a legal device which works on the CPU."""
    torch.utils.rename_privateuse1_backend("npu")
    _map_device_contexts()
    _map_library_kernels()
    tensor: Any = torch.Tensor
    tensor.npu = lambda self, *args, **kwargs: self.to("npu")
    tensor.is_npu = property(lambda self: self.device.type == "npu")
    module: Any = torch.nn.Module
    module.npu = lambda self, *args, **kwargs: self.to("npu")
    _mode.__enter__()


def _map_device_contexts() -> None:
    # ``with torch.device("npu")`` puts its context below every other mode, where the mode above
    # never sees the device.
    original = DeviceContext.__init__

    def init(self: DeviceContext, device: Any) -> None:
        original(self, to_cpu(torch.device(device)))

    DeviceContext.__init__ = init  # type: ignore[method-assign]


_OP_NAMESPACES = ("vllm", "vllm_ascend", "_C_ascend", "vllm_omni", "npu")
python_ops: dict[str, Callable[..., Any]] = {}
"""Custom ops which Python code implements, by qualified name."""
library_impl = torch.library.Library.impl


def _map_library_kernels() -> None:
    def impl(
        self: torch.library.Library,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        **options: Any,
    ) -> Any:
        if dispatch_key == "PrivateUse1" and self.ns in _OP_NAMESPACES:
            name = op_name if isinstance(op_name, str) else op_name._schema.name
            name = name if "::" in name else f"{self.ns}::{name}"
            python_ops[name.split(".")[0]] = fn
            dispatch_key = "CPU"
        return library_impl(self, op_name, fn, dispatch_key, **options)

    torch.library.Library.impl = impl  # type: ignore[method-assign]
