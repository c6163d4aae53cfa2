"""Process groups of the backend hccl."""

from __future__ import annotations

from child import run_python

_CODE = """
import os
import torch
import torch.distributed as dist
from torch_npu._C._distributed_c10d import ProcessGroupHCCL
from torch.distributed.distributed_c10d import new_group
assert dist.is_hccl_available()
options = ProcessGroupHCCL.Options()
options.hccl_config = {"hccl_buffer_size": 200}
dist.init_process_group("hccl", init_method="file://" + os.environ["STORE"],
    rank=0, world_size=1, pg_options=options, device_id=torch.device("npu:0"))
group = new_group([0], backend="hccl", pg_options=options)
x = torch.ones(3, device="npu")
dist.all_reduce(x, group=group)
out = [torch.empty(3, device="npu")]
dist.all_gather(out, x)
print(dist.get_backend(), dist.get_backend(group), out[0].tolist())
dist.destroy_process_group()
"""


def test_hccl_is_gloo(tmp_path) -> None:

    assert run_python(_CODE, STORE=str(tmp_path / "store")).split(" ", 2) == [
        "gloo",
        "gloo",
        "[1.0, 1.0, 1.0]\n",
    ]
