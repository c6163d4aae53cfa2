"""Two stand-ins that a three-stage pipeline in miniature needs, put in place by a plug-in.

The vocoder's networks are not in any package, so a function of code and position takes their
place; and the Thinker, which is brought up without a processor for images and audio, is given the
look-up of text embeddings that the processor's path would have made. Neither touches the Talker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kstep_shim.declaration import Patch, Side, Target

SAMPLES_PER_FRAME = 960
PLUGIN = "kstep_shim_stand_ins"
_MODELS = "vllm_omni.model_executor.models.minicpmo_4_5"


def register() -> None:
    """What vLLM calls in every process; see `write_plugin`."""
    from kstep_shim.installer import Installer
    from kstep_shim.settings import Settings

    if not _INSTALLED:
        installer = Installer(PATCHES, environ={}, tested=())
        installer.install(Settings(frames=1))
        _INSTALLED.append(installer)


_INSTALLED: list[Any] = []


def write_plugin(directory: Path) -> Path:
    """Write the metadata that makes `register` a vLLM plug-in where `directory` is on the path."""
    metadata = directory / f"{PLUGIN}-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{PLUGIN} = {__name__}:register\n"
    )
    return directory


def build_backend(wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> None:
    """Give the vocoder a backend whose audio depends on every code and on its place."""
    if model.backend is None:
        model.backend = _backend()


def look_text_up(wrapped: Callable[..., Any], model: Any, args: Any, kwargs: Any) -> Any:
    """Embed the Thinker's text; the other stages preprocess as they do."""
    if model.model_stage != "llm":
        return wrapped(*args, **kwargs)
    input_ids = args[0] if args else kwargs["input_ids"]
    return input_ids, model.thinker.llm.model.embed_tokens(input_ids), {}


def _backend() -> Any:
    import importlib

    import torch

    state_class = importlib.import_module(f"{_MODELS}.minicpmo_4_5_code2wav").BatchedToken2WavState

    def state(count: float) -> Any:
        return state_class({"n": torch.tensor([count])}, {"n": torch.zeros(1)})

    class Backend(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            wave = torch.sin(torch.arange(SAMPLES_PER_FRAME) * 0.05)
            self.register_buffer("wave", wave, persistent=False)

        def prepare_prompt(self, name: Any, audio: Any) -> Any:
            return name, audio

        def evict_prompt(self, name: Any, audio: Any) -> None:
            pass

        def setup_batch(self, features: Any, count: int) -> list[Any]:
            return [state(0.0) for _ in range(count)]

        def decode_batch(
            self,
            tokens: Sequence[Any],
            features: Any,
            states: Sequence[Any],
            last_chunk: bool = False,
        ) -> tuple[list[Any], list[Any]]:
            audio = [
                ((codes.float().view(-1, 1) + 1) / 8192 * self.wave.view(1, -1)).reshape(-1)
                for codes in tokens
            ]
            return audio, [state(float(old.flow_cache["n"]) + 1) for old in states]

    return Backend()


def _patch(name: str, target: Target) -> Patch:
    return Patch(
        name=name,
        summary=name,
        targets=(target,),
        sides=frozenset({Side.WORKER}),
        why="The miniature has no model files for it.",
        how="Answers in its place.",
        remove_when="never: it is part of the miniature.",
    )


PATCHES = (
    _patch(
        "vocoder",
        Target(
            distribution="vllm-omni",
            module=f"{_MODELS}.minicpmo_4_5_code2wav",
            qualname="MiniCPMO45Code2Wav._build_backend",
            parameters=("self",),
            wrapper=build_backend,
            before_seal=True,
        ),
    ),
    _patch(
        "thinker",
        Target(
            distribution="vllm-omni",
            module=f"{_MODELS}.minicpmo_4_5_omni",
            qualname="MiniCPMO45OmniForConditionalGeneration.preprocess",
            parameters=("self", "input_ids", "input_embeds"),
            wrapper=look_text_up,
            before_seal=True,
        ),
    ),
)
