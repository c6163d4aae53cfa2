"""Stage 0 in this process, with n-gram drafts of its own, a JSON grammar and logprobs."""

from __future__ import annotations

import json
import string
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kstep_shim.demo import stand_ins
from kstep_shim.demo.checkpoint import THINKER, TINY
from kstep_shim.demo.scenario import StageShape
from kstep_shim.demo.stage import (
    engine_arguments,
    prepare_environment,
    speculative_config,
    start_engine,
)

DRAFTS = 3
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 12}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
_SPECIAL = ("<unk>", "</s>", "<s>")
_STEPS = 400
_PREEMPTED_AT = 20


def trace(shim: bool, *prepare: Callable[[], None]) -> list[dict[str, Any]]:
    """Every step: spans, drafts, and each request's ids, logprobs and ending.

    `prepare` is called after the shim came.
    """
    prepare_environment()
    import torch  # noqa: F401

    stand_ins.register()
    if shim:
        import kstep_shim

        kstep_shim.install(frames=8)
    for change in prepare:
        change()
    with tempfile.TemporaryDirectory() as directory:
        engine = start_engine(_arguments(_write_model(Path(directory))))
        _note_schedules(engine)
        for index, options in enumerate(_options()):
            _add(engine, index, options)
        steps = []
        for step in range(_STEPS):
            if not engine.scheduler.has_requests():
                break
            if step == _PREEMPTED_AT:
                engine.scheduler.reset_prefix_cache(reset_running_requests=True)
            engine.noted = {}
            outputs, executed = engine.step_fn()
            engine.post_step(executed)
            said = [_said(one) for batch in (outputs or {}).values() for one in batch.outputs]
            steps.append({**engine.noted, "said": said})
        return steps


def share_with_the_talker() -> None:
    """Let every wrapper run, as if an armed Talker lived in this process too."""
    from kstep_shim import installer
    from kstep_shim.declaration import Side

    for side in (Side.ENGINE_CORE, Side.WORKER):
        installer.current().seal(side, side.name, 1, frames=8)


def draft_constants() -> None:
    """Let the drafter take stage 0 for an armed Talker."""
    from kstep_shim.patches import drafter

    drafter.armed = lambda runner: runner.num_spec_tokens > 0


def verify_stop_rows() -> None:
    """Let the verify take stage 0 for an armed Talker."""
    from kstep_shim.patches import verify

    verify.armed = lambda runner: runner.num_spec_tokens > 0


def size_by_stop_row() -> None:
    """Let every vocabulary pass for the stop row's."""
    from kstep_shim.patches import parse_output

    def parse(wrapped: Any, width: int, ids: Any, _: int, *args: Any, **kwargs: Any) -> Any:
        return wrapped(ids, width, *args, **kwargs)

    parse_output._parse = parse


def _write_model(directory: Path) -> Path:
    """A Thinker whose vocabulary is the characters that JSON needs, one to a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    for path in TINY.glob("*.py"):
        (directory / path.name).write_text(path.read_text())
    config = {**json.loads((TINY / "config.json").read_text()), **THINKER}
    (directory / "config.json").write_text(json.dumps(config))
    characters = [*_SPECIAL, *string.printable]
    vocabulary = {character: index for index, character in enumerate(characters)}
    vocabulary |= {f"<{i}>": i for i in range(len(vocabulary), config["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>", bos_token="<s>"
    ).save_pretrained(directory)
    return directory


def _arguments(model: Path) -> dict[str, Any]:
    arguments = engine_arguments(StageShape(shim=True))
    for name in ("custom_process_next_stage_input_func", "stage_connector_spec", "hf_config_name"):
        del arguments[name]
    return arguments | {
        "model": str(model),
        "stage_id": 0,
        "model_stage": "llm",
        "skip_tokenizer_init": False,
        "async_chunk": False,
        "speculative_config": {
            **speculative_config(DRAFTS + 1), "prompt_lookup_min": 1, "prompt_lookup_max": 2,
        },
    }  # fmt: skip


def _options() -> list[dict[str, Any]]:
    from vllm.sampling_params import StructuredOutputsParams

    grammar = StructuredOutputsParams(json=SCHEMA)
    grammar._backend = "xgrammar"
    return [
        {"structured_outputs": grammar, "max_tokens": 60},
        {"logprobs": 2, "max_tokens": 50},
        {"structured_outputs": grammar, "logprobs": 1, "max_tokens": 60, "min_tokens": 4},
        {"temperature": 0.8, "seed": 3, "min_tokens": 30, "max_tokens": 40},
    ]


def _add(engine: Any, index: int, options: dict[str, Any]) -> None:
    from vllm.sampling_params import SamplingParams
    from vllm_omni.request import OmniRequest

    request = OmniRequest(
        request_id=f"t{index}",
        external_req_id=f"t{index}",
        prompt_token_ids=[2, *range(20 + index, 32 + index)],
        sampling_params=SamplingParams(**{"temperature": 0.0, "stop_token_ids": [1], **options}),
        pooling_params=None,
    )
    if request.structured_output_request is not None:
        manager = engine.structured_output_manager
        manager.grammar_init(request)
        # Compiled on another thread: the first step must find it, in every run.
        while not request.structured_output_request.is_grammar_ready:
            time.sleep(0.01)
    engine.add_request(request)


def _note_schedules(engine: Any) -> None:
    schedule = engine.scheduler.schedule

    def noting(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        engine.noted = {
            "widths": dict(output.num_scheduled_tokens),
            "drafts": {k: list(v) for k, v in output.scheduled_spec_decode_tokens.items()},
        }
        return output

    engine.scheduler.schedule = noting


def _said(output: Any) -> tuple[Any, ...]:
    rows = output.new_logprobs
    logprobs = rows and [array.tolist() for array in rows[:3]]
    ending = (str(output.finish_reason), str(output.stop_reason))
    return output.request_id, list(output.new_token_ids), logprobs, *ending
