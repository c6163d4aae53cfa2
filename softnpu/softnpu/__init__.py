"""A stand-in for ``torch_npu`` on CPU.

``import torch`` loads this package through the ``torch.backends`` entry point. Unless the
environment says ``SOFTNPU=1`` it leaves torch untouched. Once active, ``torch.npu``,
``torch_npu`` and ``acl`` exist, the device type ``npu`` is legal and its work runs on the CPU.

The modules which need torch are imported inside the functions, so that the inactive package costs
nothing and may be imported before torch.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from softnpu import counters, settings
from softnpu.errors import HostReadError

if TYPE_CHECKING:
    from softnpu.graph import NPUGraph

__all__ = [
    "HostReadError",
    "is_active",
    "kernel_calls",
    "live_graphs",
    "missing_calls",
    "no_host",
    "no_reads",
    "set_device_name",
]
__version__ = "0.1.0"


def _autoload() -> None:
    """Entry point of the group ``torch.backends``; torch calls it at the end of its import."""
    if settings.wanted():
        from softnpu import activation

        activation.activate()


def is_active() -> bool:
    """Say whether torch in this process has been given the stand-in."""
    return settings.active


def missing_calls() -> dict[str, int]:
    """Return how often each unimplemented thing was called, by name."""
    return dict(counters.missing)


def kernel_calls() -> dict[str, int]:
    """Return how often each kernel ran, plus ``graph.capture`` and ``NPUGraph.replay``.

    Kernels which a replay runs are not counted: no host code issued them.
    """
    return dict(counters.kernels)


def live_graphs() -> list[NPUGraph]:
    """Return the captured graphs which are still referenced somewhere."""
    from softnpu import graph

    return graph.live()


def no_host() -> AbstractContextManager[None]:
    """Return a block in which passing data between host and device raises ``HostReadError``."""
    from softnpu import barrier

    return barrier.no_host()


def no_reads() -> AbstractContextManager[None]:
    """A block in which a host read of the device raises `HostReadError`; uploads may pass."""
    from softnpu import barrier

    return barrier.no_reads()


def set_device_name(name: str) -> None:
    """Set the name which the device reports, such as ``Ascend910B3``."""
    settings.device_name = name
