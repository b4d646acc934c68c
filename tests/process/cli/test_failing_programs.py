"""Programs and data that fail on a machine: each is one clear line with its reason, and the other benchmarks are measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said

# As PyTorch words it, of an accelerator and of a processor; as transformers and PyTorch do of what they do not know.
CUDA = "CUDA out of memory. Tried to allocate 37.25 GiB. GPU 0 has a total capacity of 79.10 GiB of which 12.51 GiB is free."
CPU = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 400000000000 bytes."
MODEL = "module 'torch.nn' has no attribute 'FlexibleAttention'"
DEVICE = "Expected one of cpu, cuda, xpu device type at start of device string: warp"
FAILING = {
    "batch": (f"raise RuntimeError({CUDA!r})", "out-of-memory", f"with --batch-size 4096: RuntimeError: {CUDA}"),
    "batch-cpu": (f"raise RuntimeError({CPU!r})", "out-of-memory", "with batch size 512: RuntimeError: "),
    "model": (f"raise AttributeError({MODEL!r})", "exit", "AttributeError: module 'torch.nn' has no attribute"),
    "device": (f"raise RuntimeError({DEVICE!r})", "exit", "device string: warp"),
}
PREPARE = {
    "checksum": ("import sys; sys.exit('weights.bin: sha256 is 12ab, expected 34cd')", "weights.bin: sha256 is 12ab"),
    "disk": (
        "import sys; sys.exit(str(OSError(28, 'No space left on device', 'data.bin')))",
        "No space left on device: 'data.bin'",
    ),
}


@pytest.mark.slow
def test_each_failure_is_one_line_with_its_reason_and_the_others_go_on(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    for name in ("good", *FAILING, *PREPARE):
        assert milabench("new", name, "--into", str(tmp_path)).code == 0
    for name, (program, _, _) in FAILING.items():
        (tmp_path / name / "main.py").write_text(program + "\n")
    for name, (program, _) in PREPARE.items():
        (tmp_path / name / "prepare.py").write_text(program + "\n")
    suite = tmp_path / "suite.yaml"
    sized = {"batch": ", argv: {--batch-size: 4096}", "batch-cpu": ", argv: {-b: auto_batch(512)}"}
    names = ("good", *FAILING, *PREPARE)
    suite.write_text("".join(f"{name}: {{definition: {name}{sized.get(name, '')}}}\n" for name in names))
    here = ("--use-current-env", "--config", str(suite))

    said = milabench("prepare", *here)
    assert said.code == 4
    errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert sorted(line.split(":")[1].strip() for line in errors) == sorted(PREPARE)
    for name, (_, reason) in PREPARE.items():
        assert any(line.startswith(f"error: {name}: prepare failed: ") and reason in line for line in errors), errors
    # What could be prepared is: nothing is lost, and the next attempt repeats only what failed.
    others = ("--exclude", ",".join(PREPARE))
    assert f"nothing to do, prepared: {1 + len(FAILING)} benchmarks" in milabench("prepare", *here, *others).err

    said = milabench("run", *here, *others, "--profile", "quick")
    assert said.code == 1
    report = {bench["bench"]: bench for bench in json.loads(milabench("report", "--json").out)["benchmarks"]}
    assert report["good"]["outcome"] == "passed"
    for name, (_, why, detail) in FAILING.items():
        (failure,) = report[name]["failures"]
        assert failure["why"] == why, failure
        assert detail in failure["detail"]
        assert "\n" not in failure["detail"]
