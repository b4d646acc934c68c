"""The parts of `make gpu` and the programs of each, most valuable first."""

from __future__ import annotations

from tests.gpu.runner import Program

_INSTRUMENTS = "tests.gpu.instruments"


def _instrument(
    name: str, what: str, limit_s: float, not_simulated: str = "", needs: str = "", devices: int = 1
) -> Program:
    return Program(name, what, _INSTRUMENTS, limit_s, (name,), devices, not_simulated, needs)


PART_1 = (
    _instrument("identity", "the device that torch uses is the one that is read", 40, "torch's own name of the device"),
    _instrument(
        "nvml-calls", "microseconds of each call of NVML, of a round of all devices; memory of an idle one", 40
    ),
    _instrument(
        "forked-workers", "forked workers of a loader leave their parent's events alone", 110, "a real DataLoader"
    ),
    _instrument("device-error", "after an error of the device the session's records are there", 40, "a real error"),
    _instrument(
        "ddp-ends", "ranks that run ahead of their devices end together", 240, "NCCL, whose hosts run ahead", "", 2
    ),
    _instrument("other-device", "a loop on a device that is not the current one", 40, "a real second context", "", 2),
    _instrument(
        "clocks", "device clock against wall, and against the profiler's kernels", 90, "the profiler's kernels"
    ),
    _instrument(
        "cost-launch-bound",
        "cost of observing a launch-bound step of 1 ms, 100 paired blocks",
        120,
        "the cost of real events",
    ),
    _instrument(
        "cost-device-bound",
        "cost of observing a device-bound step of 25 ms, 100 paired blocks",
        240,
        "the cost of real events",
    ),
    _instrument("graphs", "a CUDA graph with parts and losses", 60, "real graphs"),
    _instrument("streams", "two streams; a current stream that changes", 60, "that real streams overlap"),
    _instrument("energy", "energy counter against power over time", 60, "a real counter"),
    _instrument("memory", "peaks of memory against torch's, and what the driver sees", 60),
    _instrument("runner-start", "what the runner adds to the start of a program", 90),
    _instrument(
        "compiled", "torch.compile with CUDA graphs", 150, needs="torch.compile makes no CUDA graph without one"
    ),
)


def _check(name: str, what: str, limit_s: float = 120, needs_simulation: bool = False) -> Program:
    return Program(name, what, "tests.gpu.validation", limit_s, (name,), needs_simulation=needs_simulation)


PART_2 = (
    _check("busy", "a program that works on its device passes every check"),
    _check("idle", "one that holds memory and does nothing fails `usage` by its load"),
    _check("memory", "one that uses little memory fails `usage` by its memory"),
    _check("elsewhere", "one that works on the host fails `usage`, or `placement`"),
    _check("foreign", "another program on the device fails `foreign`"),
    Program(
        "container",
        "a program in a container of docker passes `foreign` and `placement`",
        "tests.gpu.validation",
        150,
        ("container",),
        needs_accelerator="a container's processes are on none that is simulated",
    ),
    _check("size", "`size` finds the largest batch that fits, and `auto_batch` uses it", 260),
    _check("throttle", "a device that is slowed down fails `throttle`", needs_simulation=True),
    _check("sensor", "a lost device, and an error of the driver, warn", needs_simulation=True),
    _check("readings", "readings that fail once end no watching", needs_simulation=True),
    _check("slow-driver", "slow calls of the driver are enough for the checks", needs_simulation=True),
    _check("energy", "a counter that disagrees with power warns", needs_simulation=True),
)


def _benchmark(suite: str, name: str, limit_s: float = 150, devices: int = 1) -> Program:
    prefix = "quickstart-" if suite == "quickstart" else ""
    what = f"`{name}` of config/{suite}.yaml"
    return Program(prefix + name, what, "tests.gpu.main_job", limit_s, (suite, name), devices)


PART_3 = (
    *(_benchmark("quickstart", name, 150) for name in ("flops", "digits", "flax", "ppo", "sft", "pykeen")),
    # One of each program that several benchmarks share, those of most benchmarks first.
    *(
        _benchmark("standard", name)
        for name in ("launch", "memory-copies", "memory-device", "resnet50", "bert-bf16", "sft", "burn", "checkpoint")
    ),
    *(
        _benchmark("standard", name)
        for name in ("generate-decode", "pna", "e3nn", "ddpm", "fno", "flax", "unet3d", "dlrm", "rejax")
    ),
    *(_benchmark("standard", name, devices=2) for name in ("links", "collectives", "memory-peers")),
)
PART_4 = tuple(
    _benchmark("standard", name)
    for name in (
        *("flops", "convnext-bf16", "vit", "t5", "vit-mae", "whisper-train", "llava", "video", "embeddings", "schnet"),
        *(
            "resnet50-input",
            "vit-inference",
            "generate-prefill",
            "embed-inference",
            "classify-inference",
            "data-loading",
        ),
        *("sft-lora", "dpo", "kto", "reward", "grpo", "litgpt", "lightning-transformer", "torchtitan", "clip", "dit"),
        *(
            "stable-diffusion",
            "mnist",
            "dcgan",
            "imagenet",
            "timm-train",
            "yolo-detect",
            "whisper",
            "ppo",
            "dqn",
            "a2c",
        ),
        *(
            "sac",
            "mjx",
            "nequip",
            "mace",
            "pykeen",
            "bpr",
            "sasrec",
            "digits",
            "compile-time",
            "memory-host",
            "sample-reads",
        ),
    )
)


def _operator(name: str, what: str, limit_s: float, not_simulated: str = "", needs: str = "") -> Program:
    return Program(name, what, "tests.gpu.operators", limit_s, (name,), 1, not_simulated, needs)


def _answers(name: str, what: str, limit_s: float) -> Program:
    return Program(name, what, "tests.gpu.answers", limit_s, (name,), 1, "a device's own products")


PART_5 = (
    _answers("known", "products of known answer are right in each format, and wrong bits are found", 90),
    _answers("stuck", "`burn` on a device with a stuck bit names device and bit", 60),
    _answers("burn-cost", "what comparing costs the load of `burn`", 90),
    _operator(
        "ops",
        "operators against the kernels of torch's profiler",
        240,
        needs="a processor has no kernels",
    ),
    _operator("cases", "registered cases against torch's own timer; whole GiB", 200, "the clock of a device"),
    _operator("traces", "a step recorded and replayed", 200, "kernels of a device"),
    _operator("serving", "a server at rising loads", 240, "a model on a device"),
)

PARTS: dict[int, tuple[Program, ...]] = {1: PART_1, 2: PART_2, 3: PART_3, 4: PART_4, 5: PART_5}
