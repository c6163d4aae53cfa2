"""The device type npu."""

from __future__ import annotations

import threading

import pytest
import torch
from softnpu.marks import is_marked


def test_a_device_says_npu() -> None:
    assert torch.device("npu:0").type == "npu"
    assert torch.npu.is_available()
    assert torch.accelerator.current_accelerator().type == "npu"


@pytest.mark.parametrize("device", ["npu", "npu:0", torch.device("npu", 0)])
def test_tensors_are_made_on_it(device: str | torch.device) -> None:
    tensor = torch.arange(3, device=device)
    assert tensor.tolist() == [0, 1, 2]
    assert is_marked(tensor)
    assert is_marked(torch.ones(3).to(device))
    assert is_marked(torch.ones(3).npu())


def test_a_context_makes_tensors_and_modules_on_it() -> None:
    with torch.device("npu"):
        tensor = torch.zeros(2)
        layer = torch.nn.Linear(2, 2)
    assert is_marked(tensor)
    assert is_marked(layer.weight)
    assert is_marked(layer(tensor))
    assert not is_marked(torch.zeros(2))


def test_a_module_moves() -> None:
    layer = torch.nn.Linear(2, 2).to("npu")
    assert is_marked(layer.weight)
    assert is_marked(torch.nn.Linear(2, 2).npu().weight)


def test_results_views_and_likes_stay_on_it() -> None:
    x = torch.ones(4, 4, device="npu")
    for tensor in (
        x + 1, x[1:], x.t().relu(), torch.zeros_like(x), x.new_zeros(2), torch.cat([x, x]),
        x.sort()[0], torch.empty(2, device=x.device), x.double(), x.detach(), x.split(2)[1],
    ):  # fmt: skip
        assert is_marked(tensor)


def test_host_tensors_stay_on_the_host() -> None:
    host = torch.ones(4)
    x = torch.ones(4, device="npu")
    host.copy_(x)
    for tensor in (host, host + 1, x.cpu(), x.to("cpu"), x.cpu() + 1, host.to(torch.float64)):
        assert not is_marked(tensor)
    assert host.device == torch.device("cpu")
    assert x.device.type == "cpu"


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: x.to(torch.device("cpu"), non_blocking=True),
        lambda x: x.to(torch.ones(1)),
    ],
)
def test_a_transfer_from_the_device_copies(copy) -> None:
    x = torch.zeros(3, device="npu")
    moved = copy(x)
    x.fill_(1)
    assert moved.tolist() == [0, 0, 0]


def test_a_transfer_to_the_device_copies() -> None:
    host = torch.zeros(3)
    array = host.numpy()
    moved = [
        host.to("npu"),
        host.npu(),
        torch.as_tensor(host, device="npu"),
        torch.as_tensor(array, device="npu"),
        torch.as_tensor(data=array, device="npu"),
    ]
    host.fill_(1)
    assert [tensor.tolist() for tensor in moved] == [[0, 0, 0]] * 5
    there = torch.zeros(3, device="npu")
    assert there.to("npu").data_ptr() == there.data_ptr()


def test_pinning_is_dropped() -> None:
    tensor = torch.zeros(3, pin_memory=True)
    assert tensor.pin_memory() is tensor
    assert not tensor.is_pinned()


def test_a_tensor_may_be_used_on_a_stream() -> None:
    tensor = torch.ones(2, device="npu")
    assert tensor.record_stream(torch.npu.current_stream()) is None
    assert tensor.tolist() == [1, 1]


def test_a_new_thread_knows_the_device() -> None:
    marked = []
    thread = threading.Thread(target=lambda: marked.append(is_marked(torch.ones(1, device="npu"))))
    thread.start()
    thread.join()
    assert marked == [True]


def test_generators() -> None:
    def draw(generator: torch.Generator) -> list[list[float]]:
        generator.manual_seed(42)
        return [
            torch.rand(3, device="npu", generator=generator).tolist(),
            torch.empty(3, device="npu").exponential_(generator=generator).tolist(),
            torch.multinomial(torch.ones(1, 9, device="npu"), 1, generator=generator)[0].tolist(),
            torch.randn(2, generator=generator, device="npu").tolist(),
        ]

    for place in ({"device": "npu"}, {"device": torch.device("npu:0")}):
        assert draw(torch.Generator(**place)) == draw(torch.Generator("npu"))
    assert isinstance(torch.Generator(device="npu"), torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert not isinstance(1, torch.Generator)


def test_a_generator_takes_its_last_draw_back() -> None:
    generator = torch.Generator(device="npu").manual_seed(5)
    x = torch.empty(3, device="npu")
    first = x.exponential_(generator=generator).tolist()
    second = x.exponential_(generator=generator).tolist()
    assert generator.get_offset() == 8
    generator.set_offset(generator.get_offset() - 4)
    assert x.exponential_(generator=generator).tolist() == second
    with pytest.raises(NotImplementedError):
        generator.set_offset(0)
    assert generator.manual_seed(5).get_offset() == 0
    assert x.exponential_(generator=generator).tolist() == first
    with pytest.raises(RuntimeError):
        torch.Generator().get_offset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_dynamo_compiles_through_the_mode(backend: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        offset = torch.arange(x.shape[0], device="npu")
        return (x @ x.t() + offset).relu()

    x = torch.randn(4, 4, device="npu")
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    assert torch.equal(compiled(x), function(x))
    assert is_marked(compiled(x))


def test_custom_ops_for_the_npu_run() -> None:
    library = torch.library.Library("vllm_omni", "FRAGMENT")
    library.define("softnpu_test(Tensor x) -> Tensor")
    seen = []

    def implementation(x: torch.Tensor) -> torch.Tensor:
        seen.append(is_marked(torch.zeros(1, device="npu")))
        return x + 1

    library.impl("softnpu_test", implementation, "PrivateUse1")
    result = torch.ops.vllm_omni.softnpu_test(torch.ones(1, device="npu"))
    assert result.item() == 2
    assert seen == [True]
    assert is_marked(result)
