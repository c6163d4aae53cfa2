"""The report: what the shim is doing in a process, as an object, as text and as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstep_shim._logging import LOGGER
from kstep_shim.declaration import State


@dataclass(frozen=True)
class PatchRecord:
    """State of one patch, and why when it is not plainly applied."""

    name: str
    state: State
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """What the shim is doing in one process, computed from the live objects.

    Parameters
    ----------
    active
        The shim is installed here and nothing speaks against it. Where the patches have not met
        their targets yet (a process that never imports them) they are PENDING, which is fine.
    reason
        One line that says why it is active or not.
    frames
        K of this process; 1 when inactive.
    source
        Where K comes from: ``yaml``, ``install``, ``settings``, ``environment``, ``default``,
        ``engine`` (the configuration that the head handed over), or ``inactive``.
    patches
        One record per patch of the catalogue, in its order.
    counters
        Totals since the process started.
    pid, role, stage
        The process; role and stage are known once it is sealed.

    Examples
    --------
    >>> Report(active=False, reason="not installed", frames=1, source="inactive").active
    False
    """

    active: bool
    reason: str
    frames: int
    source: str
    patches: tuple[PatchRecord, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    pid: int = field(default_factory=os.getpid)
    role: str | None = None
    stage: int | None = None

    def state(self, name: str) -> State:
        """Return the state of the patch called `name`.

        Raises
        ------
        KeyError
            The report has no such patch.
        """
        return {record.name: record.state for record in self.patches}[name]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        return {
            "active": self.active,
            "reason": self.reason,
            "frames": self.frames,
            "source": self.source,
            "patches": [
                {"name": record.name, "state": record.state.value, "reason": record.reason}
                for record in self.patches
            ],
            "counters": dict(self.counters),
            "pid": self.pid,
            "role": self.role,
            "stage": self.stage,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """Rebuild a report from `to_dict`.

        Raises
        ------
        KeyError, TypeError, ValueError
            The data is not that of a report.
        """
        records = tuple(
            PatchRecord(record["name"], State(record["state"]), record["reason"])
            for record in data["patches"]
        )
        return cls(**{**data, "patches": records})

    def summary(self) -> str:
        """Return the line that each process logs once."""
        place = self.role or "this process"
        stage = "" if self.stage is None else f", stage {self.stage}"
        states = [record.state for record in self.patches]
        counts = ", ".join(f"{states.count(state)} {state.lower()}" for state in _seen(states))
        return (
            f"{place}{stage}, pid {self.pid}: K={self.frames} ({self.source}), "
            f"{self.reason}; patches: {counts or 'none'}"
        )

    def __str__(self) -> str:
        width = max((len(record.name) for record in self.patches), default=0)
        lines = [self.summary()]
        for record in self.patches:
            reason = f"  {record.reason}" if record.reason else ""
            lines.append(f"  {record.name:<{width}}  {record.state.lower():<9}{reason}".rstrip())
        lines += [f"  {name} = {total}" for name, total in self.counters.items()]
        return "\n".join(lines)


def write(report: Report, directory: str) -> None:
    """Write ``<pid>.json`` whole or not at all; a directory that cannot be written is logged."""
    path = Path(directory) / f"{report.pid}.json"
    temporary = path.with_suffix(".json.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(report.to_dict(), indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        LOGGER.warning("kstep_shim: the report cannot be written: %s", error)


def _warn(text: str) -> None:
    LOGGER.warning("kstep_shim: %s", text)


def read_directory(
    directory: str | os.PathLike[str], complain: Callable[[str], object] = _warn
) -> tuple[Report, ...]:
    """Return the reports that processes left in a directory, by pid; others' files are skipped.

    Parameters
    ----------
    directory
        Where to look.
    complain
        Told of each file that should be a report and is none.

    Raises
    ------
    OSError
        The directory cannot be read.
    """
    reports = []
    for path in sorted(Path(directory).iterdir()):
        if path.suffix == ".json" and path.stem.isdecimal():
            try:
                reports.append(Report.from_dict(json.loads(path.read_text(encoding="utf-8"))))
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                complain(
                    f"{path} is not a report ({error!r}): damaged, or written by another version; "
                    "it can be deleted"
                )
    return tuple(sorted(reports, key=lambda report: report.pid))


def _seen(states: list[State]) -> list[State]:
    return [state for state in State if state in states]
