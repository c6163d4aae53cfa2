"""All three stages in miniature: a deploy YAML, and a program that speaks through ``Omni``.

The stages run in processes of their own, as vllm-omni starts them. See `stand_ins` for the two
parts that are not real.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from kstep_shim.catalog import installed_head
from kstep_shim.declaration import Head
from kstep_shim.demo.head import installed_options
from kstep_shim.demo.stage import ENVIRONMENT

PROMPTS = ("w5 w6 w7 w8", "w20 w21 w22", "w90 w33")
START_TIMEOUT_S = 500
_ROOM = {
    "max_num_seqs": 4,
    "max_model_len": 1024,
    "max_num_batched_tokens": 1024,
    "gpu_memory_utilization": 0.15,
    "kv_cache_memory_bytes": 64 << 20,
    "enforce_eager": True,
    "devices": "0",
}
_NO_MEDIA = {"limit_mm_per_prompt": {"image": 0, "audio": 0, "video": 0}}
_GREEDY = {"temperature": 0.0, "top_p": 1.0, "top_k": -1}


def vocabularies() -> dict[str, int]:
    """Sizes for `write_checkpoint` that the installed pipeline can serve.

    With a codec head it names the ends of its stages by the released model's ids, and vLLM refuses
    an id that a stage does not have.
    """
    if installed_head() is Head.STOP_ROW:
        return {"vocabulary": 128, "codes": 64}
    return {"vocabulary": 151_705, "codes": 6_562}


def deployment(**talker: Any) -> dict[str, Any]:
    """A deploy YAML for the miniature; keywords go into stage 1's entry."""
    return {
        "pipeline": "minicpmo_4_5",
        "async_chunk": True,
        "trust_remote_code": True,
        "enable_prefix_caching": False,
        "dtype": "float32",
        "connectors": {
            "shared_memory": {
                "name": "SharedMemoryConnector",
                "extra": {
                    "connector_get_sleep_s": 0.01,
                    "connector_get_max_wait_first_chunk": 3000,
                    "connector_get_max_wait": 300,
                    "codec_chunk_frames": 25,
                    "codec_left_context_frames": 3,
                },
            }
        },
        "stages": [
            {
                "stage_id": 0,
                **_ROOM,
                **_NO_MEDIA,
                "default_sampling_params": {
                    **_GREEDY, "max_tokens": 12, "min_tokens": 6, "seed": 42, "detokenize": True,
                },
            },
            {
                "stage_id": 1,
                **_ROOM,
                **_NO_MEDIA,
                "output_connectors": {"to_stage_2": "shared_memory"},
                "default_sampling_params": {
                    **installed_options(vocabularies()["codes"]),
                    "min_tokens": 6, "max_tokens": 2048, "detokenize": False,
                },
                **talker,
            },
            {
                "stage_id": 2,
                **_ROOM,
                "max_model_len": 4096,
                "max_num_batched_tokens": 4096,
                "enable_chunked_prefill": False,
                "async_scheduling": False,
                "input_connectors": {"from_stage_1": "shared_memory"},
                "default_sampling_params": {**_GREEDY, "max_tokens": 65536, "detokenize": True},
            },
        ],
    }  # fmt: skip


def prepare_pipeline_environment() -> None:
    """Set what the stages' processes need; what the environment says already wins."""
    for name, value in {**ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}.items():
        os.environ.setdefault(name, value)


def speak(checkpoint: Path, deploy: Path, prompts: tuple[str, ...] = PROMPTS) -> dict[str, Any]:
    """Bring the pipeline up, answer every prompt, take it down: text ids and audio by prompt."""
    import torch
    from vllm_omni.entrypoints.omni import Omni

    omni = Omni(
        model=str(checkpoint),
        deploy_config=str(deploy),
        trust_remote_code=True,
        stage_init_timeout=START_TIMEOUT_S,
        init_timeout=START_TIMEOUT_S,
    )
    try:
        spoken: dict[str, Any] = {prompt: {"tokens": [], "audio": None} for prompt in prompts}
        for output in omni.generate([{"prompt": prompt} for prompt in prompts]):
            # vllm-omni names a request by its place and a random part.
            name = prompts[int(output.request_id.partition("_")[0])]
            answer = getattr(output, "request_output", None) or output
            for completion in getattr(answer, "outputs", None) or ():
                if output.final_output_type == "text":
                    spoken[name]["tokens"] = list(completion.token_ids)
            audio = _audio(output)
            if audio is not None:
                spoken[name]["audio"] = audio.clone()
    finally:
        omni.close()
    assert all(torch.is_tensor(one["audio"]) for one in spoken.values()), "a prompt got no audio"
    return spoken


def _audio(output: Any) -> Any:
    import torch

    found = getattr(output, "multimodal_output", None)
    if found is None:
        return None
    parts = {**getattr(found, "tensors", {}), **getattr(found, "metadata", {})}
    audio = parts.get("audio", parts.get("model_outputs"))
    if isinstance(audio, list):
        audio = torch.cat([part.reshape(-1) for part in audio])
    return audio


def main() -> int:
    """Speak the standard prompts and save what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("deploy", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--install", type=int, metavar="K", help="call kstep_shim.install")
    options = parser.parse_args()
    prepare_pipeline_environment()
    import torch  # (first: it loads the soft NPU through its entry point)

    if options.install is not None:
        import kstep_shim

        kstep_shim.install(frames=options.install)
    torch.save(speak(options.checkpoint, options.deploy), options.result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
