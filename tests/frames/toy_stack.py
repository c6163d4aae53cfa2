"""A causal talker, its runner and its engine, small enough to read: the tests' stand-in stack.

The engine runs one frame per step in its own few lines (the oracle), or several with
``kstep_shim.multi_frame``. Everything is float64 and computed row by row, so equality is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kstep_shim import multi_frame
from kstep_shim.frames.limits import minimum_outputs, output_counts, remaining_outputs
from kstep_shim.frames.merge import merge_frame_outputs
from kstep_shim.frames.verify import accept_frames

HIDDEN, VOCAB, EOS, BLOCK = 6, 12, 11, 96
INF = float("inf")
PROMPT = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(5)).double()


class ToyOutput(NamedTuple):
    text_hidden_states: Tensor
    multimodal_outputs: Any = None


class ToyTalker:
    """Samples codes with a generator per request, as the released Talker does."""

    supports_multi_frame_decode = True

    def __init__(self) -> None:
        weights = torch.Generator().manual_seed(3)
        self.embedding = torch.randn(VOCAB, HIDDEN, generator=weights, dtype=torch.float64)
        self.head = torch.randn(HIDDEN, VOCAB, generator=weights, dtype=torch.float64)
        self.generators: dict[str, torch.Generator] = {}
        self.draws: dict[str, int] = {}
        self.eos_bias = 0.0
        self._stop_rows: Tensor | None = None

    @property
    def batch_stop_logits(self) -> Tensor | None:
        return self._stop_rows

    def take_batch_stop_logits(self) -> Tensor | None:
        rows, self._stop_rows = self._stop_rows, None
        return rows

    def set_batch_stop_logits(self, stop_rows: Tensor | None) -> None:
        self._stop_rows = stop_rows

    def merge_frame_outputs(self, outputs: Any, stop_rows: Any) -> Any:
        return merge_frame_outputs(outputs, stop_rows, self.set_batch_stop_logits)

    def preprocess(self, input_ids: Tensor, input_embeds: Any, **info: Any) -> Any:
        current = info["audio_codes"]["current"]
        if current.numel() != 1:
            assert info["audio_state"]["finished"], "decode without a previous code"
            return input_ids, self.embedding.new_zeros(len(input_ids), HIDDEN), {}
        return input_ids, self.embedding[current.reshape(1)], {}

    def make_omni_output(self, hidden: Tensor, **kwargs: Any) -> ToyOutput:
        infos, spans = kwargs["model_intermediate_buffer"], kwargs["request_token_spans"]
        eligible = kwargs.get("request_sample_eligible") or [True] * len(infos)
        deltas, flags, rows = [], [], []
        for info, (_, end), may_sample in zip(infos, spans, eligible, strict=True):
            state = info["audio_state"]
            delta, finished = torch.empty(0, 1, dtype=torch.long), False
            stop = state["finished"]
            if not stop and may_sample:
                code = self._draw(hidden[end - 1], info["request_id"], state)
                state["step"] += 1
                stop = finished = code == EOS or state["step"] >= state["max_tokens"]
                state["finished"] = finished
                info["audio_codes"] = {"current": torch.tensor([code])}
                if not finished:
                    delta = torch.tensor([[code]])
            deltas.append(delta)
            flags.append(torch.tensor(finished))
            rows.append([-INF, 0.0] if stop else [0.0, -INF])
        self._stop_rows = torch.tensor(rows)
        return ToyOutput(hidden, {"codes": {"audio": deltas}, "meta": {"finished": flags}})

    def _draw(self, hidden: Tensor, request_id: str, state: dict[str, Any]) -> int:
        logits = hidden @ self.head
        logits[EOS] = -INF if state["step"] < state["min_tokens"] else logits[EOS] + self.eos_bias
        generator = self.generators.setdefault(request_id, torch.Generator().manual_seed(42))
        self.draws[request_id] = self.draws.get(request_id, 0) + 1
        return int(torch.multinomial(logits.softmax(0), 1, generator=generator))


@dataclass
class ToyRequest:
    request_id: str
    prompt: int = 3
    max_tokens: int | None = 30
    min_tokens: int = 0
    codec_limit: int = 64
    codec_minimum: int = 0
    empty: bool = False

    output_token_ids: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)
    reason: str | None = None

    @property
    def sampling_params(self) -> Any:
        return SimpleNamespace(
            max_tokens=self.max_tokens, min_tokens=self.min_tokens, all_stop_token_ids={1}
        )

    def append(self, token: int) -> None:
        """Count one token and end the request as vLLM's ``check_stop`` does."""
        self.output_token_ids.append(token)
        if len(self.output_token_ids) < self.min_tokens:
            return
        if token == 1:
            self.reason = "stop"
        elif self.max_tokens is not None and len(self.output_token_ids) >= self.max_tokens:
            self.reason = "length"


