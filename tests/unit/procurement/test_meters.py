"""Files of power meters, how their clock is found, and which level a measurement reaches."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from milabench.errors import ConfigError, UsageError
from milabench.procurement.energy_curves import ClockFit, EnergyCurve, fit_clock, run_curve, total_curve
from milabench.procurement.meter_files import Outlet, read_meter
from milabench.procurement.metering import (
    MeterDeclaration,
    MeterRecord,
    level_of,
    meter_curve,
    meter_declaration,
    meter_from_json,
    metered_launch,
)
from tests.changed_values import replace
from tests.metered_runs import BEGIN, LAUNCHES, device_power, wall_readings


def outlets(text: str, *wanted: str) -> dict[str, Outlet]:
    return {outlet.name: outlet for outlet in read_meter(text.encode(), "pdu.csv", wanted).outlets}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time,W\n1773489600,100\n1773489601,110\n", {"meter": [(1773489600.0, 100.0), (1773489601.0, 110.0)]}),
        (
            "Timestamp;Power (kW)\n1773489600;1,5\n1773489601;2\n",
            {"meter": [(1773489600.0, 1500.0), (1773489601.0, 2000.0)]},
        ),
        (
            "# PDU 7\nepoch\toutlet1_W\toutlet2_W\n1773489600000\t1\t2\n1773489601000\t3\t\n",
            {"outlet1": [(1773489600.0, 1.0), (1773489601.0, 3.0)], "outlet2": [(1773489600.0, 2.0)]},
        ),
        (
            "date,time,Outlet,Active Power [W]\n2026-03-14,12:00:00Z,a,1\n2026-03-14,12:00:00Z,b,2\n2026-03-14,12:00:05Z,a,3\n",
            {"a": [(1773489600.0, 1.0), (1773489605.0, 3.0)], "b": [(1773489600.0, 2.0)]},
        ),
        ("time,volts (V),power (W)\n2026-03-14T13:00:00+01:00,230,7\n", {"meter": [(1773489600.0, 7.0)]}),
    ],
)
def test_columns_are_known_by_their_units(text: str, expected: dict[str, Any]) -> None:
    assert {name: outlet.power for name, outlet in outlets(text).items()} == expected


def test_a_counter_of_energy_stands_beside_the_power_of_its_outlet() -> None:
    read = outlets("time,a power (W),a energy (Wh),b kWh\n1773489600,10,1.0,4\n1773489610,12,1.5,4.001\n")
    assert read["a"].power == [(1773489600.0, 10.0), (1773489610.0, 12.0)]
    assert read["a"].energy == [(1773489600.0, 3600.0), (1773489610.0, 5400.0)]
    assert meter_curve(list(read.values())).within((1773489600.0, 1773489610.0)) == pytest.approx(1800 + 3600)


def test_times_without_a_zone_are_taken_as_utc_and_it_is_said() -> None:
    read = read_meter(b"time,W\n2026-03-14 12:00:00,1\n2026-03-14 12:00:01,2\n", "pdu.csv")
    assert read.outlets[0].power[0][0] == 1773489600.0
    assert read.notes == ("its times name no zone: they are taken as UTC",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pdu.csv:1:1: has no readings. A meter's CSV has a heading and a row for each time"),
        (
            "when,W\n1,2\n",
            "pdu.csv:1:1: has no column of times: when, W. Name a column 'time', in ISO 8601 or seconds since 1970",
        ),
        ("time,amps\n1,2\n", "pdu.csv:1:1: has no column in W, kW, Wh or kWh: time, amps. Write the unit: 'power (W)'"),
        (
            "time,a W,a W\n1,2,3\n",
            "pdu.csv:1:10: has two columns of power for a: time, a W, a W. Remove a column, or name both",
        ),
        (
            "time,W\nnoon,2\n",
            "pdu.csv:2:1: 'noon' is no time. Write it as 2026-03-14T12:00:00Z, or in seconds since 1970",
        ),
        (
            "time,W\n1773489600,-3\n",
            "pdu.csv:2:12: expected a number from 0 up and below 1e+15, got '-3'. Leave the cell empty if it was not read",
        ),
        ("time,W\n1773489600,1,2\n", "pdu.csv:2:1: has 3 cells, the heading 2"),
        (
            "time,W\n1773489605,1\n1773489600,2\n",
            "pdu.csv:3:1: is 5 s before the row above. Sort the rows by time, or if the clock was set back make a file "
            "for each part",
        ),
        (
            "time,Wh\n1773489600,5\n1773489610,4\n",
            "pdu.csv:3:12: the counter of energy falls to 4. Give a counter that only grows, or a column of power",
        ),
        (
            "time,total W,a W\n1773489600,5,4\n",
            "pdu.csv: has a total and its parts: total, a. Choose those that do not overlap with --outlet",
        ),
    ],
)
def test_what_is_wrong_in_a_csv_has_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_meter(text.encode(), "pdu.csv")
    assert str(refused.value) == message


def test_all_mistakes_of_a_csv_are_reported_together() -> None:
    with pytest.raises(ConfigError) as refused:
        read_meter(b"time,W\nx,1\n1773489600,y\n", "pdu.csv")
    assert [problem.where for problem in refused.value.problems] == ["pdu.csv:2:1", "pdu.csv:3:12"]


def test_of_a_bad_column_five_rows_are_shown_and_the_others_counted() -> None:
    rows = "".join(f"{1773489600 + at},1e300\n" for at in range(2000))
    with pytest.raises(ConfigError) as refused:
        read_meter(f"time,W\n{rows}".encode(), "pdu.csv")
    *shown, others = str(refused.value).split("\nerror: ")
    assert len(shown) == 5
    assert shown[0].startswith("pdu.csv:2:12: expected a number from 0 up and below 1e+15, got '1e300'")
    assert others == "pdu.csv: 1995 more rows cannot be read"


def report(*values: tuple[str, str, str]) -> dict[str, Any]:
    metrics = [{"MetricProperty": path, "MetricValue": value, "Timestamp": time} for path, value, time in values]
    return {"@odata.type": "#MetricReport.v1_4_2.MetricReport", "Id": "PowerMetrics", "MetricValues": metrics}


NODE = "/redfish/v1/Chassis/1/EnvironmentMetrics#"


def test_reports_of_a_redfish_service_are_read_whatever_they_overlap() -> None:
    first = report(
        (f"{NODE}/PowerWatts/Reading", "500", "2026-03-14T12:00:00Z"),
        (f"{NODE}/EnergykWh/Reading", "7.0", "2026-03-14T12:00:00Z"),
        (f"{NODE}/PowerLimitWatts/Reading", "900", "2026-03-14T12:00:00Z"),
        ("/redfish/v1/Systems/1#/PowerState", "On", "2026-03-14T12:00:00Z"),
    )
    second = report(
        (f"{NODE}/PowerWatts/Reading", "510", "2026-03-14T12:00:10Z"),
        (f"{NODE}/PowerWatts/Reading", "500", "2026-03-14T12:00:00Z"),
    )
    for text in (json.dumps({"Members": [second, first]}), f"{json.dumps(first)}\n{json.dumps(second)}\n"):
        read = read_meter(text.encode(), "dump.json")
        (outlet,) = read.outlets
        assert (read.kind, outlet.name) == ("redfish", NODE.rstrip("#"))
        assert outlet.power == [(1773489600.0, 500.0), (1773489610.0, 510.0)]
        assert outlet.energy == [(1773489600.0, 7 * 3.6e6)]


def test_sensors_are_read_by_their_units() -> None:
    sensor = {"@odata.id": "/redfish/v1/Chassis/1/Sensors/P", "Reading": 400.5, "ReadingUnits": "W"}
    fan = {"@odata.id": "/fan", "Reading": 4000, "ReadingUnits": "RPM", "ReadingTime": "2026-03-14T12:00:00Z"}
    text = json.dumps([{**sensor, "ReadingTime": "2026-03-14T12:00:00Z"}, fan])
    (outlet,) = read_meter(text.encode(), "dump.json").outlets
    assert (outlet.name, outlet.power) == ("/redfish/v1/Chassis/1/Sensors/P", [(1773489600.0, 400.5)])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"Members": []}, "has no reading of power or energy with a time"),
        (report((f"{NODE}/PowerWatts", "5", "")), "expected a reading with its time, got '5' at ''"),
        (
            report((f"{NODE}/PowerWatts", "many", "2026-03-14T12:00:00Z")),
            "expected a reading with its time, got 'many'",
        ),
        (
            report(("/a/PowerWatts", "5", "2026-03-14T12:00:00Z"), ("/b/PowerWatts", "5", "2026-03-14T12:00:00Z")),
            "dump.json: has several sensors: /a, /b. Choose those that do not overlap with --outlet",
        ),
    ],
)
def test_what_is_wrong_in_a_dump_is_one_line(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=r"dump\.json") as refused:
        read_meter(json.dumps(value).encode(), "dump.json")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_dump_that_is_no_json_has_its_place() -> None:
    with pytest.raises(ConfigError) as refused:
        read_meter(b'{"Members": [\n  {]}\n', "dump.json")
    assert str(refused.value).startswith("dump.json:2:4: is no JSON: ")


@pytest.mark.parametrize(
    "text", ["9" * 5000, '{"a": 1}\n{"a": ' + "9" * 5000 + "}", "[" * 100_000], ids=["one", "line", "deep"]
)
def test_a_dump_that_no_reader_of_json_takes_is_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match="is no JSON: a number is too long, or it is nested too deep"):
        read_meter(b"{}\n" + text.encode(), "dump.json")


def test_an_outlet_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(ConfigError) as refused:
        read_meter(b"time,a W,b W\n1773489600,1,2\n", "pdu.csv", ["c"])
    assert str(refused.value) == "pdu.csv: has no outlet 'c'. It has a, b"


# ------------------------------------------------------------------------------------------------------------- curves


def test_energy_is_the_area_below_the_power_and_stops_where_readings_do() -> None:
    curve = EnergyCurve.of_power([(0.0, 100.0), (10.0, 300.0), (20.0, 300.0)])
    assert curve.within((0.0, 20.0)) == pytest.approx(2000 + 3000)
    assert curve.within((-5.0, 10.0)) == pytest.approx(2000)
    assert curve.within((12.0, 15.0)) == pytest.approx(900)
    assert (curve.covers((0.0, 20.0)), curve.covers((-11.0, 20.0))) == (True, False)


def test_outlets_that_were_read_at_other_times_have_no_sum() -> None:
    early, late = EnergyCurve([(0.0, 0.0), (1.0, 5.0)]), EnergyCurve([(2.0, 0.0), (3.0, 5.0)])
    with pytest.raises(UsageError, match="--outlet"):
        total_curve([early, late])


def wall(offset_s: float, seed: int) -> EnergyCurve:
    return EnergyCurve.of_power([(time - offset_s, watts) for time, watts in wall_readings(seed)])


def known_to_run() -> Any:
    return run_curve(
        [
            (
                "n/0",
                (BEGIN + start, BEGIN + stop),
                [(BEGIN + second, device_power(second)) for second in range(int(start), int(stop))],
            )
            for start, stop in LAUNCHES
        ]
    )


@pytest.mark.parametrize("offset", [0.0, 4.5, -37.25, 7200.0, -86400.0])
def test_a_clock_is_found_within_the_error_that_is_stated(offset: float) -> None:
    own, basis = known_to_run()
    assert basis == "device power"
    inside = 0
    for seed in range(20):
        fit = fit_clock(wall(offset, seed), own, basis)
        assert fit.correlation is not None
        assert fit.correlation > 0.99
        assert fit.error_s is not None
        assert fit.error_s < 1
        assert fit.ci95 is not None
        inside += fit.ci95[0] <= offset <= fit.ci95[1]
    assert inside == 20


def test_without_device_power_the_steps_align_with_an_error_that_has_their_delay_in_it() -> None:
    own, basis = run_curve([("", (BEGIN + start, BEGIN + stop), []) for start, stop in LAUNCHES])
    fit = fit_clock(wall(37.0, 1), own, basis)
    assert (basis, fit.basis) == ("steps", "steps")
    assert fit.error_s is not None
    assert fit.error_s > 3  # the device warms up for ten seconds of each step
    assert fit.ci95 is not None
    assert fit.ci95[0] <= 37.0 <= fit.ci95[1]


def test_a_meter_of_something_else_is_refused() -> None:
    noise = random.Random(3)
    other = EnergyCurve.of_power([(BEGIN - 60 + second, 300 + noise.gauss(0, 10)) for second in range(480)])
    with pytest.raises(
        UsageError, match=r"does not follow the device power of the run: the best correlation is 0\.\d\d. Check"
    ):
        fit_clock(other, *known_to_run())


def test_a_load_that_repeats_has_two_offsets_and_is_refused() -> None:
    own, basis = run_curve([("n/0", (0.0, 60.0), [(t, 400.0) for t in range(60)])])
    twice = [(float(t), 100.0 + 300.0 * (200 <= t < 260 or 600 <= t < 660)) for t in range(1000)]
    with pytest.raises(UsageError, match=r"as well at two offsets .* Give --clock-offset SECONDS"):
        fit_clock(EnergyCurve.of_power(twice), own, basis)


@pytest.mark.slow
def test_readings_of_weeks_before_the_run_do_not_hide_its_offset() -> None:
    own, basis = known_to_run()
    of_run = wall(37.0, 1)
    before = [(of_run.times[0] - seconds, -10.0 * seconds) for seconds in range(400_000, 0, -100)]
    at_run = [(time, joules - of_run.joules[0]) for time, joules in zip(of_run.times, of_run.joules, strict=True)]
    fit = fit_clock(EnergyCurve([*before, *at_run]), own, basis)
    assert fit.ci95 is not None
    assert fit.ci95[0] <= 37.0 <= fit.ci95[1]


def test_readings_of_years_are_refused_before_every_lag_is_tried() -> None:
    own, basis = known_to_run()
    years = EnergyCurve.of_power([(BEGIN + month * 2.6e6, 100.0 + month) for month in range(-60, 60)])
    with pytest.raises(
        UsageError, match=r"times as long as the run .*: import the day of the run, or give --clock-off"
    ):
        fit_clock(years, own, basis)


def test_a_meter_that_was_read_too_briefly_is_refused() -> None:
    own, basis = known_to_run()
    with pytest.raises(UsageError, match="import the readings of the whole time"):
        fit_clock(EnergyCurve.of_power([(BEGIN, 5.0), (BEGIN + 30, 6.0)]), own, basis)


# ------------------------------------------------------------------------------------------------- records and levels


def record(declared: MeterDeclaration | None = None, clock: ClockFit | None = None, **outlet: Any) -> MeterRecord:
    readings = outlet or {"power": wall_readings()}
    return MeterRecord(
        source="pdu.csv",
        digest="d",
        kind="csv",
        outlets=(Outlet("pdu", **readings),),
        clock=clock or ClockFit(offset_s=0.0, basis="given"),
        declared=declared,
    )


def test_a_record_is_read_back_as_it_was_written() -> None:
    meter = record(
        MeterDeclaration(nodes=1, error=0.01), ClockFit(offset_s=2.5, basis="steps", correlation=0.9, error_s=1.0)
    )
    read = meter_from_json(json.loads(json.dumps(meter.to_json())))
    assert (read.declared, read.clock, read.to_json()) == (meter.declared, meter.clock, meter.to_json())


@pytest.mark.parametrize("change", [{"schema": 2}, {"outlets": []}, {"clock": {"basis": "moon"}}])
def test_a_record_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no record|no readings"):
        meter_from_json({**record().to_json(), **change})


@pytest.mark.parametrize(("nodes", "measured"), [(2, 3), (0, None), (3, 0)])
def test_a_record_that_measures_more_nodes_than_there_are_is_refused(nodes: int, measured: int | None) -> None:
    """The file may be a vendor's, and its numbers divide others."""
    declared = {"nodes": nodes, "measured_nodes": measured, "is_random": True}
    with pytest.raises(ValueError, match="measures"):
        meter_from_json({**record().to_json(), "declared": declared})


