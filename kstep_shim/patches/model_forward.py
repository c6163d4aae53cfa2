"""Model forward: run K frames where the stock runner runs one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kstep_shim.counters import counters
from kstep_shim.declaration import Kind, Patch, Side, Target
from kstep_shim.patches.armed import armed, flavour

_TAIL = "_kstep_shim_tail"


@dataclass(frozen=True)
class _Call:
    """Arguments of the wrapped forward by name; `padded_tokens` is the NPU runner's own."""

    inputs: dict[str, Any]
    model_kwargs: dict[str, Any]
    padded_tokens: int | None = None


def run_frames(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Engage the frame loop on a K-wide pure decode step of the Talker; else call `wrapped`.

    Raises
    ------
    RuntimeError
        Several tokens of a decoding Talker request are scheduled and the loop declined. The
        single forward would corrupt the codec stream, so this must never be served.
    """
    return _engage(_bind_npu, wrapped, runner, args, kwargs)


def run_frames_on_cuda(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """As `run_frames`, for the CUDA runner, whose forward takes other arguments."""
    return _engage(_bind_cuda, wrapped, runner, args, kwargs)


def _bind_npu(num_tokens_padded: int, *args: Any, **kwargs: Any) -> _Call:
    call = _bind_cuda(*args, **kwargs)
    return replace(call, padded_tokens=num_tokens_padded)


def _bind_cuda(
    input_ids: Any = None,
    positions: Any = None,
    intermediate_tensors: Any = None,
    inputs_embeds: Any = None,
    **model_kwargs: Any,
) -> _Call:
    inputs = {
        "input_ids": input_ids,
        "positions": positions,
        "intermediate_tensors": intermediate_tensors,
        "inputs_embeds": inputs_embeds,
    }
    return _Call(inputs, model_kwargs)


def _engage(
    bind: Callable[..., _Call], wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any
) -> Any:
    from kstep_shim.frames.gate import applies, is_multi_token_decode

    if not armed(runner):
        return wrapped(*args, **kwargs)
    scheduled = runner._omni_num_scheduled_tokens_np
    if scheduled is None or not len(scheduled) or scheduled.max() <= 1:
        counters().decline("single-frame step")
        return wrapped(*args, **kwargs)
    extras = runner._build_model_kwargs_extra()
    model = runner.get_model()
    frames = applies(model, extras)
    if frames > 1:
        return _run(runner, frames, extras, bind(*args, **kwargs))
    if is_multi_token_decode(model, extras):
        counters().increment("backstop_reached")
        raise RuntimeError(
            f"kstep_shim: a decode step with spans {extras.get('request_token_spans')} was "
            "scheduled but cannot run several frames; running it as one would corrupt the codec "
            "stream. Restart with KSTEP_SHIM=0 and report the reason logged before this."
        )
    counters().decline("prefill step")
    return wrapped(*args, **kwargs)


def _run(runner: Any, frames: int, extras: dict[str, Any], call: _Call) -> Any:
    from vllm.forward_context import get_forward_context

    from kstep_shim.frames.loop import run
    from kstep_shim.frames.tokens import ensure_stop_token_vocab
    from kstep_shim.frames.wide_graph import note_missing_graph
    from kstep_shim.multi_frame import begin_narrow_step, end_narrow_step

    context = get_forward_context()
    spans = extras["request_token_spans"]
    narrow = begin_narrow_step(
        runner=runner,
        forward_context=context,
        frames=frames,
        positions=call.inputs["positions"],
        inputs_embeds=call.inputs["inputs_embeds"],
        spans=spans,
    )
    counters().increment("steps_narrow", narrow is not None)
    note_missing_graph(runner, context, len(spans), frames)
    run_model, after_forward = _forward(runner, context, extras, call)
    try:
        output = run(
            model=runner.get_model(),
            run_model=run_model,
            after_forward=after_forward,
            inputs_embeds=call.inputs["inputs_embeds"],
            input_ids=call.inputs["input_ids"],
            frames=frames,
            model_kwargs=call.model_kwargs,
            model_kwargs_extra=extras,
            narrow=narrow,
            tail=_tail(runner),
        )
    finally:
        end_narrow_step(context, narrow)
    ensure_stop_token_vocab(runner, output.text_hidden_states)
    runner._omni_last_model_output = output
    counters().increment("steps_engaged")
    counters().increment("frames_run", frames * len(spans))
    return output


def _forward(
    runner: Any, context: Any, extras: dict[str, Any], call: _Call
) -> tuple[Callable[[], Any], Callable[[], None]]:
    """One forward, and what follows it; on an NPU graphs get their parameters around each one."""
    forward = partial(runner.model, **call.inputs, **call.model_kwargs, **extras)
    if call.padded_tokens is None:
        return forward, _nothing
    # A narrow step has put its own graph there.
    descriptor = context.batch_descriptor
    tokens = call.padded_tokens if descriptor is None else descriptor.num_tokens
    update = partial(runner._update_full_graph_params_if_needed, context, tokens)
    if not runner.enable_enpu:
        return forward, update

    # As in the stock forward: these parts record a graph's events before they wait for them.
    def updated_forward() -> Any:
        update()
        return forward()

    return updated_forward, _nothing


def _tail(runner: Any) -> Any:
    """The runner's frame tail, made once: it may hold state of a step's rows."""
    if not hasattr(runner, _TAIL):
        setattr(runner, _TAIL, flavour(runner).tail(runner))
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
            platform="npu",
        ),
        Target(
            distribution="vllm-omni",
            module="vllm_omni.worker.gpu_model_runner",
            qualname="OmniGPUModelRunner._model_forward",
            parameters=(
                "self",
                "input_ids",
                "positions",
                "intermediate_tensors",
                "inputs_embeds",
            ),
            wrapper=run_frames_on_cuda,
            platform="cuda",
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
