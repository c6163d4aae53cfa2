"""A Talker stage to be timed: of the real shape on a GPU, in miniature on the soft NPU."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstep_shim.demo.scenario import StageShape
from kstep_shim.demo.stage import engine_arguments, model_runner, prepare_environment

_WORDS = 20


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
    """

    frames_per_step: int
    batches: tuple[int, ...]
    frames: int
    rounds: int = 2
    model: str | None = None


def start(job: BenchJob) -> Any:
    """Bring the stage up in this process, with reproducible weights whose logits decide."""
    rows = max(job.batches)
    shape = StageShape(
        frames=job.frames_per_step,
        shim=job.frames_per_step > 1,
        max_num_seqs=rows,
        max_num_batched_tokens=max(1024, rows * job.frames_per_step),
    )
    if job.model is None:
        prepare_environment()
        import torch  # noqa: F401  (first: it loads the soft NPU through its entry point)

        arguments = engine_arguments(shape)
    else:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        arguments = _on_gpu(engine_arguments(shape), Path(job.model))
    if shape.shim:
        import kstep_shim

        kstep_shim.install(frames=shape.frames)
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.uniproc_executor import UniProcExecutor
    from vllm_omni.engine.arg_utils import OmniEngineArgs

    config = OmniEngineArgs(**arguments).create_engine_config()
    engine = EngineCore(config, UniProcExecutor, log_stats=False)
    _set_weights(engine)
    return engine


def _on_gpu(arguments: dict[str, Any], model: Path) -> dict[str, Any]:
    """The same stage of the real shape, with the stack's own graphs and no vocoder behind it."""
    for name in (
        "async_chunk",
        "custom_process_next_stage_input_func",
        "stage_connector_spec",
        "additional_config",
        "compilation_config",
    ):
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


def _set_weights(engine: Any) -> None:
    import torch

    generator = torch.Generator().manual_seed(1234)
    with torch.no_grad():
        for name, parameter in sorted(model_runner(engine).get_model().named_parameters()):
            if parameter.ndim > 1:
                scale = 1.0 if "emb" in name else parameter.shape[-1] ** -0.5
                # Flat logits would leave penalty, top-p and top-k nothing to decide.
                scale *= 4.0 if "head_code" in name else 1.0
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            else:
                parameter.fill_(1.0 if "norm" in name else 0.0)


def request(name: str, index: int, frames: int, width: int) -> Any:
    """A request for `frames` frames; `width` is that of the Talker's hidden states."""
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm_omni.request import OmniRequest

    generator = torch.Generator().manual_seed(100 + index)
    ids = torch.randint(0, 100, (_WORDS,), generator=generator)
    states = torch.randn(_WORDS, width, generator=generator)
    return OmniRequest(
        request_id=name,
        external_req_id=name,
        prompt_token_ids=[0] * (_WORDS + 2),
        sampling_params=SamplingParams(
            temperature=0.0, min_tokens=0, max_tokens=frames, stop_token_ids=[1], detokenize=False
        ),
        pooling_params=None,
        model_intermediate_buffer={
            "ids": {"tts": ids},
            "hidden_states": {"tts": states},
            "request_id": name,
            "global_request_id": [name],
        },
    )
