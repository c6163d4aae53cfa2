"""``make soak``: thousands of real engine steps of random traffic, per K and seed."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from support.stages import Stages
from support.stress import Stress
from support.stress_plan import StressPlan

#: Token budgets, one per seed in turn: ample, chunking prompts, and tight.
BUDGETS = (1024, 24, 64, 12, 33)
#: KV blocks of every fifth seed, the one with an ample budget: too few for four long requests.
SCARCE = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--frames", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--steps", type=int, default=1000, help="execute_model calls per run")
    parser.add_argument("--budget", type=int, help="max_num_batched_tokens")
    parser.add_argument("--blocks", type=int, help="KV blocks")
    arguments = parser.parse_args()
    total = violations = 0
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        stress = Stress(Stages(Path(directory)), timeout=7200.0)
        for seed in arguments.seeds:
            blocks = arguments.blocks or (SCARCE if seed % len(BUDGETS) == 0 else None)
            budget = arguments.budget or BUDGETS[seed % len(BUDGETS)]
            for frames in arguments.frames:
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
                    say("\n".join(verdict.violations[:20]))
                    say(f"replay: {plan.replay()}")
                total += verdict.result.steps
                violations += len(verdict.violations)
    say(f"{total} execute_model calls, {violations} violations")
    return 1 if violations else 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
