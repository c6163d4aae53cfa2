"""Code in which nothing may pass between the host and the device."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from softnpu import library, marks, traffic
from softnpu.errors import HostReadError


class _Forbidden(threading.local):
    reads: str | None = None
    uploads: str | None = None


_forbidden = _Forbidden()


@contextmanager
def no_host() -> Iterator[None]:
    """Raise :class:`~softnpu.HostReadError` where data would pass between the host and the device.

    The block concerns the thread which enters it.
    """
    where = "inside of no_host()"
    with forbidding(reads=where, uploads=where), _Watch():
        yield


@contextmanager
def no_reads() -> Iterator[None]:
    """As `no_host`, but data may go to the device: an upload does not wait for it."""
    with forbidding(reads="inside of no_reads()"), _Watch():
        yield


@contextmanager
def forbidding(reads: str | None = None, uploads: str | None = None) -> Iterator[None]:
    """Forbid what is given a reason and allow the rest."""
    before = _forbidden.reads, _forbidden.uploads
    _forbidden.reads, _forbidden.uploads = reads, uploads
    try:
        yield
    finally:
        _forbidden.reads, _forbidden.uploads = before


@contextmanager
def device_work() -> Iterator[None]:
    """Let the device's own work, which is Python code here, neither be seen nor checked."""
    with torch._C.DisableTorchFunction(), forbidding():
        yield


def check(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], target: str | None) -> None:
    """Raise if the call passes data; ``target`` is the device which it names, if any."""
    if _forbidden.reads and traffic.is_read(name, args, kwargs, target):
        raise HostReadError(f"softnpu: {name} reads the device on the host {_forbidden.reads}")
    if _forbidden.uploads and traffic.is_upload(name, args, kwargs, target):
        raise HostReadError(f"softnpu: {name} copies to the device {_forbidden.uploads}")


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Sees the ops which composite ops and compiled code issue."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Do not keep dynamo from compiling; compiled code still shows its ops when it runs."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not _forbidden.reads:
            return func(*args, **kwargs)
        name: str = func._schema.name
        if name in library.python_ops:
            with self:
                return library.python_ops[name](*args, **kwargs)
        with forbidding(reads=_forbidden.reads):
            # Without uploads: torch turns numbers into tensors below the calls of Python.
            check(name.partition("::")[2], args, kwargs, None)
        out = func(*args, **kwargs)
        marks.spread(args, kwargs, marks.tensors_near((out,)))
        return out
