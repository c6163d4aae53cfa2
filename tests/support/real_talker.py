"""A Talker of the real shape on a GPU, in a process of its own: ``python -m support.real_talker``.

Random weights, scaled so that penalty, top-p and top-k decide. Requests join while others speak and
end at frames of their own, so the batch changes from step to step.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
from pathlib import Path
from typing import Any

from kstep_shim.bench.talker import BenchJob, request, start
from kstep_shim.demo.stage import TINY, model_runner, talker_wrapper

ROWS, FRAMES = 8, 200
#: A stream joins when the first one has spoken this many frames more: one step of 16 frames, and
#: the frame that it speaks while the newcomer's prompt is read. So it joins at the same frame with
#: every K from 1 to 16.
STAGGER = 17
#: What MiniCPM-o 4.5's Talker has instead of the miniature's sizes; no text model is built.
_REAL = {
    "audio_bos_token_id": 151687,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "llm_dim": 768,
    "min_new_tokens": 0,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "num_hidden_layers": 20,
    "num_audio_tokens": 6562,
    "num_text_tokens": 152064,
    "text_eos_token_id": 151692,
    "top_k": 25,
    "top_p": 0.85,
}


def checkpoint() -> str:
    """A directory with the real Talker's configuration."""
    config = json.loads((TINY / "config.json").read_text())
    config["tts_config"].update(_REAL)
    config.update(hidden_size=768, head_dim=64, num_attention_heads=12, num_key_value_heads=12)
    directory = Path(tempfile.mkdtemp(prefix="kstep-real-"))
    (directory / "config.json").write_text(json.dumps(config))
    for source in TINY.glob("*.py"):
        (directory / source.name).write_text(source.read_text())
    return str(directory)


class Stage:
    """One engine that streams are spoken on."""

    def __init__(self, frames: int, sleeper: bool) -> None:
        extra = {"enable_sleep_mode": True} if sleeper else {}
        self.job = BenchJob(frames, (ROWS,), FRAMES, model=checkpoint(), engine_args=extra)
        self.engine = start(self.job)
        self.width = int(model_runner(self.engine).get_model().config.hidden_size)
        self.ends: dict[str, int] = {}
        self.codes: dict[str, list[int]] = {}
        self.reasons: dict[str, str] = {}
        self._force_ends()

    def add(self, name: str, index: int, limit: int, end: int | None) -> None:
        """A stream with this limit in tokens, whose codec ends at frame `end`."""
        self.codes[name] = []
        if end is not None:
            self.ends[name] = end
        self.engine.add_request(request(name, index, limit, self.width))

    def step(self) -> None:
        outputs, executed = self.engine.step_fn()
        self.engine.post_step(executed)
        for output in [one for some in (outputs or {}).values() for one in some.outputs]:
            delta = (output.multimodal_output or {}).get("codes.audio")
            if delta is not None:
                self.codes[output.request_id] += delta.flatten().tolist()
            if output.finish_reason is not None:
                self.reasons[output.request_id] = str(output.finish_reason)

    def speak(self, prefix: str) -> dict[str, Any]:
        """Staggered streams with ends at random frames; codes and reasons of each."""
        dice = random.Random(7)
        waiting = list(range(ROWS))
        names = [f"{prefix}{index}" for index in waiting]
        while waiting or self.engine.scheduler.has_requests():
            spoken = len(self.codes.get(names[0], ()))
            while waiting and (waiting[0] == 0 or spoken >= STAGGER * waiting[0]):
                index = waiting.pop(0)
                end = None if index in (0, 5) else dice.randrange(40, FRAMES)
                self.add(names[index], index, FRAMES if index else 2 * FRAMES, end)
            self.step()
        return {
            name[len(prefix) :]: {"codes": self.codes[name], "reason": self.reasons[name]}
            for name in names
        }

    def traffic(self, requests: int, measure_at: tuple[int, ...]) -> list[dict[str, int]]:
        """Short streams, half of them aborted; memory when so many have ended."""
        import torch

        dice, facts, running = random.Random(3), [], list[str]()
        for number in range(requests):
            name = f"t{number}"
            self.add(name, number % 50, dice.randrange(5, 40), None)
            running.append(name)
            while len(running) >= ROWS:
                self.step()
                if dice.random() < 0.5:
                    self.engine.abort_requests([running[0]])
                    self.reasons[running[0]] = "abort"
                running = [one for one in running if one not in self.reasons]
            self.codes.clear()
            self.codes.update({one: [] for one in running})
            if number + 1 in measure_at:
                resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
                facts.append({"device": torch.cuda.memory_allocated(), "host": resident})
        while self.engine.scheduler.has_requests():
            self.step()
        return facts

    def _force_ends(self) -> None:
        talker = talker_wrapper(self.engine).talker
        preprocess = talker.preprocess

        def forced(*args: Any, **info: Any) -> Any:
            ids, embeds, update = preprocess(*args, **info)
            state, end = update.get("audio_state"), self.ends.get(str(info.get("request_id")))
            if state is not None and end is not None:
                state["max_tokens"] = min(state["max_tokens"], end)
                state["min_tokens"] = end
            return ids, embeds, update

        talker.preprocess = forced


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sleep", action="store_true")
    parser.add_argument("--requests", type=int, default=0)
    arguments = parser.parse_args()
    stage = Stage(arguments.frames, arguments.sleep)
    facts: dict[str, Any] = {"streams": stage.speak("a")}
    if arguments.sleep:
        stage.engine.sleep(1)
        stage.engine.wake_up()
        facts["after sleep"] = stage.speak("b")
    if arguments.requests:
        facts["memory"] = stage.traffic(arguments.requests, (arguments.requests // 4,
                                                             arguments.requests))  # fmt: skip
    if arguments.frames > 1:
        import kstep_shim

        facts["counters"] = dict(kstep_shim.status().counters)
    arguments.out.write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
