"""The device type ``npu``, mapped to the CPU.

``torch.device("npu")`` stays a device which says ``npu``. A torch call that takes such a device
works on the CPU, and what it makes is marked as being on the device.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext, _device_constructors

from softnpu import barrier, marks, streams, traffic

Call = Callable[..., Any]

_CPU = torch.device("cpu")
_OF_MARKED = torch.device("cpu", 0)
"""The answer of a tensor on the device: usable everywhere, yet not the answer of a host tensor."""
_DEVICE_ATTRIBUTE = torch.Tensor.device
_CONSTRUCTORS = _device_constructors()
_TRANSFERS = (torch.Tensor.to, torch.Tensor.cpu, torch.as_tensor, torch.asarray)


def is_npu(device: object) -> bool:
    """Say whether ``device`` names the npu."""
    if isinstance(device, torch.device):
        return bool(device.type == "npu" or device == _OF_MARKED)
    return isinstance(device, str) and (device == "npu" or device.startswith("npu:"))


def to_cpu(device: Any) -> Any:
    """Map a name of the npu to the CPU and leave everything else as it is."""
    return _CPU if is_npu(device) else device


class NpuOnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Sees every torch call of a thread."""

    def __torch_function__(
        self,
        func: Call,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Map the devices of the call. Dynamo traces into this, but not into the marks."""
        options = dict(kwargs) if kwargs else {}
        name = getattr(func, "__name__", "")
        if func is torch.device or name == "_parse_to":
            return func(*args, **options)  # a device keeps its name
        if name == "pin_memory":
            return args[0]
        if name == "is_pinned":
            return False
        if options.get("pin_memory"):
            options["pin_memory"] = False
        if torch.compiler.is_compiling():
            return func(*_mapped(args), **_mapped_options(options))
        return _call(func, name.partition(".")[0], args, options)


def _mapped(args: Sequence[Any]) -> Sequence[Any]:
    return tuple(arg if isinstance(arg, torch.Tensor) else to_cpu(arg) for arg in args)


def _mapped_options(options: dict[str, Any]) -> dict[str, Any]:
    if "device" in options:
        options["device"] = to_cpu(options["device"])
    return options


def _call(func: Any, name: str, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Run one call of eager code, whose ``name`` is without overload, and keep the marks."""
    if name == "__get__":
        if func.__self__ is _DEVICE_ATTRIBUTE and marks.is_marked(args[0]):
            return _OF_MARKED
        return func(*args, **options)
    target = _target(func, args, options)
    if target is not None:
        args, options = _mapped(args), _mapped_options(options)
    barrier.check(name, args, options, target)
    if hasattr(options.get("generator"), "note_draw"):
        options["generator"].note_draw()
    if streams.waiting and traffic.is_read(name, args, options, target):
        streams.refuse_behind_wait(name)
    result = func(*args, **options)
    if target is None:
        results = marks.tensors_near((result,))
        new = marks.spread(args, options, results) if results else results
        if streams.waiting and (new or _writes(name, args)):
            streams.refuse_behind_wait(name)
        return result
    if func in _TRANSFERS:
        result = _moved(args[0] if args else options.get("data"), result, target)
    if target == "npu":
        marks.mark(marks.tensors_near((result,)))
    return result


def _target(func: Any, args: Sequence[Any], options: dict[str, Any]) -> str | None:
    """Return ``npu`` or ``cpu`` if the call says where its result goes."""
    device = options.get("device")
    if device is None:
        for arg in args:
            if isinstance(arg, torch.device) or (isinstance(arg, str) and is_npu(arg)):
                device = arg
    if device is not None:
        return "npu" if is_npu(device) or _is_compiled_call(func) else "cpu"
    if func is torch.Tensor.cpu:
        return "cpu"
    if func is torch.Tensor.to and len(args) > 1:
        if isinstance(args[1], torch.Tensor):
            return "npu" if marks.is_marked(args[1]) else "cpu"
        return "cpu" if isinstance(args[1], str) else None
    if func in _CONSTRUCTORS and torch._C._len_torch_function_stack() > 0:
        context = torch._C._get_function_stack_at(0)
        return "npu" if isinstance(context, DeviceContext) and is_npu(context.device) else None
    return None


def _is_compiled_call(func: Any) -> bool:
    """Say whether compiled code makes the call: it names the CPU where its source named the npu."""
    if isinstance(func, torch._ops.OpOverload):
        return True
    caller = sys._getframe(4)  # past this module: _target, _call and __torch_function__
    return caller.f_code.co_filename.startswith("<eval_with_key>")


def _moved(source: Any, result: torch.Tensor, target: str) -> torch.Tensor:
    # On one device torch returns the memory which it was given; a bus makes a copy of it.
    if target == "npu" and marks.is_marked(source):
        return result
    if isinstance(source, torch.Tensor):
        shared = marks.storage_of(source) is marks.storage_of(result)
    else:
        shared = True  # such as the memory of an array
    return result.clone() if shared else result


def _writes(name: str, args: Sequence[Any]) -> bool:
    in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    return in_place and bool(args) and marks.is_marked(args[0])


def under_mode(function: Call) -> Call:
    """Switch the mode on again for host code which torch calls while it handles a call."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        depth = torch._C._len_torch_function_stack()
        modes = (torch._C._get_function_stack_at(index) for index in range(depth))
        if any(isinstance(mode, NpuOnCpu) for mode in modes):
            return function(*args, **kwargs)
        with NpuOnCpu():
            return function(*args, **kwargs)

    return wrapper


def activate() -> None:
    """Make ``npu`` a legal device which works on the CPU."""
    torch.utils.rename_privateuse1_backend("npu")
    _map_device_contexts()
    # Memory is never reused under a stream: eager work is done at once.
    torch.Tensor.record_stream = lambda self, stream: None
    torch.Tensor.npu = lambda self, *args, **kwargs: self.to("npu")
    torch.Tensor.is_npu = property(lambda self: self.device.type == "npu")
    torch.nn.Module.npu = lambda self, *args, **kwargs: self.to("npu")
    _enter_in_new_threads()
    NpuOnCpu().__enter__()


def _map_device_contexts() -> None:
    # ``with torch.device("npu")`` may sit above or below the mode on the stack of torch.
    original = DeviceContext.__init__

    def init(self: Any, device: Any) -> None:
        original(self, _OF_MARKED if is_npu(torch.device(device)) else device)

    DeviceContext.__init__ = init


def _enter_in_new_threads() -> None:
    # Torch keeps modes by thread.
    original = threading.Thread.start

    def start(self: threading.Thread) -> None:
        self.run = under_mode(self.run)  # type: ignore[method-assign]
        original(self)

    threading.Thread.start = start  # type: ignore[method-assign]
