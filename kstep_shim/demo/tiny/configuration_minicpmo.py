"""Configuration classes of the miniature checkpoint, loaded through ``auto_map``."""

from transformers import PretrainedConfig, Qwen3Config


class MiniCPMTTSConfig(PretrainedConfig):
    """The Talker's part."""

    model_type = "minicpmtts"


class MiniCPMOConfig(Qwen3Config):
    """The whole model's configuration, Thinker and Talker."""

    model_type = "minicpmo"

    def __init__(self, tts_config=None, **kwargs):
        if not isinstance(tts_config, PretrainedConfig):
            tts_config = MiniCPMTTSConfig(**(tts_config or {}))
        self.tts_config = tts_config
        super().__init__(**kwargs)
