"""Direct verify of stop rows, alone and against the released samplers."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from toy_stack import INF

from kstep_shim.frames.verify import InvalidStopRowError, accept_frames, require_valid

CONTINUE, STOP = [0.0, -INF], [-INF, 0.0]


def stop_rows(stops: list[int | None], widths: list[int]) -> torch.Tensor:
    """Rows of requests that stop at a position and keep stopping, as a finished codec does."""
    return torch.tensor(
        [
            STOP if stop is not None and position >= stop else CONTINUE
            for stop, width in zip(stops, widths, strict=True)
            for position in range(width)
        ]
    )


@st.composite
def uneven_steps(draw: Any) -> tuple[list[int | None], list[int]]:
    widths = draw(st.lists(st.integers(1, 16), min_size=1, max_size=4))
    stops = [draw(st.one_of(st.none(), st.integers(0, width - 1))) for width in widths]
    return stops, widths


@given(step=uneven_steps())
def test_first_stop_wins_at_any_width(step: tuple[list[int | None], list[int]]) -> None:
    stops, widths = step
    accepted = accept_frames(stop_rows(stops, widths), widths)
    assert accepted.token_ids.dtype == torch.int32
    assert accepted.token_ids.shape == (len(widths), max(widths))
    assert accepted.valid.tolist() == [True] * len(widths)
    for stop, width, tokens in zip(stops, widths, accepted.token_ids.tolist(), strict=True):
        kept = [0] * width if stop is None else [0] * stop + [1]
        assert tokens == kept + [-1] * (max(widths) - len(kept))


def test_a_row_after_the_first_stop_is_not_looked_at() -> None:
    rows = torch.tensor([CONTINUE, STOP, CONTINUE, STOP])
    assert accept_frames(rows, [4]).token_ids.tolist() == [[0, 1, -1, -1]]


def test_other_dtypes_and_layouts() -> None:
    rows = stop_rows([1, None], [3, 3]).to(torch.bfloat16)
    strided = torch.stack([rows, rows], dim=2)[..., 0]
    assert not strided.is_contiguous()
    assert accept_frames(strided, [3, 3]).token_ids.tolist() == [[0, 1, -1], [0, 0, 0]]


def test_no_requests() -> None:
    accepted = accept_frames(torch.zeros(0, 2), [])
    assert accepted.token_ids.shape == (0, 0)
    require_valid(accepted.valid.tolist())


@pytest.mark.parametrize(
    ("produced", "least", "tokens"),
    [
        (45, 50, [0, 0, 0, 0]),
        (46, 50, [0, 0, 0, 0]),
        (47, 50, [0, 0, 0, 1]),
        (48, 50, [0, 0, 1, -1]),
        (49, 50, [0, 1, -1, -1]),
        (50, 50, [1, -1, -1, -1]),
        (10, 0, [1, -1, -1, -1]),
    ],
)
def test_a_stop_below_the_minimum_is_a_continue(
    produced: int, least: int, tokens: list[int]
) -> None:
    accepted = accept_frames(stop_rows([0], [4]), [4], [produced], [least])
    assert accepted.token_ids.tolist() == [tokens]


def test_the_minimum_counts_per_request_and_at_any_width() -> None:
    accepted = accept_frames(stop_rows([0, 0, 1], [3, 1, 2]), [3, 1, 2], [49, 49, 90], [50] * 3)
    assert accepted.token_ids.tolist() == [[0, 1, -1], [0, -1, -1], [0, 1, -1]]


NAN = float("nan")


@pytest.mark.parametrize(
    "row", [[-INF, -INF], [NAN, 0.0], [0.0, NAN], [NAN, NAN], [INF, 0.0], [0.0, INF]]
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_an_invalid_row_never_passes_for_a_token(row: list[float], position: int) -> None:
    rows = stop_rows([None, None], [3, 3])
    rows[position] = torch.tensor(row)
    accepted = accept_frames(rows, [3, 3])
    assert accepted.token_ids.tolist() == [[-1, -1, -1], [0, 0, 0]]
    assert accepted.valid.tolist() == [False, True]
    with pytest.raises(InvalidStopRowError, match="'a'"):
        require_valid(accepted.valid.tolist(), ["a", "b"])
    with pytest.raises(InvalidStopRowError, match=r"\[0\]"):
        require_valid(accepted.valid.tolist())


def test_filling_of_an_uneven_row_is_not_judged() -> None:
    rows = stop_rows([None, None], [1, 3])
    rows[0] = torch.tensor([NAN, NAN])
    assert accept_frames(rows, [1, 3]).valid.tolist() == [False, True]
    rows[0] = torch.tensor(CONTINUE)
    assert accept_frames(rows, [1, 3]).valid.tolist() == [True, True]


def test_one_request_cannot_outvote_its_stop_with_a_minimum_of_another() -> None:
    accepted = accept_frames(stop_rows([0, 0], [2, 2]), [2, 2], [0, 0], [9, 0])
    assert accepted.token_ids.tolist() == [[0, 0], [1, -1]]


@pytest.mark.parametrize(
    ("rows", "widths", "counts", "minimums", "message"),
    [
        (torch.zeros(4, 3), [4], None, None, "not .n, 2."),
        (torch.zeros(4), [4], None, None, "not .n, 2."),
        (torch.zeros(4, 2), [3], None, None, "4 stop rows for widths"),
        (torch.zeros(4, 2), [4, 0], None, None, "4 stop rows for widths"),
        (torch.zeros(4, 2), [4], [1], None, "go together"),
        (torch.zeros(4, 2), [4], [1, 2], [1], "2 output counts and 1 minimums"),
    ],
)
def test_shapes_that_do_not_fit(
    rows: torch.Tensor, widths: Any, counts: Any, minimums: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        accept_frames(rows, widths, counts, minimums)


# Against the released packages, on the software NPU.


@pytest.fixture(scope="module")
def released() -> Iterator[Any]:
    """vllm-ascend's rejection sampler module, with the configuration that it ships with."""
    module = pytest.importorskip("vllm_ascend.sample.rejection_sampler")
    assert not module.HAS_TRITON
    config = SimpleNamespace(
        enable_reduce_sample=False,
        rejection_sampler_config=SimpleNamespace(
            enable_block_verify=False,
            enable_entropy_verify=False,
            posterior_threshold=0.1,
            posterior_alpha=0.1,
        ),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "get_ascend_config", lambda: config)
        yield module


