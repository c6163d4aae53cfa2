"""Configuration classes of the tiny model, loaded as remote code."""

from transformers import PretrainedConfig, Qwen3Config


class MiniCPMTTSConfig(PretrainedConfig):
    """Configuration of the Talker."""

    model_type = "minicpmtts"


class MiniCPMOConfig(Qwen3Config):
    """Configuration of the whole model."""

    model_type = "minicpmo"

    def __init__(self, tts_config=None, **options):
        self.tts_config = MiniCPMTTSConfig(**(tts_config or {}))
        super().__init__(**options)