class ToyGraph:
    """The one-query graph: it reads the first `rows` entries of the shared buffers."""

    def __init__(self, engine: ToyEngine, rows: int) -> None:
        self.slot_mapping, self.seq_lens = engine.slots, engine.seq_lens
        self.context = {"cudagraph_runtime_mode": "FULL", "batch_descriptor": ("one-query", rows)}
        self.constants: list[tuple[Tensor, Tensor]] = []
        self.selected: list[int] = []
        self.steps_ended = 0

    def before_replay(self, frame: int) -> None:
        self.selected.append(frame)

    def after_step(self) -> None:
        self.steps_ended += 1


class ToyEngine:
    """Schedules every living request for `frames` frames per step until all have ended."""

    def __init__(
        self,
        requests: list[ToyRequest],
        frames: int = 1,
        narrow: bool = False,
        model: Any = None,
        tail: Any = None,
    ) -> None:
        self.model = model or ToyTalker()
        self.tail = tail
        self.frames, self.num_spec_tokens, self.narrow = frames, frames - 1, narrow
        self.all = requests
        self.requests = {request.request_id: request for request in requests}
        self.infos: dict[str, Any] = {}
        self.blocks = {request.request_id: i * BLOCK for i, request in enumerate(requests)}
        self.kv = torch.zeros(len(requests) * BLOCK, HIDDEN, dtype=torch.float64)
        tokens = max(len(requests) * frames, 8)
        self.inputs_embeds = torch.zeros(tokens, HIDDEN, dtype=torch.float64)
        self.input_ids = torch.zeros(tokens, dtype=torch.long)
        self.positions = torch.zeros(tokens, dtype=torch.long)
        self.slots = torch.zeros(tokens, dtype=torch.long)
        self.seq_lens = torch.zeros(len(requests), dtype=torch.int32)
        self.graph_output = torch.zeros(tokens, HIDDEN, dtype=torch.float64)
        self.graphs: dict[int, ToyGraph] = {}
        self.steps = self.forwards = self.after_forwards = self.narrow_steps = 0
        self.context: Any = None
        self.input_batch: Any = None

    def captured_one_query(self, rows: int, frames: int) -> ToyGraph | None:
        return self.graphs.setdefault(rows, ToyGraph(self, rows)) if self.narrow else None

    def attend(self, row: int, slot: int, position: int, base: int, visible: int) -> Tensor:
        """One row of the forward: write its KV entry, look at the visible ones."""
        query = self.inputs_embeds[row]
        self.kv[slot] = query + 0.1 * position
        keys = self.kv[base : base + visible]
        return torch.tanh((keys @ query).softmax(0) @ keys)

    def forward(self) -> Tensor:
        """Run one query per request, or the step's whole span, as the context says."""
        self.forwards += 1
        batch = self.input_batch.req_ids
        one_query = self.context.batch_descriptor is not None
        width = 1 if one_query else self.width
        count = len(batch) * width
        hidden = torch.stack(
            [
                self.attend(
                    row,
                    int(self.slots[row]),
                    int(self.positions[row]),
                    self.blocks[batch[row // width]],
                    int(self.seq_lens[row // width]) - width + row % width + 1,
                )
                for row in range(count)
            ]
        )
        # A captured graph hands out the same buffer after every replay.
        return self.graph_output[:count].copy_(hidden)

    def prepare(self, batch: list[str], width: int) -> dict[str, Any]:
        """Fill the shared buffers for one decode step, and return the model's extras."""
        self.width = width
        self.input_batch = SimpleNamespace(req_ids=batch)
        for index, request_id in enumerate(batch):
            request, info = self.requests[request_id], self.infos[request_id]
            computed = request.prompt + len(request.output_token_ids) - 1
            for offset in range(width):
                row = index * width + offset
                self.positions[row] = computed + offset
                self.slots[row] = self.blocks[request_id] + computed + offset
            self.seq_lens[index] = computed + width
            _, embeds, _ = self.model.preprocess(self.input_ids[:width], None, **info)
            self.inputs_embeds[index * width] = embeds[0]
        self.context = SimpleNamespace(
            attn_metadata={
                "layer": SimpleNamespace(slot_mapping=self.slots, seq_lens=self.seq_lens)
            },
            cudagraph_runtime_mode="NONE",
            batch_descriptor=None,
        )
        return {
            "model_intermediate_buffer": [self.infos[request_id] for request_id in batch],
            "request_token_spans": [(i * width, (i + 1) * width) for i in range(len(batch))],
        }

    def prefill(self, request: ToyRequest) -> None:
        """Compute the prompt; its last row samples the first frame."""
        state = {
            "step": 0,
            "max_tokens": request.codec_limit,
            "min_tokens": request.codec_minimum,
            "finished": request.empty,
        }
        info = {
            "request_id": request.request_id,
            "_omni_is_prefill": True,
            "audio_state": state,
            "audio_codes": {"current": torch.empty(0, dtype=torch.long)},
        }
        self.infos[request.request_id] = info
        base, hidden = self.blocks[request.request_id], torch.empty(0)
        for position in range(request.prompt):
            self.inputs_embeds[0] = PROMPT[position % VOCAB]
            hidden = self.attend(0, base + position, position, base, position + 1)
        output = self.model.make_omni_output(
            hidden[None], model_intermediate_buffer=[info], request_token_spans=[(0, 1)]
        )
        self.single(request, output, 0, self.model.take_batch_stop_logits()[0])
        info["_omni_is_prefill"] = False

    def single(self, request: ToyRequest, output: Any, row: int, stop_row: Tensor) -> None:
        """Account for one single-frame row, without the code under test."""
        produced = len(request.output_token_ids)
        stop = bool(stop_row[1] > stop_row[0]) and produced >= request.min_tokens
        request.codes += output.multimodal_outputs["codes"]["audio"][row].flatten().tolist()
        request.hidden.append(output.text_hidden_states[row].clone())
        request.append(int(stop))

    def step(self) -> None:
        batch = [request.request_id for request in self.all if request.reason is None]
        self.steps += 1
        extras = self.prepare(batch, self.frames)
        if self.frames == 1:
            output = self.model.make_omni_output(self.forward(), **extras)
            stop_rows = self.model.take_batch_stop_logits()
            for row, request_id in enumerate(batch):
                self.single(self.requests[request_id], output, row, stop_rows[row])
            return
        extras["request_max_tokens_remaining"] = remaining_outputs(self.input_batch, self.requests)
        frames = multi_frame.applies(self.model, extras)
        assert frames == self.frames
        output = self.run_frames(extras)
        accepted = accept_frames(
            self.model.take_batch_stop_logits(),
            [frames] * len(batch),
            output_counts(self.input_batch, self.requests),
            minimum_outputs(self.input_batch, self.requests),
        )
        assert bool(accepted.valid.all())
        for row, request_id in enumerate(batch):
            request = self.requests[request_id]
            request.codes += output.multimodal_outputs["codes"]["audio"][row].flatten().tolist()
            for offset, token in enumerate(accepted.token_ids[row].tolist()):
                if token >= 0 and request.reason is None:
                    request.hidden.append(output.text_hidden_states[row * frames + offset].clone())
                    request.append(token)

    def run_frames(self, extras: dict[str, Any]) -> Any:
        narrow = multi_frame.begin_narrow_step(
            runner=self,
            forward_context=self.context,
            frames=self.frames,
            positions=self.positions,
            inputs_embeds=self.inputs_embeds,
            spans=extras["request_token_spans"],
        )
        self.narrow_steps += narrow is not None
        try:
            return multi_frame.run(
                model=self.model,
                run_model=self.forward,
                after_forward=self.count_after_forward,
                inputs_embeds=self.inputs_embeds,
                input_ids=self.input_ids,
                frames=self.frames,
                model_kwargs={},
                model_kwargs_extra=extras,
                narrow=narrow,
                tail=self.tail,
            )
        finally:
            multi_frame.end_narrow_step(self.context, narrow)

    def count_after_forward(self) -> None:
        self.after_forwards += 1

    def run(self) -> ToyEngine:
        for request in self.all:
            self.prefill(request)
        while any(request.reason is None for request in self.all):
            self.step()
        return self


def facts(engine: ToyEngine) -> list[dict[str, Any]]:
    """Everything that a client, the next stage or a later turn could see of each request."""
    model = engine.model
    return [
        {
            "codes": request.codes,
            "tokens": request.output_token_ids,
            "reason": request.reason,
            "hidden": torch.stack(request.hidden),
            "draws": model.draws.get(request.request_id, 0),
            "generator": model.generators[request.request_id].get_state()
            if request.request_id in model.generators
            else torch.empty(0),
        }
        for request in engine.all
    ]


def assert_same(ours: ToyEngine, oracle: ToyEngine) -> None:
    for mine, theirs in zip(facts(ours), facts(oracle), strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, theirs[name]), name
            else:
                assert value == theirs[name], name
