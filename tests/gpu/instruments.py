"""Part 1: what the instruments say of an accelerator, against other clocks. `python -m tests.gpu.instruments PROGRAM`."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import benchmate
from benchmate.configuration import parse_config
from benchmate.devices.api import Device
from benchmate.devices.detect import open_vendor, visible
from benchmate.devices.vendors.vendor import Sample
from benchmate.ring import RingEntry, take_entries
from benchmate.session import Session, current, use
from benchmate.sink import Sink
from tests.gpu import simulated_torch
from tests.gpu.outcome import claim, is_simulated, not_shown, number, skip
from tests.gpu.scripts import BUSY, VARIABLE, described

SHORT = is_simulated()
if SHORT:
    simulated_torch.install(2)
BLOCKS = 10 if SHORT else 100
STARTS = 2 if SHORT else 10
ENERGY_S = 4.0 if SHORT else 20.0
RISE_S = 1.0 if SHORT else 3.0
KINDS = ("alone", "alone, again", "loop observed", "loop and loss observed")
NEVER_ENDING = {"warmup_steps": 1, "warmup_s": 0, "window_steps": 10**9, "window_s": 10**6}


class RingSink(Sink):
    """Throws records away; rings lie where the agent has them, and nobody reads them but the program itself."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(os.environ.get("TMPDIR", "/tmp"))

    @property
    def ring_folder(self) -> Path:
        return self._folder

    def record(self, event: str, data: Mapping[str, object]) -> None: ...


class KeepingSink(Sink):
    """Keeps the data of every record."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[Mapping[str, Any]] = []
        self.is_closed = False

    def record(self, event: str, data: Mapping[str, object]) -> None:
        self.data.append({"event": event, **data})

    def close(self) -> None:
        self.is_closed = True

    def of(self, key: str) -> list[Any]:
        """Return this key of every record that has it."""
        return [data[key] for data in self.data if key in data]


def session(sink: Sink, **rules: float) -> Session:
    """Begin a session; without rules one that never ends a loop."""
    return use(Session(parse_config({"measure": rules or NEVER_ENDING}), sink))


def fresh_session() -> None:
    """Begin a session past its warm-up, whose observer has seen that there is a device."""
    session(RingSink())
    for _ in benchmate.observed(range(3), batch_size=1):
        touch()
    vars(benchmate)["_loss_recorders"].clear()


def touch() -> None:
    """Use the device."""
    import torch

    if SHORT:
        torch.cuda.launch(1e-6)
    else:
        torch.zeros(1, device="cuda")


def taken_out() -> list[RingEntry]:
    """Return what the observer has written since it was last asked, complete on the device."""
    import torch

    torch.cuda.synchronize()
    observer = current().observer("train", "items/s")
    observer._writer.settle()
    return list(take_entries(observer.ring.memory))


def wall_s(function: Callable[[], None]) -> float:
    """Return the seconds from an idle device to an idle device."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def the_device() -> Device:
    """Return the first device that this process may use, as the monitor reads it."""
    vendor, trouble = open_vendor("auto", os.environ)
    devices = visible(vendor.devices, os.environ, vendor.arch)
    if not devices:
        skip(f"no device can be read: {trouble or 'none is visible'}")
    return devices[0]


# ------------------------------------------------------------------------------------------ the programs


def identity() -> None:
    """The device that torch calls 0 is the one that the monitor reads first."""
    device = the_device()
    if SHORT:
        claim("a device is read", holds=device.sample().load is not None, seen=device.uuid)
        return
    import torch

    properties = torch.cuda.get_device_properties(0)
    known = str(getattr(properties, "uuid", ""))
    claim("device 0 of torch is the one that is read", holds=known in device.uuid, seen=f"{known} and {device.uuid}")
    total = (device.sample().memory_total_mib or 0) * 2**20
    number("memory by the driver / by torch", total / properties.total_memory, "x", at_least=0.98, at_most=1.05)


