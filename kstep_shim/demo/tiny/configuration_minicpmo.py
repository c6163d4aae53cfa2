"""Configuration classes of the miniature checkpoint, loaded through ``auto_map``."""

from transformers import PretrainedConfig, Qwen3Config


class MiniCPMTTSConfig(PretrainedConfig):
    """The Talker's part."""

    model_type = "minicpmtts"


class MiniCPMPartConfig(PretrainedConfig):
    """A part of which the Thinker only reads attributes."""

    model_type = "minicpm_part"


def _part(kind, values):
    if values is None or isinstance(values, PretrainedConfig):
        return values
    return kind(**{name: value for name, value in values.items() if name != "model_type"})


class MiniCPMOConfig(Qwen3Config):
    """The whole model's configuration, Thinker and Talker."""

    model_type = "minicpmo"

    def __init__(self, tts_config=None, slice_config=None, vision_config=None, **kwargs):
        self.tts_config = _part(MiniCPMTTSConfig, tts_config or {})
        self.slice_config = _part(MiniCPMPartConfig, slice_config)
        self.vision_config = _part(MiniCPMPartConfig, vision_config)
        super().__init__(**kwargs)
