"""A Talker stage to be timed: of the real shape on a GPU, in miniature on the soft NPU."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstep_shim.demo.drive import speech_request
from kstep_shim.demo.scenario import StageShape
from kstep_shim.demo.stage import engine_arguments, prepare_environment, start_engine

_WORDS = 20
#: With a vocoder behind it the stage keeps the codes from its client, who compares them here.
_HAND_OVER = ("async_chunk", "custom_process_next_stage_input_func", "stage_connector_spec")


@dataclass(frozen=True)
class BenchJob:
    """What one process of a bench is asked for.

    Attributes
    ----------
    frames_per_step : int
        K; 1 runs without the shim.
    batches : tuple of int
        Streams spoken at once, one measurement each.
    frames : int
        Frames of each stream.
    rounds : int
        Times each batch is spoken; the last one counts.
    model : str or None
        Directory of the Talker's configuration on a GPU; None is the miniature on the soft NPU.
    engine_args : dict
        Further keyword arguments for ``OmniEngineArgs``.
    """

    frames_per_step: int
    batches: tuple[int, ...]
    frames: int
    rounds: int = 2
    model: str | None = None
    engine_args: dict[str, Any] = field(default_factory=dict)


def start(job: BenchJob) -> Any:
    """Bring the stage up in this process, with reproducible weights whose logits decide."""
    rows = max(job.batches)
    shape = StageShape(
        frames=job.frames_per_step,
        shim=job.frames_per_step > 1,
        max_num_seqs=rows,
        max_num_batched_tokens=max(1024, rows * job.frames_per_step),
    )
    arguments = engine_arguments(shape)
    for name in _HAND_OVER:
        del arguments[name]
    if job.model is None:
        prepare_environment()
        import torch  # noqa: F401  (first: it loads the soft NPU through its entry point)
    else:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        arguments = _on_gpu(arguments, Path(job.model))
    arguments.update(job.engine_args)
    if shape.shim:
        import kstep_shim

        kstep_shim.install(frames=shape.frames)
    return start_engine(arguments, head_scale=4.0)


def _on_gpu(arguments: dict[str, Any], model: Path) -> dict[str, Any]:
    """The same stage of the real shape, with the stack's own graphs."""
    for name in ("additional_config", "compilation_config"):
        arguments.pop(name, None)
    return {
        **arguments,
        "model": str(model),
        "dtype": "bfloat16",
        "max_model_len": 4096,
        "max_num_batched_tokens": 8192,
        "kv_cache_memory_bytes": 2048 << 20,
        "enforce_eager": False,
    }


def request(name: str, index: int, frames: int, width: int) -> Any:
    """A request for `frames` frames; `width` is that of the Talker's hidden states."""
    options = {"temperature": 0.0, "min_tokens": 0, "max_tokens": frames, "stop_token_ids": [1]}
    return speech_request(name, _WORDS, 100 + index, options, width)