def nvml_calls() -> None:
    """What a reading costs: each call of NVML, a round of all devices, and what an idle device has in use."""
    vendor, trouble = open_vendor("auto", os.environ)
    if not vendor.devices:
        skip(f"no device can be read: {trouble}")
    used = vendor.devices[0].sample().memory_used_mib
    if used is not None and not SHORT:
        number("memory in use on an idle device", used, "MiB", at_most=100)
    rounds = 5 if SHORT else 100
    for what in ("sample", "survey"):
        each = []
        for _ in range(rounds):
            start = time.perf_counter()
            for device in vendor.devices:
                getattr(device, what)()
            each.append(time.perf_counter() - start)
        number(
            f"a round of {what} of {len(vendor.devices)} devices, median",
            statistics.median(each) * 1e3,
            "ms",
            at_most=20,
            timed=True,
            seen=f"at most {max(each) * 1e3:.2f}",
        )
    for name, seconds in _calls_of_nvml(rounds).items():
        number(f"{name}, median", seconds * 1e6, "us")


def _calls_of_nvml(rounds: int) -> dict[str, float]:
    if SHORT:
        not_shown("the calls of NVML one by one: a simulated device has none")
        return {}
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    calls: dict[str, tuple[Any, ...]] = {
        "nvmlDeviceGetMemoryInfo": (),
        "nvmlDeviceGetUtilizationRates": (),
        "nvmlDeviceGetPowerUsage": (),
        "nvmlDeviceGetTotalEnergyConsumption": (),
        "nvmlDeviceGetCurrentClocksEventReasons": (),
        "nvmlDeviceGetClockInfo": (pynvml.NVML_CLOCK_SM,),
        "nvmlDeviceGetTemperature": (pynvml.NVML_TEMPERATURE_GPU,),
        "nvmlDeviceGetTotalEccErrors": (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC),
        "nvmlDeviceGetComputeRunningProcesses": (),
    }
    found = {}
    for name, more in calls.items():
        function, each = getattr(pynvml, name, None), []
        try:
            for _ in range(rounds if function else 0):
                start = time.perf_counter()
                function(handle, *more)
                each.append(time.perf_counter() - start)
        except pynvml.NVMLError as error:
            not_shown(f"{name}: {error}")
        if each:
            found[name] = statistics.median(each)
    return found


def clocks() -> None:
    """Seconds by the device's clock against those of the wall and of the kernels that torch's profiler saw."""
    from tests.gpu import training

    for name, trained, steps in (
        ("device-bound", training.device_bound(), 20 if SHORT else 100),
        ("launch-bound", training.launch_bound(), 100),
    ):
        fresh_session()
        trained.train(trained.loader(10))
        taken_out()
        wall = wall_s(
            lambda trained=trained, steps=steps: trained.train(benchmate.observed(trained.loader(steps), batch_size=1))
        )
        entries = [entry for entry in taken_out() if entry.device_ns >= 0]
        device = sum(entry.device_ns for entry in entries) / 1e9
        claim(
            f"{name}: nearly every step has a time on the device",
            holds=len(entries) > 0.9 * steps,
            seen=f"{len(entries)} of {steps}",
        )
        number(f"{name}: device events / wall", device / wall, "x", at_least=0.98, at_most=1.01, timed=True)
        if not SHORT:
            _against_kernels(name, trained, steps)


def _against_kernels(name: str, trained: Any, steps: int) -> None:
    import torch

    if torch.profiler.ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        not_shown(f"{name}: against kernels, which this torch's profiler does not see")
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        trained.train(benchmate.observed(trained.loader(steps), batch_size=1))
        torch.cuda.synchronize()
    device = sum(entry.device_ns for entry in taken_out() if entry.device_ns >= 0) / 1e9
    kernels = [
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in profile.profiler.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA
    ]
    if not kernels:
        not_shown(f"{name}: against kernels: the profiler saw none; may this process use CUPTI?")
        return
    timeline = (max(stop for _, stop in kernels) - min(start for start, _ in kernels)) / 1e9
    number(f"{name}: device events / first to last kernel", device / timeline, "x", at_least=0.99, at_most=1.01)


def cost_device_bound() -> None:
    """What observing a step of 25 ms costs that the device sets the pace of."""
    from tests.gpu import training

    _cost(training.device_bound(), 2 if SHORT else 10, at_most=0.005)


def cost_launch_bound() -> None:
    """What observing a step of 1 ms costs that the host sets the pace of."""
    from tests.gpu import training

    _cost(training.launch_bound(), 20 if SHORT else 100, at_most=0.02)


