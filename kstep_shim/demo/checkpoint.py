"""A checkpoint in miniature on disk, for stages that load one in processes of their own.

Thinker, Talker, tokenizer and reference audio have the layout of MiniCPM-o 4.5's; the weights are
random and the same for the same sizes. Only the vocoder's model files are missing: see
`kstep_shim.demo.stand_ins`.
"""

from __future__ import annotations

import json
import shutil
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

TINY = Path(__file__).parent / "tiny"
WEIGHT_SEED = 1234
#: What the Thinker needs beyond the Talker-only configuration in `TINY`.
THINKER = {
    "attention_bias": False,
    "torch_dtype": "float32",
    "query_num": 4,
    "image_size": 28,
    "use_image_id": False,
    "drop_vision_last_layer": False,
    "init_audio": False,
    "init_vision": False,
    "init_tts": True,
    "slice_config": {"max_slice_nums": 1, "scale_resolution": 28, "patch_size": 14},
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "patch_size": 14,
        "image_size": 28,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    },
    "audio_pool_step": 5,
    "audio_chunk_length": 1.0,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "pad_token_id": 0,
}
_VOCABULARY = {"<unk>": 0, "</s>": 1, "<s>": 2}
_TEXT_EMBEDDINGS = 32000


#: Words that the tokenizer knows and the Thinker says.
_WORDS = 128
#: How much further than others the codec end's score swings, so that speech ends within seconds.
_END_SWING = 3.0


def write_checkpoint(
    directory: Path, layers: int = 2, vocabulary: int = _WORDS, codes: int = 64
) -> Path:
    """Write the checkpoint into `directory` and return it.

    `vocabulary` and `codes` widen the Thinker's and the Talker's heads for a stack that names ids
    of the released model's; what the Thinker says stays within the tokenizer's words.
    """
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    shutil.copytree(TINY, directory, dirs_exist_ok=True)
    config = {**json.loads((TINY / "config.json").read_text()), **THINKER}
    config["vocab_size"] = vocabulary
    config["tts_config"].update(num_hidden_layers=layers, num_audio_tokens=codes)
    (directory / "config.json").write_text(json.dumps(config))
    weights = random_weights({**_thinker(config), **_talker(config["tts_config"])})
    weights["llm.lm_head.weight"][_WORDS:] = 0.0
    if codes > 64:
        weights["tts.head_code.0.parametrizations.weight.original0"][-1] *= _END_SWING
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    _write_tokenizer(directory, _WORDS)
    (directory / "assets" / "token2wav").mkdir(parents=True, exist_ok=True)
    with wave.open(str(directory / "assets" / "HT_ref_audio.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(b"\0\0" * 16000)
    return directory


def random_weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Reproducible weights that keep activations near one; norms are the identity."""
    import torch

    generator = torch.Generator().manual_seed(WEIGHT_SEED)
    made = {}
    for name, shape in sorted(shapes.items()):
        if len(shape) == 1:
            made[name] = torch.ones(shape) if "norm" in name else torch.zeros(shape)
        else:
            scale = 1.0 if "emb" in name else shape[-1] ** -0.5
            made[name] = torch.randn(shape, generator=generator) * scale
    head = "tts.head_code.0.parametrizations.weight.original"
    made[f"{head}0"] = made[f"{head}1"].norm(dim=1, keepdim=True)
    return made


def _layers(prefix: str, config: Mapping[str, Any], head: int) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * head
    keys = config["num_key_value_heads"] * head
    one = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    return {
        f"{prefix}.layers.{layer}.{name}.weight": shape
        for layer in range(config["num_hidden_layers"])
        for name, shape in one.items()
    }


def _thinker(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, words, head = config["hidden_size"], config["vocab_size"], config["head_dim"]
    found = _layers("llm.model", config, head)
    for layer in range(config["num_hidden_layers"]):
        for name in ("q_norm", "k_norm"):
            found[f"llm.model.layers.{layer}.self_attn.{name}.weight"] = (head,)
    return {
        **found,
        "llm.model.embed_tokens.weight": (words, hidden),
        "llm.model.norm.weight": (hidden,),
        "llm.lm_head.weight": (words, hidden),
    }


def _talker(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, codes = config["hidden_size"], config["num_audio_tokens"]
    return {
        **_layers("tts.model", config, hidden // config["num_attention_heads"]),
        "tts.model.embed_tokens.weight": (_TEXT_EMBEDDINGS, hidden),
        "tts.model.norm.weight": (hidden,),
        "tts.emb_text.weight": (config["num_text_tokens"], hidden),
        "tts.emb_code.0.weight": (codes, hidden),
        "tts.projector_semantic.linear1.weight": (hidden, config["llm_dim"]),
        "tts.projector_semantic.linear1.bias": (hidden,),
        "tts.projector_semantic.linear2.weight": (hidden, hidden),
        "tts.projector_semantic.linear2.bias": (hidden,),
        "tts.head_code.0.parametrizations.weight.original1": (codes, hidden),
    }


def _write_tokenizer(directory: Path, words: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {**_VOCABULARY, **{f"w{i}": i for i in range(len(_VOCABULARY), words)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        eos_token="</s>",
        bos_token="<s>",
        pad_token="<unk>",
    ).save_pretrained(directory)
