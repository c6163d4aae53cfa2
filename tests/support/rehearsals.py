"""Deploy YAMLs to rehearse, and one side of a rehearsal for a forked process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import yaml

from kstep_shim.demo import outcome
from kstep_shim.demo.pipeline import deployment
from kstep_shim.demo.rehearsal_child import rehearse


def write_deploy(path: Path, chunk: int = 25, sampling: Any = None, **talker: Any) -> Path:
    """The miniature's own deploy YAML, as an operator would have changed it."""
    made = deployment()
    made["connectors"]["shared_memory"]["extra"]["codec_chunk_frames"] = chunk
    (stage,) = [entry for entry in made["stages"] if entry["stage_id"] == 1]
    stage |= talker
    stage["default_sampling_params"] |= sampling or {}
    path.write_text(yaml.safe_dump(made))
    return path


def armed(deploy: Path, result: Path, frames: int = 4) -> Any:
    """The armed side, to be called in a process of its own."""
    return partial(_armed, deploy, result, frames)


def _armed(deploy: Path, result: Path, frames: int) -> dict[str, Any]:
    facts = rehearse(deploy, result, frames, shim=True)
    if facts["refusal"] is None:
        (spoken,) = outcome.load(result).values()
        facts["requests"] = len(spoken.requests)
        facts["engaged"] = spoken.engaged_steps
        facts["rows"] = max(len(step.widths) for step in spoken.steps)
        facts["widest"] = max(sum(step.widths.values()) for step in spoken.steps)
        facts["tokens"] = [len(request.tokens) for request in spoken.requests.values()]
        facts["payloads"] = [len(request.payloads) for request in spoken.requests.values()]
        facts["declined"] = [name for name in spoken.counters if name.startswith("drafts_dropped")]
    return facts


def resolved(paths: list[Path]) -> list[Any]:
    """What vllm-omni makes of each deploy YAML."""
    import torch  # noqa: F401

    from kstep_shim.demo.deployed import resolve_stages

    return [resolve_stages(path) for path in paths]
