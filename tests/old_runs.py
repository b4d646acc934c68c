"""What other programs wrote, written down in a test: a run of milabench 1.3, and the JSON of nccl-tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGAN = 1724790224.5


def old_run(
    folder: Path,
    *benches: str,
    devices: int = 2,
    code: int | str = 0,
    rates: Sequence[float] = (300.0,) * 65,
    lines: int = 0,
    before_end: Sequence[tuple[str, Any, str | None]] = (),
) -> Path:
    """A run directory as milabench 1.3 made it: `<name>.D<device>.data`, events of voir, no manifest."""
    folder.mkdir(parents=True)
    for bench in benches:
        for device in range(devices):
            old_pack(folder, bench, f"D{device}", code=code, rates=rates, lines=lines, before_end=before_end)
    return folder


def old_pack(
    folder: Path,
    *tag: str,
    code: int | str = 0,
    rates: Sequence[float] = (300.0,) * 65,
    lines: int = 0,
    before_end: Sequence[tuple[str, Any, str | None]] = (),
    **config: Any,
) -> None:
    """One pack of such a run, with this tag (`resnet50`, `D0`), which names its file; `config` replaces entries of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    device = int(tag[-1][1:]) if tag[-1].startswith("D") else None
    told = list(_events(tag, device, code, rates, config))
    told[-1:-1] = [{"event": event, "data": data, "pipe": pipe} for event, data, pipe in before_end]
    told[3:3] = [{"event": "line", "data": f"line {n}\n", "pipe": "stderr"} for n in range(lines)]
    (folder / f"{'.'.join(tag)}.data").write_text("".join(json.dumps(one) + "\n" for one in told))


def skipped_pack(folder: Path, bench: str, needs: str) -> None:
    """A benchmark that milabench 1.3 left out, since the machine lacks what it needs: nothing but messages."""
    folder.mkdir(parents=True, exist_ok=True)
    message = f"Skip {bench} because the following capability is not satisfied: {needs}"
    (folder / f"{bench}.data").write_text(
        2 * (json.dumps({"event": "message", "data": {"message": message}, "pipe": None}) + "\n")
    )


def remote_pack(folder: Path) -> None:
    """The pack in which milabench 1.3 recorded its own ssh commands, with what was exported on them."""
    command = ["ssh", "user@node", "cd", "milabench", "&&", "MILABENCH_HF_TOKEN=hf_secretsecret", "milabench", "run"]
    told = [
        {"event": "config", "data": {"name": "remote", "tag": ["remote"], "definition": "."}, "pipe": None},
        {"event": "start", "data": {"command": command, "time": BEGAN}, "pipe": None},
        {"event": "end", "data": {"command": command, "time": BEGAN + 9, "return_code": 0}, "pipe": None},
    ]
    (folder / "remote.data").write_text("".join(json.dumps(one) + "\n" for one in told))


def _events(
    tag: Sequence[str], device: int | None, code: int | str, rates: Sequence[float], changed: Mapping[str, Any]
) -> list[dict[str, Any]]:
    config = {
        "system": {"arch": "cuda", "nodes": [{"name": "manager", "ip": "127.0.0.1", "main": True}]},
        "group": "torchvision",
        "install_group": "torch",
        "plan": {"method": "per_gpu"},
        "argv": {"--model": "resnet50", "--batch-size": 256},
        "weight": 2.0,
        "name": tag[0],
        "tag": list(tag),
        **({} if device is None else {"device": device, "devices": [device]}),
        "env": {"CUDA_VISIBLE_DEVICES": str(device)},
        **changed,
    }
    gpus = {
        str(index): {"device": index, "product": "NVIDIA A100 80GB PCIe", "memory": {"used": 764.4, "total": 81920.0}}
        for index in range(2)
    }
    meta = {
        "cpu": {"count": 24, "brand": "AMD EPYC 7V13"},
        "os": {"sysname": "Linux", "nodename": "pumpedgull", "release": "6.5.0"},
        "accelerators": {"arch": "cuda", "gpus": gpus},
        "date": BEGAN - 1,
        "milabench": {"tag": "v1.3.0", "commit": "0c2f3ef"},
        "pytorch": {"torch": "2.4.0+cu121"},
    }
    command = ["voir", "--config", "conf.json", "main.py", "--token", "HF_TOKEN=hf_secretsecret"]
    said: list[tuple[str, Any, str | None]] = [
        ("config", config, None),
        ("meta", meta, None),
        ("start", {"command": command, "time": BEGAN + (device or 0)}, None),
        ("phase", {"name": "init"}, "data"),
        ("phase", {"name": "run_script"}, "data"),
        ("data", {"progress": [0, len(rates)], "task": "early_stop"}, "data"),
    ]
    for number, rate in enumerate(rates):
        time = BEGAN + 10 + number
        said.append(("data", {"rate": rate, "units": "items/s", "task": "train", "time": time}, "data"))
        said.append(("data", {"loss": 7.0 - number / 10, "task": "train"}, "data"))
    sample = {"memory": [27378.375, 81920.0], "load": 1.0, "temperature": 70.0, "power": 285.153}
    said += [
        ("data", {"task": "main", "gpudata": {str(device or 0): sample}}, "data"),
        ("phase", {"name": "finalize"}, "data"),
        ("end", {"command": command, "time": BEGAN + 99, "return_code": code}, None),
    ]
    return [{"event": event, "data": data, "pipe": pipe} for event, data, pipe in said]


def nccl(
    *, bandwidth: float = 230.5, wrong: int = 0, sizes: Sequence[int] = (8, 1 << 30), program: str = "all_reduce_perf"
) -> dict[str, Any]:
    """What `all_reduce_perf -J FILE` writes."""
    devices = [
        {"rank": n, "group": 0, "pid": 100 + n, "hostname": "node-a", "device": n, "device_info": "NVIDIA H100"}
        for n in range(2)
    ]
    results = [
        {
            "size": size,
            "count": size // 4,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": {"time": 31.5, "alg_bw": 120.25, "bus_bw": 210.4, "nwrong": float(wrong)},
            "in_place": {"time": 30.1, "alg_bw": 125.75, "bus_bw": "nan", "nwrong": None},
            "actual_iterations": 20,
            "experiment_name": program,
        }
        for size in sizes
    ]
    return {
        "version": 1,
        "start_time": "2025-06-01 12:00:00",
        "args": [f"./build/{program}", "-b", "8", "-e", "1G"],
        "env": ["HF_TOKEN=hf_secretsecret"],
        "nccl_version": 22703,
        "config": {"nthreads": 1, "ngpus": 2, "iterations": 20, "blocking_collectives": "false", "devices": devices},
        "results": results,
        "out_of_bounds": {"count": wrong, "okay": "false" if wrong else "true"},
        "average_bus_bandwidth": {"bandwidth": bandwidth, "okay": "unchecked"},
        "errors": [],
        "end_time": "2025-06-01 12:01:00",
    }
