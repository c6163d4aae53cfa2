"""A driver of the real engine core with clients that come and go, and books after every step."""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstep_shim.demo.drive import Driver, build_request
from kstep_shim.demo.outcome import Outcome, RequestOutcome
from kstep_shim.demo.scenario import RequestSpec
from kstep_shim.demo.stage import model_runner
from kstep_shim.frames.contract import is_codec_head
from support.stress_books import BookError, check_books, check_inputs, check_schedule
from support.stress_plan import Plan, Visit, label

#: A request of a kind whose prompt was read in chunks of these sizes.
Key = tuple[str, tuple[int, ...]]


@dataclass
class Spoken:
    """What one request produced.

    ``sent`` and ``coded`` say how many payloads had left, and codes had come, after n tokens.
    """

    outcome: RequestOutcome
    chunks: list[int] = field(default_factory=list)
    sent: dict[int, int] = field(default_factory=dict)
    coded: dict[int, int] = field(default_factory=dict)
    gone: bool = False
    preempted: bool = False
    spec: RequestSpec | None = None

    @property
    def key(self) -> Key:
        assert self.spec is not None
        return label(self.spec), tuple(self.chunks)


@dataclass
class StressResult:
    """All that one run produced."""

    spoken: dict[str, Spoken]
    steps: int
    engaged: int
    rolled_back: int
    counters: dict[str, int]
    leftovers: dict[str, int]
    #: Bytes of resident memory when that many requests had come.
    resident: dict[int, int]


