"""Makes the toy stack beside these tests importable under every pytest import mode."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from toy_stack import EOS, HIDDEN, VOCAB

from kstep_shim.frames.merge import merge_frame_outputs


@pytest.fixture(scope="module")
def talker_class() -> type:
    """The released Talker with the members that the shim adds, and weights of toy size."""
    module = pytest.importorskip(
        "vllm_omni.model_executor.models.minicpmo_4_5.minicpmo_4_5_omni_tts"
    )
    base: Any = module.MiniCPMO45OmniTTSForConditionalGeneration

    class ReleasedTalker(base):  # type: ignore[misc]
        supports_multi_frame_decode = True

        def __init__(self, eos_bias: float = 0.0) -> None:
            torch.nn.Module.__init__(self)
            torch.manual_seed(3)
            self.emb_code = torch.nn.ModuleList([torch.nn.Embedding(VOCAB, HIDDEN).double()])
            self.head_code = torch.nn.ModuleList([torch.nn.Linear(HIDDEN, VOCAB).double()])
            with torch.no_grad():
                self.head_code[0].bias[EOS] += eos_bias
            self._batch_stop_logits = None
            self._request_generators: dict[str, torch.Generator] = {}
            self._request_audio_states: dict[str, Any] = {}
            self._num_audio_tokens = VOCAB
            self._codec_seed, self._codec_temperature = 42, 0.8
            self._codec_top_k, self._codec_top_p = 25, 0.85
            self._codec_repetition_penalty, self._codec_min_tokens = 1.05, 50
            self.draws: dict[str, int] = {}

        @property
        def batch_stop_logits(self) -> Any:
            return self._batch_stop_logits

        def take_batch_stop_logits(self) -> Any:
            rows, self._batch_stop_logits = self._batch_stop_logits, None
            return rows

        def set_batch_stop_logits(self, stop_rows: Any) -> None:
            self._batch_stop_logits = stop_rows

        def merge_frame_outputs(self, outputs: Any, stop_rows: Any) -> Any:
            return merge_frame_outputs(outputs, stop_rows, self.set_batch_stop_logits)

        @property
        def generators(self) -> dict[str, torch.Generator]:
            return self._request_generators

        def _sample_audio_code(self, hidden: Any, history: Any, request_id: str, step: int) -> Any:
            self.draws[request_id] = self.draws.get(request_id, 0) + 1
            return super()._sample_audio_code(hidden, history, request_id, step)

    return ReleasedTalker
