"""Model forward: run K frames where the stock runner runs one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kstep_shim.counters import counters
from kstep_shim.declaration import Kind, Patch, Side, Target

_TAIL = "_kstep_shim_tail"


def run_frames(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Engage the frame loop on a K-wide pure decode step of the Talker; else call `wrapped`.

    Raises
    ------
    RuntimeError
        Several tokens of a decoding Talker request are scheduled and the loop declined. The
        single forward would corrupt the codec stream, so this must never be served.
    """
    from kstep_shim.frames.contract import supports_multi_frame
    from kstep_shim.frames.gate import applies, is_multi_token_decode

    if runner.num_spec_tokens <= 0 or not supports_multi_frame(runner.model):
        return wrapped(*args, **kwargs)
    scheduled = runner._omni_num_scheduled_tokens_np
    if scheduled is None or not len(scheduled) or scheduled.max() <= 1:
        counters().decline("single-frame step")
        return wrapped(*args, **kwargs)
    extras = runner._build_model_kwargs_extra()
    frames = applies(runner.model, extras)
    if frames > 1:
        return _run(runner, frames, extras, *args, **kwargs)
    if is_multi_token_decode(runner.model, extras):
        counters().increment("backstop_reached")
        raise RuntimeError(
            f"kstep_shim: a decode step with spans {extras.get('request_token_spans')} was "
            "scheduled but cannot run several frames; running it as one would corrupt the codec "
            "stream. Restart with KSTEP_SHIM=0 and report the reason logged before this."
        )
    counters().decline("prefill step")
    return wrapped(*args, **kwargs)


def _run(
    runner: Any,
    frames: int,
    extras: dict[str, Any],
    num_tokens_padded: int,
    input_ids: Any = None,
    positions: Any = None,
    intermediate_tensors: Any = None,
    inputs_embeds: Any = None,
    **model_kwargs: Any,
) -> Any:
    from vllm.forward_context import get_forward_context

    from kstep_shim.frames.loop import run
    from kstep_shim.frames.tokens import ensure_stop_token_vocab
    from kstep_shim.multi_frame import begin_narrow_step, end_narrow_step

    context = get_forward_context()
    narrow = begin_narrow_step(
        runner=runner,
        forward_context=context,
        frames=frames,
        positions=positions,
        inputs_embeds=inputs_embeds,
        spans=extras["request_token_spans"],
    )
    graph_tokens = num_tokens_padded if narrow is None else narrow.rows
    update = partial(runner._update_full_graph_params_if_needed, context, graph_tokens)
    forward = partial(
        runner.model,
        input_ids=input_ids,
        positions=positions,
        intermediate_tensors=intermediate_tensors,
        inputs_embeds=inputs_embeds,
        **model_kwargs,
        **extras,
    )

    def updated_forward() -> Any:
        update()
        return forward()

    # As in the stock forward: some parts record a graph's events before they wait for them.
    before = runner.enable_enpu
    try:
        output = run(
            model=runner.model,
            run_model=updated_forward if before else forward,
            after_forward=_nothing if before else update,
            inputs_embeds=inputs_embeds,
            input_ids=input_ids,
            frames=frames,
            model_kwargs=model_kwargs,
            model_kwargs_extra=extras,
            narrow=narrow,
            tail=_tail(runner),
        )
    finally:
        end_narrow_step(context, narrow)
    ensure_stop_token_vocab(runner, output.text_hidden_states)
    runner._omni_last_model_output = output
    counters().increment("steps_engaged")
    counters().increment("frames_run", frames * len(extras["request_token_spans"]))
    return output


def _tail(runner: Any) -> Any:
    """The runner's frame tail, made once: its buffers hold the codec state of a step's rows."""
    from kstep_shim.frames.codec import Codec
    from kstep_shim.frames.device_tail import DeviceTail
    from kstep_shim.frames.tail import StockTail

    if not hasattr(runner, _TAIL):
        codec = Codec.of(runner.get_model().talker)
        rows, frames = runner.input_batch.max_num_reqs, runner.num_spec_tokens + 1
        setattr(runner, _TAIL, StockTail() if codec is None else DeviceTail(codec, rows, frames))
    return getattr(runner, _TAIL)


def _nothing() -> None:
    pass


_WRAPPER = "vllm_omni.model_executor.models.minicpmo_4_5.minicpmo_4_5_omni"

PATCH = Patch(
    name="model_forward",
    summary="run K frames inside one step",
    targets=(
        Target(
            distribution="vllm-omni",
            module="vllm_omni.platforms.npu.worker.npu_model_runner",
            qualname="OmniNPUModelRunner._model_forward",
            parameters=(
                "self",
                "num_tokens_padded",
                "input_ids",
                "positions",
                "intermediate_tensors",
                "inputs_embeds",
            ),
            wrapper=run_frames,
        ),
        Target(
            distribution="vllm-ascend",
            module="vllm_ascend.worker.model_runner_v1",
            qualname="NPUModelRunner._update_full_graph_params_if_needed",
            parameters=("self", "forward_context", "num_tokens_padded"),
            kind=Kind.RELIED_ON,
        ),
        Target(
            distribution="vllm-omni",
            module=_WRAPPER,
            qualname="MiniCPMO45OmniForConditionalGeneration.preprocess",
            parameters=("self", "input_ids", "input_embeds"),
            kind=Kind.RELIED_ON,
        ),
        Target(
            distribution="vllm-omni",
            module=_WRAPPER,
            qualname="MiniCPMO45OmniForConditionalGeneration.make_omni_output",
            parameters=("self", "model_outputs"),
            kind=Kind.RELIED_ON,
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="The engine pays its host work per step and the stock step makes one frame.",
    how="Repeats the step's own forward K times, feeding each frame's code to the next row.",
    remove_when="vllm-omni runs several Talker frames per step by itself.",
)
