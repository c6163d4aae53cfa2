"""One process of the demo: bring a stage up, serve scenarios, write their outcomes to a file."""

from __future__ import annotations

import argparse
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kstep_shim.demo import outcome
from kstep_shim.demo.scenario import Scenario, StageShape
from kstep_shim.demo.stage import bring_up, prepare_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def serve(
    shape: StageShape,
    scenarios: Sequence[Scenario],
    path: Path,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Serve `scenarios` on a fresh stage in this process and write their outcomes to `path`."""
    prepare_environment()
    import torch  # noqa: F401, I001  (first: it loads the soft NPU through its entry point)
    import softnpu

    from kstep_shim.demo.drive import Driver

    engine = bring_up(shape)
    driver = Driver(engine)
    outcomes = {}
    for scenario in scenarios:
        result = driver.run(scenario, progress)
        result.missing = dict(softnpu.missing_calls())
        if shape.shim:
            import kstep_shim

            result.counters = dict(kstep_shim.status().counters)
        outcomes[scenario.name] = result
    outcome.save(outcomes, path)


def main() -> int:
    """Run the job that the command line names; frames made so far go to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path, help="pickled (shape, scenarios)")
    parser.add_argument("result", type=Path, help="where the outcomes go")
    arguments = parser.parse_args()
    shape, scenarios = pickle.loads(arguments.job.read_bytes())

    def progress(frames: int) -> None:
        sys.stdout.write(f"{frames}\n")
        sys.stdout.flush()

    serve(shape, scenarios, arguments.result, progress)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
