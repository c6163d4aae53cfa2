"""The report as an object, as text and as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstep_shim.counters import Counters
from kstep_shim.declaration import State
from kstep_shim.report import PatchRecord, Report, read_directory, write

REPORT = Report(
    active=True,
    reason="sealed: worker",
    frames=8,
    source="yaml",
    patches=(PatchRecord("verify", State.APPLIED), PatchRecord("warmup", State.PENDING, "waits")),
    counters={"steps": 3},
    pid=42,
    role="worker",
    stage=1,
)


def test_a_report_survives_its_dictionary() -> None:
    assert Report.from_dict(REPORT.to_dict()) == REPORT


def test_the_text_names_place_frames_states_and_reasons() -> None:
    text = str(REPORT)
    for part in ("worker, stage 1, pid 42", "K=8 (yaml)", "1 pending, 1 applied", "waits", "= 3"):
        assert part in text
    assert "\n" not in REPORT.summary()


def test_files_are_written_whole_and_others_are_skipped(tmp_path: Path, caplog: Any) -> None:
    directory = tmp_path / "new" / "status"
    write(REPORT, str(directory))
    (directory / "7.json").write_text('{"active": true}')
    (directory / "notes.json").write_text("not ours")
    assert read_directory(directory) == (REPORT,)
    assert "7.json is not a report" in caplog.text
    assert sorted(path.name for path in directory.iterdir()) == ["42.json", "7.json", "notes.json"]


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "file").write_text("")
    write(REPORT, str(tmp_path / "file"))
    assert "cannot be written" in caplog.text


def test_state_of_a_patch_that_is_not_there() -> None:
    with pytest.raises(KeyError):
        REPORT.state("nothing")


def test_counters_add_up_and_name_each_reason_once(caplog: Any) -> None:
    caplog.set_level("INFO", "vllm.kstep_shim")
    counters = Counters()
    counters.increment("frames", 4)
    counters.increment("frames")
    for _ in range(3):
        counters.decline("a prefill")
    assert counters.snapshot() == {"declined: a prefill": 3, "frames": 5}
    assert (counters.get("frames"), counters.get("nothing")) == (5, 0)
    assert caplog.text.count("a prefill") == 1
    counters.clear()
    assert counters.snapshot() == {}