def _cost(trained: Any, steps: int, at_most: float) -> None:
    """The same steps alone, again alone (for the noise), with the loop observed, and with the loss observed too."""
    observed_steps = 0

    def once(kind: str) -> float:
        nonlocal observed_steps
        loader: Iterable[Any] = trained.loader(steps)
        if kind.startswith("loop"):
            loader = benchmate.observed(loader, batch_size=1)
            observed_steps += steps
        return wall_s(lambda: trained.train(loader, observe_loss=kind == "loop and loss observed")) / steps

    fresh_session()
    for kind in KINDS:
        once(kind)
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    order = list(KINDS)
    shuffle = random.Random(0).shuffle
    for _ in range(BLOCKS):
        shuffle(order)
        for kind in order:
            times[kind].append(once(kind))
        taken_out()
    alone = statistics.median(times["alone"])
    number("a step alone, median", alone * 1e3, "ms", seen=f"{BLOCKS} shuffled blocks of {steps} steps")
    half_widths, middles = {}, {}
    for kind in KINDS[1:]:
        differences = [b / a - 1 for a, b in zip(times["alone"], times[kind], strict=True)]
        middles[kind] = statistics.median(differences)
        half_widths[kind] = 1.96 * 1.2533 * statistics.stdev(differences) / math.sqrt(BLOCKS)
        goal = None if kind == "alone, again" else at_most + half_widths[kind]
        number(f"{kind}: longer by", middles[kind] * 100, "%", at_most=None if goal is None else goal * 100, timed=True,
               seen=f"+- {half_widths[kind]:.3%}")  # fmt: skip
    told = current().observer("train", "items/s").cost_s() / (observed_steps + 3)
    number("cost of a step as the session reports it", told * 1e6, "us")
    seen = middles["loop observed"] * alone
    if middles["loop observed"] > 2 * half_widths["loop observed"]:
        number("reported cost / measured cost", told / seen, "x", at_least=0.5, at_most=2, timed=True)
    else:
        not_shown("the reported cost beside the measured one, which is within the noise")


def forked_workers() -> None:
    """Workers that are forked in the loop leave the events of their parent alone."""
    code = "forked_epochs()" if SHORT else "loader_epochs()"
    command = [sys.executable, "-c", f"from tests.gpu.instruments import *; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    claim("five epochs with forked workers end with 0", holds=done.returncode == 0, seen=f"exit code {done.returncode}")
    claim("nothing is on stderr", holds=not done.stderr.strip(), seen=done.stderr.strip()[-300:])


def forked_epochs() -> None:
    """Observe five epochs on the simulated device; a child is forked in each, and must end well."""
    from tests.gpu import training

    session(KeepingSink())
    trained = training.launch_bound()
    codes = []
    for _ in range(5):
        for batch in benchmate.observed(trained.loader(8), batch_size=1):
            trained.step(batch)
            if batch == 0:
                sys.stderr.flush()
                pid = os.fork()
                if pid == 0:
                    sys.exit(0)
                codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    sys.exit(max(codes, key=abs))


def loader_epochs() -> None:
    """Observe five epochs of a DataLoader with two workers, made anew in each epoch."""
    import torch

    session(KeepingSink())
    data = torch.utils.data.TensorDataset(torch.randn(64, 32))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2)
    model = torch.nn.Linear(32, 32).cuda()
    for _ in range(5):
        for (batch,) in benchmate.observed(loader, batch_size=8):
            model(batch.cuda()).sum().backward()
    torch.cuda.synchronize()


def device_error() -> None:
    """After an error of the device the session sends what it has, and the error that is seen is the program's."""
    from tests.gpu import training

    sink = KeepingSink()
    began, error = session(sink), None
    trained = training.launch_bound()
    import torch

    try:
        for index, batch in enumerate(benchmate.observed(trained.loader(30), batch_size=1)):
            trained.step(batch)
            if index == 20:
                _break_device(torch)
    except RuntimeError as seen:
        error = seen
    claim("the program's own call raises", holds="CUDA error" in str(error), seen=str(error).splitlines()[0][:150])
    try:
        began.finish()
    except RuntimeError as seen:
        claim("the end of the session raises nothing", holds=False, seen=str(seen).splitlines()[0][:150])
    claim("the session's cost is sent", holds=bool(sink.of("overhead")))
    claim("the sink is closed", holds=sink.is_closed)


def _break_device(torch: Any) -> None:
    if SHORT:
        torch.cuda.fail("CUDA error: an illegal memory access was encountered")
        torch.cuda.synchronize()
    else:
        torch.zeros(4, device="cuda")[torch.tensor([10], device="cuda")]
        torch.cuda.synchronize()


