"""``kstep-shim rehearse``: a deploy YAML in miniature, before a real device is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstep_shim.commands.output import print_json, print_line, print_table
from kstep_shim.demo.rehearsal import NOT_SHOWN, run_rehearsal

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Rehearse; 0 when K frames run and everything is as K=1 speaks it."""
    result = run_rehearsal(Path(arguments.deploy), arguments.k)
    summary = result.summary()
    if arguments.json:
        print_json(summary)
    else:
        _print(summary)
    return 0 if result.good else 1


def _print(summary: dict[str, Any]) -> None:
    names = list(dict.fromkeys(name for stage in summary["stages"] for name in stage))
    names.remove("stage_id")
    print_table(
        "stages, as vllm-omni resolves them",
        ("", *(f"stage {stage['stage_id']}" for stage in summary["stages"])),
        [(name, *(_short(stage.get(name)) for stage in summary["stages"])) for name in names],
    )
    print_table("stage 1 in miniature", ("", ""), list(_result(summary)))
    for warning in summary["warnings"]:
        print_line(f"warning: {warning}")
    for difference in summary["differences"]:
        print_line(f"different: {difference}")
    print_line("A rehearsal does not show: " + "; ".join(NOT_SHOWN) + ".")


def _result(summary: dict[str, Any]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [("frames per step", f"{summary['k']} ({summary['source']})")]
    if summary["refusal"] is not None:
        return [*rows, ("one frame per step because", summary["refusal"]), ("verdict", "fail")]
    rows += [(name, _short(value)) for name, value in summary["came_up"].items()]
    rows += [
        ("frames", summary["frames"]),
        ("engine steps, K=1", summary["steps_baseline"]),
        ("engine steps", summary["steps"]),
        ("steps with K frames", summary["steps_engaged"]),
    ]
    rows += [(f"one frame because: {why}", count) for why, count in summary["declined"].items()]
    identical = "pass" if summary["identical"] else "fail"
    return [*rows, ("codes and windows as K=1", identical)]


def _short(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)
