"""A rank of a fast training whose rank 0 has the longer window: `torchrun -m tests.gpu.ddp_loop nccl|gloo`."""

from __future__ import annotations

import faulthandler
import os
import sys

import torch
import torch.distributed as dist

import benchmate
from benchmate.configuration import parse_config
from benchmate.session import Session, current, use
from benchmate.sink import Sink


class Silent(Sink):
    """Throws records away."""

    def record(self, event: str, data: object) -> None: ...


class Stop(BaseException):
    """Ends the loop, as the runner's exception does."""


backend, rank = sys.argv[1], int(os.environ["LOCAL_RANK"])
device = torch.device("cpu")
if backend == "nccl":
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
dist.init_process_group(backend)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).to(device)
model = torch.nn.parallel.DistributedDataParallel(model)
x = torch.randn(32, 64, device=device)
rules = {"warmup_steps": 5, "warmup_s": 0, "window_steps": 50, "window_s": 0.3 + 0.05 * (rank == 0)}
use(Session(parse_config({"measure": rules}), Silent(), stop_exception=Stop))
dist.barrier()
# Counted from here: how long torch takes to start is not what is asked.
faulthandler.dump_traceback_later(20, exit=True)
try:
    for _ in benchmate.observed(iter(range(10**6)), batch_size=32):
        model(x).sum().backward()
except Stop:
    current().finish()
dist.barrier()
dist.destroy_process_group()
