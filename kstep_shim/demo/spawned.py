"""Stage 1 in vllm-omni's own spawned process, spoken to over its sockets.

The launcher process makes the engine configuration, as vllm-omni's head does; whatever arms the
stage must reach the spawned process by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstep_shim.demo.drive import build_request
from kstep_shim.demo.head import installed_options
from kstep_shim.demo.scenario import RequestSpec, StageShape
from kstep_shim.demo.stage import engine_arguments, prepare_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

SYNCHRONOUS = "vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler"
ANSWER_TIMEOUT_S = 120.0


@dataclass
class Spoken:
    """What the client of the stage received for one request."""

    codes: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | None = None


def stage_arguments(
    shape: StageShape, checkpoint: Path, executor: str | None = None
) -> dict[str, Any]:
    """Engine arguments of a stage that answers its client instead of a vocoder stage."""
    arguments = engine_arguments(shape)
    for name in ("custom_process_next_stage_input_func", "stage_connector_spec"):
        del arguments[name]
    arguments |= {
        "model": str(checkpoint),
        "load_format": "safetensors",
        "async_chunk": False,
        "scheduler_cls": SYNCHRONOUS,
    }
    if executor is not None:
        arguments["distributed_executor_backend"] = executor
    return arguments


class SpawnedStage:
    """A stage process and its client; one per process of ours."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        from vllm.v1.executor import Executor
        from vllm_omni.engine.arg_utils import OmniEngineArgs
        from vllm_omni.engine.stage_engine_startup import launch_stage_replica
        from vllm_omni.engine.stage_init_utils import prepare_engine_environment

        prepare_engine_environment()
        self._config = OmniEngineArgs(**arguments).create_engine_config()
        self._executor = Executor.get_class(self._config)
        with launch_stage_replica(
            vllm_config=self._config, executor_class=self._executor, log_stats=False, stage_id=1
        ) as resources:
            pass
        self._resources = resources

    @property
    def processes(self) -> list[Any]:
        """The engine processes, as `multiprocessing` knows them."""
        return list(self._resources.manager.processes)

    def serve(self, requests: Sequence[RequestSpec]) -> dict[str, Spoken]:
        """Serve `requests` together to their end, then shut the stage down."""
        return asyncio.run(self._serve(requests))

    async def _serve(self, requests: Sequence[RequestSpec]) -> dict[str, Spoken]:
        client = self.connect()
        try:
            for request in requests:
                await client.add_request_async(engine_request(request))
            spoken = {request.request_id: Spoken() for request in requests}
            while any(one.finish_reason is None for one in spoken.values()):
                batch = await asyncio.wait_for(client.get_output_async(), ANSWER_TIMEOUT_S)
                for output in batch.outputs:
                    _collect(spoken[output.request_id], output)
            return spoken
        finally:
            client.shutdown()

    def connect(self) -> Any:
        """Return vllm-omni's client of the stage; it needs a running event loop."""
        from vllm.sampling_params import SamplingParams
        from vllm_omni.engine.stage_engine_core_client import StageEngineCoreClientBase
        from vllm_omni.engine.stage_init_utils import StageMetadata
        from vllm_omni.engine.stage_runtime import StageRuntime

        metadata = StageMetadata(
            stage_id=1,
            stage_type="llm",
            engine_output_type="latent",
            is_comprehension=False,
            requires_multimodal_data=False,
            engine_input_source=[0],
            final_output=False,
            final_output_type=None,
            default_sampling_params=SamplingParams(),
            custom_process_input_func=None,
            model_stage="tts",
            runtime_cfg=None,
        )
        return StageEngineCoreClientBase.make_async_mp_client(
            vllm_config=self._config,
            executor_class=self._executor,
            log_stats=False,
            metadata=metadata,
            client_addresses=StageRuntime._client_addresses_from_zmq(self._resources.addresses),
            engine_manager=self._resources.manager,
            coordinator=self._resources.coordinator,
        )


def engine_request(spec: RequestSpec) -> Any:
    """The request as it travels: tensors become lists."""
    from vllm_omni.engine import OmniEngineCoreRequest

    request = build_request(spec, installed_options())
    buffer = dict(request.model_intermediate_buffer)
    for name in ("ids", "hidden_states"):
        buffer[name] = {"tts": buffer[name]["tts"].tolist()}
    return OmniEngineCoreRequest(
        request_id=request.request_id,
        external_req_id=request.external_req_id,
        prompt_token_ids=request.prompt_token_ids,
        mm_features=None,
        sampling_params=request.sampling_params,
        pooling_params=None,
        arrival_time=time.time(),
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
        model_intermediate_buffer=buffer,
    )


def _collect(one: Spoken, output: Any) -> None:
    one.tokens.extend(output.new_token_ids)
    codes = (output.multimodal_output or {}).get("codes.audio")
    if codes is not None:
        one.codes.extend(codes.flatten().tolist())
    if output.finish_reason is not None:
        one.finish_reason = str(output.finish_reason)
        one.stop_reason = None if output.stop_reason is None else str(output.stop_reason)


def main() -> int:
    """Serve a few requests and print what was spoken as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--install", type=int, metavar="K", help="call kstep_shim.install")
    parser.add_argument("--executor", choices=("uni", "mp"))
    parser.add_argument("--requests", type=int, default=3)
    options = parser.parse_args()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    prepare_environment()
    import torch  # noqa: F401  (first: it loads the soft NPU through its entry point)

    if options.install is not None:
        import kstep_shim

        kstep_shim.install(frames=options.install)
    shape = StageShape(shim=True)
    stage = SpawnedStage(stage_arguments(shape, options.checkpoint, options.executor))
    requests = [RequestSpec(f"spoken-{i}", condition=3 + i) for i in range(options.requests)]
    spoken = stage.serve(requests)
    sys.stdout.write("\n" + json.dumps({name: asdict(one) for name, one in spoken.items()}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