def released_tokens(
    module: Any, rows: torch.Tensor, widths: list[int], temperature: float
) -> torch.Tensor:
    """What vllm-ascend accepts of these rows when every draft is *continue*."""
    drafts = [width - 1 for width in widths]
    ends = torch.tensor(widths).cumsum(0)
    bonus = ends - 1
    targets = torch.ones(len(rows), dtype=torch.bool)
    targets[bonus] = False
    metadata = SimpleNamespace(
        all_greedy=temperature == 0.0,
        all_random=temperature != 0.0,
        temperature=torch.full((len(widths),), temperature),
        generators={},
    )
    return module.rejection_sample(
        torch.zeros(sum(drafts), dtype=torch.int32),
        drafts,
        max(drafts),
        torch.tensor(drafts).cumsum(0).to(torch.int32),
        None,
        rows[targets].contiguous(),
        rows[bonus].argmax(-1, keepdim=True).to(torch.int32),
        metadata,
    )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("frames", range(2, 17))
def test_every_stop_position_equals_the_released_sampler(
    released: Any, frames: int, temperature: float
) -> None:
    positions: list[int | None] = [*range(frames), None]
    for count in range(1, 5):
        for first in range(len(positions)):
            stops = [positions[(first + 3 * row) % len(positions)] for row in range(count)]
            widths = [frames] * count
            rows = stop_rows(stops, widths)
            theirs = released_tokens(released, rows.clone(), widths, temperature)
            ours = accept_frames(rows, widths).token_ids
            assert torch.equal(ours, theirs), (stops, frames)


@settings(max_examples=40, deadline=None)
@given(step=uneven_steps(), temperature=st.sampled_from([0.0, 1.0]))
def test_uneven_widths_equal_the_released_sampler(
    released: Any, step: tuple[list[int | None], list[int]], temperature: float
) -> None:
    stops, widths = step
    assume(max(widths) > 1)  # without a single draft the released sampler is not asked
    rows = stop_rows(stops, widths)
    theirs = released_tokens(released, rows.clone(), widths, temperature)
    assert torch.equal(accept_frames(rows, widths).token_ids, theirs)


class SingleFrameEngine:
    """vLLM's own min-tokens processor and stop check, one row per step."""

    def __init__(self, min_tokens: int, max_tokens: int) -> None:
        builtin = pytest.importorskip("vllm.v1.sample.logits_processor.builtin")
        sampling = pytest.importorskip("vllm.sampling_params")
        self.params = sampling.SamplingParams(
            min_tokens=min_tokens, max_tokens=max_tokens, stop_token_ids=[1], temperature=0.0
        )
        self.outputs: list[int] = []
        config = SimpleNamespace()
        self.processor = builtin.MinTokensLogitsProcessor(config, torch.device("cpu"), False)

    def pick(self, row: list[float]) -> int:
        update = pytest.importorskip("vllm.v1.sample.logits_processor.interface")
        first = update.BatchUpdate(
            batch_size=1, removed=[], moved=[], added=[(0, self.params, None, self.outputs)]
        )
        self.processor.update_state(first if not self.outputs else None)
        return int(self.processor.apply(torch.tensor([row])).argmax())


def ends(tokens: list[int], params: Any) -> str | None:
    """Ask vLLM whether a request with these output tokens has ended, and how."""
    utils = pytest.importorskip("vllm.v1.core.sched.utils")
    request = SimpleNamespace(
        pooling_params=None,
        sampling_params=params,
        num_output_tokens=len(tokens),
        output_token_ids=tokens,
        num_tokens=len(tokens),
        max_tokens=params.max_tokens,
        status=None,
        stop_reason=None,
    )
    return str(request.status) if utils.check_stop(request, 4096) else None


@settings(max_examples=20, deadline=None)
@given(
    frames=st.integers(2, 16),
    codec_end=st.integers(0, 30),
    min_tokens=st.integers(0, 20),
    spare=st.integers(0, 15),
)
def test_minimum_and_limit_end_a_request_as_vllm_does_row_by_row(
    released: Any, frames: int, codec_end: int, min_tokens: int, spare: int
) -> None:
    max_tokens = max(1, min_tokens + spare)
    single = SingleFrameEngine(min_tokens, max_tokens)
    while (reason := ends(single.outputs, single.params) if single.outputs else None) is None:
        stopped = len(single.outputs) >= codec_end
        single.outputs.append(single.pick(STOP if stopped else CONTINUE))

    tokens: list[int] = []
    ours: str | None = None
    while ours is None:
        width = frames if tokens else 1
        rows = stop_rows([max(0, codec_end - len(tokens))], [width])
        accepted = accept_frames(rows, [width], [len(tokens)], [min_tokens])
        for token in accepted.token_ids[0].tolist():
            if token >= 0 and ours is None:
                tokens.append(token)
                ours = ends(tokens, single.params)
    assert (tokens, ours) == (single.outputs, reason)
