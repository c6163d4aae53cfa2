"""One request of a codec-head Talker while a K-frame step runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

#: Stands for an id that the host has not seen, where only its being there counts.
_UNSEEN = 0


@dataclass
class CodecHeadRow:
    """What a request has drawn in this step, and whether it goes on.

    Attributes
    ----------
    name, info : str, dict
        Its id and its live buffer.
    request : Any
        The runner's state of it; ``output_token_ids`` is the list that vLLM's processors count.
    left : int or None
        Tokens that it may still produce before the step; ``None`` without a limit.
    context : int
        The stage's ``max_model_len``.
    ids : list of int
        Ids drawn in the step so far.
    live : bool
        Whether another frame would have been scheduled after them.
    expected : int
        Ids counted unseen.
    """

    name: str
    info: dict[str, Any]
    request: Any
    left: int | None
    context: int
    ids: list[int] = field(default_factory=list)
    live: bool = True
    expected: int = 0

    def expect(self) -> None:
        """Count an id that the host has not seen yet, before the next frame is drawn."""
        self.expected += 1
        self.request.output_token_ids.append(_UNSEEN)

    def forget_expected(self) -> None:
        """Uncount the unseen ids; the seen ones follow."""
        outputs = self.request.output_token_ids
        del outputs[len(outputs) - self.expected :]

    def take(self, token: int) -> None:
        """Count an id before the next frame is drawn, as a step of its own would have."""
        self.ids.append(token)
        self.request.output_token_ids.append(token)
        self.live = not self._ends()

    def take_back(self) -> None:
        """Leave the counting to vLLM, which does it for the whole step."""
        outputs = self.request.output_token_ids
        del outputs[len(outputs) - len(self.ids) :]

    def _ends(self) -> bool:
        """Ask the installed scheduler's own test: the order of its checks differs by release."""
        from vllm.v1.core.sched.utils import check_stop

        outputs = self.request.output_token_ids
        seen = SimpleNamespace(
            pooling_params=None,
            sampling_params=self.request.sampling_params,
            output_token_ids=outputs,
            num_output_tokens=len(outputs),
            num_tokens=self.request.num_prompt_tokens + len(outputs),
            max_tokens=self.context
            if self.left is None
            else len(outputs) - len(self.ids) + self.left,
            status=None,
            stop_reason=None,
        )
        return bool(check_stop(seen, self.context))