WINDOW, RUN = (BEGIN + 120.0, BEGIN + 215.0), (BEGIN, BEGIN + 352.0)


def test_the_power_of_a_launch_is_that_in_its_window_with_what_the_clock_lets_it_be_off() -> None:
    exact, doubtful = record(), record(clock=ClockFit(offset_s=0.0, basis="steps", error_s=5.0))
    launch = metered_launch([exact], [exact.curve], WINDOW)
    assert launch is not None
    # 200 W and 1.1 times 90 W for ten seconds, then 400 W for eighty-five.
    assert launch.power_w == pytest.approx(200 + 1.1 * (90 * 10 + 400 * 85) / 95, rel=0.005)
    assert (launch.seconds, launch.clock_share) == (95.0, 0.0)
    other = metered_launch([doubtful], [doubtful.curve], WINDOW)
    assert other is not None
    # Five seconds more of idling for as many of work.
    assert other.clock_share == pytest.approx(5 * 1.1 * 310 / (launch.power_w * 95), rel=0.15)
    assert metered_launch([exact], [exact.curve], (BEGIN + 120, BEGIN + 5000)) is None


@pytest.mark.parametrize(("hole_s", "is_known"), [(4, True), (9, True), (12, False), (80, False)])
def test_a_launch_whose_meter_was_not_read_for_much_of_it_has_no_power(hole_s: float, is_known: bool) -> None:
    middle = BEGIN + 170
    kept = [(time, watts) for time, watts in wall_readings() if abs(time - middle) >= hole_s / 2]
    by_power, by_counter = record(power=kept), record(energy=[(time, 300.0 * (time - BEGIN + 60)) for time, _ in kept])
    assert (metered_launch([by_power], [by_power.curve], WINDOW) is not None) == is_known
    # What a counter counted meanwhile is known, but not which of it is on which side of an edge.
    assert metered_launch([by_counter], [by_counter.curve], WINDOW) is not None
    edge = (middle, BEGIN + 215)
    assert (metered_launch([by_counter], [by_counter.curve], edge) is not None) == is_known


