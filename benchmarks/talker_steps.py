"""Time per frame of a real-shaped Talker at several K, and the codec ids of every stream.

Each K has a process of its own: an engine core with its worker, random weights, no vocoder stage.
Writes a JSON file per K with, per batch size, milliseconds per frame and the ids of every stream;
`compare.py` sets such files side by side. Needs a CUDA device (or the soft NPU, for a dry run).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

import torch

SYNCHRONOUS = "vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler"


def engine(arguments: argparse.Namespace) -> Any:
    """An engine core over the model directory, with reproducible weights whose logits decide."""
    if arguments.k > 1:
        import kstep_shim

        kstep_shim.install(frames=arguments.k)
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.uniproc_executor import UniProcExecutor
    from vllm_omni.engine.arg_utils import OmniEngineArgs

    config = OmniEngineArgs(
        model=str(arguments.model),
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
        dtype=arguments.dtype,
        max_model_len=arguments.max_model_len,
        max_num_seqs=8,
        max_num_batched_tokens=8192,
        enforce_eager=arguments.eager,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=arguments.kv_mib << 20,
        gpu_memory_utilization=0.15,
        async_scheduling=False,
        scheduler_cls=SYNCHRONOUS,
        disable_hybrid_kv_cache_manager=False,
        limit_mm_per_prompt={"image": 0, "video": 0, "audio": 0},
    ).create_engine_config()
    core = EngineCore(config, UniProcExecutor, log_stats=False)
    runner = core.model_executor.driver_worker.worker.model_runner
    generator = torch.Generator().manual_seed(1234)
    with torch.no_grad():
        for name, parameter in sorted(runner.get_model().named_parameters()):
            if parameter.ndim > 1:
                scale = 1.0 if "emb" in name else parameter.shape[-1] ** -0.5
                scale *= 4.0 if "head_code" in name else 1.0
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            else:
                parameter.fill_(1.0 if "norm" in name else 0.0)
    return core


def request(name: str, index: int, frames: int, hidden: int) -> Any:
    """A request that speaks exactly `frames` frames."""
    from vllm.sampling_params import SamplingParams
    from vllm_omni.request import OmniRequest

    generator = torch.Generator().manual_seed(100 + index)
    words = 20
    ids = torch.randint(0, 100, (words,), generator=generator)
    states = torch.randn(words, hidden, generator=generator)
    sampling = SamplingParams(
        temperature=0.0, min_tokens=0, max_tokens=frames, stop_token_ids=[1], detokenize=False
    )
    return OmniRequest(
        request_id=name,
        prompt_token_ids=[0] * (words + 2),
        sampling_params=sampling,
        pooling_params=None,
        model_intermediate_buffer={
            "ids": {"tts": ids},
            "hidden_states": {"tts": states},
            "request_id": name,
            "global_request_id": [name],
        },
    )


def serve(core: Any, batch: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Speak `batch` streams at once; times count steps in which all of them decode."""
    runner = core.model_executor.driver_worker.worker.model_runner
    hidden = int(runner.get_model().config.hidden_size)
    names = [f"b{batch}-{index}" for index in range(batch)]
    codes: dict[str, list[int]] = {name: [] for name in names}
    first: dict[str, float] = {}
    for index, name in enumerate(names):
        core.add_request(request(name, index, arguments.frames, hidden))
    started = time.perf_counter()
    steps: list[tuple[float, int]] = []
    while core.scheduler.has_requests():
        begin = time.perf_counter()
        outputs, executed = core.step_fn()
        core.post_step(executed)
        seconds = time.perf_counter() - begin
        counts = []
        for one in (outputs or {}).values():
            for output in one.outputs:
                delta = (output.multimodal_output or {}).get("codes.audio")
                if delta is not None and output.request_id in codes:
                    codes[output.request_id] += delta.flatten().tolist()
                    if len(codes[output.request_id]) >= 25:
                        first.setdefault(output.request_id, time.perf_counter() - started)
                counts.append(len(output.new_token_ids))
        if len(counts) == batch and min(counts) == max(counts) > 0:
            steps.append((seconds, counts[0]))
    steady = steps[len(steps) // 4 :]
    full = [seconds for seconds, count in steady if count == max(c for _, c in steady)]
    return {
        "ms_per_frame": 1e3 * sum(s for s, _ in steady) / max(1, sum(c for _, c in steady)),
        "step_ms_median": 1e3 * statistics.median(full),
        "step_ms_max": 1e3 * max(full),
        "first_25_frames_ms": 1e3 * max(first.values(), default=0.0),
        "steps": len(steps),
        "codes": codes,
    }


@torch.inference_mode()
def device_times(core: Any, batch: int, frames: int) -> dict[str, float]:
    """Milliseconds of the device for each captured part of a frame, each replayed on its own."""
    runner = core.model_executor.driver_worker.worker.model_runner
    entries = getattr(runner.model, "concrete_cudagraph_entries", {})
    kernel = getattr(getattr(runner, "_kstep_shim_tail", None), "_kernel", None)
    parts = {
        f"replay of {d.num_tokens // d.num_reqs}": entry.cudagraph
        for d, entry in entries.items()
        if d.uniform and d.num_reqs == batch and d.num_tokens in (batch, batch * frames)
    }
    graphs = kernel._graphs.get(batch) if kernel is not None else None
    parts.update(graphs._asdict() if graphs is not None else {})
    found = {}
    for name, graph in parts.items():
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if graphs is not None:
            kernel._table.frame.zero_()
        begin.record()
        for _ in range(frames if name == "settle" else 100):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        found[name] = begin.elapsed_time(end) / (frames if name == "settle" else 100)
    return found


def main() -> None:
    """Run every K, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("-k", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--batches", default="1,4,8")
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=2, help="the last one is reported")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--kv-mib", type=int, default=2048)
    parser.add_argument("--eager", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    counts = arguments.k
    for arguments.k in counts:
        child = multiprocessing.get_context("spawn").Process(target=run, args=(arguments,))
        child.start()
        child.join()
        if child.exitcode:
            raise SystemExit(f"K={arguments.k} ended with {child.exitcode}")


def run(arguments: argparse.Namespace) -> None:
    """Run one K and write its file."""
    core = engine(arguments)
    result: dict[str, Any] = {"k": arguments.k, "frames": arguments.frames, "batches": {}}
    for batch in map(int, arguments.batches.split(",")):
        for _ in range(arguments.rounds):
            facts = serve(core, batch, arguments)
        if torch.cuda.is_available():
            facts["device_ms"] = device_times(core, batch, arguments.k)
        result["batches"][str(batch)] = facts
    if arguments.k > 1:
        import kstep_shim

        result["counters"] = dict(kstep_shim.status().counters)
        print(result["counters"])
    (arguments.out / f"k{arguments.k}.json").write_text(json.dumps(result))
    for batch, facts in result["batches"].items():
        shown = {k: v for k, v in facts.items() if k != "codes"}
        print(f"k={arguments.k} batch={batch}", shown, flush=True)


if __name__ == "__main__":
    main()
