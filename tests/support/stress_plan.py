"""What a stress run asks for: seeded requests, arrivals and departures."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kstep_shim.catalog import installed_head
from kstep_shim.declaration import Head
from kstep_shim.demo.scenario import RequestSpec, StageShape

#: Points of an engine step at which a client may leave.
ABORT_POINTS = ("before", "scheduled", "executing", "updated", "after")
_NO_EOS = 10_000
_SAMPLING: dict[Head, tuple[dict[str, Any], ...]] = {
    # The seed is one that no request of the stop row needs: the codec has its own.
    Head.STOP_ROW: ({}, {}, {}, {"temperature": 0.8, "top_k": 3, "seed": None}),
    Head.CODEC: (
        {},
        {"temperature": 0.0},
        {"temperature": 1.2, "top_k": 3, "seed": 5},
        {"repetition_penalty": 1.6, "top_p": 0.5},
    ),
}


@dataclass(frozen=True)
class Visit:
    """One request of a run, and when its client leaves, if it does.

    ``arrival`` is the engine step before which it comes; ``abort_after`` the number of steps that
    it stays.
    """

    spec: RequestSpec
    arrival: int = 0
    abort_after: int | None = None
    abort_point: str = "after"


class Plan(Protocol):
    """What a run needs to know; equal plans replay each other."""

    @property
    def frames(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def most_at_once(self) -> int: ...

    def shape(self) -> StageShape: ...

    def stock(self) -> StageShape: ...

    def arrivals(self) -> Iterator[list[Visit]]: ...

    def replay(self) -> str: ...


@dataclass(frozen=True)
class StressPlan:
    """Random traffic.

    ``steps`` counts the model runner's ``execute_model`` calls with work in them; the requests
    that are alive by then are served to their ends. ``blocks`` makes KV blocks scarce.
    """

    seed: int
    frames: int
    steps: int
    budget: int = 1024
    blocks: int | None = None
    abort_share: float = 0.15
    kinds: int = 24
    #: Who comes when so many are in the system goes away again; the stages serve four at a time.
    most_at_once: int = 7

    def shape(self) -> StageShape:
        """The stage that the plan runs on."""
        arguments = {} if self.blocks is None else {"num_gpu_blocks_override": self.blocks}
        return StageShape(
            frames=self.frames,
            shim=self.frames > 1,
            max_num_batched_tokens=self.budget,
            max_model_len=1024 if self.blocks is None else 256,
            engine_args=arguments,
        )

    def stock(self) -> StageShape:
        """The same at K=1 with KV blocks enough."""
        return replace(self.shape(), frames=1, shim=False, engine_args={})

    def arrivals(self) -> Iterator[list[Visit]]:
        """Who arrives before each step, without end."""
        draw = random.Random(f"arrivals {self.seed}")
        coming = visits(self)
        while True:
            count = draw.choice((0, 0, 0, 0, 0, 1, 1, 2, 3))
            yield [next(coming) for _ in range(count)]

    def replay(self) -> str:
        """The command that runs exactly this plan again."""
        scarce = "" if self.blocks is None else f" --blocks {self.blocks}"
        return (
            f"PYTHONPATH=tests python -m support.soak --seeds {self.seed} --frames {self.frames} "
            f"--steps {self.steps} --budget {self.budget}{scarce}"
        )


@dataclass(frozen=True)
class Traffic:
    """Listed visits on a given stage, each served to its end."""

    on: StageShape
    visits: tuple[Visit, ...]
    most_at_once: int = 10_000

    @property
    def frames(self) -> int:
        """K."""
        return self.on.frames

    @property
    def steps(self) -> int:
        """Steps to run at least: until the last visit has come."""
        return max(visit.arrival for visit in self.visits) + 1

    def shape(self) -> StageShape:
        """The stage with the shim on, if it runs more than one frame."""
        return replace(self.on, shim=self.frames > 1)

    def stock(self) -> StageShape:
        """The same at K=1 with KV blocks enough."""
        arguments = {k: v for k, v in self.on.engine_args.items() if "blocks" not in k}
        return replace(self.on, frames=1, shim=False, engine_args=arguments)

    def arrivals(self) -> Iterator[list[Visit]]:
        """Who arrives before each step, without end."""
        for step in itertools.count():
            yield [visit for visit in self.visits if visit.arrival == step]

    def replay(self) -> str:
        """The traffic itself."""
        return repr(self)


def request_kinds(plan: StressPlan) -> list[RequestSpec]:
    """The distinct requests of a seed; few, so that each needs its K=1 result only once."""
    draw = random.Random(f"kinds {plan.seed}")
    kinds = [RequestSpec("empty", condition=0, min_tokens=draw.choice((0, 6, 50)))]
    kinds.append(RequestSpec("one token", condition=1, min_tokens=0, eos_frame=3))
    while len(kinds) < plan.kinds:
        kinds.append(_kind(draw, long=plan.blocks is not None))
    return kinds


def _kind(draw: random.Random, long: bool) -> RequestSpec:
    minimum = draw.choice((0, 0, 6, 20, 50))
    ends = draw.choice(("limit", "eos", "eos", "ceiling", "both"))
    limit = 2048
    eos: int | None = draw.randint(1, 60)
    if ends in ("limit", "both"):
        limit = draw.choice((*range(1, 8), *range(9, 60)))
    if ends == "limit" or ends == "ceiling":
        eos = _NO_EOS
    if ends == "both":
        eos = max(1, limit + draw.randint(-1, 2))
    condition = draw.choice((0, 1, 2, 3, 4, 5, 6, 9, 14, 22))
    if long:
        # Long enough to need a second KV block.
        condition, limit, minimum, eos = draw.randint(12, 24), 2048, 0, draw.randint(90, 220)
    sampling = draw.choice(_SAMPLING[installed_head()])
    return RequestSpec(
        "",
        condition=condition,
        min_tokens=min(minimum, limit),
        max_tokens=limit,
        eos_frame=eos,
        sampling=dict(sampling),
    )


def visits(plan: StressPlan) -> Iterator[Visit]:
    """Endless requests in order of arrival."""
    draw = random.Random(f"visits {plan.seed}")
    kinds = request_kinds(plan)
    for number in itertools.count():
        kind = draw.choice(kinds)
        leaves = draw.random() < plan.abort_share
        yield Visit(
            replace(kind, request_id=f"r{number}"),
            abort_after=draw.choice((0, 1, 2, 3, 5, 9, 14)) if leaves else None,
            abort_point=draw.choice(ABORT_POINTS),
        )


def label(spec: RequestSpec) -> str:
    """What a request says, without its name and its time."""
    return repr(replace(spec, request_id="", arrival=0, abort_step=None))
