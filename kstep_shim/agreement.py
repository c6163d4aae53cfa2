"""What the reports of several processes add up to: do they all run K frames, or none of them?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from kstep_shim.declaration import Side, State
from kstep_shim.report import Report

_BROKEN = (State.REFUSED, State.DISPLACED)
_NO_REPORT = (
    "no process has written a report: stage 1 has not come up yet, or KSTEP_SHIM=1 and this "
    "KSTEP_SHIM_STATUS_DIR were not in its environment"
)


@dataclass(frozen=True)
class Agreement:
    """The verdict over a status directory.

    Parameters
    ----------
    reports
        Those that were judged: of the processes that still run, or of all when none does.
    problems
        Every disagreement, in words; empty means all or none.
    frames
        K of all of them; 1 when none is active or they disagree.
    """

    reports: tuple[Report, ...]
    problems: tuple[str, ...]
    frames: int


def is_running(pid: int) -> bool:
    """Whether a process with this id exists on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sides(report: Report) -> frozenset[Side]:
    """The roles that a process was sealed in."""
    named = (report.role or "").split(" and ")
    return frozenset(side for side in Side if side.value in named)


def judge(reports: Sequence[Report]) -> Agreement:
    """Compare the reports of one deployment.

    Parameters
    ----------
    reports
        As `kstep_shim.report.read_directory` returns them. Those of processes that have ended
        count only where none is left, so that an earlier start does not speak for this one.

    Returns
    -------
    Agreement
        With a problem where a process that should be armed is not, where K differs, where a
        required patch is broken, and where a part of the deployment has not reported.
    """
    running = tuple(report for report in reports if is_running(report.pid))
    judged = running or tuple(reports)
    if not judged:
        return Agreement((), (_NO_REPORT,), 1)
    problems = [
        f"pid {report.pid} ({report.role or 'no role'}) is not active: {report.reason}"
        for report in judged
        if not report.active
    ]
    active = [report for report in judged if report.active]
    counts = sorted({report.frames for report in active})
    if len(counts) > 1:
        found = ", ".join(f"pid {report.pid} K={report.frames}" for report in active)
        problems.append(f"K differs: {found}")
    problems += [
        f"pid {report.pid}: patch {record.name} is {record.state.lower()}: {record.reason}"
        for report in active
        for record in report.patches
        if record.state in _BROKEN
    ]
    reported = frozenset[Side]().union(*(sides(report) for report in active))
    if active and counts != [1]:
        problems += [
            f"no {side.value} has reported, although K={counts[-1]} was promised"
            for side in Side
            if side not in reported
        ]
    frames = counts[0] if len(counts) == 1 and not problems else 1
    return Agreement(judged, tuple(problems), frames)
