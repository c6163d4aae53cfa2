"""Parts with soft segmentation: the graph's parameters are updated before each replay."""

from __future__ import annotations

from support import repairs


def update_before_replay() -> None:
    """Let every runner of this process believe that it is such a part, and check the order."""
    from vllm_ascend.compilation.acl_graph import ACLGraphWrapper
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner
    from vllm_omni.platforms.npu.worker.npu_ar_model_runner import NPUARModelRunner

    if repairs.FULL_GRAPHS is not None:
        repairs.FULL_GRAPHS()
    build = NPUModelRunner.__init__
    execute = NPUARModelRunner.execute_model
    call = ACLGraphWrapper.__call__
    serving: list[bool] = []
    updates: list[bool] = []

    def building(runner, *args, **kwargs):
        build(runner, *args, **kwargs)
        runner.enable_enpu = True

    def executing(runner, *args, **kwargs):
        serving.append(True)
        return execute(runner, *args, **kwargs)

    def updating(runner, context, tokens):
        NPUModelRunner._update_full_graph_params_if_needed(runner, context, tokens)
        updates.append(context.cudagraph_runtime_mode.name == "FULL")

    def calling(wrapper, *args, **kwargs):
        from vllm.forward_context import get_forward_context

        full = get_forward_context().cudagraph_runtime_mode.name == "FULL"
        if serving and full and updates != [True]:
            raise AssertionError("a graph was not updated exactly once before its replay")
        updates.clear()
        return call(wrapper, *args, **kwargs)

    NPUModelRunner.__init__ = building
    NPUARModelRunner.execute_model = executing
    NPUARModelRunner._update_full_graph_params_if_needed = updating
    ACLGraphWrapper.__call__ = calling
