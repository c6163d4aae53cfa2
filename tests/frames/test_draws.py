"""The device tail may only stand in for a multinomial that draws as it does."""

from __future__ import annotations

import pytest
import torch

from kstep_shim.frames.draws import multinomial_problem

VOCABULARY = torch.zeros(1, 6562)


def test_here_the_draw_is_an_exponential_and_an_argmax() -> None:
    assert multinomial_problem(VOCABULARY) is None


def test_another_kernel_is_noticed_by_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = torch.multinomial

    def other(chances: torch.Tensor, num_samples: int, generator: torch.Generator) -> torch.Tensor:
        return (stock(chances, num_samples, generator=generator) + 1) % chances.shape[1]

    monkeypatch.setattr(torch, "multinomial", other)
    assert "other ids" in str(multinomial_problem(VOCABULARY))


def test_another_kernel_is_noticed_by_its_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = torch.multinomial

    def other(chances: torch.Tensor, num_samples: int, generator: torch.Generator) -> torch.Tensor:
        found = stock(chances, num_samples, generator=generator)
        torch.rand(1, generator=generator)
        return found

    monkeypatch.setattr(torch, "multinomial", other)
    assert "generator" in str(multinomial_problem(VOCABULARY))


def test_a_device_without_the_operation_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **kwargs: object) -> torch.Tensor:
        raise NotImplementedError("aten::multinomial")

    monkeypatch.setattr(torch, "multinomial", missing)
    assert "cannot be checked" in str(multinomial_problem(VOCABULARY))
