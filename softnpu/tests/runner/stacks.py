"""What the rig must do otherwise from one release of the stack to the next."""

from __future__ import annotations

from typing import Any

from vllm.v1.attention.backends import utils


def resolve_cache_layout(config: Any, worker: Any) -> None:
    """Settle the layout of the KV cache, as the engine does before it profiles the memory."""
    resolve = getattr(utils, "resolve_kv_cache_layout", None)
    if resolve is not None:
        specs = list(worker.get_kv_cache_spec().values())
        layout = resolve(config, [worker.get_supported_kv_cache_layouts()], specs)
        worker.set_kv_cache_layout(layout.name)


def graphs_update_themselves(runner: Any) -> bool:
    """Say whether a replay brings its update of the attention's arguments."""
    return hasattr(runner.model, "set_attn_backend")


def name_backend(runner: Any) -> None:
    """Tell graphs which update themselves for which backend: the runner of vllm-omni does not."""
    if graphs_update_themselves(runner):
        runner.model.set_attn_backend(runner.attn_backend)


def sampling_options(talker: Any) -> dict[str, Any]:
    """Return what makes requests end: a row of two to sample from, or the codes themselves."""
    if hasattr(talker, "_penalty_histories"):
        return {"stop_token_ids": [talker._codec_eos_id], "max_tokens": 60}
    return {"stop_token_ids": [1], "max_tokens": 200}
