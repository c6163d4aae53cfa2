"""The real runner with a tiny Talker of random weights, driven step by step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.sampling_params import SamplingParams
from vllm.utils.import_utils import resolve_obj_by_qualname
from vllm.utils.network_utils import get_distributed_init_method, get_open_port
from vllm.v1.core.kv_cache_utils import (
    generate_scheduler_kv_cache_config,
    get_kv_cache_configs,
)
from vllm.v1.structured_output import StructuredOutputManager
from vllm_omni.core.sched.omni_ar_scheduler import OmniARScheduler
from vllm_omni.engine.arg_utils import OmniEngineArgs
from vllm_omni.request import OmniRequest

from runner import stacks

_MODEL = Path(__file__).parent / "tiny"
_MAX_STEPS = 120


def make_config(cudagraph_mode: str | None) -> Any:
    """Return the configuration of the Talker's stage, eager if no graph mode is given."""
    options: dict[str, Any] = {}
    if cudagraph_mode:
        options["compilation_config"] = {
            "mode": 3,
            "cudagraph_mode": cudagraph_mode,
            "cudagraph_capture_sizes": [1, 2, 3, 4],
        }
    return OmniEngineArgs(
        model=str(_MODEL),
        trust_remote_code=True,
        skip_tokenizer_init=True,
        load_format="dummy",
        seed=0,
        stage_id=1,
        model_stage="tts",
        model_arch="MiniCPMO45OmniForConditionalGeneration",
        worker_type="ar",
        engine_output_type="latent",
        hf_config_name="tts_config",
        dtype="float32",
        max_model_len=256,
        max_num_seqs=4,
        max_num_batched_tokens=256,
        enforce_eager=cudagraph_mode is None,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=16 << 20,
        gpu_memory_utilization=0.15,
        disable_hybrid_kv_cache_manager=False,
        async_scheduling=False,
        limit_mm_per_prompt={"image": 0, "video": 0, "audio": 0},
        additional_config={
            "ascend_compilation_config": {
                "fuse_norm_quant": False,
                "fuse_qknorm_rope": False,
                "fuse_muls_add": False,
            }
        },
        **options,
    ).create_engine_config()


class Rig:
    """A worker with its scheduler."""

    def __init__(self, cudagraph_mode: str | None = None, temperature: float = 0.0) -> None:
        self.temperature = temperature
        self.config = make_config(cudagraph_mode)
        with set_current_vllm_config(self.config):
            self.worker = self._make_worker()
            self._set_weights()
            kv_cache = self._make_kv_cache()
            self.scheduler = OmniARScheduler(
                vllm_config=self.config,
                kv_cache_config=kv_cache,
                structured_output_manager=StructuredOutputManager(self.config),
                block_size=self.config.cache_config.block_size,
                log_stats=False,
                include_finished_set=False,
            )
        self.runner = self.worker.model_runner
        self.codes: dict[str, list[int]] = {}
        self.hidden: dict[str, list[torch.Tensor]] = {}
        self.finished: dict[str, str] = {}
        self.steps = 0

    def _make_worker(self) -> Any:
        worker_class = resolve_obj_by_qualname(self.config.parallel_config.worker_cls)
        worker = worker_class(
            vllm_config=self.config,
            local_rank=0,
            rank=0,
            distributed_init_method=get_distributed_init_method("127.0.0.1", get_open_port()),
            is_driver_worker=True,
        )
        worker.init_device()
        worker.load_model()
        stacks.name_backend(worker.model_runner)
        return worker

    def _set_weights(self) -> None:
        generator = torch.Generator().manual_seed(1234)
        with torch.no_grad():
            for name, weight in sorted(self.worker.model_runner.get_model().named_parameters()):
                if weight.ndim > 1:
                    scale = 1.0 if "emb" in name else weight.shape[-1] ** -0.5
                    weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
                else:
                    weight.fill_(1.0 if "norm" in name else 0.0)

    def _make_kv_cache(self) -> Any:
        stacks.resolve_cache_layout(self.config, self.worker)
        available = self.worker.determine_available_memory()
        configs = get_kv_cache_configs(self.config, [self.worker.get_kv_cache_spec()], [available])
        for_scheduler = generate_scheduler_kv_cache_config(configs)
        self.config.cache_config.num_gpu_blocks = for_scheduler.num_blocks
        self.worker.initialize_from_config(configs[0])
        self.worker.compile_or_warm_up_model()
        return for_scheduler

    def add_request(self, index: int) -> None:
        """Add a request whose prompt depends on ``index`` only."""
        name = f"r{index}"
        generator = torch.Generator().manual_seed(100 + index)
        length = 3 + index
        sampling = SamplingParams(
            temperature=self.temperature, min_tokens=6, seed=42, detokenize=False,
            **stacks.sampling_options(self.runner.get_model().talker),
        )  # fmt: skip
        buffer = {
            "ids": {"tts": torch.randint(0, 100, (length,), generator=generator)},
            "hidden_states": {"tts": torch.randn(length, 32, generator=generator)},
            "request_id": name,
            "global_request_id": [name],
        }
        self.scheduler.add_request(
            OmniRequest(
                request_id=name,
                prompt_token_ids=[0] * (length + 2),
                sampling_params=sampling,
                pooling_params=None,
                model_intermediate_buffer=buffer,
            )
        )
        self.codes[name], self.hidden[name] = [], []

    def step(self) -> None:
        """Run one step of the engine and note its codes and hidden states."""
        scheduled = self.scheduler.schedule()
        out = self.worker.execute_model(scheduled)
        if out is None:
            out = self.worker.sample_tokens(None)
        payloads = getattr(out, "multimodal_outputs", None) or []
        for name, payload in zip(out.req_ids, payloads, strict=True):
            self.hidden[name].append(payload["hidden"].clone())
            codes = payload.get("codes.audio")
            if codes is not None:
                self.codes[name] += codes.flatten().tolist()
        for outputs in self.scheduler.update_from_output(scheduled, out).values():
            for output in outputs.outputs:
                if output.finish_reason is not None:
                    self.finished[output.request_id] = str(output.finish_reason)
        self.steps += 1

    def run(self, requests: int = 3, max_steps: int = _MAX_STEPS) -> None:
        """Add one request every other step and run until all are done."""
        pending = list(range(requests))
        while (pending or self.scheduler.has_requests()) and self.steps < max_steps:
            if pending and self.steps % 2 == 0:
                self.add_request(pending.pop(0))
            self.step()

    def result(self) -> dict[str, Any]:
        """Return what the requests got."""
        return {
            "codes": self.codes,
            "hidden": {name: torch.cat(rows) for name, rows in self.hidden.items() if rows},
            "finished": self.finished,
            "steps": self.steps,
        }


def prefer_enpu() -> None:
    """Let the runner update the arguments of attention before each replay."""
    os.environ["ENPU_ENABLE"] = "true"
