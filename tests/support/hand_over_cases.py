"""What the vocoder stage receives, on the real scheduler, adapter, connector and processor.

A made-up runner says what a worker would have returned for speech of a given length and ending, so
that thousands of endings take minutes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kstep_shim.demo.drive import build_request
from kstep_shim.demo.scenario import RequestSpec
from kstep_shim.demo.stage import prepare_environment, speculative_config
from kstep_shim.demo.vocoder import VocoderEnd, external_id
from support.scheduler_cases import Bench

#: The codec's ceiling looks like its own end to everything behind the worker.
ENDINGS = ("codec end", "limit", "abort")


@dataclass(frozen=True)
class Speech:
    """Speech of ``length`` frames, and how it ends.

    At the codec's own end the last engine token has no code; at the request's limit it has one.
    """

    length: int
    ending: str

    def at(self, frames: int) -> Speech:
        """The same speech as K = `frames` hears it: an abort takes effect after a whole step."""
        if self.ending != "abort" or self.length < 2:
            return self
        steps = -(-(self.length - 1) // frames)
        return Speech(1 + steps * frames, "abort")

    def row(self, first: int, width: int) -> tuple[list[int], list[int]]:
        """Token ids and codes of the positions ``first`` to ``first + width - 1``."""
        positions = range(first, first + width)
        stops = self.ending == "codec end"
        ids = [int(stops and position >= self.length) for position in positions]
        spoken = width if not stops else max(0, min(width, self.length - first))
        codes = [1000 + position for position in positions[:spoken]]
        return ids[: ids.index(1) + 1] if 1 in ids else ids, codes


class Sender(VocoderEnd):
    """A vocoder's receiving end whose sender works some steps behind."""

    def __init__(self, adapter: Any, behind: int) -> None:
        super().__init__(adapter)
        self._late: deque[list[Any]] = deque([] for _ in range(behind))

    def after_step(self) -> dict[str, list[Any]]:
        """Send what is due after a step, and return what arrived."""
        pending = self._adapter._pending_save_reqs
        self._late.append(list(pending))
        pending.clear()
        pending.extend(self._late.popleft())
        return self.receive()


def payload_lists(
    frames: int, speeches: Sequence[Speech], lags: Sequence[int]
) -> dict[tuple[Speech, int], list[Any]]:
    """What arrives for each speech at K = `frames`, with the sender that many steps behind."""
    bench = make_bench(frames)
    found = {}
    for lag in lags:
        sender = Sender(bench.scheduler.chunk_transfer_adapter, lag)
        for number, speech in enumerate(speeches):
            name = f"v{lag}-{number}"
            found[speech, lag] = serve_one(bench, sender, speech, frames, lag, name)
    return found


def one_name_twice(frames: int) -> list[Any]:
    """What arrives for a client that left after 21 tokens and came back under the same name."""
    bench = make_bench(frames)
    sender = Sender(bench.scheduler.chunk_transfer_adapter, 0)
    visits = (Speech(21, "abort"), Speech(60, "codec end"))
    return [serve_one(bench, sender, speech, frames, 0, "again") for speech in visits]


def make_bench(frames: int) -> Bench:
    """A scheduler that runs `frames` per step, with the shim if that is more than one."""
    prepare_environment()
    import torch  # noqa: F401

    if frames > 1:
        import kstep_shim

        kstep_shim.install(frames=frames)
    return Bench(
        async_chunk=True,
        speculative_config=speculative_config(frames) if frames > 1 else None,
        model_arch=None if frames == 1 else "MiniCPMO45OmniForConditionalGeneration",
    )


def serve_one(
    bench: Bench, sender: Any, speech: Speech, frames: int, behind: int, name: str
) -> list[Any]:
    """What arrives for one speech; `sender` sends after each step."""
    from vllm.v1.request import RequestStatus

    scheduler = bench.scheduler
    limit = speech.length if speech.ending == "limit" else 2048
    scheduler.add_request(build_request(RequestSpec(name, min_tokens=0, max_tokens=max(1, limit))))
    arrived: list[Any] = []
    made = 0
    while name in scheduler.requests:
        output = scheduler.schedule()
        width = len(output.scheduled_spec_decode_tokens.get(name, ())) + 1
        left = min(width, limit - made)
        ids, codes = speech.row(made, left)
        if left < width and 1 not in ids:
            # A row at its limit gets a stop row from the frame loop.
            ids = [*ids, 1]
        ended = speech.ending == "codec end" and made + len(ids) > speech.length
        _update(scheduler, output, name, ids, codes, ended)
        made += len(ids)
        arrived += sender.after_step().get(name, [])
        if speech.ending == "abort" and made >= speech.length and name in scheduler.requests:
            scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        bench.draft({name: frames - 1} if frames > 1 else {})
    for _ in range(behind):
        arrived += sender.after_step().get(name, [])
    return [anonymous(payload, name) for payload in arrived]


def _update(
    scheduler: Any, output: Any, name: str, ids: list[int], codes: list[int], ended: bool
) -> None:
    import torch
    from vllm_omni.outputs import OmniModelRunnerOutput

    payload = {
        "codes.audio": torch.tensor(codes, dtype=torch.long).reshape(-1, 1),
        "hidden": torch.zeros(max(1, len(ids)), 4),
        "meta.finished": torch.tensor(ended),
    }
    scheduler.update_from_output(
        output,
        OmniModelRunnerOutput(
            req_ids=[name],
            req_id_to_index={name: 0},
            sampled_token_ids=[ids],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            inter_stage_outputs=[payload],
        ),
    )


def anonymous(value: Any, name: str) -> Any:
    """A payload in which every request has the same name."""
    if isinstance(value, dict):
        return {key: anonymous(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [anonymous(item, name) for item in value]
    if isinstance(value, str):
        return value.replace(external_id(name), "#").replace(name, "#")
    return value
