"""Process groups: hccl is gloo here."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d


def _backend(name: Any) -> Any:
    return "gloo" if isinstance(name, str) and "hccl" in name else name


def activate() -> None:
    """Map the backend hccl, whose options and device gloo does not take, to gloo."""
    original_init = dist.init_process_group
    original_new = dist.new_group

    def init_process_group(backend: Any = None, *args: Any, **options: Any) -> None:
        options.pop("pg_options", None)
        options.pop("device_id", None)
        original_init(_backend(backend), *args, **options)

    def new_group(
        ranks: Any = None,
        timeout: Any = None,
        backend: Any = None,
        pg_options: Any = None,
        **options: Any,
    ) -> Any:
        options.pop("device_id", None)
        if timeout is not None:
            options["timeout"] = timeout
        return original_new(ranks, backend=_backend(backend), **options)

    for module in (dist, distributed_c10d):
        namespace: Any = module
        namespace.init_process_group = init_process_group
        namespace.new_group = new_group
        namespace.is_hccl_available = lambda: True