def test_an_outlet_has_a_hole_where_others_were_read() -> None:
    readings = wall_readings()
    holed = [(time, watts) for time, watts in readings if not BEGIN + 130 < time < BEGIN + 200]
    both = replace(record(), outlets=(Outlet("a", power=readings), Outlet("b", power=holed)))
    assert metered_launch([both], [both.curve], WINDOW) is None


def test_a_meter_of_some_nodes_is_scaled_to_all_as_its_owner_declares() -> None:
    whole, part = record(), record(MeterDeclaration(nodes=128, measured_nodes=16))
    one, all_nodes = metered_launch([whole], [whole.curve], WINDOW), metered_launch([part], [part.curve], WINDOW)
    assert one is not None
    assert all_nodes is not None
    assert all_nodes.power_w == pytest.approx(8 * one.power_w)


SIXTEEN_NODES = [5.10, 5.22, 5.05, 5.31, 5.18, 5.12, 5.25, 5.09, 5.15, 5.20, 5.11, 5.28, 5.07, 5.19, 5.16, 5.13]


@pytest.mark.parametrize("is_random", [True, False])
def test_k_pwr_4_nodes_that_were_drawn_stand_for_all_with_an_error(is_random: bool) -> None:
    """K-PWR-4, computed: 660.88 kW of 128 nodes by 16, with the correction for a finite machine."""
    declared = MeterDeclaration(nodes=128, measured_nodes=16, is_random=is_random)
    outlets = tuple(
        Outlet(f"n{number}", [(BEGIN + 10.0 * at, 1000 * kw) for at in range(40)])
        for number, kw in enumerate(SIXTEEN_NODES)
    )
    meter = replace(record(declared), outlets=outlets)
    launch = metered_launch([meter], [meter.curve], WINDOW)
    assert launch is not None
    assert launch.power_w == pytest.approx(660880, rel=1e-9)
    if is_random:
        assert launch.drawn is not None
        assert (launch.drawn.sd, launch.drawn.freedom) == (pytest.approx(2.255198439162283 / 660.88), 15)
    else:
        assert launch.drawn is None


