"""Wrappers of one method each, around the real methods of the released packages."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kstep_shim.counters import counters
from kstep_shim.patches import (
    draft_metadata,
    drafter,
    input_batch,
    min_tokens,
    output_limits,
    parse_output,
    warmup,
)

INF = float("inf")


def rows(*lists: list[int]) -> torch.Tensor:
    return torch.tensor(lists, dtype=torch.int32)


class TestParseOutput:
    @pytest.fixture
    def stock(self):
        from vllm.v1.sample.rejection_sampler import RejectionSampler

        return RejectionSampler.parse_output

    def test_before_size_zero_drops_every_id(self, stock) -> None:
        assert stock(rows([0, 0, 1, -1]), 0)[0] == [[]]

    @pytest.mark.parametrize("size", [0, 2])
    def test_stop_row_ids_survive(self, stock, size: int) -> None:
        found = parse_output.parse(stock, None, (rows([0, 0, 1, -1]), size), {})
        assert found[0] == [[0, 0, 1]]
        assert counters().get("rows_without_token") == 0

    def test_keyword_call_is_the_same(self, stock) -> None:
        found = parse_output.parse(
            stock, None, (), {"output_token_ids": rows([0, 1]), "vocab_size": 0}
        )
        assert found[0] == [[0, 1]]

    def test_a_row_that_lost_every_token_is_counted(self, stock) -> None:
        found = parse_output.parse(stock, None, (rows([-1, -1], [0, 0], [-1, -1]), 0, [2]), {})
        assert found[0] == [[], [0, 0], []]
        assert counters().get("rows_without_token") == 1

    def test_a_real_vocabulary_is_left_alone(self, stock) -> None:
        found = parse_output.parse(stock, None, (rows([-1, 7]), 5), {})
        assert found[0] == [[]]
        assert counters().get("rows_without_token") == 0


class TestInputBatch:
    @pytest.mark.parametrize(("size", "expected"), [(0, 2), (2, 2), (151_000, 151_000)])
    def test_only_a_vocabulary_of_zero_is_raised(self, size: int, expected: int) -> None:
        batch = SimpleNamespace()

        def build(vocab_size: int) -> None:
            batch.vocab_size = vocab_size

        input_batch.size_by_stop_row(build, batch, (size,), {})
        assert batch.vocab_size == expected

    def test_both_classes_are_declared(self) -> None:
        names = {target.qualname for target in input_batch.PATCH.targets}
        assert names == {"InputBatch.__init__", "NPUInputBatch.__init__"}


class TestMinTokens:
    @pytest.fixture
    def processor(self):
        from vllm.v1.sample.logits_processor.builtin import MinTokensLogitsProcessor

        processor = MinTokensLogitsProcessor(None, torch.device("cpu"), False)
        processor.min_toks = {0: (50, [0], {1})}
        processor.logits_slice = (torch.tensor([0]), torch.tensor([1]))
        return processor

    def test_before_the_stop_row_is_masked(self, processor) -> None:
        logits = processor.apply(torch.tensor([[-INF, 0.0]]))
        assert logits[0, 1] == -INF

    def test_stop_rows_pass_untouched(self, processor) -> None:
        logits = torch.tensor([[-INF, 0.0]])
        assert min_tokens.leave_stop_rows(processor.apply, processor, (logits,), {}) is logits
        assert logits[0, 1] == 0.0
        assert processor.min_toks == {}

    def test_stop_rows_of_a_drafted_step_pass_untouched(self, processor) -> None:
        logits = torch.tensor([[0.0, -INF], [-INF, 0.0]])
        found = min_tokens.leave_stop_rows(
            processor.apply_with_spec_decode, processor, (logits, [1]), {}
        )
        assert found is logits
        assert logits[1, 1] == 0.0

    def test_another_head_keeps_its_minimum(self, processor) -> None:
        logits = torch.zeros(1, 5)
        min_tokens.leave_stop_rows(processor.apply, processor, (logits,), {})
        assert logits[0, 1] == -INF
        assert processor.min_toks


def talker(**members):
    names = (
        "batch_stop_logits",
        "take_batch_stop_logits",
        "set_batch_stop_logits",
        "merge_frame_outputs",
    )
    return SimpleNamespace(supports_multi_frame_decode=True, **dict.fromkeys(names), **members)


def runner(*names: str, drafts: int = 3, **members):
    requests = {
        name: SimpleNamespace(
            sampling_params=SimpleNamespace(max_tokens=10, logprobs=None), output_token_ids=[0] * 4
        )
        for name in names
    }
    batch = SimpleNamespace(req_ids=list(names), num_reqs=len(names))
    model = talker()
    return SimpleNamespace(
        num_spec_tokens=drafts,
        model=model,
        get_model=lambda: model,
        input_batch=batch,
        requests=requests,
        **members,
    )


def refuse(*args, **kwargs):
    raise AssertionError("the stock method must not be called")


class TestDrafter:
    def propose(self, valid, scheduled, *names):
        output = SimpleNamespace(scheduled_spec_decode_tokens=scheduled)
        return drafter.propose(refuse, runner(*names), (valid, None, output, None), {})

    def test_drafts_are_constant(self) -> None:
        assert self.propose([[0], [0]], {}, "a", "b") == [[0, 0, 0], [0, 0, 0]]

    def test_a_finished_neighbour_costs_no_step(self) -> None:
        scheduled = {"a": [0, 0, 0], "b": [0, 0, 0]}
        found = self.propose([[0, 1], [0, 0, 0, 0]], scheduled, "a", "b")
        assert found == [[0, 0, 0], [0, 0, 0]]

    def test_an_incomplete_prompt_folds_the_batch(self) -> None:
        assert self.propose([[], [0]], {}, "a", "b") == [[], []]
        assert counters().get("drafts_folded") == 1

    def test_a_drafted_row_without_token_stops_the_step(self) -> None:
        with pytest.raises(RuntimeError, match="neither continue nor stop"):
            self.propose([[], [0, 0, 0, 0]], {"a": [0] * 3, "b": [0] * 3}, "a", "b")

    @pytest.mark.parametrize("valid", [[], rows([0], [0]), [[0]]], ids=["none", "tensor", "one"])
    def test_field_report_12_no_ids_on_the_host(self, valid) -> None:
        counters().clear()
        assert self.propose(valid, {}, "a", "b") == [[], []]
        assert counters().get("declined: no sampled ids on the host") == 1

    def test_stops_and_rolled_back_tokens_are_counted(self) -> None:
        counters().clear()
        scheduled = {"a": [0, 0, 0], "b": [0, 0, 0]}
        self.propose([[0, 1], [0, 0, 0, 0]], scheduled, "a", "b")
        assert counters().get("stops_at_frame: 2") == 1
        assert counters().get("tokens_rolled_back") == 2

    def test_an_unarmed_stage_drafts_as_it_does(self) -> None:
        stock = SimpleNamespace(num_spec_tokens=3, get_model=SimpleNamespace)
        assert drafter.propose(lambda *a: "stock", stock, ([[0]], None), {}) == "stock"


class TestDraftMetadata:
    @pytest.fixture
    def runner(self):
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        runner = object.__new__(GPUModelRunner)
        vars(runner).update(
            _kstep_shim_armed=True,
            num_spec_tokens=3,
            device=torch.device("cpu"),
            input_ids=SimpleNamespace(gpu=torch.zeros(64, dtype=torch.int32)),
            arange_np=np.arange(64),
            _arange_scratch=np.empty(64, dtype=np.int64),
        )
        return runner

    def ask(self, runner, drafts: list[int], calls: list[int]):
        def wrapped(*args):
            calls.append(1)
            return runner._calc_spec_decode_metadata(*args)

        counts = np.array(drafts, dtype=np.int32)
        return draft_metadata.keep(wrapped, runner, (counts, np.cumsum(counts + 1)), {})

    def test_a_k_wide_step_asks_once_per_number_of_requests(self, runner) -> None:
        calls: list[int] = []
        for rows in (1, 2, 1, 2):
            metadata = self.ask(runner, [3] * rows, calls)
            assert metadata.num_draft_tokens == [3] * rows
            assert metadata.logits_indices.tolist() == list(range(4 * rows))
        assert len(calls) == 2

    @pytest.mark.parametrize("drafts", [[3, 0], [2, 2], [3, 2, 3]])
    def test_any_other_step_asks_each_time(self, runner, drafts: list[int]) -> None:
        calls: list[int] = []
        for _ in range(2):
            assert self.ask(runner, drafts, calls).num_draft_tokens == drafts
        assert len(calls) == 2

    def test_a_row_with_other_tokens_beside_its_drafts_asks_each_time(self, runner) -> None:
        calls: list[int] = []
        counts, ends = np.array([3, 3], dtype=np.int32), np.array([4, 20])
        for _ in range(2):
            draft_metadata.keep(
                lambda *args: (calls.append(1), runner._calc_spec_decode_metadata(*args))[1],
                runner,
                (counts, ends),
                {},
            )
        assert len(calls) == 2


class TestOutputLimits:
    def test_remaining_is_per_request(self) -> None:
        two = runner("a", "b")
        two.requests["b"].sampling_params.max_tokens = None
        found = output_limits.add_remaining(dict, two, (), {})
        assert found == {"request_max_tokens_remaining": [6, None]}

    def test_an_unarmed_stage_gets_nothing_added(self) -> None:
        assert output_limits.add_remaining(dict, runner("a", drafts=0), (), {}) == {}


class TestWarmup:
    @pytest.mark.parametrize(
        ("part", "stage", "family", "runs"),
        [
            ("Ascend910_9392", "tts", "rejection_sampler", False),
            ("Ascend910_9392", "tts", "penalties", False),
            ("Ascend910_9392", "tts", "rms", True),
            ("Ascend910B3", "tts", "rejection_sampler", False),
            ("Ascend910B3", "tts", "penalties", True),
            ("Ascend910_9392", "llm", "rejection_sampler", True),
            ("", "tts", "penalties", False),
        ],
    )
    def test_families_by_part(
        self, monkeypatch: pytest.MonkeyPatch, part: str, stage: str, family: str, runs: bool
    ) -> None:
        import softnpu

        monkeypatch.delenv("SOC_VERSION", raising=False)
        monkeypatch.delenv("ASCEND_SOC_VERSION", raising=False)
        before = torch.npu.get_device_name()
        softnpu.set_device_name(part)
        try:
            ran = self.run_family(stage, family)
        finally:
            softnpu.set_device_name(before)
        assert ran is runs

    def run_family(self, stage: str, family: str) -> bool:
        from vllm_ascend.model_executor.warmup.kernel_warmup import _run_warmup

        config = SimpleNamespace(
            model_config=SimpleNamespace(model_stage=stage),
            speculative_config=SimpleNamespace(method="ngram", num_speculative_tokens=7),
        )
        ran: list[object] = []
        worker = SimpleNamespace(vllm_config=config)
        warmup.skip_by_part(_run_warmup, None, (family, ran.append, worker), {})
        return bool(ran)
