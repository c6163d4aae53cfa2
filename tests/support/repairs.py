"""What the released stack lacks at K=1, put right, so that there is something to compare with."""

from __future__ import annotations

from kstep_shim.catalog import installed_head
from kstep_shim.declaration import Head


def name_graph_backend() -> None:
    """Let full graphs of vllm-ascend 0.30 update the attention's arguments when they are replayed.

    They do it for a backend which vllm-ascend's own ``_model_forward`` names first. vllm-omni 0.30
    overrides that method and does not, so a replay waits for an update which never comes.
    """
    from vllm_omni.platforms.npu.worker.npu_model_runner import OmniNPUModelRunner

    load_model = OmniNPUModelRunner.load_model

    def repaired(runner, *args, **kwargs):
        load_model(runner, *args, **kwargs)
        if hasattr(runner.model, "set_attn_backend"):
            runner.model.set_attn_backend(runner.attn_backend)

    OmniNPUModelRunner.load_model = repaired


def name_graph_backend_and_narrow_on() -> None:
    """The same, with one-query graphs on a part that is listed as one on which they fault."""
    from support import graph_cases

    name_graph_backend()
    graph_cases.narrow_on()


#: What the installed stack needs before it can replay full graphs, at K=1 too.
FULL_GRAPHS = name_graph_backend if installed_head() is Head.CODEC else None
