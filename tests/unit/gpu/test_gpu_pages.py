"""`make gpu`: its parts, the folder of wheels, the environment, and what results.py makes of the results."""

from __future__ import annotations

import json
import runpy
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gpu import answers, instruments, operators, validation
from tests.gpu.environment import fits, unpack, usable
from tests.gpu.main_job import communicators, estimates
from tests.gpu.parts import PARTS
from tests.gpu.results import main, measurements_section, read_parts, seen_benchmarks, with_section
from tests.gpu.runner import PART_S
from tests.gpu.wheels import CORE, MORE, pinned

ROOT = Path(__file__).resolve().parents[3]
HEAD = {
    "part": 3,
    "date": "2026-11-29",
    "simulated": False,
    "devices": ["NVIDIA H200"],
    "torch": "2.11.0",
    "python": "3.12.3",
    "driver": "580.159",
}
WHERE = "1 x NVIDIA H200, driver 580.159, torch 2.11.0, Python 3.12.3, 2026-11-29"


def found(name: str, outcome: str, reason: str = "", **values: float) -> dict[str, Any]:
    numbers = [
        {
            "what": what.replace("_", " "),
            "value": value,
            "units": "GiB",
            "goal": "at most 8",
            "met": value <= 8,
            "seen": "",
        }
        for what, value in values.items()
    ]
    return {"program": name, "what": "", "outcome": outcome, "reason": reason, "numbers": numbers, "not_shown": []}


def test_each_program_of_a_part_exists_and_fits_into_it() -> None:
    known = {
        "tests.gpu.instruments": instruments.PROGRAMS,
        "tests.gpu.validation": validation.PROGRAMS,
        "tests.gpu.operators": operators.PROGRAMS,
        "tests.gpu.answers": answers.PROGRAMS,
    }
    suites = {"quickstart": set(yaml.safe_load((ROOT / "config" / "quickstart.yaml").read_text()))}
    page = runpy.run_path(str(ROOT / "docs" / "suite_page.py"))
    suites["standard"] = set(page["suite"]("device"))
    for programs in PARTS.values():
        assert len({program.name for program in programs}) == len(programs)
        for program in programs:
            assert program.limit_s < PART_S
            if program.module == "tests.gpu.main_job":
                suite, benchmark = program.words
                assert benchmark in suites[suite]
            else:
                assert program.words[0] in known[program.module]
    for module, programs in known.items():
        assert set(programs) == {one.words[0] for part in PARTS.values() for one in part if one.module == module}


def test_every_check_of_devices_has_a_program_that_passes_it_and_one_that_does_not() -> None:
    text = (ROOT / "tests" / "gpu" / "validation.py").read_text()
    for check in ("usage", "throttle", "foreign", "sensor", "energy"):
        assert f'"{check}"' in text.partition("def busy")[2].partition("def idle")[0]
        assert f'"{check}", "fail"' in text or f'"{check}", "warn"' in text


def test_estimates_are_those_of_the_page_of_the_suite() -> None:
    assert estimates("flops") == (8, 1)
    assert estimates("no-such-benchmark") == (None, None)


def test_what_travels_is_in_the_locks() -> None:
    requirements = [*pinned(CORE), *pinned(MORE)]
    assert len(requirements) == len({one.partition("==")[0] for one in requirements})
    assert not [one for one in requirements if one.startswith(("torch=", "nvidia-c", "jax", "numpy"))]


@pytest.mark.parametrize(
    ("name", "version", "right"),
    [
        ("rich-15.0.0-py3-none-any.whl", (3, 12), True),
        ("six-1.0-py2.py3-none-any.whl", (3, 12), True),
        ("multiprocess-0.70.19-py312-none-any.whl", (3, 12), True),
        ("multiprocess-0.70.19-py312-none-any.whl", (3, 11), False),
        ("msgspec-0.22.0-cp312-cp312-manylinux_2_17_x86_64.whl", (3, 12), True),
        ("msgspec-0.22.0-cp311-cp311-manylinux_2_17_x86_64.whl", (3, 12), False),
        ("cryptography-50.0.2-cp311-abi3-manylinux_2_17_x86_64.whl", (3, 12), True),
        ("cryptography-50.0.2-cp314-abi3-manylinux_2_17_x86_64.whl", (3, 12), False),
    ],
)
def test_wheels_for_another_python_are_left_out(name: str, version: tuple[int, int], right: bool) -> None:
    assert fits(name, version) is right


