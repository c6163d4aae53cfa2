"""Parts with soft segmentation: the graph's parameters are updated before each replay."""

from __future__ import annotations


def update_before_replay() -> None:
    """Let every runner of this process believe that it is such a part, and check the order."""
    from vllm_ascend.compilation.acl_graph import ACLGraphWrapper
    from vllm_omni.platforms.npu.worker.npu_ar_model_runner import NPUARModelRunner

    build = NPUARModelRunner.__init__
    update = NPUARModelRunner._update_full_graph_params_if_needed
    call = ACLGraphWrapper.__call__
    updates: list[bool] = []

    def building(runner, *args, **kwargs):
        build(runner, *args, **kwargs)
        runner.enable_enpu = True

    def updating(runner, context, tokens):
        update(runner, context, tokens)
        updates.append(context.cudagraph_runtime_mode.name == "FULL")

    def calling(wrapper, *args, **kwargs):
        from vllm.forward_context import get_forward_context

        context = get_forward_context()
        if context.cudagraph_runtime_mode.name == "FULL" and not context.capturing:
            if not updates or not updates.pop():
                raise AssertionError("a graph was replayed before its parameters were updated")
        updates.clear()
        return call(wrapper, *args, **kwargs)

    NPUARModelRunner.__init__ = building
    NPUARModelRunner._update_full_graph_params_if_needed = updating
    ACLGraphWrapper.__call__ = calling
