"""``make soak``: thousands of real engine steps of random traffic, per K and seed."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.stages import Stages
from support.stress import Stress
from support.stress_plan import StressPlan

#: Seeds differ in their token budget: ample, one short of four rows of K, a little above them,
#: enough for two rows, and one that four rows leave room in for prompts.
BUDGETS: tuple[Callable[[int], int], ...] = (
    lambda frames: 1024,
    lambda frames: 4 * frames - 1,
    lambda frames: 4 * frames + 5,
    lambda frames: 2 * frames + 3,
    lambda frames: 64 + frames,
)
#: KV blocks of every fifth seed, the one with an ample budget: too few for four long requests.
SCARCE = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--frames", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--steps", type=int, default=1000, help="execute_model calls per run")
    parser.add_argument("--budget", type=int, help="max_num_batched_tokens")
    parser.add_argument("--blocks", type=int, help="KV blocks")
    parser.add_argument("--jobs", type=int, default=2, help="seeds at a time")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as directory,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        stages = Stages(Path(directory))
        counts = [*pool.map(lambda seed: run_seed(stages, seed, arguments), arguments.seeds)]
    total, violations = (sum(column) for column in zip(*counts, strict=True))
    say(f"{total} execute_model calls, {violations} violations")
    return 1 if violations else 0


def run_seed(stages: Stages, seed: int, arguments: argparse.Namespace) -> tuple[int, int]:
    """All K of one seed; returns the calls made and the violations found."""
    stress = Stress(stages, timeout=7200.0)
    total = violations = 0
    blocks = arguments.blocks or (SCARCE if seed % len(BUDGETS) == 0 else None)
    for frames in arguments.frames:
        budget = arguments.budget or BUDGETS[seed % len(BUDGETS)](frames)
        plan = StressPlan(seed, frames, arguments.steps, budget, blocks)
        started = time.monotonic()
        try:
            verdict = stress.judge(plan)
        except AssertionError as error:
            say(f"{error}\nreplay: {plan.replay()}")
            violations += 1
            continue
        say(f"seed {seed} budget {budget} {verdict}, {time.monotonic() - started:.0f} s")
        if verdict.violations:
            say("\n".join([*verdict.violations[:20], f"replay: {plan.replay()}"]))
        total += verdict.result.steps
        violations += len(verdict.violations)
    return total, violations


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
