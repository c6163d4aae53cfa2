"""What a bench found, row by row, as a table and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from kstep_shim.errors import KStepError


@dataclass(frozen=True)
class Row:
    """One K and batch.

    Attributes
    ----------
    ms_per_frame, times_faster : float
        Wall time of a frame, and K=1's of the same run divided by it.
    device_ms, host_ms : float or None
        A one-query replay and the captured sampling, the least that the device needs for a frame,
        and the rest of the wall time; None where nothing was captured.
    over_floor : float or None
        `ms_per_frame` divided by `device_ms`.
    step_ms_max, first_window_ms : float
        The longest step, and the time until every stream had 25 frames.
    ids_equal, streams : int
        Streams with exactly the ids of K=1, and all streams.
    """

    k: int
    batch: int
    ms_per_frame: float
    times_faster: float
    device_ms: float | None
    host_ms: float | None
    over_floor: float | None
    step_ms_max: float
    first_window_ms: float
    ids_equal: int
    streams: int


def rows(results: Sequence[dict[str, Any]]) -> list[Row]:
    """A row per K and batch; the first result is K=1."""
    baseline = results[0]["batches"]
    return [
        _row(result["k"], int(batch), facts, baseline[batch])
        for result in results
        for batch, facts in result["batches"].items()
    ]


def _row(k: int, batch: int, facts: dict[str, Any], before: dict[str, Any]) -> Row:
    wall, device = facts["ms_per_frame"], facts["device_ms"]
    floor = device["one query"] + device["sample"] if device.keys() >= {"sample"} else None
    codes = before["codes"]
    return Row(
        k=k,
        batch=batch,
        ms_per_frame=round(wall, 3),
        times_faster=round(before["ms_per_frame"] / wall, 2) if wall else 0.0,
        device_ms=None if floor is None else round(floor, 3),
        host_ms=None if floor is None else round(wall - floor, 3),
        over_floor=None if floor is None else round(wall / floor, 2),
        step_ms_max=round(facts["step_ms_max"], 2),
        first_window_ms=round(facts["first_window_ms"], 1),
        # Two empty streams would be equal and show nothing.
        ids_equal=sum(bool(ids) and facts["codes"][name] == ids for name, ids in codes.items()),
        streams=len(codes),
    )


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What ``kstep-shim bench --json`` prints."""
    found = rows(results)
    return {
        "device": results[0]["device"],
        "versions": results[0]["versions"],
        "identical": all(row.ids_equal == row.streams for row in found),
        "rows": [asdict(row) for row in found],
        "counters": {str(result["k"]): result["counters"] for result in results},
    }


def table(facts: dict[str, Any]) -> Table:
    """The result, for people."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    shown = Table(
        title=f"{facts['device']}\n{versions}",
        title_justify="left",
        caption="K=1 is the stock stack without the shim, in the same run.",
        caption_justify="left",
    )
    for column in ("K", "batch", "ms per frame", "times faster", "over the device", "ids equal"):
        shown.add_column(column, justify="right")
    for row in facts["rows"]:
        over = "" if row["over_floor"] is None else f"{row['over_floor']:.2f}"
        shown.add_row(
            str(row["k"]),
            str(row["batch"]),
            f"{row['ms_per_frame']:.2f}",
            f"{row['times_faster']:.2f}",
            over,
            f"{row['ids_equal']} of {row['streams']}",
        )
    return shown


def plot(facts: dict[str, Any], path: Path) -> None:
    """Draw milliseconds per frame against K, one line per batch size.

    Raises
    ------
    KStepError
        matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise KStepError(
            "--plot needs matplotlib: pip install 'kstep-shim[plot]'", usage=True
        ) from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for batch in sorted({row["batch"] for row in facts["rows"]}):
        line = [row for row in facts["rows"] if row["batch"] == batch]
        label = f"{batch} stream{'s' if batch > 1 else ''}"
        axes.plot([r["k"] for r in line], [r["ms_per_frame"] for r in line], "o-", label=label)
    axes.set_xscale("log", base=2)
    ticks = sorted({row["k"] for row in facts["rows"]})
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.set_ylim(bottom=0)
    axes.set(xlabel="frames per engine step (K)", ylabel="milliseconds per frame")
    axes.set_title(facts["device"])
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)