def graphs() -> None:
    """A whole step as a CUDA graph, captured inside the observed loop, with parts and losses."""
    import torch

    sink = KeepingSink()
    began = session(sink)
    began.record_parts("train")
    replay = _captured_step(torch)
    began.observer("train", "items/s")
    steps = 40
    wall = wall_s(lambda: _replay(replay, steps))
    began.finish()
    losses = sink.of("loss")
    claim(
        "each replayed step has its own loss",
        holds=len(set(losses)) > steps / 2,
        seen=f"{len(set(losses))} of {len(losses)} differ",
    )
    device = [data["duration_s"] for data in sink.data if data.get("clock") == "event" and "duration_s" in data]
    claim("steps have times on the device", holds=any(data.get("clock") == "event" for data in sink.data))
    if device:
        number("device events / wall", sum(device) / wall, "x", at_most=1.02, timed=True)


def _replay(replay: Callable[[int], Any], steps: int) -> None:
    for index in benchmate.observed(range(steps), batch_size=1):
        benchmate.observe_loss(replay(index))


def _captured_step(torch: Any) -> Callable[[int], Any]:
    """Return a function of the step's number that replays a training step from the sixth on; it captures in the fifth."""
    if SHORT:
        state: dict[str, Any] = {}

        def simulated(index: int) -> Any:
            if index == 5:
                with torch.cuda.capture() as state["graph"]:
                    _borders_of_parts()
                    torch.cuda.launch(1e-4)
            if index < 5:
                torch.cuda.launch(1e-4)
                return _simulated_loss(torch, -float(index))
            return state["graph"].replay()

        return simulated
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(512, 256, device="cuda")
    graph, kept = torch.cuda.CUDAGraph(), {}

    def train() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()

    def step(index: int) -> Any:
        if index < 5:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                loss = train()
            torch.cuda.current_stream().wait_stream(side)
            return loss
        if index == 5:
            with torch.cuda.graph(graph):
                kept["loss"] = train()
        graph.replay()
        return kept["loss"]

    return step


def _borders_of_parts() -> None:
    """Pass the borders of a backward, as torch's own does inside a capture."""
    from benchmate import step_parts

    step_parts._enter(step_parts.BACKWARD)
    step_parts._leave()


def _simulated_loss(torch: Any, value: float) -> Any:
    from tests.gpu.simulated_torch import Tensor

    return Tensor(torch.cuda, [value])


def streams() -> None:
    """A loop whose steps use two streams in turn, and one that changes its current stream in a step."""
    import torch

    from tests.gpu import training

    trained = training.launch_bound()
    sink = KeepingSink()
    began = session(sink)
    side = torch.cuda.new_stream() if SHORT else torch.cuda.Stream()
    steps = 60

    def loop() -> None:
        for index, batch in enumerate(benchmate.observed(trained.loader(steps), batch_size=1)):
            if index % 2:
                with torch.cuda.stream(side):
                    trained.step(batch)
                torch.cuda.current_stream().wait_stream(side)
            else:
                trained.step(batch)

    wall = wall_s(loop)
    began.finish()
    claim("two streams in turn: the loop ends", holds=True, seen=f"{wall:.3f} s")
    entered = torch.cuda.stream(side)
    sink = KeepingSink()
    began = session(sink)
    for index, batch in enumerate(benchmate.observed(trained.loader(steps), batch_size=1)):
        trained.step(batch)
        if index == steps // 2:
            entered.__enter__()
    entered.__exit__(None, None, None)
    began.finish()
    claim("the current stream changes in the loop: it ends", holds=True)
    claim("the window's records are there", holds=bool(sink.of("overhead")))


def compiled() -> None:
    """A step compiled with `reduce-overhead`: its losses, and its time on the device."""
    import torch

    from tests.gpu import training

    trained: Any = training.device_bound()
    trained.model = torch.compile(trained.model, mode="reduce-overhead")
    sink = KeepingSink()
    began = session(sink)
    for _ in range(3):
        trained.train(trained.loader(3))
    wall = wall_s(lambda: trained.train(benchmate.observed(trained.loader(50), batch_size=1), observe_loss=True))
    began.finish()
    losses = sink.of("loss")
    claim("losses move", holds=len(set(losses)) > 25, seen=f"{len(set(losses))} of {len(losses)} differ")
    number("50 compiled steps", wall, "s")


