"""Random traffic at K frames per step against each request alone at K=1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from support.stages import Stages
from support.stress_driver import Key, Spoken, StressResult
from support.stress_plan import Plan
from support.stress_run import run_alone, run_plan

#: Stock keeps these for a client that left before its end, at K=1 too.
_STOCK_LEFTOVERS = ("adapter.",)


@dataclass
class Verdict:
    """Violations of one run, and what was run."""

    plan: Plan
    result: StressResult
    violations: list[str]

    def __str__(self) -> str:
        result = self.result
        said = result.spoken.values()
        left, preempted = sum(s.gone for s in said), sum(s.preempted for s in said)
        return (
            f"K={self.plan.frames}: {result.steps} execute_model calls, "
            f"{result.engaged} K-frame steps, {len(said)} requests ({left} left, {preempted} "
            f"preempted), "
            f"{result.rolled_back} positions rolled back, {len(self.violations)} violations"
        )


class Stress:
    """Runs plans, and remembers what K=1 said."""

    def __init__(self, stages: Stages, timeout: float = 600.0) -> None:
        self._stages = stages
        self._timeout = timeout
        self._alone: dict[tuple[str, Key], Spoken] = {}

    def judge(self, plan: Plan, prepare: Callable[[], None] | None = None) -> Verdict:
        """Serve `plan` and compare every request of it."""
        result: StressResult = self._call(partial(run_plan, plan, prepare))
        violations = [*self._compare(plan, result), *_leftovers(result)]
        possible = plan.shape().max_num_batched_tokens >= plan.frames
        engaged = result.counters.get("steps_engaged", 0)
        if engaged != result.engaged or (possible and not engaged):
            violations.append(f"{result.engaged} K-frame steps scheduled: {result.counters}")
        if result.counters.get("backstop_reached"):
            violations.append(f"backstop reached {result.counters['backstop_reached']} times")
        return Verdict(plan, result, violations)

    def check(self, plan: Plan, prepare: Callable[[], None] | None = None) -> Verdict:
        """As `judge`, raising on any violation with the command that replays it."""
        try:
            verdict = self.judge(plan, prepare)
        except AssertionError as error:
            raise AssertionError(f"{error}\nreplay: {plan.replay()}") from error
        found = "\n".join(verdict.violations[:20])
        assert not verdict.violations, f"{verdict}\n{found}\nreplay: {plan.replay()}"
        return verdict

    def _call(self, function: Callable[[], Any]) -> Any:
        return self._stages.call(function, timeout=self._timeout)

    def _compare(self, plan: Plan, result: StressResult) -> list[str]:
        stock = plan.stock()
        spoken = {name: said for name, said in result.spoken.items() if said.outcome.tokens}
        wanted = {said.key: said.spec for said in spoken.values()}
        missing = {key: s for key, s in wanted.items() if (repr(stock), key) not in self._alone}
        if missing:
            answers = self._call(partial(run_alone, stock, missing))
            self._alone.update({(repr(stock), key): said for key, said in answers.items()})
        return [
            f"{name} {said.spec} {said.chunks}: {what}"
            for name, said in spoken.items()
            for what in differences(self._alone[repr(stock), said.key], said)
        ]


def differences(expected: Spoken, spoken: Spoken) -> list[str]:
    """Every way in which `spoken` is not what K=1 says, up to where it was cut off."""
    want, got = expected.outcome, spoken.outcome
    count = len(got.tokens)
    cut = (spoken.gone or spoken.preempted) and count < len(want.tokens)
    codes = expected.coded.get(count)
    pairs: dict[str, tuple[Any, Any]] = {
        "tokens": (want.tokens[:count] if cut else want.tokens, got.tokens),
        "codes": (want.codes[:codes] if cut else want.codes, got.codes),
        "hidden": (_bytes(want.hidden[:count] if cut else want.hidden), _bytes(got.hidden)),
    }
    sent = expected.sent.get(count)
    payloads = want.payloads[:sent] if cut else want.payloads
    pairs["payloads"] = (_anonymous(payloads), _anonymous(got.payloads))
    if spoken.preempted and cut:
        # The terminal marker tells the vocoder stage that nothing more will come.
        pairs["payloads"] = (pairs["payloads"][0], pairs["payloads"][1][: len(payloads)])
        pairs["finish_reason"] = ("error", got.finish_reason)
        pairs["stop_reason"] = ("preempted", str(got.stop_reason).partition(":")[0])
    elif not spoken.gone:
        for item in ("finish_reason", "stop_reason", "draws"):
            pairs[item] = (getattr(want, item), getattr(got, item))
    return [
        f"{item}: {_short(wanted)} against {_short(found)}"
        for item, (wanted, found) in pairs.items()
        if wanted != found
    ]


def _leftovers(result: StressResult) -> list[str]:
    return [
        f"{count} entries left in {place}"
        for place, count in result.leftovers.items()
        if not place.startswith(_STOCK_LEFTOVERS)
    ]


def _bytes(rows: list[Any]) -> list[bytes]:
    return [row.numpy().tobytes() for row in rows]


def _anonymous(value: Any) -> Any:
    """A payload without the request's own name in it."""
    if isinstance(value, dict):
        hidden = ("request_id", "req_id")
        return {key: _anonymous(item) for key, item in value.items() if key not in hidden}
    return [_anonymous(item) for item in value] if isinstance(value, list) else value


def _short(value: object) -> str:
    text = f"{len(value)}:{value}" if isinstance(value, list) else repr(value)
    return text if len(text) < 240 else text[:240] + "..."
