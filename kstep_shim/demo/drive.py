"""Serve a scenario on a stage, step by step, and write down everything that came out."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

from kstep_shim.demo.head import STOP_ROW_OPTIONS, client_options, codec_generator
from kstep_shim.demo.outcome import Outcome, RequestOutcome, StepRecord
from kstep_shim.demo.scenario import RequestSpec, Scenario
from kstep_shim.demo.stage import model_runner, talker_wrapper
from kstep_shim.demo.vocoder import VocoderEnd, external_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm.v1.engine.core import EngineCore

CONDITION_WIDTH = 32


class Driver:
    """Runs scenarios one after another on one engine; request ids must not repeat."""

    def __init__(self, engine: EngineCore) -> None:
        self._engine = engine
        self._talker = talker_wrapper(engine).talker
        self._options = client_options(self._talker)
        self._ends: dict[str, int] = {}
        self._scheduled: Any = None
        self._payloads: dict[str, Any] = {}
        self._force_codec_end()
        self._record_schedules()
        self._record_outputs()
        self._vocoder = VocoderEnd(self._scheduler.chunk_transfer_adapter)

    def run(self, scenario: Scenario, progress: Callable[[int], None] | None = None) -> Outcome:
        """Serve every request of `scenario` to its end."""
        self._outcome = Outcome({r.request_id: RequestOutcome() for r in scenario.requests}, [])
        self._ends = {
            r.request_id: r.eos_frame for r in scenario.requests if r.eos_frame is not None
        }
        pending = sorted(scenario.requests, key=lambda request: request.arrival)
        step = 0
        while pending or self._engine.scheduler.has_requests():
            if step >= scenario.max_steps:
                raise RuntimeError(f"scenario {scenario.name} did not end in {step} steps")
            while pending and pending[0].arrival <= step:
                self._engine.add_request(build_request(pending.pop(0), self._options))
            if step in scenario.draftless_steps:
                for request in self._scheduler.running:
                    request.spec_token_ids = []
            self._step()
            leaving = [r.request_id for r in scenario.requests if r.abort_step == step]
            if leaving:
                self._engine.abort_requests(leaving)
            step += 1
            if progress is not None:
                progress(self._outcome.frames)
        return self._outcome

    @property
    def _scheduler(self) -> Any:
        return self._engine.scheduler

    def _step(self) -> None:
        self._scheduled = None
        started = time.perf_counter()
        outputs, executed = self._engine.step_fn()
        self._engine.post_step(executed)
        seconds = time.perf_counter() - started
        finished = 0
        widths, prefilling = self._scheduled_widths()
        for batch in (outputs or {}).values():
            for output in batch.outputs:
                self._collect(output, output.request_id in prefilling)
                finished += output.finish_reason is not None
        for name, payloads in self._vocoder.receive().items():
            if name in self._outcome.requests:
                self._outcome.requests[name].payloads.extend(payloads)
        drafts = {} if self._scheduled is None else self._scheduled[1]
        self._outcome.steps.append(
            StepRecord(
                widths=widths,
                drafts=drafts,
                prefill=bool(prefilling),
                waiting=len(self._scheduler.waiting),
                seconds=seconds,
                finished=finished,
            )
        )

    def _collect(self, output: Any, prefilling: bool) -> None:
        request = self._outcome.requests.get(output.request_id)
        if request is None:
            return
        payload = self._payloads.get(output.request_id) or {}
        accepted = len(output.new_token_ids)
        hidden = payload.get("hidden")
        if hidden is not None and accepted:
            rows = hidden[-1:] if prefilling else hidden[:accepted]
            request.hidden.extend(rows.clone().split(1))
        delta = payload.get("codes.audio")
        if delta is not None:
            request.codes.extend(delta.flatten().tolist())
        request.tokens.extend(output.new_token_ids)
        if output.finish_reason is not None:
            request.finish_reason = str(output.finish_reason)
            request.stop_reason = None if output.stop_reason is None else str(output.stop_reason)
            runner = model_runner(self._engine)
            generator = codec_generator(self._talker, runner, output.request_id)
            if generator is not None:
                request.draws = hashlib.sha256(generator.get_state().numpy().tobytes()).hexdigest()

    def _scheduled_widths(self) -> tuple[dict[str, int], set[str]]:
        if self._scheduled is None:
            return {}, set()
        return self._scheduled[0], self._scheduled[2]

    def _record_schedules(self) -> None:
        schedule = self._scheduler.schedule

        def recording(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            widths = dict(output.num_scheduled_tokens)
            drafts = {k: len(v) for k, v in output.scheduled_spec_decode_tokens.items()}
            requests = self._scheduler.requests
            prefilling = {
                name
                for name, width in widths.items()
                if requests[name].num_computed_tokens - width < requests[name].num_prompt_tokens
            }
            self._scheduled = (widths, drafts, prefilling)
            return output

        self._scheduler.schedule = recording

    def _record_outputs(self) -> None:
        """Keep what the runner returned: with a vocoder stage the engine's outputs omit it."""
        update = self._scheduler.update_from_output

        def recording(scheduler_output: Any, runner_output: Any) -> Any:
            # A step that only retires requests returns vLLM's plain output.
            rows = getattr(runner_output, "inter_stage_outputs", None) or ()
            self._payloads = dict(zip(runner_output.req_ids, rows, strict=False))
            return update(scheduler_output, runner_output)

        self._scheduler.update_from_output = recording

    def _force_codec_end(self) -> None:
        """Let a scenario say at which frame the codec ends; the random draw is spent as usual.

        Set in the request's codec state, which every way of sampling a frame reads. The frame that
        reaches the ceiling is drawn and not delivered, as a drawn end is.
        """
        preprocess = self._talker.preprocess

        def forced(*args: Any, **info: Any) -> Any:
            ids, embeds, update = preprocess(*args, **info)
            state = update.get("audio_state")
            end = self._ends.get(str(info.get("request_id")))
            if state is not None and end is not None:
                state["max_tokens"] = min(state["max_tokens"], end)
                # A scenario that names the end must not be ended earlier by the draw itself.
                state["min_tokens"] = end
            return ids, embeds, update

        self._talker.preprocess = forced


def build_request(spec: RequestSpec, defaults: Mapping[str, Any] = STOP_ROW_OPTIONS) -> Any:
    """The engine's request for `spec`, with a condition that depends on its length only."""
    options = {
        **defaults,
        **spec.sampling,
        "min_tokens": spec.min_tokens,
        "max_tokens": spec.max_tokens,
    }
    return speech_request(spec.request_id, spec.condition, 97 + spec.condition, options)


def speech_request(
    name: str, condition: int, seed: int, options: dict[str, Any], width: int = CONDITION_WIDTH
) -> Any:
    """A request to speak `condition` random text tokens, with these ``SamplingParams``.

    `width` is that of the Talker's hidden states.
    """
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm_omni.request import OmniRequest

    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 100, (condition,), generator=generator)
    hidden = torch.randn(condition, width, generator=generator)
    return OmniRequest(
        request_id=name,
        external_req_id=external_id(name),
        prompt_token_ids=[0] * (condition + 2),
        sampling_params=SamplingParams(detokenize=False, **options),
        pooling_params=None,
        model_intermediate_buffer={
            "ids": {"tts": ids},
            "hidden_states": {"tts": hidden},
            "request_id": name,
            "global_request_id": [name],
        },
    )


def assert_runner_is_idle(engine: EngineCore) -> None:
    """Raise if the runner still holds a request: a scenario must not see the one before it."""
    held = list(model_runner(engine).requests)
    if held:
        raise RuntimeError(f"model runner still holds {held}")
