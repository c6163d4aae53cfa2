"""Bring up one Talker stage in this process: engine arguments, engine core, random weights."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstep_shim.demo.scenario import GraphMode, StageShape

if TYPE_CHECKING:
    from vllm.v1.engine.core import EngineCore

TINY = Path(__file__).parent / "tiny"
WEIGHT_SEED = 1234
PROCESSORS = "vllm_omni.model_executor.stage_input_processors.minicpmo_4_5_omni"

#: What a process needs before torch is imported. One engine per process, no network, no disk cache
#: (a compile cache would be shared between runs that must not know of each other).
ENVIRONMENT = {
    "SOFTNPU": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "VLLM_USE_AOT_COMPILE": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "TOKENIZERS_PARALLELISM": "false",
}


def prepare_environment(extra: dict[str, str] | None = None) -> None:
    """Set `ENVIRONMENT` in this process; what the caller's environment already says wins."""
    for name, value in {**ENVIRONMENT, **(extra or {})}.items():
        os.environ.setdefault(name, value)


def model_directory(layers: int, codes: int) -> Path:
    """Directory of the miniature checkpoint with that many Talker layers and codes."""
    config = json.loads((TINY / "config.json").read_text())
    wanted = {"num_hidden_layers": layers, "num_audio_tokens": codes}
    if wanted.items() <= config["tts_config"].items():
        return TINY
    directory = Path(tempfile.mkdtemp(prefix="kstep-tiny-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shutil.copytree(TINY, directory, dirs_exist_ok=True)
    config["tts_config"].update(wanted)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def speculative_config(frames: int) -> dict[str, Any]:
    """What a deploy YAML says on stage 1 to ask for `frames` frames per step."""
    return {
        "method": "ngram",
        "num_speculative_tokens": frames - 1,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 1,
    }


def capture_sizes(shape: StageShape) -> list[int]:
    """Graph sizes: every row count, and every row count times K."""
    if shape.capture_sizes:
        return list(shape.capture_sizes)
    rows = range(1, shape.max_num_seqs + 1)
    return sorted({count * shape.frames for count in rows} | set(rows))


def engine_arguments(shape: StageShape) -> dict[str, Any]:
    """Keyword arguments for ``OmniEngineArgs``, as the stage's deploy entry would resolve them."""
    arguments: dict[str, Any] = {
        "model": str(model_directory(shape.layers, shape.codes)),
        "trust_remote_code": True,
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "seed": 0,
        "stage_id": 1,
        "model_stage": "tts",
        "model_arch": "MiniCPMO45OmniForConditionalGeneration",
        "worker_type": "ar",
        "engine_output_type": "latent",
        "hf_config_name": "tts_config",
        "dtype": shape.dtype,
        "max_model_len": shape.max_model_len,
        "max_num_seqs": shape.max_num_seqs,
        "max_num_batched_tokens": shape.max_num_batched_tokens,
        "enforce_eager": shape.mode is GraphMode.EAGER,
        "enable_prefix_caching": False,
        "kv_cache_memory_bytes": 64 << 20,
        "gpu_memory_utilization": 0.15,
        "disable_hybrid_kv_cache_manager": False,
        "async_scheduling": False,
        "scheduler_cls": "vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler",
        "limit_mm_per_prompt": {"image": 0, "video": 0, "audio": 0},
        "async_chunk": True,
        "custom_process_next_stage_input_func": f"{PROCESSORS}.tts2code2wav_async_chunk",
        "stage_connector_spec": {
            "name": "SharedMemoryConnector",
            "extra": {
                "role": "sender",
                "codec_chunk_frames": shape.chunk_frames,
                "codec_left_context_frames": 3,
            },
        },
        # Fusion passes need compiled device kernels, which the soft NPU does not have.
        "additional_config": {
            "ascend_compilation_config": {
                "fuse_norm_quant": False,
                "fuse_qknorm_rope": False,
                "fuse_muls_add": False,
            }
        },
    }
    if shape.mode is not GraphMode.EAGER:
        arguments["compilation_config"] = {
            "mode": 3,
            "cudagraph_mode": shape.mode.name,
            "cudagraph_capture_sizes": capture_sizes(shape),
        }
    if shape.frames > 1 and not shape.shim:
        arguments["speculative_config"] = speculative_config(shape.frames)
    arguments.update(shape.engine_args)
    return arguments


def randomise_weights(engine: EngineCore, head_scale: float = 1.0) -> None:
    """Give the Talker reproducible random weights, in place so that captured graphs see them.

    `head_scale` widens the codec head's: with the real vocabulary flat logits would leave penalty,
    top-p and top-k nothing to decide.
    """
    import torch

    generator = torch.Generator().manual_seed(WEIGHT_SEED)
    with torch.no_grad():
        for name, parameter in sorted(talker_wrapper(engine).named_parameters()):
            if parameter.ndim > 1:
                scale = 1.0 if "emb" in name else parameter.shape[-1] ** -0.5
                scale *= head_scale if "head_code" in name else 1.0
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            else:
                parameter.fill_(1.0 if "norm" in name else 0.0)


def model_runner(engine: EngineCore) -> Any:
    """The model runner of the engine's only worker."""
    return engine.model_executor.driver_worker.worker.model_runner


def talker_wrapper(engine: EngineCore) -> Any:
    """The stage's model, unwrapped from graph wrappers."""
    return model_runner(engine).get_model()


def bring_up(shape: StageShape) -> EngineCore:
    """Build the engine core with its worker in this process. One per process: vLLM is global."""
    prepare_environment()
    if shape.shim:
        import kstep_shim

        kstep_shim.install(frames=shape.frames)
    return start_engine(engine_arguments(shape))


def start_engine(arguments: dict[str, Any], head_scale: float = 1.0) -> EngineCore:
    """Build the engine core from keyword arguments for ``OmniEngineArgs``, with random weights."""
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.uniproc_executor import UniProcExecutor
    from vllm_omni.engine.arg_utils import OmniEngineArgs

    config = OmniEngineArgs(**arguments).create_engine_config()
    engine = EngineCore(config, UniProcExecutor, log_stats=False)
    randomise_weights(engine, head_scale)
    return engine
