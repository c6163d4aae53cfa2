"""What the guards cost in host time of a step, on the soft NPU: at K=1, and at K=8.

Other steps of the same process run without them: at K=1, where the shim is armed and the stage
runs one frame, without the shim's wrappers on the methods of the stack; at K=8 without the guards
that look at every step. Thread processor time stands next to wall time, because other processes of
the machine disturb it less.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from kstep_shim.demo.scenario import RequestSpec, StageShape

ROWS, CONDITION, WARM_UP = 4, 90, 10
NO_EOS = 10_000


def _none(*_: Any, **__: Any) -> None:
    return None


def _empty(*_: Any, **__: Any) -> tuple[()]:
    return ()


def _of_each(value: int | None) -> Callable[..., list[int | None]]:
    return lambda batch, _: [value for _ in batch.req_ids]


#: Guards that run on every step, and what stands in for each where nothing needs guarding.
GUARDS: dict[str, Callable[..., Any]] = {
    "frames.schedule:single_frame_step_reason": _none,
    "frames.schedule:make_spans_uniform": _none,
    "frames.schedule:align_drafts": _none,
    "frames.schedule:settle_empty_rows": _empty,
    "frames.preemption:end_preempted": _empty,
    "frames.limits:remaining_outputs": _of_each(None),
    "frames.limits:minimum_outputs": _of_each(0),
    "frames.verify:require_valid": _none,
    "frames.min_tokens:neutralize_kstep_min_tokens": _none,
    "patches.scheduler:book_tokens": _none,
}


@contextmanager
def replaced(instead: Callable[[str, Any], Any]) -> Iterator[None]:
    """Run one step with what `instead` makes of each guard."""
    saved = []
    for place in GUARDS:
        module, _, name = place.partition(":")
        owner = importlib.import_module(f"kstep_shim.{module}")
        saved.append((owner, name, getattr(owner, name)))
        setattr(owner, name, instead(place, getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, before in saved:
            setattr(owner, name, before)


def guards_off() -> AbstractContextManager[None]:
    """Run one step without them."""
    return replaced(lambda place, _: GUARDS[place])


@contextmanager
def guards_timed(own: list[float]) -> Iterator[None]:
    """Run one step with a stop watch around each, and note what they took together."""
    total = 0.0

    def timed(_: str, guard: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal total
            begin = time.perf_counter()
            try:
                return guard(*args, **kwargs)
            finally:
                total += time.perf_counter() - begin

        return watched

    with replaced(timed):
        yield
    own.append(1e3 * total)


@contextmanager
def wrappers_off() -> Iterator[None]:
    """Run one step with the released methods themselves."""
    from kstep_shim import installer

    installation = installer.current()._installation
    assert installation is not None
    bindings = [one for one in installation.ledger._all() if one.attached]
    assert len(bindings) > 10
    for one in bindings:
        replacement = one._replacement
        one._detach()
        one._replacement = replacement
    try:
        yield
    finally:
        for one in bindings:
            setattr(one._owner, one.target.name, one._replacement)


def measure(frames: int, steps: int) -> dict[str, list[Any]]:
    """Wall and processor milliseconds of steady steps, and the guards' own."""
    from kstep_shim.demo.stage import bring_up, prepare_environment

    prepare_environment()
    import torch  # noqa: F401

    from kstep_shim.demo.drive import Driver, build_request

    engine = bring_up(StageShape(frames=frames, shim=True, max_model_len=4096))
    driver = Driver(engine)
    found: dict[str, list[Any]] = {"on": [], "off": [], "own": []}
    ways = {"on": nullcontext, "off": guards_off if frames > 1 else wrappers_off}
    if frames > 1:
        ways["timed"] = lambda: guards_timed(found["own"])
    served = 0
    while len(found["on"]) < steps:
        names = [f"g{served}-{row}" for row in range(ROWS)]
        driver._ends = dict.fromkeys(names, NO_EOS)
        for name in names:
            engine.add_request(build_request(RequestSpec(name, CONDITION)))
        number = 0
        while engine.scheduler.has_requests() and len(found["on"]) < steps:
            steady = number > WARM_UP and len(engine.scheduler.running) == ROWS
            way = [*ways][(number + served) % len(ways)] if steady else "on"
            with ways[way]():
                took = _step(engine)
            driver._vocoder.receive()
            # Where rows end, a step is another one.
            if steady and len(engine.scheduler.running) == ROWS and way in found:
                found[way].append(took)
            number += 1
        served += 1
    return found


def _step(engine: Any) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.thread_time()
    _, executed = engine.step_fn()
    engine.post_step(executed)
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.thread_time() - processor)


def child(frames: int, steps: int) -> dict[str, list[Any]]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--child", str(frames), "--steps", str(steps)]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("KSTEP_SHIM")}
    environ |= {"SOFTNPU": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(name: str, on: list[Any], off: list[Any]) -> str:
    """One line of the table."""
    cells = []
    for index in (0, 1):
        with_them, without = (statistics.median(t[index] for t in times) for times in (on, off))
        cells += [f"{without:.2f}", f"{with_them:.2f}", f"{100 * (with_them / without - 1):+.1f} %"]
    return f"| {name} | {len(on)} + {len(off)} | {' | '.join(cells)} |"


def main() -> int:
    """Measure both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="of each kind")
    parser.add_argument("--child", type=int, metavar="K", help="(internal)")
    arguments = parser.parse_args()
    if arguments.child:
        sys.stdout.write("\n" + json.dumps(measure(arguments.child, arguments.steps)) + "\n")
        return 0
    narrow, wide = child(1, arguments.steps), child(8, arguments.steps)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load averages {load}.\n")
    print("| | steps | wall off | wall on | | processor off | processor on | |")
    print("|---|---|---|---|---|---|---|---|")
    print(row("K=1, the shim's wrappers", narrow["on"], narrow["off"]))
    print(row("K=8, the guards", wide["on"], wide["off"]))
    own = statistics.median(wide["own"])
    print(f"\nAt K=8 the guards themselves took {own:.3f} ms of a step (wall, with their watches).")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
