"""An operator's deploy YAML, resolved by vllm-omni itself, and its stage 1 cut down to size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kstep_shim.demo.scenario import RequestSpec, Scenario, StageShape
from kstep_shim.demo.stage import engine_arguments

LONGEST_CONTEXT = 4096
#: Engine arguments that name a machine, a checkpoint or its size; the miniature has its own.
OWN = frozenset(
    {"model", "tokenizer", "load_format", "dtype", "quantization", "devices", "config_format",
     "gpu_memory_utilization", "kv_cache_memory_bytes", "mm_processor_cache_gb", "model_arch",
     "trust_remote_code", "hf_config_name", "distributed_executor_backend", "profiler_config",
     "limit_mm_per_prompt", "skip_mm_profiling", "custom_process_next_stage_input_func"}
)  # fmt: skip
_SHOWN = (
    "model_stage", "scheduler", "max_num_seqs", "max_num_batched_tokens", "max_model_len",
    "enforce_eager", "compilation_config", "async_scheduling", "speculative_config",
    "enable_prefix_caching", "replicas", "connector", "sampling",
)  # fmt: skip
_ASKED_FOR = ("min_tokens", "max_tokens")
_OF_THE_REQUEST = frozenset({*_ASKED_FOR, "stop_token_ids", "detokenize"})


def resolve_stages(path: Path) -> list[dict[str, Any]]:
    """Every stage as vllm-omni resolves it on this platform, as plain values."""
    from vllm_omni.config.stage_config import load_deploy_config, merge_pipeline_deploy
    from vllm_omni.model_executor.models.minicpmo_4_5.pipeline import MINICPMO_4_5_PIPELINE

    deploy = load_deploy_config(path)
    connectors = deploy.connectors or {}
    found = []
    for stage in merge_pipeline_deploy(MINICPMO_4_5_PIPELINE, deploy):
        runtime, extras = stage.yaml_runtime, stage.yaml_extras
        outputs = (extras.get("output_connectors") or {}).values()
        found.append(
            {
                "stage_id": stage.stage_id,
                "model_stage": stage.model_stage,
                "scheduler": stage.scheduler_cls,
                "arguments": dict(stage.yaml_engine_args),
                "replicas": int(runtime.get("num_replicas") or 1),
                "connector": next((connectors[name] for name in outputs if name in connectors), {}),
                "sampling": dict(extras.get("default_sampling_params") or {}),
            }
        )
    return found


def talker_of(stages: list[dict[str, Any]]) -> dict[str, Any]:
    """The Talker's entry."""
    return next(stage for stage in stages if stage["model_stage"] == "tts")


def shown(stage: Mapping[str, Any]) -> dict[str, Any]:
    """What an operator wants to see of a stage."""
    values = {**stage["arguments"], **stage}
    return {name: values[name] for name in _SHOWN if values.get(name) not in (None, {})}


def as_head_sees(stage: Mapping[str, Any]) -> SimpleNamespace:
    """The operator's own engine arguments, as far as K depends on them."""
    defaults = {"speculative_config": None, "max_num_seqs": None, "max_num_batched_tokens": None,
                "enable_prefix_caching": None, "max_model_len": None}  # fmt: skip
    named = {
        "stage_id": stage["stage_id"],
        "model_stage": stage["model_stage"],
        "scheduler_cls": stage["scheduler"],
        "stage_connector_spec": stage["connector"],
    }
    return SimpleNamespace(**{**defaults, **stage["arguments"], **named})


def miniature_arguments(stage: Mapping[str, Any], *, baseline: bool) -> dict[str, Any]:
    """Engine arguments of the miniature: the operator's, except for what `OWN` names.

    The baseline is K=1 on the stock stack with synchronous scheduling. vllm-omni leaves out what
    its engine arguments have no field for, too.
    """
    from vllm_omni.engine.arg_utils import OmniEngineArgs

    made = engine_arguments(StageShape(shim=True))
    wanted = {field.name for field in fields(OmniEngineArgs)} - OWN
    operators = {k: v for k, v in stage["arguments"].items() if k in wanted and v is not None}
    additional = {**(operators.pop("additional_config", None) or {}), **made["additional_config"]}
    extra = dict((stage["connector"] or {}).get("extra") or {})
    connector = {"name": "SharedMemoryConnector", "extra": {**extra, "role": "sender"}}
    made |= operators | {"additional_config": additional, "async_chunk": True}
    made["scheduler_cls"] = stage["scheduler"]
    if extra:
        made["stage_connector_spec"] = connector
    asked = operators.get("max_model_len") or LONGEST_CONTEXT
    made["max_model_len"] = min(int(asked), LONGEST_CONTEXT)
    if "enforce_eager" not in operators:
        made["enforce_eager"] = False
    if baseline:
        made["async_scheduling"] = False
        made["scheduler_cls"] = "vllm_omni.core.sched.omni_ar_scheduler.OmniARScheduler"
        made.pop("speculative_config", None)
    return made


def rehearsal_scenario(stage: Mapping[str, Any], most: int) -> Scenario:
    """One request more than fit together, with the deployment's own sampling parameters."""
    rows = min(int(stage["arguments"].get("max_num_seqs") or most), most)
    sampling = stage["sampling"]
    limits = {name: int(sampling[name]) for name in _ASKED_FOR if name in sampling}
    options = {k: v for k, v in sampling.items() if k not in _OF_THE_REQUEST and v is not None}
    return Scenario(
        "rehearsal",
        tuple(
            RequestSpec(
                f"rehearsal-{index}", condition=3 + index, arrival=2 * index, sampling=options,
                **limits,
            )
            for index in range(rows + 1)
        ),
    )  # fmt: skip


def warnings_for(stage: Mapping[str, Any], frames: int) -> list[str]:
    """What start-up would warn of, for the operator's own sizes."""
    from kstep_shim.frames.stage import stage_warnings

    return list(stage_warnings(as_head_sees(stage), frames))


def plan(stage: Mapping[str, Any], frames: int, source: str) -> dict[str, Any]:
    """What the head would decide for the operator's own arguments."""
    from kstep_shim.frames.stage import plan_stage

    return asdict(plan_stage(as_head_sees(stage), frames, source))
