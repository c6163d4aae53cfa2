"""Import the whole stack, so that a process forked from this one starts at once."""

from kstep_shim.demo.stage import prepare_environment

prepare_environment()

import torch  # noqa: E402, F401  (loads the soft NPU through its entry point)
import vllm.v1.engine.core  # noqa: E402
import vllm.v1.executor.uniproc_executor  # noqa: E402, F401
import vllm_omni.core.sched.omni_ar_scheduler  # noqa: E402
import vllm_omni.engine.arg_utils  # noqa: E402
import vllm_omni.model_executor.models.minicpmo_4_5.minicpmo_4_5_omni  # noqa: E402
import vllm_omni.model_executor.models.minicpmo_4_5.minicpmo_4_5_omni_tts  # noqa: E402
import vllm_omni.platforms.npu.worker.npu_ar_model_runner  # noqa: E402, F401
