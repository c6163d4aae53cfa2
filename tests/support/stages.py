"""Run miniature stages in forked processes, one per job, and remember what K=1 gave."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from kstep_shim.demo import outcome
from kstep_shim.demo.child import serve
from kstep_shim.demo.outcome import Outcome, differences
from kstep_shim.demo.scenario import Scenario, StageShape
from support import mutants

#: Runs in the child before the stage comes up: a peel, a planted fault, a disabled guard.
Prepare = Callable[[], None]


class StageError(AssertionError):
    """A stage process failed; the message is what it logged."""


def _take_ports() -> None:
    """Look for free ports where no other process of ours does.

    vLLM looks for one and opens it later; of two stages that start together both may find the same.
    Below 32,768 the system hands none out by itself.
    """
    os.environ["VLLM_PORT"] = str(10_000 + os.getpid() % 4_000 * 5)


def _child(
    shape: StageShape,
    scenarios: Sequence[Scenario],
    path: Path,
    prepare: Prepare | None,
    environment: dict[str, str],
) -> None:
    log = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    _take_ports()
    os.environ.update(environment)
    try:
        mutants.switch_off()
        if prepare is not None:
            prepare()
        serve(shape, scenarios, path)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def _call(function: Callable[[], Any], path: Path) -> None:
    log = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    _take_ports()
    try:
        mutants.switch_off()
        path.write_bytes(pickle.dumps(function()))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


class Stages:
    """One per test session."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["kstep_shim.demo.preload"])
        self._numbers = itertools.count()
        self._baselines: dict[tuple[str, str], Outcome] = {}

    def serve(
        self,
        shape: StageShape,
        scenarios: Sequence[Scenario],
        prepare: Prepare | None = None,
        timeout: float = 600.0,
        environment: dict[str, str] | None = None,
    ) -> dict[str, Outcome]:
        """Outcomes by scenario name; the stage must not have called what the soft NPU lacks."""
        path = self._directory / f"stage-{next(self._numbers)}.pt"
        arguments = (shape, tuple(scenarios), path, prepare, environment or {})
        self._run(self._context.Process(target=_child, args=arguments), path, timeout)
        outcomes = outcome.load(path)
        for result in outcomes.values():
            assert result.missing == {}
        return outcomes

    def call(self, function: Callable[[], Any], timeout: float = 600.0) -> Any:
        """What a module-level function returns in a fresh process with the stack imported."""
        path = self._directory / f"call-{next(self._numbers)}.pickle"
        self._run(self._context.Process(target=_call, args=(function, path)), path, timeout)
        return pickle.loads(path.read_bytes())

    def _run(self, process: Any, path: Path, timeout: float) -> None:
        process.start()
        process.join(timeout)
        log = path.with_suffix(".log")
        if process.is_alive():
            process.kill()
            process.join()
            raise StageError(f"no end after {timeout} s\n{_tail(log)}")
        if process.exitcode != 0:
            raise StageError(f"exit code {process.exitcode}\n{_tail(log)}")

    def baseline(
        self, shape: StageShape, scenarios: Sequence[Scenario], repair: Prepare | None = None
    ) -> dict[str, Outcome]:
        """K=1 with the shim off, on the same shape; computed once per scenario.

        `repair` mends the released stack where it cannot serve at all.
        """
        stock = replace(shape, frames=1, shim=False, capture_sizes=())
        key = f"{stock} {getattr(repair, '__name__', repair)}"
        missing = [s for s in scenarios if (key, repr(s)) not in self._baselines]
        if missing:
            for name, result in self.serve(stock, missing, repair).items():
                scenario = next(s for s in missing if s.name == name)
                self._baselines[key, repr(scenario)] = result
        return {s.name: self._baselines[key, repr(s)] for s in scenarios}

    def compare(
        self,
        shape: StageShape,
        scenarios: Sequence[Scenario],
        prepare: Prepare | None = None,
        repair: Prepare | None = None,
    ) -> dict[str, Outcome]:
        """Serve with the shim and assert that every scenario equals K=1; returns K's outcomes.

        `prepare` runs on the shimmed side only, in place of `repair`, which else runs on both.
        """
        with ThreadPoolExecutor(2) as pool:
            expected = pool.submit(self.baseline, shape, scenarios, repair)
            shimmed, before = replace(shape, shim=True), prepare or repair
            actual = pool.submit(self.serve, shimmed, scenarios, before)
            found = {
                name: differences(expected.result()[name], result)
                for name, result in actual.result().items()
            }
        unequal = {name: what for name, what in found.items() if what}
        assert not unequal, unequal
        for result in actual.result().values():
            assert result.counters.get("backstop_reached", 0) == 0
        return actual.result()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text().splitlines()[-60:]) if log.exists() else "(no log)"
