"""A deploy YAML as vllm-omni would read it, without importing vllm-omni: for the doctor.

Only what decides about K is taken from it. `kstep-shim rehearse` uses vllm-omni's own reader, and
a test keeps the two equal for the deploy files that vllm-omni ships.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from kstep_shim.errors import KStepError

PIPELINE: Final = "minicpmo_4_5"
TALKER_STAGE: Final = 1
_ARCHITECTURE: Final = "MiniCPMO45OmniForConditionalGeneration"
_NOT_ARGUMENTS: Final = frozenset(
    {"stage_id", "devices", "num_replicas", "env", "output_connectors", "input_connectors",
     "default_sampling_params", "engine_extras", "engine_args", "runtime"}
)  # fmt: skip
_PIPELINE_WIDE: Final = (
    "trust_remote_code", "distributed_executor_backend", "dtype", "quantization",
    "enable_prefix_caching", "enable_chunked_prefill", "data_parallel_size",
    "pipeline_parallel_size", "custom_voice_dir",
)  # fmt: skip
_MERGED: Final = ("default_sampling_params", "engine_extras", "engine_args")


@dataclass(frozen=True)
class DeployedStage:
    """One stage entry after inheritance and platform overrides."""

    stage_id: int
    arguments: Mapping[str, Any]
    replicas: int = 1
    connector: Mapping[str, Any] = field(default_factory=dict)

    def as_arguments(self) -> SimpleNamespace:
        """Return the stage as the head sees its engine arguments, as far as K depends on them."""
        talker = self.stage_id == TALKER_STAGE
        values: dict[str, Any] = {
            "model_stage": "tts" if talker else None,
            "model_arch": _ARCHITECTURE,
            "stage_id": self.stage_id,
            "stage_connector_spec": self.connector,
            "speculative_config": None,
            "enable_prefix_caching": None,
            "max_num_seqs": None,
            "max_num_batched_tokens": None,
            "max_model_len": None,
        }
        return SimpleNamespace(**{**values, **self.arguments})


@dataclass(frozen=True)
class Deployment:
    """A deploy YAML for one platform."""

    path: Path
    pipeline: str | None
    stages: tuple[DeployedStage, ...]

    @property
    def talker(self) -> DeployedStage | None:
        """Stage 1, None when this is not a MiniCPM-o 4.5 pipeline or has no such stage."""
        if self.pipeline not in (None, PIPELINE):
            return None
        return next((stage for stage in self.stages if stage.stage_id == TALKER_STAGE), None)


def read_deployment(path: str | Path, platform: str = "npu") -> Deployment:
    """Read a deploy YAML with its base files and the overrides of one platform.

    Raises
    ------
    KStepError
        The file, or one that it is based on, cannot be read or is not a deploy YAML.
    """
    try:
        return _deployment(Path(path), platform)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # Something is a list, a number or missing where a deploy YAML has a mapping.
        raise KStepError(f"{path} is not a deploy YAML: {error!r}", usage=True) from error


def _deployment(path: Path, platform: str) -> Deployment:
    raw = _resolve(path)
    stages = raw.get("stages")
    if not isinstance(stages, list) or not all(isinstance(entry, dict) for entry in stages):
        raise KStepError(
            f"{path} is not a deploy YAML: expected a list of stages under 'stages'", usage=True
        )
    section = (raw.get("platforms") or {}).get(platform) or {}
    overrides = {entry["stage_id"]: entry for entry in section.get("stages") or []}
    wide = {name: raw[name] for name in _PIPELINE_WIDE if raw.get(name) is not None}
    connectors = raw.get("connectors") or {}
    return Deployment(
        path=path,
        pipeline=raw.get("pipeline"),
        stages=tuple(
            _stage(entry, overrides.get(entry["stage_id"], {}), wide, connectors)
            for entry in stages
        ),
    )


def _stage(
    entry: Mapping[str, Any],
    override: Mapping[str, Any],
    wide: Mapping[str, Any],
    connectors: Mapping[str, Any],
) -> DeployedStage:
    own = {**_flat(entry), **_flat(override)}
    runtime = {**(entry.get("runtime") or {}), **(override.get("runtime") or {})}
    replicas = runtime.get("num_replicas", override.get("num_replicas", entry.get("num_replicas")))
    names = (entry.get("output_connectors") or {}).values()
    known = (connectors[name] for name in names if name in connectors)
    connector: Mapping[str, Any] = next(known, {})
    return DeployedStage(
        stage_id=entry["stage_id"],
        arguments={**wide, **{name: value for name, value in own.items() if value is not None}},
        replicas=int(replicas or 1),
        connector=connector,
    )


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The engine arguments of an entry, whether it nests them or not."""
    plain = {name: value for name, value in entry.items() if name not in _NOT_ARGUMENTS}
    return {**plain, **(entry.get("engine_args") or {}), **(entry.get("engine_extras") or {})}


def _resolve(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    raw = _load(path)
    base_name = raw.pop("base_config", None)
    if base_name is None:
        return raw
    base_path = (path.parent / base_name).resolve()
    if base_path in seen:
        raise KStepError(f"{path}: base_config leads back to {base_path}", usage=True)
    try:
        base = _resolve(base_path, (*seen, base_path))
    except KStepError as error:
        raise KStepError(f"{path}: its base_config: {error}", usage=True) from error
    platforms = {
        name: {"stages": _merge_stages(_section(base, name), _section(raw, name))}
        for name in {*(base.get("platforms") or {}), *(raw.get("platforms") or {})}
    }
    stages = _merge_stages(base.get("stages"), raw.get("stages"))
    return {**base, **raw, "stages": stages, "platforms": platforms}


def _section(raw: Mapping[str, Any], platform: str) -> Any:
    return ((raw.get("platforms") or {}).get(platform) or {}).get("stages")


def _merge_stages(base: Any, overlay: Any) -> list[dict[str, Any]]:
    merged = {entry["stage_id"]: entry for entry in base or []}
    for entry in overlay or []:
        below = merged.get(entry["stage_id"], {})
        deep = {
            name: {**(below.get(name) or {}), **(entry.get(name) or {})}
            for name in _MERGED
            if name in below or name in entry
        }
        merged[entry["stage_id"]] = {**below, **entry, **deep}
    return list(merged.values())


def _load(path: Path) -> dict[str, Any]:
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KStepError(f"the deploy YAML {path} cannot be read: {error}", usage=True) from error
    if not isinstance(raw, dict):
        raise KStepError(f"{path} is not a deploy YAML: expected a mapping at the top", usage=True)
    return raw
