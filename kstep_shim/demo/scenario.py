"""What a miniature run is asked to do: one stage's shape and a list of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class GraphMode(StrEnum):
    """How the forward runs, in the words of vLLM's ``cudagraph_mode``."""

    EAGER = "eager"
    PIECEWISE = "piecewise"
    FULL_DECODE_ONLY = "full_decode_only"


@dataclass(frozen=True)
class StageShape:
    """Shape of the Talker stage.

    ``frames`` is what the deployment asks for through ``speculative_config`` (1 = none);
    ``shim`` tells whether kstep_shim is installed in the process that runs the stage;
    ``chunk_frames`` is the vocoder window (``codec_chunk_frames``); ``codes`` the size of the
    codec's vocabulary, whose last id is its end.
    """

    frames: int = 1
    shim: bool = False
    mode: GraphMode = GraphMode.EAGER
    layers: int = 2
    codes: int = 64
    max_num_seqs: int = 4
    max_model_len: int = 1024
    max_num_batched_tokens: int = 1024
    chunk_frames: int = 25
    dtype: str = "float32"
    capture_sizes: tuple[int, ...] = ()
    engine_args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RequestSpec:
    """One Talker request.

    ``condition`` is the number of text tokens it speaks (0 = empty speech); ``arrival`` the engine
    step before which it is added; ``eos_frame`` makes the codec end its speech at that frame
    (1-based), whatever the random draw said; ``abort_step`` is a step after which the client
    leaves.
    """

    request_id: str
    condition: int = 3
    arrival: int = 0
    min_tokens: int = 6
    max_tokens: int = 2048
    eos_frame: int | None = None
    abort_step: int | None = None
    sampling: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """Requests served together. Before a step in ``draftless_steps`` all drafts are dropped."""

    name: str
    requests: tuple[RequestSpec, ...]
    draftless_steps: frozenset[int] = frozenset()
    max_steps: int = 4000


def staggered(count: int, *, frames: int | None = None, name: str = "staggered") -> Scenario:
    """`count` requests of growing length, arriving two steps apart.

    `frames` caps each request's tokens; without it every request ends by itself.
    """
    return Scenario(
        name=name,
        requests=tuple(
            RequestSpec(
                request_id=f"{name}-{index}",
                condition=3 + index,
                arrival=2 * index,
                min_tokens=6 if frames is None else min(6, frames),
                max_tokens=2048 if frames is None else frames,
            )
            for index in range(count)
        ),
    )