class StressDriver(Driver):
    """The demo's driver with clients that come and go, and books."""

    def __init__(self, engine: Any, frames: int) -> None:
        super().__init__(engine)
        self._frames = frames
        self._runner = model_runner(engine)
        self._spoken: dict[str, Spoken] = {}
        self._visits: dict[str, Visit] = {}
        self._alive: dict[str, int] = {}
        self._executed = self._engaged = self._rolled_back = 0
        self._outcome = Outcome({}, [])
        self._came = 0
        self._resident: dict[int, int] = {}
        self._watch()

    def run_plan(self, plan: Plan) -> StressResult:
        """Serve `plan` to its end."""
        for step, arriving in enumerate(plan.arrivals()):
            if self._executed >= plan.steps or (step >= plan.steps and not arriving):
                break
            for visit in arriving:
                if len(self._scheduler.requests) < plan.most_at_once:
                    self._arrive(visit)
            self.step()
        self._drain()
        # The Talker forgets who finished in the next forward, at K=1 too.
        self._arrive(Visit(RequestSpec("last", condition=1, eos_frame=2, min_tokens=0)))
        self._drain()
        self._spoken.pop("last", None)
        return StressResult(
            self._spoken,
            self._executed,
            self._engaged,
            self._rolled_back,
            _counters(),
            leftovers(self._engine, [*self._spoken]),
            self._resident,
        )

    def speak_alone(self, spec: RequestSpec, chunks: Sequence[int]) -> Spoken:
        """One request on an otherwise idle engine, its prompt read in `chunks`."""
        self._arrive(Visit(spec))
        whole = self._scheduler.max_num_scheduled_tokens
        for chunk in chunks:
            self._scheduler.max_num_scheduled_tokens = chunk
            self.step()
        self._scheduler.max_num_scheduled_tokens = whole
        self._drain()
        return self._spoken.pop(spec.request_id)

    def step(self) -> None:
        self._leave("before")
        for name in self._alive:
            self._alive[name] += 1
        self._step()
        for name in list(self._alive):
            spoken = self._spoken[name]
            count = len(spoken.outcome.tokens)
            spoken.sent[count] = len(spoken.outcome.payloads)
            spoken.coded[count] = len(spoken.outcome.codes)
            left = spoken.gone and name not in self._scheduler.requests
            if left or spoken.outcome.finish_reason is not None:
                del self._alive[name]
                self._ended(name)
        self._leave("after")

    def _ended(self, name: str) -> None:
        """Called once for every request, when it has ended or its client has left."""

    def _collect(self, output: Any, prefilling: bool) -> None:
        # The engine reports a departure with the step that the client no longer waited for.
        if output.new_token_ids or str(output.finish_reason) != "abort":
            super()._collect(output, prefilling)

    def _drain(self) -> None:
        for _ in range(3000):
            if not self._scheduler.has_requests():
                return
            self.step()
        raise BookError(f"never ended: {[*self._scheduler.requests]}")

    def _arrive(self, visit: Visit) -> None:
        name = visit.spec.request_id
        self._spoken[name] = Spoken(RequestOutcome(), spec=visit.spec)
        self._visits[name] = visit
        self._alive[name] = 0
        self._outcome.requests[name] = self._spoken[name].outcome
        if visit.spec.eos_frame is not None:
            self._ends[name] = visit.spec.eos_frame
        self._engine.add_request(build_request(visit.spec, self._options))
        self._came += 1
        if self._came % 500 == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self._resident[self._came] = pages * resource.getpagesize()

    def _leaving(self, point: str) -> list[str]:
        found = []
        for name, age in self._alive.items():
            visit = self._visits[name]
            due = visit.abort_after is not None and age >= visit.abort_after
            if due and visit.abort_point == point and name in self._scheduler.requests:
                found.append(name)
        return found

    def _leave(self, point: str) -> None:
        names = self._leaving(point)
        for name in names:
            self._spoken[name].gone = True
        if not names:
            return
        if point == "executing":
            self._engine.aborts_queue.put_nowait(names)
        else:
            self._engine.abort_requests(names)

    def _watch(self) -> None:
        schedule, update = self._scheduler.schedule, self._scheduler.update_from_output
        execute, forward = self._runner.execute_model, self._runner._model_forward
        codec_head = is_codec_head(self._talker)

        def scheduling(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            check_schedule(output, self._scheduler.requests, self._frames, codec_head)
            for name in self._scheduled[2]:
                self._spoken[name].chunks.append(output.num_scheduled_tokens[name])
            for name in output.preempted_req_ids or ():
                self._spoken[name].preempted = True
            self._engaged += bool(output.scheduled_spec_decode_tokens)
            self._leave("scheduled")
            return output

        def executing(output: Any, *args: Any, **kwargs: Any) -> Any:
            self._executed += output.total_num_scheduled_tokens > 0
            result = execute(output, *args, **kwargs)
            self._leave("executing")
            return result

        def forwarding(padded: int, input_ids: Any = None, *args: Any, **kwargs: Any) -> Any:
            check_inputs(input_ids)
            return forward(padded, input_ids, *args, **kwargs)

        def updating(output: Any, result: Any) -> Any:
            rows = result.sampled_token_ids
            sampled = {
                name: len(rows[index]) for name, index in result.req_id_to_index.items() if rows
            }
            outputs = update(output, result)
            widths = output.num_scheduled_tokens
            self._rolled_back += check_books(self._scheduler, widths, sampled)
            self._leave("updated")
            return outputs

        self._scheduler.schedule = scheduling
        self._scheduler.update_from_output = updating
        self._runner.execute_model = executing
        self._runner._model_forward = forwarding


class ForgetfulDriver(StressDriver):
    """Keeps nothing of a request that has ended, so that only the stage's own memory can grow."""

    def _ended(self, name: str) -> None:
        for kept in (self._spoken, self._visits, self._ends, self._outcome.requests):
            kept.pop(name, None)


def leftovers(engine: Any, names: Sequence[str]) -> dict[str, int]:
    """Entries that still name a request, by place; all requests have ended."""
    known = set(names)
    runner, scheduler = model_runner(engine), engine.scheduler
    places = {
        "scheduler": scheduler,
        "runner": runner,
        "batch": runner.input_batch,
        "talker": runner.get_model().talker,
        "adapter": scheduler.chunk_transfer_adapter,
    }
    found = {}
    for place, owner in places.items():
        for attribute, value in vars(owner).items():
            if isinstance(value, Mapping | set | frozenset | list | deque):
                count = sum(1 for item in value if _names(item, known))
                if count:
                    found[f"{place}.{attribute}"] = count
    return found


def _names(item: Any, known: set[str]) -> bool:
    if not isinstance(item, str):
        item = getattr(item, "request_id", None)
    return isinstance(item, str) and (item in known or item.partition("-")[2] in known)


def _counters() -> dict[str, int]:
    import kstep_shim

    return dict(kstep_shim.status().counters)
