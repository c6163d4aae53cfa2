"""What a miniature run produced, and the comparison that decides "identical"."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class RequestOutcome:
    """One request: codec ids, engine tokens, endings, and the hidden row of every delivered frame.

    ``payloads`` lists what the vocoder stage received, in order; ``hidden`` has one
    ``[1, hidden_size]`` row per engine token; ``draws`` is a digest of the codec's generator at
    the end, so it tells whether as many random numbers were used.
    """

    codes: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | None = None
    hidden: list[Tensor] = field(default_factory=list)
    payloads: list[Any] = field(default_factory=list)
    draws: str = ""


@dataclass(frozen=True)
class StepRecord:
    """One engine step: width per request, and what else was going on."""

    widths: dict[str, int]
    drafts: dict[str, int]
    prefill: bool
    waiting: int
    seconds: float
    finished: int


@dataclass
class Outcome:
    """All that one scenario produced in one process."""

    requests: dict[str, RequestOutcome]
    steps: list[StepRecord]
    counters: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)

    @property
    def frames(self) -> int:
        return sum(len(request.tokens) for request in self.requests.values())

    @property
    def decode_steps(self) -> int:
        return sum(1 for step in self.steps if step.widths and not step.prefill)

    @property
    def engaged_steps(self) -> int:
        return sum(1 for step in self.steps if step.drafts and not step.prefill)

    @property
    def host_ms_per_frame(self) -> float:
        """Wall time of the steps that ran, in milliseconds, per engine token."""
        busy = sum(step.seconds for step in self.steps if step.widths)
        return 1e3 * busy / max(1, self.frames)


def save(outcomes: dict[str, Outcome], path: Path) -> None:
    """Write the outcomes of one process, keyed by scenario name."""
    import torch

    torch.save(outcomes, path)


def load(path: Path) -> dict[str, Outcome]:
    """Read what `save` wrote. The file must be our own: it is a pickle."""
    import torch

    loaded: dict[str, Outcome] = torch.load(path, weights_only=False)
    return loaded


def differences(expected: Outcome, actual: Outcome) -> list[str]:
    """Every way in which `actual` is not what K=1 gave; empty means identical."""
    import torch

    found = []
    if expected.requests.keys() != actual.requests.keys():
        found.append(f"requests: {sorted(expected.requests)} against {sorted(actual.requests)}")
    for name in expected.requests.keys() & actual.requests.keys():
        want, got = expected.requests[name], actual.requests[name]
        for item in ("codes", "tokens", "finish_reason", "stop_reason", "payloads", "draws"):
            if getattr(want, item) != getattr(got, item):
                found.append(f"{name}: {item} {_short(want, item)} against {_short(got, item)}")
        if len(want.hidden) != len(got.hidden):
            found.append(f"{name}: {len(want.hidden)} hidden rows against {len(got.hidden)}")
        else:
            rows = (torch.equal(a, b) for a, b in zip(want.hidden, got.hidden, strict=True))
            unequal = [index for index, same in enumerate(rows) if not same]
            if unequal:
                found.append(f"{name}: hidden rows differ at frames {unequal[:5]}")
    return found


def _short(request: RequestOutcome, item: str) -> str:
    value = getattr(request, item)
    text = f"{len(value)}:{value}" if isinstance(value, list) else repr(value)
    return text if len(text) < 300 else text[:300] + "..."
