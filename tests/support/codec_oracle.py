"""What a request to the codec head must get, from the Talker's weights and plain torch.

Independent of vLLM and the Ascend runner: transformers' Llama without a KV cache of theirs, the
window penalty and top-p written out, one request at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaModel

from kstep_shim.demo.drive import Driver, build_request
from kstep_shim.demo.head import client_options
from kstep_shim.demo.outcome import Outcome
from kstep_shim.demo.scenario import GraphMode, Scenario, StageShape, staggered
from kstep_shim.demo.stage import bring_up, talker_wrapper

CASE = staggered(3, frames=30)
_WINDOW = 16
Spoken = tuple[list[int], torch.Tensor]


def serve_and_predict() -> tuple[Outcome, dict[str, Spoken]]:
    """Outcome of the stage, and by request the tokens and hidden rows of the oracle."""
    engine = bring_up(StageShape(mode=GraphMode.EAGER))
    outcome = Driver(engine).run(CASE)
    with torch.no_grad():
        return outcome, predict(talker_wrapper(engine).talker, CASE)


def predict(talker: Any, case: Scenario) -> dict[str, Spoken]:
    """Speak every request of `case` alone."""
    model = _llama(talker)
    options = client_options(talker)
    return {
        spec.request_id: _speak(talker, model, build_request(spec, options))
        for spec in case.requests
    }


def _llama(talker: Any) -> LlamaModel:
    config = talker._tts_config
    model = LlamaModel(
        LlamaConfig(
            vocab_size=2,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            rms_norm_eps=1e-6,
        )
    ).float()
    theirs = dict(talker.tts_model.named_parameters())
    for name, parameter in model.named_parameters():
        if "embed_tokens" not in name:
            parameter.copy_(_part(theirs, name))
    return model.eval()


def _part(theirs: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """vLLM fuses queries, keys and values, and the two halves of the gate."""
    for fused, parts in (("qkv_proj", ("q", "k", "v")), ("gate_up_proj", ("gate", "up"))):
        for index, part in enumerate(parts):
            if f".{part}_proj." in name:
                return theirs[name.replace(f"{part}_proj", fused)].chunk(len(parts))[index]
    return theirs[name]


def _condition(talker: Any, request: Any) -> torch.Tensor:
    buffer = request.model_intermediate_buffer
    projected = talker.projector_semantic(buffer["hidden_states"]["tts"])
    spoken = talker.emb_text(buffer["ids"]["tts"]) + torch.nn.functional.normalize(projected)
    tail = torch.tensor(
        [talker._tts_config.text_eos_token_id, talker._tts_config.audio_bos_token_id]
    )
    return torch.cat([spoken, talker.emb_text(tail)])


def _speak(talker: Any, model: LlamaModel, request: Any) -> Spoken:
    params = request.sampling_params
    generator = torch.Generator().manual_seed(params.seed)
    inputs, tokens, rows = _condition(talker, request), [], []
    while len(tokens) < params.max_tokens and talker._codec_eos_id not in tokens:
        rows.append(model(inputs_embeds=inputs[None]).last_hidden_state[0, -1:])
        logits = rows[-1][0] @ talker.head_code[0].weight.T
        for code in tokens[-_WINDOW:]:
            penalty = params.repetition_penalty
            logits[code] *= penalty if logits[code] < 0 else 1 / penalty
        if len(tokens) < params.min_tokens:
            logits[talker._codec_eos_id] = -torch.inf
        probabilities = _nucleus((logits / params.temperature).softmax(-1), params.top_p)
        noise = torch.empty_like(probabilities).exponential_(generator=generator)
        tokens.append(int((probabilities / noise).argmax()))
        inputs = torch.cat([inputs, talker.emb_code[0](torch.tensor(tokens[-1:]))])
    return tokens, torch.cat(rows)


def _nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """The smallest set of codes whose probabilities reach `top_p`, as likely as before."""
    ordered, order = probabilities.sort(descending=True)
    kept = ordered.cumsum(0) - ordered < top_p
    return torch.zeros_like(probabilities).scatter(0, order, ordered * kept)