def test_a_wheel_is_unpacked_with_what_its_data_folder_has(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as zipped:
        zipped.writestr("x/__init__.py", "")
        zipped.writestr("x-1.data/purelib/y.py", "")
    unpack(wheel, tmp_path / "packages")
    assert sorted(path.name for path in (tmp_path / "packages").iterdir()) == ["x", "y.py"]
    with zipfile.ZipFile(wheel, "w") as zipped:
        zipped.writestr("../outside.py", "")
    with pytest.raises(SystemExit, match="would land outside"):
        unpack(wheel, tmp_path / "packages")


def test_a_wheel_whose_own_needs_are_not_there_is_left_out_with_all_that_need_it(tmp_path: Path) -> None:
    def made(name: str, *lines: str) -> Path:
        wheel = tmp_path / f"{name}-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as zipped:
            text = "".join(f"Requires-Dist: {line}\n" for line in lines)
            zipped.writestr(f"{name}-1.dist-info/METADATA", f"Name: {name}\n{text}\nRequires-Dist: of the text\n")
        return wheel

    whole = made("whole", "Torch_There>=2", "part (<3)", "odd; extra == 'test'")
    part, broken, above = made("part"), made("broken", "absent"), made("above", "broken")
    assert usable([whole, part, broken, above], {"torch-there"}) == {
        whole: set(),
        part: set(),
        broken: {"absent"},
        above: {"broken"},
    }


def test_results_name_device_driver_torch_and_date_and_every_number_with_its_goal() -> None:
    programs = [found("flops", "passed", peak_memory_of_the_device=2.5), found("sac", "skipped", "not installed: x|y")]
    section = measurements_section([(HEAD, programs)])
    assert f"{WHERE}; `make gpu`." in section
    assert "| `flops` | peak memory of the device | 2.5 GiB | at most 8 | yes |" in section
    assert "- `sac`: not installed: x\\|y" in section
    page = with_section("# Page\n\n## Before\n", section)
    assert page.endswith(f"## On accelerators, by `make gpu`\n\n{section}\n")
    assert with_section(page, section) == page


def test_what_was_seen_of_benchmarks_is_shown_in_the_page_of_the_suite() -> None:
    programs = [found("flops", "failed", "usage: a|b", peak_memory_of_the_device=2.5), found("sac", "skipped", "why")]
    seen = seen_benchmarks([(HEAD, programs), ({**HEAD, "part": 1}, programs)])
    assert list(seen["benchmarks"]) == ["flops"]
    page = "".join(runpy.run_path(str(ROOT / "docs" / "suite_page.py"))["seen_lines"](seen))
    assert f"with the profile `quick`, on {WHERE}." in page
    assert "| `flops` | failed | 2.5 GiB | - | usage: a\\|b |" in page


def test_results_of_a_simulation_or_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no part1\.jsonl"):
        main(["write", str(tmp_path)])
    (tmp_path / "part1.jsonl").write_text(json.dumps({**HEAD, "simulated": True}) + "\n")
    with pytest.raises(SystemExit, match="is of simulated accelerators"):
        main(["write", str(tmp_path)])
    (tmp_path / "part1.jsonl").write_text("[]\n")
    with pytest.raises(SystemExit, match="is not a result of"):
        read_parts(tmp_path)


def test_the_communicators_of_nccl_are_counted_by_process() -> None:
    lines = (
        "NCCL version 2.29",
        *(f"box:{pid}:9 [0] NCCL INFO ncclCommInitRank comm 0x1 - Init COMPLETE" for pid in (1, 2)),
    )
    assert communicators("\n".join(lines)) == 1
    assert communicators("\n".join((*lines, lines[-1]))) == 2
    assert communicators("no backend but gloo") == 0