def energy() -> None:
    """The energy counter against the trapezoid over power at 10 Hz, while the device works."""
    device = the_device()
    samples: list[tuple[float, Sample]] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.1):
            samples.append((time.perf_counter(), device.sample()))

    thread = threading.Thread(target=sample)
    start = time.perf_counter()
    thread.start()
    try:
        _work_for(ENERGY_S)
    finally:
        over.set()
        thread.join()
    middle = [pair for pair in samples if pair[0] - start > RISE_S]
    middle = [(at, one) for at, one in middle if one.power_w is not None and one.energy_j is not None]
    if len(middle) < 2:
        skip(f"of {len(samples)} samples {len(middle)} have power and energy; absent: {dict(device.absent)}")
    counted = (middle[-1][1].energy_j or 0) - (middle[0][1].energy_j or 0)
    integrated = sum(
        (b - a) * ((x.power_w or 0) + (y.power_w or 0)) / 2 for (a, x), (b, y) in itertools.pairwise(middle)
    )
    seconds = middle[-1][0] - middle[0][0]
    number("energy counter / power over time", counted / integrated, "x", at_least=0.95, at_most=1.05, timed=True,
           seen=f"{counted:.0f} and {integrated:.0f} J in {seconds:.1f} s")  # fmt: skip
    number("mean load", statistics.mean(one.load or 0 for _, one in middle), "", at_least=0.5)
    clocks_mhz = sorted({one.sm_clock_mhz for _, one in middle if one.sm_clock_mhz is not None})
    if clocks_mhz:
        number("SM clock, lowest", clocks_mhz[0], "MHz", seen=f"highest {clocks_mhz[-1]}")
    reasons = sorted({reason for _, one in middle for reason in one.throttle or ()})
    slowed = {"hw_slowdown", "hw_thermal", "sw_thermal", "power_brake"} & set(reasons)
    claim("the device was not slowed down", holds=not slowed, seen=", ".join(reasons))


def _work_for(seconds: float) -> None:
    start = time.perf_counter()
    if SHORT:
        time.sleep(seconds)
        return
    import torch

    from tests.gpu import training

    trained = training.device_bound()
    while time.perf_counter() - start < seconds:
        trained.train(trained.loader(20))
        torch.cuda.synchronize()


def memory() -> None:
    """Peaks of memory as the session reports them against torch's, and an allocation that the driver must see."""
    import torch

    from tests.gpu import training

    sink = KeepingSink()
    began = session(sink, warmup_steps=2, warmup_s=0, window_steps=10, window_s=0)
    trained = training.launch_bound()
    amount, held = (2**26 if SHORT else 2**33), None
    device = the_device()
    before = device.sample().memory_used_mib or 0.0
    after = before
    for index, batch in enumerate(benchmate.observed(trained.loader(20), batch_size=1)):
        trained.step(batch)
        if index == 8:
            if SHORT:
                torch.cuda.allocate(amount)
            else:
                held = torch.empty(amount, dtype=torch.uint8, device="cuda").fill_(1)
                torch.cuda.synchronize()
            after = device.sample().memory_used_mib or 0.0
    own = torch.cuda.max_memory_allocated(0)
    began.finish()
    reported = [
        data["value"]
        for data in sink.data
        if data.get("metric") == "memory_allocated_peak" and data.get("part") == "run"
    ]
    claim("a peak is reported", holds=bool(reported))
    if reported:
        number("reported peak / torch's own", reported[0] / own, "x", at_least=0.999, at_most=1.001)
    claim("the allocation is in the peak", holds=own >= amount, seen=f"{own / 2**20:.0f} MiB")
    if SHORT:
        not_shown("that the driver sees the allocation")
    else:
        number("memory that the driver sees more", after - before, "MiB", at_least=8192, at_most=9500)
    del held


# Says the peak of its memory on the host (that of wait4 includes its parent's), and what is in use on the device.
TOUCH = """
import sys
if sys.argv[1] == "1":
    import torch
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    used = (total - free) / 2**20
else:
    used = 0
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) / 2**10, used)
"""


