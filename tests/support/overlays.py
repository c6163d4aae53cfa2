"""Every deploy file of the released package, resolved by vllm-omni's own head code."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from kstep_shim.demo.stage import TINY, prepare_environment

FRAMES = 8


def resolve_all(
    paths: Sequence[Path], platforms: Sequence[str], armed: bool
) -> dict[tuple[str, str], Any]:
    """Per platform section and file: each stage's configuration as text, and what K came to."""
    prepare_environment()
    import torch  # noqa: F401

    if armed:
        import kstep_shim

        kstep_shim.install(frames=FRAMES)
    return {(name, path.name): _resolve(path, name) for name in platforms for path in paths}


def _resolve(path: Path, platform: str) -> dict[str, Any]:
    import kstep_shim

    configs = _stages(path, platform)
    speculative, scheduler = configs[1].speculative_config, configs[1].scheduler_config
    return {
        "stages": {number: "\n".join(lines(config)) for number, config in configs.items()},
        "method": speculative and speculative.method,
        "drafts": speculative and speculative.num_speculative_tokens,
        "async": scheduler.async_scheduling,
        "scheduler": scheduler.get_scheduler_cls().__name__,
        "frames": kstep_shim.status().frames,
    }


def _stages(path: Path, platform: str) -> dict[int, Any]:
    from vllm_omni.config.stage_config import load_deploy_config, merge_pipeline_deploy
    from vllm_omni.engine.stage_init_utils import build_vllm_config
    from vllm_omni.model_executor.models.minicpmo_4_5.pipeline import MINICPMO_4_5_PIPELINE
    from vllm_omni.platforms import current_omni_platform

    deploy = load_deploy_config(path)
    with mock.patch.object(type(current_omni_platform), "device_name", platform):
        merged = merge_pipeline_deploy(MINICPMO_4_5_PIPELINE, deploy)
    configs = {}
    for stage in merged:
        config, _ = build_vllm_config(
            stage.to_omegaconf(), str(TINY), stage_connector_spec=_connector(deploy, stage)
        )
        configs[stage.stage_id] = config
    return configs


def _connector(deploy: Any, stage: Any) -> dict[str, Any] | None:
    extras = stage.yaml_extras
    for key, role in (("output_connectors", "sender"), ("input_connectors", "receiver")):
        for name in (extras.get(key) or {}).values():
            spec = deploy.connectors[name]
            return {"name": spec["name"], "extra": {**spec["extra"], "role": role}}
    return None


def lines(value: Any, path: str = "", seen: tuple[int, ...] = ()) -> list[str]:
    """A configuration as lines of text, without what is drawn by lot."""
    if id(value) in seen:
        return [f"{path} = (see above)"]
    if dataclasses.is_dataclass(value) or hasattr(value, "to_dict"):
        value, inside = vars(value), (*seen, id(value))
    elif isinstance(value, dict):
        inside = (*seen, id(value))
    elif isinstance(value, list | tuple):
        value, inside = dict(enumerate(value)), (*seen, id(value))
    else:
        return [f"{path} = {value!r}"]
    return [
        line
        for key, item in sorted(value.items(), key=lambda pair: str(pair[0]))
        if key != "instance_id"
        for line in lines(item, f"{path}.{key}", inside)
    ]
