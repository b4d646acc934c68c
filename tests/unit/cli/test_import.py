"""`milabench import`: what milabench 1.3 and nccl-tests wrote becomes runs that every other verb reads."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.examples import thinned
from tests.mutations import mutations
from tests.old_runs import nccl, old_run, remote_pack

Milabench = Callable[..., Any]
OLD = "lofilano.2024-08-27_20:14:51.193380"


def report(milabench: Milabench, run: str = "") -> dict[str, Any]:
    said = milabench("report", "--json", *([run] if run else []))
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


def test_a_run_of_milabench_1_3_is_imported(milabench: Milabench, tmp_path: Path) -> None:
    old = old_run(tmp_path / "old" / OLD, "resnet50", "bert")
    said = milabench("import", str(old))
    assert (said.code, said.err) == (0, "")
    path = tmp_path / "base" / "runs" / "lofilano.2024-08-27_20-23-44"
    assert said.out == f"{path}: 2 benchmarks; 8 secrets masked\n"
    imported, raw = report(milabench, "lofilano"), report(milabench, str(old))
    assert imported["verdict"] == "passed"
    [node] = imported["system"]["nodes"]
    assert (node["hostname"], [device["name"] for device in node["devices"]]) == (
        "pumpedgull",
        ["NVIDIA A100 80GB PCIe"] * 2,
    )
    for mine, theirs in zip(imported["benchmarks"], sorted(raw["benchmarks"], key=str), strict=False):
        assert mine["bench"] in ("resnet50", "bert")
        for key in ("perf", "units", "weight", "score", "processes", "outcome", "memory_peak_MiB"):
            assert mine[key] == theirs[key], key
    assert imported["benchmarks"][0]["perf"] == pytest.approx(300)


def test_records_stay_as_they_were_but_for_secrets(milabench: Milabench, tmp_path: Path) -> None:
    old = old_run(tmp_path / OLD, "resnet50", devices=1)
    milabench("import", str(old))
    [written] = (tmp_path / "base").rglob("resnet50.D0.data")
    before = (old / "resnet50.D0.data").read_bytes()
    assert b"hf_secretsecret" in before
    assert written.read_bytes() == before.replace(b"hf_secretsecret", b"***")


def test_milabenchs_own_commands_are_left_out_with_their_secrets(milabench: Milabench, tmp_path: Path) -> None:
    old = old_run(tmp_path / OLD, "resnet50")
    remote_pack(old)
    said = milabench("import", str(old))
    assert said.err == "left out: remote: milabench's own remote commands, not a benchmark\n"
    assert not list((tmp_path / "base").rglob("remote*"))
    assert all(b"hf_secretsecret" not in path.read_bytes() for path in (tmp_path / "base").rglob("*") if path.is_file())


def test_a_run_as_it_is_goes_into_the_store_with_the_date_of_its_name(milabench: Milabench, tmp_path: Path) -> None:
    old = old_run(tmp_path / "8xA100.2023-05-10_13_37_18.387537", "resnet50")
    assert milabench("db", "add", str(old)).code == 0
    assert milabench("db", "query", "SELECT created FROM runs", "--csv").out == "created\r\n2023-05-10T13:37:18\r\n"
    assert "/8xA100.2024-" in milabench("import", str(old)).out


def test_importing_again_changes_nothing(milabench: Milabench, tmp_path: Path) -> None:
    old = old_run(tmp_path / OLD, "resnet50")
    first, second = milabench("import", "--json", str(old)), milabench("import", "--json", str(old))
    assert json.loads(first.out)["runs"][0]["new"] is True
    assert json.loads(second.out)["runs"][0] == {**json.loads(first.out)["runs"][0], "new": False, "masked": 0}
    assert len(list((tmp_path / "base" / "runs").iterdir())) == 1


def test_a_zip_of_many_runs_is_imported_whole(milabench: Milabench, tmp_path: Path) -> None:
    for number in range(2):
        old_run(
            tmp_path / "old" / f"r{number}.2024-08-2{number}_20:14:51.193380", "resnet50", rates=[300.0 + number] * 60
        )
    old_run(tmp_path / "old" / "install.2024-08-20_10:00:00", "resnet50")
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for each in sorted((tmp_path / "old").rglob("*.data")):
            file.write(each, each.relative_to(tmp_path))
    said = milabench("import", str(path), "--run-name", "old")
    assert said.code == 0, said.err
    assert "install.2024-08-20_10:00:00: records of install, not a benchmark" in said.err
    assert len(list((tmp_path / "base" / "runs").glob("old.*"))) == 2


def test_a_zip_that_leads_elsewhere_is_refused_and_writes_nothing(milabench: Milabench, tmp_path: Path) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("runs/../../evil.data", "{}")
    said = milabench("import", str(path))
    assert (said.code, said.out) == (6, "")
    assert said.err.startswith(
        f"error: {path}: the entry 'runs/../../evil.data' has a name outside the archive: refused"
    )
    assert sorted(each.name for each in tmp_path.iterdir()) == ["evil.zip"]


def test_a_failed_pack_is_a_failed_step(milabench: Milabench, tmp_path: Path) -> None:
    milabench("import", str(old_run(tmp_path / OLD, "resnet50", code=1)))
    [bench] = report(milabench)["benchmarks"]
    assert (bench["outcome"], bench["failures"][0]["why"]) == ("failed", "exit")


STOP: tuple[str, Any, str | None] = ("stop", None, "data")
ERROR: tuple[str, Any, str | None] = ("error", {"type": "ValueError", "message": "bad"}, "data")


@pytest.mark.parametrize(
    ("code", "before_end", "rates", "outcome"),
    [
        (-15, [STOP], [300.0] * 65, "passed"),
        (1, [STOP], [300.0] * 65, "passed"),  # a launcher whose ranks were ended
        (1, [], [300.0] * 65, "failed"),
        (-15, [], [300.0] * 65, "failed"),
        (-9, [STOP], [300.0] * 65, "failed"),
        (-15, [STOP], [], "failed"),
        (1, [STOP, ERROR], [300.0] * 65, "failed"),
    ],
)
def test_what_was_ended_because_it_had_all_that_it_wanted_has_passed(
    milabench: Milabench,
    tmp_path: Path,
    code: int,
    before_end: list[tuple[str, Any, str | None]],
    rates: list[float],
    outcome: str,
) -> None:
    old = old_run(tmp_path / OLD, "resnet50", code=code, rates=rates, before_end=before_end)
    milabench("import", str(old))
    for run in ("", str(old)):
        [bench] = report(milabench, run)["benchmarks"]
        assert bench["outcome"] == outcome


@pytest.mark.parametrize("form", ["text", "markdown", "html", "csv", "json", "junit"])
def test_a_harmonic_mean_of_recorded_rates_says_that_it_is_one(milabench: Milabench, tmp_path: Path, form: str) -> None:
    milabench("import", str(old_run(tmp_path / OLD, "resnet50")))
    assert "compat" in milabench("report", "-f", form).out


@pytest.mark.slow
@pytest.mark.parametrize("program", ["milabench 1.3", "nccl-tests"])
def test_records_of_any_shape_are_imported_or_refused_in_a_line(
    milabench: Milabench, tmp_path: Path, program: str
) -> None:
    old = tmp_path / OLD
    if program == "nccl-tests":
        old.mkdir()
        (old / "x.json").write_text(json.dumps(nccl()))
    else:
        old_run(old, "resnet50", devices=1, rates=[300.0] * 3, before_end=[STOP])
    whole = {path: path.read_bytes() for path in old.iterdir()}
    found = list(mutations(old))
    for number, mutation in enumerate(random.Random(3).sample(found, len(thinned(range(500))))):
        for path, content in whole.items():
            path.write_bytes(content)
        mutation.apply(old)
        said = milabench("import", str(old), "--base", str(tmp_path / f"b{number}"))
        assert said.code in (0, 3, 6), (str(mutation), said)
        if said.code == 0:
            told = milabench("report", "--base", str(tmp_path / f"b{number}"))
            assert told.code == 0, (str(mutation), told)


def test_the_json_of_nccl_tests_is_a_run_whose_number_is_the_average_bus_bandwidth(
    milabench: Milabench, tmp_path: Path
) -> None:
    folder = tmp_path / "nccl"
    folder.mkdir()
    for number, bandwidth in enumerate((230.0, 231.0, 232.0)):
        (folder / f"out.json.{number}.json").write_text(json.dumps(nccl(bandwidth=bandwidth)))
    assert milabench("import", str(folder)).code == 0
    found = report(milabench)
    [bench] = found["benchmarks"]
    assert (bench["bench"], bench["units"], bench["direction"]) == ("all_reduce_perf", "GB/s", "higher")
    assert bench["perf"] == pytest.approx((230 * 231 * 232) ** (1 / 3))
    assert bench["ci95"] is not None
    sizes = [one for one in bench["metrics"] if one["metric"] == "algbw" and one["case"] == "in_place"]
    assert [(one["value"], one["params"]["size"]) for one in sizes[:2]] == [(125.75, 8), (125.75, 1 << 30)]
    assert [device["name"] for device in found["system"]["nodes"][0]["devices"]] == ["NVIDIA H100"] * 2
    assert all(b"hf_secretsecret" not in path.read_bytes() for path in (tmp_path / "base").rglob("*") if path.is_file())


def test_wrong_values_of_a_collective_fail_it(milabench: Milabench, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(nccl(wrong=3)))
    assert milabench("import", str(path)).code == 0
    [bench] = report(milabench)["benchmarks"]
    assert (bench["outcome"], bench["failures"][0]["why"]) == ("failed", "invalid")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"results": [', r"x\.json:1:14: is not JSON \(expecting value\)"),
        (b"{}", r"x\.json: is not output of nccl-tests"),
        (b"\xff", r"x\.json: is not JSON"),
    ],
)
def test_another_file_is_refused(milabench: Milabench, tmp_path: Path, content: bytes, told: str) -> None:
    import re

    path = tmp_path / "x.json"
    path.write_bytes(content)
    said = milabench("import", str(path))
    assert said.code == 6
    assert re.search(told, said.err), said.err


def test_what_is_nothing_or_ours_is_one_line(milabench: Milabench, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert milabench("import", str(tmp_path / "empty")).code == 3
    assert milabench("import", str(tmp_path / "missing")).code == 6
    milabench("import", str(old_run(tmp_path / OLD, "resnet50")))
    [ours] = (tmp_path / "base" / "runs").iterdir()
    said = milabench("import", str(ours))
    assert (said.code, said.out) == (6, "")
    assert "is a run of this milabench" in said.err
