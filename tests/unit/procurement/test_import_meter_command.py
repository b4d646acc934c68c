"""`milabench import-meter`: the readings of a power meter beside a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.metered_runs import BEGIN, LAUNCHES, WALL_BASE_W, WALL_FACTOR, device_power, metered_run, wall_csv
from tests.recorded_run import Recorded, data, record

Milabench = Callable[..., Any]


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


def test_a_meter_is_aligned_and_kept_beside_the_records(milabench: Milabench, tmp_path: Path) -> None:
    run = metered_run(tmp_path / "base")
    meter = tmp_path / "pdu.csv"
    meter.write_text(wall_csv(offset_s=37.0))
    before = digests(run.path)
    said = milabench("import-meter", str(run.path), str(meter))
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == f"{run.path / 'meters' / 'pdu.json'}: written"
    assert lines[1] == "readings: 472 around the run, every 1 s, of meter"
    assert lines[2].startswith("clock: +3") and "by the device power of the run, correlation 0.99" in lines[2]
    assert lines[3] == "level: none: the meter's coverage is not declared (--declaration)"
    assert digests(run.path) == before
    again = milabench("import-meter", str(run.path), str(meter), "--json")
    answer = json.loads(again.out)
    assert (answer["new"], answer["schema"], answer["source"]) == (False, 1, "pdu.csv")
    low, high = answer["clock"]["ci95"]
    assert low <= 37.0 <= high
    assert answer["sha256"] == hashlib.sha256(meter.read_bytes()).hexdigest()


def test_readings_of_another_day_may_be_of_another_run(milabench: Milabench, tmp_path: Path) -> None:
    run = metered_run(tmp_path / "base")
    (tmp_path / "pdu.csv").write_text(wall_csv(offset_s=-10 * 86400.0))
    said = milabench("import-meter", str(run.path), str(tmp_path / "pdu.csv"))
    line = "check: readings a day or more apart from the run may be of another run of the same work"
    assert (said.code, said.out.splitlines()[3]) == (0, line)


def test_a_meter_that_measures_less_than_the_devices_is_told(milabench: Milabench, tmp_path: Path) -> None:
    run = metered_run(tmp_path / "base")
    rows = [row.split(",") for row in wall_csv().splitlines()[1:]]

    def imported(name: str, share: float) -> Any:
        halves = [f"{time},{float(watts) * share:.3f}" for time, watts in rows]
        (tmp_path / name).write_text("\n".join(["time,power (W)", *halves]) + "\n")
        said = milabench("import-meter", str(run.path), str(tmp_path / name))
        assert said.code == 0, said.err
        return [line for line in said.out.splitlines() if "own reading: outlets" in line]

    (line,) = imported("feed-a.csv", 0.3)
    assert line.startswith("check: the run's meters measured 0.") and "outlets are missing" in line
    assert imported("feed-b.csv", 0.7) == [], "both feeds are all of it"
    answer = json.loads(milabench("import-meter", str(run.path), str(tmp_path / "feed-a.csv"), "--json").out)
    seconds = int(LAUNCHES[-1][1])
    devices_j = sum(map(device_power, range(seconds)))
    assert answer["of_devices"] == pytest.approx(WALL_FACTOR + WALL_BASE_W * seconds / devices_j, rel=0.02)


def test_launches_that_nobody_read_are_named_and_have_no_energy(milabench: Milabench, tmp_path: Path) -> None:
    run = metered_run(tmp_path / "base")
    rows = wall_csv().splitlines()
    # From before the second launch to within it: its whole beginning.
    hole = (BEGIN + 110, BEGIN + 180)
    kept = [row for row in rows if not row[0].isdigit() or not hole[0] < float(row.split(",")[0]) < hole[1]]
    (tmp_path / "pdu.csv").write_text("\n".join(kept) + "\n")
    said = milabench("import-meter", str(run.path), str(tmp_path / "pdu.csv"))
    assert said.code == 0
    assert "holes: without readings, and so not metered: llama.D0.R1" in said.out.splitlines()
    answer = json.loads(milabench("import-meter", str(run.path), str(tmp_path / "pdu.csv"), "--json").out)
    assert answer["unread"] == ["llama.D0.R1"]
    (tmp_path / "procurement.yaml").write_text(TENDER)
    report = milabench("report", str(run.path), "--tender", str(tmp_path / "procurement.yaml"), "--json")
    assert {entry["power"] for entry in json.loads(report.out)["expenses"]} == {"board"}


def test_an_offset_may_be_given(milabench: Milabench, tmp_path: Path) -> None:
    run = metered_run(tmp_path / "base")
    (tmp_path / "pdu.csv").write_text(wall_csv(offset_s=-3600.0))
    said = milabench("import-meter", str(run.path), str(tmp_path / "pdu.csv"), "--clock-offset=-3600")
    assert (said.code, said.out.splitlines()[2]) == (0, "clock: -3600 s, as given")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clock-offset", "0"], "none of its readings is of the time of the run, which is -"),
        (["--clock-offset", "noon"], "expected seconds such as -3600, or auto, got 'noon'"),
        (["--outlet", "b"], "has no outlet 'b'. It has meter"),
    ],
)
def test_what_cannot_be_imported_is_one_line_and_writes_nothing(
    milabench: Milabench, tmp_path: Path, arguments: list[str], message: str
) -> None:
    run = metered_run(tmp_path / "base")
    (tmp_path / "pdu.csv").write_text(wall_csv(offset_s=-3600.0))
    said = milabench("import-meter", str(run.path), str(tmp_path / "pdu.csv"), *arguments)
    assert said.code == 2
    assert message in said.err
    assert not (run.path / "meters").exists()


def test_another_file_of_the_same_name_and_the_same_file_twice_are_refused(
    milabench: Milabench, tmp_path: Path
) -> None:
    run = metered_run(tmp_path / "base")
    for folder, seed in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pdu.csv").write_text(wall_csv(seed=seed))
    (tmp_path / "copy.csv").write_text(wall_csv(seed=1))
    assert milabench("import-meter", str(run.path), str(tmp_path / "one" / "pdu.csv")).code == 0
    other = milabench("import-meter", str(run.path), str(tmp_path / "two" / "pdu.csv"))
    assert (other.code, "is of another file called pdu.csv" in other.err) == (2, True)
    twin = milabench("import-meter", str(run.path), str(tmp_path / "copy.csv"))
    assert (twin.code, "would count twice" in twin.err) == (2, True)
    lines = [line.split(",") for line in wall_csv(seed=1).splitlines()]
    (tmp_path / "exported.csv").write_text("\n".join(";".join(cells).replace(".", ",") for cells in lines) + "\n")
    again = milabench("import-meter", str(run.path), str(tmp_path / "exported.csv"))
    assert again.code == 2
    assert "exported.csv: has the readings of" in again.err and "would count twice" in again.err
    (tmp_path / "elsewhere.csv").write_text(wall_csv(seed=3))
    assert milabench("import-meter", str(run.path), str(tmp_path / "elsewhere.csv")).code == 0
    assert sorted(path.name for path in (run.path / "meters").iterdir()) == ["elsewhere.json", "pdu.json"]


TENDER = """
metric: index
benchmarks: {llama: {reference: {value: 10 tokens/s}}}
terms: {currency: EUR, electricity: 0.12 +- 0.02 EUR/kWh, pue: 1.3 +- 0.05, grid_carbon: 350 g/kWh}
"""


def test_reports_and_comparisons_have_the_energy_with_its_source(milabench: Milabench, tmp_path: Path) -> None:
    run, other = metered_run(tmp_path / "base"), metered_run(tmp_path / "base", "faster", scale=1.3)
    (tmp_path / "pdu.csv").write_text(wall_csv(offset_s=37.0))
    (tmp_path / "procurement.yaml").write_text(TENDER)
    assert "energy, cost, carbon" not in milabench("report", str(run.path)).out
    assert milabench("import-meter", str(run.path), str(tmp_path / "pdu.csv")).code == 0
    plain = milabench("report", str(run.path), "--wide").out
    assert "energy, cost, carbon" in plain
    assert "| meter    | not declared | pdu.csv, clock +3" in plain
    tender = ("--tender", str(tmp_path / "procurement.yaml"))
    listed = json.loads(milabench("report", str(run.path), *tender, "--json").out)["expenses"]
    assert [(entry["quantity"], entry["per"], entry["units"]) for entry in listed[:7]] == [
        *(
            ("energy", "token", "J"),
            ("energy", "1M tokens", "kWh"),
            ("energy", "run", "kWh"),
            ("energy", "node year", "kWh"),
            ("energy", "year", "kWh"),
        ),
        *(("cost", "token", "EUR"), ("cost", "1M tokens", "EUR")),
    ]
    energy, cost = listed[1], listed[6]
    assert cost["value"] == pytest.approx(0.12 * energy["value"])
    low, high = cost["ci95"]
    assert 0.8 < low / cost["value"] < 0.87
    assert 1.15 < high / cost["value"] < 1.25
    for form in ("markdown", "html", "text"):
        assert "device power, no EE HPC level" in milabench("report", str(other.path), *tender, "--format", form).out
    compared = milabench("compare", str(run.path), str(other.path), "--full").out
    assert "pdu.csv, clock" in compared
    facts = json.loads(milabench("compare", str(run.path), str(other.path), "--json").out)["comparison"]["systems"]
    assert [bool(system.get("expenses")) for system in facts] == [True, False]


def test_of_a_command_without_a_window_the_energy_of_a_launch_is_known(milabench: Milabench, tmp_path: Path) -> None:
    # A command that only tells a metric, in launches of 60 s and 80 s by the times at which its device was read.
    spans = [(BEGIN, BEGIN + 60), (BEGIN + 100, BEGIN + 180)]
    steps = [
        Recorded(
            bench="ior",
            repeat=at,
            events=(
                *(data(task="main", gpudata={"0": {"power_W": 90.0}}, time=time) for time in span),
                data(metric="bandwidth", value=5.0, units="GB"),
            ),
        )
        for at, span in enumerate(spans)
    ]
    run = record(tmp_path / "base", *steps, name="command")
    rows = "".join(f"{BEGIN - 1000 + at},720\n" for at in range(-10, 191))
    (tmp_path / "pdu.csv").write_text(f"time,W\n{rows}")
    said = milabench("import-meter", str(run.path), str(tmp_path / "pdu.csv"), "--clock-offset=1000")
    assert said.code == 0, said.err
    (energy,) = json.loads(milabench("report", str(run.path), "--json").out)["expenses"]
    assert (energy["bench"], energy["quantity"], energy["per"], energy["power"]) == ("ior", "energy", "run", "meter")
    # The launches' geometric mean.
    assert energy["value"] == pytest.approx(720 * (60 * 80) ** 0.5 / 3.6e6, rel=1e-6)
    assert "the whole launch" in milabench("report", "--full", str(run.path)).out


def test_a_record_of_a_meter_that_was_damaged_is_named(milabench: Milabench, tmp_path: Path) -> None:
    run = metered_run(tmp_path / "base")
    (run.path / "meters").mkdir()
    (run.path / "meters" / "pdu.json").write_text('{"schema": 1}')
    said = milabench("report", str(run.path))
    assert (said.code, "meters/pdu.json: cannot be read: is no record of a meter" in said.err) == (6, True)


def test_an_offer_shows_its_level_by_the_meter_beside_its_run(milabench: Milabench, tmp_path: Path) -> None:
    run = metered_run(tmp_path / "base")
    (tmp_path / "pdu.csv").write_text(wall_csv(offset_s=37.0))
    (tmp_path / "meter.yaml").write_text("nodes: 1\ninterconnect: estimated\nerror: 5 %\n")
    (tmp_path / "procurement.yaml").write_text(TENDER)
    (tmp_path / "offer.yaml").write_text(
        f"vendor: A\nnodes: 1\npower: {{node: 1 kW, level: L1}}\nbenchmarks: {{llama: {{run: {run.path}}}}}\n"
    )
    declaration = ("--declaration", str(tmp_path / "meter.yaml"))
    assert milabench("import-meter", str(run.path), str(tmp_path / "pdu.csv"), *declaration).code == 0
    files = ("--tender", str(tmp_path / "procurement.yaml"))
    archive = str(tmp_path / "a.zip")
    said = milabench("offer", "create", *files, "--offer", str(tmp_path / "offer.yaml"), "-o", archive)
    assert said.code == 0, said.err
    power = json.loads(milabench("offer", "verify", archive, *files, "--json").out)["power"]
    assert (power["level"], power["shown"], power["verdict"]) == ("L1", "L1", "PASS")


@pytest.mark.parametrize("terms", [(), ("--tender", "procurement.yaml")])
def test_a_bundle_has_the_energy_that_its_meter_measured(
    milabench: Milabench, tmp_path: Path, terms: tuple[str, ...]
) -> None:
    run = metered_run(tmp_path)
    (tmp_path / "pdu.csv").write_text(wall_csv(7.0))
    (tmp_path / "procurement.yaml").write_text(
        "metric: index\nbenchmarks: {llama: {reference: {value: 10 tokens/s}}}\nterms: {pue: 1.3}\n"
    )
    assert milabench("import-meter", str(run.path), "pdu.csv").code == 0
    assert milabench("bundle", str(run.path), "-o", "run.zip").code == 0
    both = [json.loads(milabench("report", name, *terms, "--json").out) for name in (str(run.path), "run.zip")]
    assert both[0]["expenses"] and both[1]["expenses"] == both[0]["expenses"]
    assert {each["power"] for each in both[1]["expenses"]} == {"meter"}
    if terms:
        shown = json.loads(milabench("compare", "run.zip", *terms, "--json").out)["tender"]["systems"][0]
        assert {each["power"] for each in shown["expenses"]} == {"meter"}
    else:
        systems = json.loads(milabench("compare", str(run.path), "run.zip", "--json").out)["comparison"]["systems"]
        assert systems[0]["expenses"] and systems[1]["expenses"] == systems[0]["expenses"]
