"""Guards that can be switched off, and the test that notices: ``make mutants``.

``KSTEP_MUTANT=name`` switches one off in the stage processes of a test run. The file itself runs
every named test without its guard and fails if one of them stays green.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from kstep_shim.patches import bookkeeping, talker
from support import eight_points

VARIABLE = "KSTEP_MUTANT"
_SCHEDULER = "tests/stack/test_scheduler.py::"
_REPORTS = "tests/stack/test_field_reports.py::test_field_report_"
_RESULTS = "tests/stack/test_field_reports_scheduler.py::test_field_report_"
_TRAFFIC = "tests/stack/test_field_reports_traffic.py::"
_DUPLEX = "tests/stack/test_duplex.py::test_"
_LENGTHS = "tests/stack/test_hand_over.py::test_one_speech_in_twenty[4]"
_POINTS = "tests/stack30/test_eight_points.py::test_"
_EQUAL = _POINTS + "every_case_equals_one_frame_per_step"


@dataclass(frozen=True)
class Mutant:
    """A guard, as the attributes that are replaced, and the test that must turn red.

    Modules in ``keep`` have read the attribute before. The test needs the stack ``stack``.
    """

    places: tuple[str, ...]
    instead: Any
    test: str
    keep: tuple[str, ...] = ()
    stack: str = "0.26"


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _none_each(batch: Any, _requests: Any) -> list[None]:
    return [None for _ in batch.req_ids]


def _zero_each(batch: Any, _requests: Any) -> list[int]:
    return [0 for _ in batch.req_ids]


def _valid_rows(table: Any, packed: Any) -> Any:
    read = table.stock_read(packed)
    read[:, 1] = 1
    return read


MUTANTS = {
    "drafts are not dropped before a step": Mutant(
        ("frames.schedule:single_frame_step_reason",),
        _nothing,
        _SCHEDULER + "test_no_span_below_one_is_scheduled",
    ),
    "uneven spans are not rewritten": Mutant(
        ("frames.schedule:make_spans_uniform",),
        lambda *_: False,
        _SCHEDULER + "test_padding_never_counts_as_drafts",
    ),
    "uneven drafts are kept": Mutant(
        ("frames.schedule:align_drafts",),
        _nothing,
        _SCHEDULER + "test_drafts_that_differ_in_number_are_taken_back",
    ),
    "empty rows are not rolled back": Mutant(
        ("frames.schedule:settle_empty_rows",),
        lambda *_: [],
        _RESULTS + "01_no_negative_span[one_empty_row]",
    ),
    "a preempted request goes on": Mutant(
        ("frames.preemption:note_preemption",),
        _nothing,
        _RESULTS + "02_a_late_result_of_a_preempted_request",
    ),
    "a preemption ends as an abort": Mutant(
        ("frames.preemption:report_preempted",),
        _nothing,
        _RESULTS + "02_a_late_result_of_a_preempted_request",
    ),
    "options that name ids reach the head": Mutant(
        ("frames.options:without_vocabulary_options",),
        lambda params, _codec_head=False: (params, []),
        _REPORTS + "11_options_that_name_ids_are_ignored",
    ),
    "logprobs run K frames": Mutant(
        ("frames.schedule:single_frame_reason",),
        _nothing,
        _SCHEDULER + "test_what_cannot_be_k_wide_goes_single_frame[logprobs_go_single_frame]",
    ),
    "the minimum is not kept": Mutant(
        ("frames.limits:minimum_outputs",),
        _zero_each,
        _REPORTS + "03_minimum_on_any_row_of_a_step",
    ),
    "the loop knows no limits": Mutant(
        ("frames.limits:remaining_outputs",),
        _none_each,
        _REPORTS + "06_endings_inside_a_step",
    ),
    "draws after the end are kept": Mutant(
        ("frames.codec_request:CodecRequest.rewind",),
        _nothing,
        _REPORTS + "06_endings_inside_a_step",
    ),
    "a bad row passes": Mutant(
        ("frames.codec_table:CodecTable.read",),
        _valid_rows,
        _TRAFFIC + "test_faults_stop_the_stage_and_send_nothing_twice[a NaN row in frame 2]",
    ),
    "frames are handed over all at once": Mutant(
        ("frames.hand_over:take_booking",),
        _nothing,
        _LENGTHS,
    ),
    "the hand-over sees the live ending": Mutant(
        ("frames.hand_over:RequestAtToken.is_finished",),
        lambda at_token: at_token._request.is_finished(),
        _LENGTHS,
    ),
    "the head has no vocabulary": Mutant(
        ("frames.tokens:STOP_ROW_WIDTH",),
        0,
        _REPORTS + "06_endings_inside_a_step",
        keep=("frames.verify", "frames.options"),
    ),
    "a limit inside a duplex unit is counted late": Mutant(
        ("frames.hand_over:cut_behind_limit",),
        _nothing,
        _DUPLEX + "a_unit_that_its_limit_ends_inside_a_step_leaves_the_next_one_alone[10]",
    ),
    "a queued unit hides how many tokens there were": Mutant(
        ("frames.hand_over:accepted_tokens",),
        lambda request, before, _: request.num_output_tokens - before,
        _DUPLEX + "a_unit_that_is_queued_early_is_sent_as_at_one_frame",
    ),
    "a wide span takes a neighbour's blocks": Mutant(
        ("frames.schedule:_blocks_suffice",),
        lambda *_: True,
        _SCHEDULER + "test_what_cannot_be_k_wide_goes_single_frame[scarce_blocks_go_single_frame]",
    ),
    "a codec head is taken for a stop row": Mutant(
        ("frames.contract:is_codec_head",),
        eight_points.never,
        _EQUAL,
        stack="0.30",
    ),
    "drafts are continue ids": Mutant(
        ("frames.codec_head:CodecHead.drafts",),
        eight_points.same_drafts,
        _EQUAL,
        stack="0.30",
    ),
    "the engine samples a frame": Mutant(
        ("frames.codec_head_tail:CodecHeadTail.__init__",),
        eight_points.sampled_by_the_engine,
        _EQUAL,
        stack="0.30",
    ),
    "ids are counted after the step": Mutant(
        ("frames.codec_head_row:CodecHeadRow.take", "frames.codec_head_row:CodecHeadRow.expect"),
        eight_points.count_aside,
        _EQUAL,
        stack="0.30",
    ),
    "ids are counted twice": Mutant(
        ("frames.codec_head_row:CodecHeadRow.take_back",),
        _nothing,
        _POINTS + "an_id_is_counted_once_behind_a_step",
        stack="0.30",
    ),
    "frames behind an end are emitted": Mutant(
        ("frames.codec_head_row:CodecHeadRow._ends",),
        eight_points.never,
        _EQUAL,
        stack="0.30",
    ),
    "the vocabulary stays raised": Mutant(
        ("patches.bookkeeping:PATCH",),
        eight_points.rewrapped(bookkeeping.PATCH, "_bookkeeping_sync", eight_points.raise_for_good),
        _EQUAL,
        stack="0.30",
    ),
    "the vocabulary is not raised": Mutant(
        ("patches.bookkeeping:PATCH",),
        eight_points.rewrapped(bookkeeping.PATCH, "_bookkeeping_sync", eight_points.pass_through),
        _EQUAL,
        stack="0.30",
    ),
    "the minimum is asked before a stop": Mutant(
        ("frames.codec_head_row:CodecHeadRow._ends",),
        eight_points.minimum_first,
        _EQUAL,
        stack="0.30",
    ),
    "the wide head runs again": Mutant(
        ("patches.talker:PATCH",),
        eight_points.rewrapped(talker.PATCH, "compute_logits", eight_points.pass_through),
        _POINTS + "the_wide_head_is_computed_for_one_row_per_request_and_frame",
        stack="0.30",
    ),
}


def switch_off(name: str | None = None) -> None:
    """Replace the guard called `name`, by default the one that the environment names."""
    name = name or os.environ.get(VARIABLE)
    if not name:
        return
    mutant = MUTANTS[name]
    for reader in mutant.keep:
        importlib.import_module(f"kstep_shim.{reader}")
    for place in mutant.places:
        module, _, path = place.partition(":")
        owner: Any = importlib.import_module(f"kstep_shim.{module}")
        *owners, attribute = path.split(".")
        for part in owners:
            owner = getattr(owner, part)
        setattr(owner, f"stock_{attribute}", getattr(owner, attribute))
        setattr(owner, attribute, mutant.instead)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants to run, by default all of the stack")
    survivors, stack = [], os.environ.get("STACK", "0.26")
    every = [name for name, mutant in MUTANTS.items() if mutant.stack == stack]
    for name in parser.parse_args().names or every:
        test, started = MUTANTS[name].test, time.monotonic()
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test],
            env={**os.environ, VARIABLE: name},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        # 1 is "a test failed"; anything else did not judge the mutant.
        verdict = {0: "GREEN", 1: "red"}.get(run.returncode, f"pytest exited {run.returncode}")
        if run.returncode != 1:
            survivors.append(name)
        sys.stdout.write(f"{verdict:6} {name}: {test} ({time.monotonic() - started:.0f} s)\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(survivors)} guards that no test misses\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
