"""What the shim costs where it is off, and how long its quick commands take: medians of 20.

Writes the section ``limits`` of RESULTS.md. Times are reported beside their limits, and nothing
fails: a busy machine would make that a test of the machine.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kstep_shim.launching import BOOTSTRAP

RUNS = 20
RESULTS = Path(__file__).with_name("RESULTS.md")
BEGIN, END = "<!-- limits -->", "<!-- end of limits -->"
_TIMED = """
{before}
import time
wall, cpu = time.perf_counter(), time.process_time()
{timed}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""
_IMPORT = _TIMED.format(before="", timed="import kstep_shim")
_PLUGIN = _TIMED.format(before="from kstep_shim.plugin import register", timed="register()")

#: Wall and processor time of one run, in milliseconds.
Sample = tuple[float, float]


def environment(**changes: str) -> dict[str, str]:
    """The caller's environment without settings of the shim."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KSTEP_SHIM")}
    return {**kept, **changes}


def printed(code: str, **changes: str) -> Sample:
    """What `code` prints in seconds, in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=True,
    )
    wall, cpu = (1e3 * float(part) for part in done.stdout.split())
    return wall, cpu


def elapsed(command: list[str], **changes: str) -> Sample:
    """From start to exit."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment(**changes), capture_output=True, check=False)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1e3 * wall, 1e3 * cpu


def start_up_hook(switch: str) -> Callable[[], Sample]:
    """The difference that the bootstrap directory makes to ``python -c pass``, pair by pair.

    The interpreter without it gets an empty directory instead, so that both search as long.
    """
    empty = tempfile.mkdtemp(prefix="kstep-limits-")
    path = os.environ.get("PYTHONPATH", "")
    with_hook = os.pathsep.join(filter(None, [str(BOOTSTRAP), path]))
    without = os.pathsep.join(filter(None, [empty, path]))
    command = [sys.executable, "-c", "pass"]

    def difference() -> Sample:
        plain = elapsed(command, PYTHONPATH=without)
        hooked = elapsed(command, PYTHONPATH=with_hook, KSTEP_SHIM=switch)
        return hooked[0] - plain[0], hooked[1] - plain[1]

    return difference


def measure() -> list[tuple[str, str, float, float]]:
    """Name, limit and medians of wall and processor time of each."""
    doctor = [sys.executable, "-m", "kstep_shim", "doctor", "--json"]
    cases: list[tuple[str, str, Callable[[], Sample]]] = [
        ("`import kstep_shim`", "20 ms", lambda: printed(_IMPORT)),
        ("start-up hook, switched off", "2 ms", start_up_hook("0")),
        ("start-up hook, switched on, no vllm", "2 ms", start_up_hook("1")),
        ("plug-in, switched off", "", lambda: printed(_PLUGIN)),
        ("`kstep-shim doctor --json`", "1 s", lambda: elapsed(doctor)),
    ]
    found = []
    for name, limit, run in cases:
        run()  # The first one compiles and fills the file cache.
        walls, cpus = zip(*(run() for _ in range(RUNS)), strict=True)
        found.append((name, limit, statistics.median(walls), statistics.median(cpus)))
    return found


def section() -> str:
    """The section of the results file."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [
        BEGIN,
        "## Limits",
        "",
        f"`make bench-limits`: medians of {RUNS} runs, Python {platform.python_version()}, "
        f"{os.cpu_count()} CPUs, load averages {load} when it ended.",
        "",
        "| what | limit | wall | processor |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {limit} | {wall:.2f} ms | {cpu:.2f} ms |"
        for name, limit, wall, cpu in measure()
    ]
    return "\n".join([*lines, END])


def main() -> None:
    """Replace the section, or add it."""
    text = RESULTS.read_text() if RESULTS.exists() else "# Results\n\n"
    made = section()
    if BEGIN in text:
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        text = before + made + after
    else:
        text = text.rstrip("\n") + "\n\n" + made + "\n"
    RESULTS.write_text(text)
    sys.stdout.write(made + "\n")


if __name__ == "__main__":
    main()
