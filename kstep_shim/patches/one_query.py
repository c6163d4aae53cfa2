"""One-query graphs: capture what K=1 replays, and replay it for K-frame and draftless steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstep_shim._logging import LOGGER
from kstep_shim.counters import counters
from kstep_shim.declaration import Kind, Patch, Side, Target
from kstep_shim.patches.armed import armed

_SIZES = "_kstep_shim_capture_sizes"
_GRAPHS = "_kstep_shim_one_query_graphs"


def keep_sizes(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> None:
    """Note the capture sizes as configured: they are about to be rounded to multiples of K."""
    if not hasattr(runner, _SIZES):
        setattr(runner, _SIZES, list(runner.compilation_config.cudagraph_capture_sizes or ()))
    wrapped(*args, **kwargs)


def capture_both(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> int:
    """After the K-query graphs capture the one-query graphs; without them the wide replay serves.

    Returns
    -------
    int
        Bytes of graph memory, both kinds together.
    """
    memory: int = wrapped(*args, **kwargs)
    if not armed(runner):
        return memory
    reason = _why_not(runner)
    if reason is None:
        try:
            return memory + _capture(wrapped, runner)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
    LOGGER.info("kstep_shim: no one-query graphs, frames replay the K-query graphs: %s", reason)
    return memory


def dispatch_draftless(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Send a step of one token per request to the one-query graph, as at K=1."""
    graphs = vars(runner).get(_GRAPHS)
    if graphs is None or not _one_token_each(*args, **kwargs):
        return wrapped(*args, **kwargs)
    with graphs.dispatching():
        found = wrapped(*args, **kwargs)
    if not graphs.holds(found[1]):
        return wrapped(*args, **kwargs)
    counters().increment("draftless_one_query")
    return found


