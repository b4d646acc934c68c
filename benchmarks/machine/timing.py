"""What the programs share: the device, the ranks of a job, the time of a call, and a rate as a metric."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from command import missing, wrong

import benchmate
from benchmate.ops.device import TorchDevice, default_device
from benchmate.ops.sampling import SampledTime, sample_calls
from benchmate.ops.statistics import StopRule

PRECISION = 0.01  # half of the interval of a median, as a share of it, at which sampling stops early

Agree = Callable[[float], float]


def the_device(name: str | None = None) -> TorchDevice:
    """The named device, or the first kind that torch finds here; under torchrun that of this rank."""
    return TorchDevice(name or default_device())


def device_name(device: torch.device) -> str:
    """Return what a person finds a device by: its kind and number, its model and identity where it has one, its host."""
    host = socket.gethostname()
    if device.type == "cpu":
        return f"the processor of {host}"
    properties = torch.get_device_module(device).get_device_properties(device)
    identity = ", ".join(str(part) for part in (properties.name, getattr(properties, "uuid", "")) if part)
    return f"{device} ({identity}) of {host}"


def time_call(
    call: Callable[[], object], device: TorchDevice, seconds: float, mode: str = "hot", agree: Agree = float
) -> SampledTime:
    """Time a call for at most about `seconds`: the median of samples, by the device's clock where it has one."""
    rule = StopRule(precision=PRECISION, samples=7, seconds=min(0.5, seconds / 2), longest_s=seconds, every=4)
    return sample_calls(mode, call, device, rule, agree)


def report_rate(
    name: str, work: float, units: str, timed: SampledTime, case: str, params: Mapping[str, object], main: bool = True
) -> float:
    """Publish `work` by the time of a call, with its interval; return it."""
    rate = work / timed.estimate.median
    ends = timed.estimate.ci95
    benchmate.metric(
        name,
        rate,
        units,
        "higher",
        case=case,
        params=dict(params),
        main=main,
        ci95=None if ends is None else [work / ends[1], work / ends[0]],
        samples=timed.estimate.samples,
        seconds=timed.estimate.median,
        clock=timed.clock,
        **({} if timed.is_converged else {"reasons": ["unconverged"]}),
    )
    text = " ".join(f"{key}={value}" for key, value in params.items())
    print(f"{name} {case} {text}: {rate:.4g} {units} ({timed.estimate.samples} samples)", flush=True)
    return rate


class Ranks:
    """The ranks of a job that torchrun started; one rank where it was not."""

    def __init__(self, device: TorchDevice) -> None:
        if "RANK" in os.environ:
            dist.init_process_group("nccl" if device.is_cuda else "xccl" if device.kind == "xpu" else "gloo")
        self.count = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.place = device_name(device.device)
        self._agreed = torch.zeros((), dtype=torch.float64, device=device.device if device.kind != "cpu" else "cpu")

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def require(self, count: int, what: str) -> None:
        """End the program where there are fewer ranks."""
        if self.count < count:
            missing(f"{what} needs {count} ranks, and here is {self.count}: torchrun --nproc-per-node 2 ...")

    def slowest(self, seconds: float) -> float:
        """The largest value of all ranks."""
        if self.count == 1:
            return seconds
        self._agreed.fill_(seconds)
        dist.all_reduce(self._agreed, op=dist.ReduceOp.MAX)
        return self._agreed.item()

    def wait(self) -> None:
        """Wait until all ranks are here."""
        self.slowest(0.0)

    def end_if_wrong(self, detail: str, finding: str) -> None:
        """End the program on every rank where one of them found something wrong, and name the ranks that did.

        `finding` is what this rank found, empty where all was right. All ranks must call it together.
        """
        if not self.slowest(bool(finding)):
            return
        mine = (self.rank, self.place, finding)
        findings: list[tuple[int, str, str]] = [mine] * self.count
        if self.count > 1:
            dist.all_gather_object(findings, mine)
        bad = [f"rank {rank} on {place}: {found}" for rank, place, found in findings if found]
        wrong(f"{detail} is wrong at {len(bad)} of {self.count} ranks: {'; '.join(bad)}")

    def leave(self) -> None:
        """Take the process group down."""
        if dist.is_initialized():
            self.wait()
            dist.destroy_process_group()