def test_the_level_follows_from_the_readings_and_the_declaration() -> None:
    assert level_of(record(), record().curve, WINDOW, RUN).label == "device power, no EE HPC level"
    declared = MeterDeclaration(nodes=1, interconnect="estimated", error=0.05)
    first = record(declared)
    assert level_of(first, first.curve, WINDOW, RUN).label == "L1"
    second = record(MeterDeclaration(nodes=1, interconnect="estimated", others="estimated", error=0.02))
    assert level_of(second, second.curve, WINDOW, RUN).label == "L2"
    counter, joules = [], 0.0
    for time, watts in wall_readings():
        counter.append((time, joules))
        joules += watts
    third = record(MeterDeclaration(nodes=1, interconnect="measured", others="measured", error=0.01), energy=counter)
    assert level_of(third, third.curve, WINDOW, RUN).label == "L3"
    rough = record(MeterDeclaration(nodes=1, interconnect="estimated", error=0.06))
    assert level_of(rough, rough.curve, WINDOW, RUN).missing[0] == (1, "4b meter: an error of 5 % at most")


def test_a_declaration_is_checked_like_any_file() -> None:
    assert meter_declaration(
        b"nodes: 128\nmeasured_nodes: 16\nrandom: true\nerror: 1 %\n", "meter.yaml"
    ) == MeterDeclaration(nodes=128, measured_nodes=16, is_random=True, error=0.01)
    with pytest.raises(ConfigError) as refused:
        meter_declaration(b"nodez: 3\nerror: many\n", "meter.yaml")
    assert [problem.where for problem in refused.value.problems] == ["meter.yaml:1:1", "meter.yaml:2:8"]
    with pytest.raises(ConfigError, match="16, of 8 nodes"):
        meter_declaration(b"nodes: 8\nmeasured_nodes: 16\n", "meter.yaml")
    assert not math.isnan(meter_declaration(b"error: 2 %\n", "meter.yaml").error or math.nan)
