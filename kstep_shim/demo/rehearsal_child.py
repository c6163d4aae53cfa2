"""One process of a rehearsal: resolve the deploy YAML, bring stage 1 up, serve, write it down."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kstep_shim.demo import deployed, outcome
from kstep_shim.demo.stage import prepare_environment, start_engine

MOST_ROWS = 4


def rehearse(deploy: Path, result: Path, frames: int | None, *, shim: bool) -> dict[str, Any]:
    """Serve the rehearsal's requests; return what was decided on the way."""
    prepare_environment()
    import torch  # noqa: F401  (first: it loads the soft NPU through its entry point)

    import kstep_shim

    report = kstep_shim.install(frames=frames) if shim else None
    stages = deployed.resolve_stages(deploy)
    talker = deployed.talker_of(stages)
    facts: dict[str, Any] = {
        "stages": [{"stage_id": stage["stage_id"], **deployed.shown(stage)} for stage in stages]
    }
    if report is not None:
        decided = deployed.plan(talker, report.frames, report.source)
        facts |= {"k": decided["frames"], "source": decided["source"]}
        facts["refusal"] = decided["refusal"] or (None if report.active else report.reason)
        facts["warnings"] = deployed.warnings_for(talker, decided["frames"])
        if facts["refusal"] is not None:
            return facts
    arguments = deployed.miniature_arguments(talker, baseline=not shim)
    engine = start_engine(arguments)
    if report is not None:
        seen = kstep_shim.status()
        facts |= {"k": seen.frames, "refusal": None if seen.active else seen.reason}
        facts["came_up"] = _describe(engine.vllm_config)

    from kstep_shim.demo.drive import Driver

    scenario = deployed.rehearsal_scenario(talker, MOST_ROWS)
    spoken = Driver(engine).run(scenario)
    spoken.counters = dict(kstep_shim.status().counters) if shim else {}
    outcome.save({scenario.name: spoken}, result)
    return facts


def _describe(config: Any) -> dict[str, Any]:
    scheduler, compilation = config.scheduler_config, config.compilation_config
    return {
        "scheduler": scheduler.get_scheduler_cls().__name__,
        "async_scheduling": bool(scheduler.async_scheduling),
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "graph": compilation.cudagraph_mode.name if compilation.cudagraph_mode else "NONE",
        "graph_sizes": list(compilation.cudagraph_capture_sizes or ()),
    }


def main() -> int:
    """Run one side and write its facts beside the outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deploy", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--frames", type=int)
    parser.add_argument("--shim", action="store_true")
    options = parser.parse_args()
    facts = rehearse(options.deploy, options.result, options.frames, shim=options.shim)
    options.result.with_suffix(".json").write_text(json.dumps(facts, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