def pad_draftless(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Pad such a step as at K=1: one query for each request that fills up the graph."""
    graphs = vars(runner).get(_GRAPHS)
    if graphs is None or not _one_query_each(*args, **kwargs):
        return wrapped(*args, **kwargs)
    with graphs.dispatching():
        return wrapped(*args, **kwargs)


def update_own_parameters(wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any) -> Any:
    """Re-issue the parameters of the graph that was replayed, of whichever kind it is."""
    graphs = vars(runner).get(_GRAPHS)
    if graphs is None:
        return wrapped(*args, **kwargs)
    context = args[0] if args else kwargs["forward_context"]
    with graphs.updating(context.batch_descriptor):
        return wrapped(*args, **kwargs)


def _why_not(runner: Any) -> str | None:
    """Why this runner gets no one-query graphs, or ``None``."""
    from kstep_shim.frames.narrow import narrow_replay_enabled
    from kstep_shim.frames.parts import part_name

    mode = runner.compilation_config.cudagraph_mode
    if mode.decode_mode() != type(mode).FULL or not mode.separate_routine():
        return f"cudagraph_mode {mode.name} captures none for decode steps alone"
    if not narrow_replay_enabled(runner):
        part = part_name() or "this device"
        return f"off on {part}; KSTEP_SHIM_NARROW=on overrides that"
    return None


def _capture(capture_model: Callable[[], int], runner: Any) -> int:
    from vllm.compilation.monitor import set_cudagraph_capturing_enabled

    from kstep_shim.frames.one_query import OneQueryGraphs

    try:
        graphs = OneQueryGraphs(runner, getattr(runner, _SIZES, ()), _backend(runner))
        memory = graphs.capture(capture_model)
    finally:
        set_cudagraph_capturing_enabled(False)
    setattr(runner, _GRAPHS, graphs)
    runner.captured_one_query = graphs.for_step
    LOGGER.info("kstep_shim: one-query graphs captured for %s requests", graphs.sizes)
    return memory


def _backend(runner: Any) -> Callable[..., Any]:
    if hasattr(runner, "_update_full_graph_params_if_needed"):
        from kstep_shim.frames.one_query_npu import NpuBackend

        return NpuBackend
    from kstep_shim.frames.one_query_cuda import CudaBackend

    return CudaBackend


def _one_token_each(
    num_tokens: int,
    num_reqs: int,
    num_scheduled_tokens_np: Any,
    max_num_scheduled_tokens: int,
    use_cascade_attn: bool,
    allow_microbatching: bool = True,
    force_eager: bool = False,
    force_uniform_decode: bool | None = None,
    **_: Any,
) -> bool:
    """Whether a real step, not a capture, has one token of each request."""
    if force_eager or force_uniform_decode is not None:
        return False
    return max_num_scheduled_tokens == 1 and num_tokens == num_reqs


def _one_query_each(
    query_start_loc: Any,
    num_tokens_padded: int,
    num_reqs_padded: int,
    num_reqs: int,
    cudagraph_runtime_mode: Any = None,
    batch_desc_num_reqs: int | None = None,
) -> bool:
    """Whether the graph that was found has as many requests as tokens."""
    full = getattr(cudagraph_runtime_mode, "name", None) == "FULL"
    return full and batch_desc_num_reqs == num_tokens_padded


_DISPATCH = (
    "self",
    "num_tokens",
    "num_reqs",
    "num_scheduled_tokens_np",
    "max_num_scheduled_tokens",
    "use_cascade_attn",
    "allow_microbatching",
    "force_eager",
    "force_uniform_decode",
    "force_has_lora",
    "force_num_active_loras",
    "num_encoder_reqs",
)
_CHECK = ("self", "attention_backends", "kv_cache_groups")


def _targets(
    distribution: str, module: str, runner: str, platform: str, check: tuple[str, ...]
) -> tuple[Target, ...]:
    def target(name: str, parameters: tuple[str, ...], wrapper: Any) -> Target:
        return Target(
            distribution=distribution,
            module=module,
            qualname=f"{runner}.{name}",
            parameters=parameters,
            wrapper=wrapper,
            platform=platform,
        )

    return (
        target("_check_and_update_cudagraph_mode", check, keep_sizes),
        target("capture_model", ("self",), capture_both),
        target("_determine_batch_execution_and_padding", _DISPATCH, dispatch_draftless),
    )


PATCH = Patch(
    name="one_query",
    summary="capture and replay the graphs that one frame per step would replay",
    targets=(
        *_targets(
            "vllm-ascend", "vllm_ascend.worker.model_runner_v1", "NPUModelRunner", "npu", _CHECK
        ),
        Target(
            distribution="vllm-ascend",
            module="vllm_ascend.worker.model_runner_v1",
            qualname="NPUModelRunner._update_full_graph_params_if_needed",
            parameters=("self", "forward_context", "num_tokens_padded"),
            wrapper=update_own_parameters,
            platform="npu",
        ),
        Target(
            distribution="vllm-ascend",
            module="vllm_ascend.worker.model_runner_v1",
            qualname="NPUModelRunner._pad_query_start_loc_for_fia",
            parameters=(
                "self",
                "query_start_loc",
                "num_tokens_padded",
                "num_reqs_padded",
                "num_reqs",
                "cudagraph_runtime_mode",
                "batch_desc_num_reqs",
            ),
            wrapper=pad_draftless,
            platform="npu",
        ),
        Target(
            distribution="vllm-ascend",
            module="vllm_ascend.compilation.acl_graph",
            qualname="get_graph_params",
            parameters=(),
            kind=Kind.RELIED_ON,
            platform="npu",
        ),
        *_targets(
            "vllm",
            "vllm.v1.worker.gpu_model_runner",
            "GPUModelRunner",
            "cuda",
            (*_CHECK, "is_profiling"),
        ),
    ),
    sides=frozenset({Side.WORKER}),
    why="A K-query replay costs more than the one-query replay, and may round differently.",
    how="Runs the runner's own capture once more behind a dispatcher made without drafts.",
    remove_when="the stack captures one-query graphs beside the K-query ones.",
)