def runner_start() -> None:
    """A program that touches the device, under Python and under the runner, in turn: processor seconds and memory."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "touch.py")
        script.write_text(TOUCH)
        real = "0" if SHORT else "1"
        commands = {
            "python": [sys.executable, str(script), real],
            "runner": [sys.executable, "-m", "benchmate.run", str(script), real],
        }
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
        for round_ in range(-1, STARTS):
            for name, command in commands.items():
                one = _started(command)
                if round_ >= 0:
                    found[name].append(one)
    medians = {name: [statistics.median(column) for column in zip(*each, strict=True)] for name, each in found.items()}
    number("processor time of Python alone", medians["python"][0], "s", seen=f"medians of {STARTS} in turn")
    more_s = statistics.median(b[0] - a[0] for a, b in zip(found["python"], found["runner"], strict=True))
    number("the runner adds, processor time", more_s * 1e3, "ms", at_most=300, timed=True)
    number("the runner adds, memory of the host", medians["runner"][1] - medians["python"][1], "MiB", at_most=40)
    if SHORT:
        not_shown("that the runner takes nothing of the device")
    else:
        number("the runner adds, memory of the device", medians["runner"][2] - medians["python"][2], "MiB", at_most=1)


def _started(command: list[str]) -> tuple[float, float, float]:
    """Return (CPU seconds, MiB of the host at most, MiB of the device) of a program from its start to its end."""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert child.stdout is not None
        said = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(command)} ended with {child.returncode}:\n{errors.read()}")
    line = next(line for line in said.splitlines() if len(line.split()) == 2)
    host, device = line.split()
    return usage.ru_utime + usage.ru_stime, float(host), float(device)


def other_device() -> None:
    """A loop on device 1 of a process whose current device is 0."""
    import torch

    began = session(RingSink())
    steps = 50
    if SHORT:
        with torch.cuda.device(1):
            torch.cuda.allocate(2**26)

        def step() -> None:
            torch.cuda.current_stream(1).launch(2e-3)
    else:
        a = torch.randn(4096, 4096, device="cuda:1")
        b = torch.empty_like(a)

        def step() -> None:
            torch.mm(a, a, out=b)

    def loop() -> None:
        for _ in benchmate.observed(range(steps), batch_size=1):
            step()
        torch.cuda.synchronize(1)

    wall = wall_s(loop)
    entries = _durations(began)
    claim("steps have times", holds=len(entries) > steps / 2, seen=f"{len(entries)} of {steps}")
    if entries:
        share = statistics.median(entries) / (wall / steps)
        claim("the times are those of the device that works", holds=share > 0.2, seen=f"{share:.3f} of the wall's")
        number("a step by the device's clock / wall of a step", share, "x", at_least=0.9, at_most=1.1, timed=True)


def _durations(began: Session) -> list[float]:
    """Return the seconds of each step, by the device where it tells them; ends the session."""
    observer = began.observer("train", "items/s")
    observer._writer.settle()
    entries = list(take_entries(observer.ring.memory))
    began.finish()
    return [max(entry.device_ns, 0) / 1e9 for entry in entries[5:] if entry.device_ns >= 0]


def ddp_ends() -> None:
    """Ranks whose hosts run ahead of their devices end together: each of several runs ends within its limit."""
    if PathFinder.find_spec("torch") is None:
        skip("torch is not installed here")
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5),
        ):
            pass
    except OSError as error:
        skip(f"ranks cannot reach each other: the loopback interface: {error.strerror}")
    backend, runs = ("gloo", 2) if SHORT else ("nccl", 20)
    late = 0
    for _ in range(runs):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        try:
            done = subprocess.run(
                [*command, "-m", "tests.gpu.ddp_loop", backend],
                capture_output=True,
                text=True,
                check=False,
                timeout=100,
            )
        except subprocess.TimeoutExpired:
            late += 1
            continue
        claim(
            "the ranks end within 20 s of their first step",
            holds=done.returncode == 0,
            seen=done.stderr[-300:] if done.returncode else "",
        )
    number(f"of {runs} runs did not end within 100 s", late, "runs", at_most=0)


PROGRAMS: dict[str, Callable[[], None]] = {
    "identity": identity,
    "nvml-calls": nvml_calls,
    "clocks": clocks,
    "cost-launch-bound": cost_launch_bound,
    "cost-device-bound": cost_device_bound,
    "forked-workers": forked_workers,
    "device-error": device_error,
    "graphs": graphs,
    "streams": streams,
    "other-device": other_device,
    "ddp-ends": ddp_ends,
    "energy": energy,
    "memory": memory,
    "compiled": compiled,
    "runner-start": runner_start,
}


def main() -> None:
    """Run the program that is named."""
    if SHORT:
        script = Path(tempfile.mkdtemp(), "devices.json")
        script.write_text(json.dumps(described(BUSY)))
        os.environ[VARIABLE] = str(script)
    PROGRAMS[sys.argv[1]]()


if __name__ == "__main__":
    main()
