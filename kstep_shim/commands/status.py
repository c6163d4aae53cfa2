"""``kstep-shim status``: what the processes of a deployment say about themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kstep_shim.agreement import is_running, judge
from kstep_shim.commands.output import print_json, print_line, print_table
from kstep_shim.errors import KStepError
from kstep_shim.report import read_directory
from kstep_shim.variables import STATUS_DIR

if TYPE_CHECKING:
    import argparse

    from kstep_shim.report import Report


def run(arguments: argparse.Namespace) -> int:
    """Aggregate a status directory; 1 when the processes disagree, are unarmed or are missing."""
    directory = arguments.directory or os.environ.get(STATUS_DIR)
    if not directory or not Path(directory).is_dir():
        what = f"{directory!r} is not a directory" if directory else "no directory given"
        raise KStepError(
            f"{what}: name the one that {STATUS_DIR} had when the deployment was started",
            usage=True,
        )
    problems: list[str] = []
    reports = read_directory(directory, problems.append)
    verdict = judge(reports)
    problems += verdict.problems
    if arguments.json:
        processes = [{**report.to_dict(), "running": is_running(report.pid)} for report in reports]
        print_json(
            {
                "ok": not problems,
                "frames": verdict.frames,
                "problems": problems,
                "processes": processes,
            }
        )
    else:
        if reports:
            _print(reports)
        for problem in problems:
            print_line(f"problem: {problem}")
        if not problems:
            print_line("all processes agree")
    return 1 if problems else 0


def _print(reports: tuple[Report, ...]) -> None:
    print_table(
        "processes",
        ("pid", "", "role", "stage", "K", "from", "active", "why"),
        [
            (
                report.pid,
                "running" if is_running(report.pid) else "gone",
                report.role,
                report.stage,
                report.frames,
                report.source,
                "yes" if report.active else "no",
                report.reason,
            )
            for report in reports
        ],
    )
    names = list(dict.fromkeys(record.name for report in reports for record in report.patches))
    states = [{r.name: r.state.lower() for r in report.patches} for report in reports]
    pids = [str(report.pid) for report in reports]
    print_table("patches", ("", *pids), [(n, *(s.get(n) for s in states)) for n in names])
    totals = list(dict.fromkeys(name for report in reports for name in report.counters))
    if totals:
        rows = [(name, *(report.counters.get(name) for report in reports)) for name in totals]
        print_table("counters", ("", *pids), rows)
