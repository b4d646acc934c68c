"""`compare --tender` and `tender`, from files to what they print; the formulas themselves are in unit/procurement."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from milabench.cli import compare
from milabench.errors import ConfigError, MilabenchError, NothingSelected, RecordError, UsageError
from milabench.procurement import tender_command as tender
from milabench.procurement.scores import METRICS
from tests.ats5 import ATS5, ATS5_NODES
from tests.recorded_run import Recorded, data, rates, record

RUNS = Path(__file__).resolve().parents[2] / "runs"
SHAPE = (1.0, 1.01, 0.99, 1.005)
APEX = """\
title: APEX
metric: ssi
reference: {nodes: 5586}
benchmarks:
  gtc: {weight: 1, reference: {value: 699.78 s, nodes: 1376}}
  milc: {weight: 2, capability: 4, reference: {value: 2411.04 s, nodes: 2048}}
  meraculous: {weight: 1, reference: {value: 42.74 s, nodes: 400}}
limits: {ssi: 3}
"""
OFFER = """\
vendor: A
nodes: 1024
benchmarks:
  gtc: {value: 350 s, nodes: 200, tier: ported}
  milc: {value: 1500 s, nodes: 512}
  meraculous: {value: 40 s, nodes: 50}
"""
Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    monkeypatch.chdir(tmp_path)

    def run(command: Any, *argv: str | Path) -> Result:
        return CliRunner().invoke(command, list(map(str, argv)), standalone_mode=False, catch_exceptions=False)

    return run


def write(name: str, content: str | dict[str, Any]) -> str:
    Path(name).write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
    return name


def scores(invoke: Invoke, asked: str | dict[str, Any], *offers: str | dict[str, Any], **options: str) -> Any:
    """What `compare --json` says of offers by a tender."""
    names = [write(f"offer{number}.yaml", offer) for number, offer in enumerate(offers)]
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    answer = json.loads(
        invoke(compare.command, *names, "--tender", write("procurement.yaml", asked), *words, "--json").stdout
    )
    assert answer["schema"] == 1
    return answer["tender"]["systems"]


def declared(vendor: str, nodes: int, **benchmarks: Any) -> dict[str, Any]:
    return {"vendor": vendor, "nodes": nodes, "benchmarks": benchmarks}


# Known answers, from the files on


def test_k_ssi_1_from_the_files(invoke: Invoke) -> None:
    """K-SSI-1, computed; nersc.gov, APEX benchmarks, SSI page."""
    (system,) = scores(invoke, APEX, OFFER)
    rows = system["benchmarks"]
    assert [row["utilization"] for row in rows] == pytest.approx(
        [1.2612101682778374, 0.7332617257429288, 1.4665234514858576], rel=1e-12
    )
    assert [row["speedup"]["value"] for row in rows] == pytest.approx([1.9993714285714286, 1.60736, 1.0685], rel=1e-12)
    assert system["score"]["value"] == pytest.approx(3.0612740016171007, rel=1e-12)
    assert (system["admissible"], system["meets"]) == (None, "INCONCLUSIVE")  # declared: nothing measured it
    (unweighted,) = scores(invoke, APEX.replace("weight: 2, ", ""), OFFER)
    assert unweighted["score"]["value"] == pytest.approx(2.6508931085607634, rel=1e-12)


def test_k_ssi_2_a_breach_is_shown_and_never_clipped(invoke: Invoke) -> None:
    """K-SSI-2: the rule S >= 1 of nersc.gov, APEX benchmarks, SSI page."""
    (system,) = scores(invoke, APEX, OFFER.replace("40 s", "45 s"))
    assert system["benchmarks"][2]["speedup"]["value"] == pytest.approx(42.74 / 45, rel=1e-12)
    assert system["breaches"] == ["meraculous: speed-up S = 0.9498, the tender requires S >= 1"]
    assert not system["admissible"]
    assert system["score"]["value"] == pytest.approx(3.0612740016171007 * (40 / 45) ** 0.25, rel=1e-12)
    shown = invoke(compare.command, "offer0.yaml", "--tender", "procurement.yaml")
    assert shown.return_value == 1
    assert "not admissible" in shown.stdout
    assert "meraculous: speed-up S = 0.9498, the tender requires S >= 1" in shown.stdout


def test_k_ssni_1_from_the_files(invoke: Invoke) -> None:
    """K-SSNI-1, reproduced; github lanl/benchmarks, SSNI-baseline.xlsx."""
    asked = {
        "metric": "ssni",
        "reference": {"nodes": ATS5_NODES},
        "benchmarks": {
            name: {"weight": weight, "reference": {"value": f"{value!r} fom"}} for name, (weight, value) in ATS5.items()
        },
    }
    offer = declared("A", 18000, **{name: {"value": f"{4.092 * value!r} fom"} for name, (_, value) in ATS5.items()})
    assert scores(invoke, asked, offer)[0]["score"]["value"] == pytest.approx(11.996091205211728, rel=1e-12)


HOPPER = {"minife": (1065, 92.4), "minighost": (3350, 96.0), "amg": (1365, 151), "umt": (18409, 1263)}


@pytest.mark.parametrize(
    ("mean", "expected"),
    [("geometric", 47.295668294514826), ("arithmetic", 54.579736864704316), ("harmonic", 42.31748101147995)],
)
def test_k_ssp_2_from_the_files(invoke: Invoke, mean: str, expected: float) -> None:
    """K-SSP-2, computed, of the Hopper rows of nersc.gov, SSP."""
    asked = {
        "metric": "ssp",
        "mean": mean,
        "benchmarks": {name: {"work": f"{work} TFLOP"} for name, (work, _) in HOPPER.items()},
    }
    offer = declared("A", 6384, **{name: {"value": f"{time} s", "nodes": 2048} for name, (_, time) in HOPPER.items()})
    score = scores(invoke, asked, offer)[0]["score"]
    assert score == {
        "value": pytest.approx(expected, rel=1e-12),
        "units": "TFLOP/s",
        "ci95": pytest.approx([expected] * 2),
    }


def test_k_ssp_3_phases_of_a_delivery_add_up(invoke: Invoke) -> None:
    """K-SSP-3, computed: 100 TF for half a year, 250 for 2.5 years, 300 for 2 years."""
    asked = {"metric": "ssp", "benchmarks": {"a": {"work": "1 TFLOP"}}}
    phases = [{"nodes": 100, "months": 6}, {"nodes": 250, "months": 30}, {"nodes": 300, "months": 24}]
    offer = {**declared("A", 300, a={"value": "1 s", "nodes": 1}), "phases": phases, "price": {"node": "200 k EUR"}}
    (system,) = scores(invoke, asked, offer)
    potency, value = system["potency"], system["potency_value"]
    assert (1e6 * value["value"], value["units"]) == (pytest.approx(21.25, rel=1e-12), "TFLOP/s years/EUR")
    assert (potency["value"], potency["units"]) == (pytest.approx(1275, rel=1e-12), "TFLOP/s years")


def test_a_phase_of_fewer_nodes_than_a_benchmark_needs_is_refused(invoke: Invoke) -> None:
    asked = {"metric": "ssp", "benchmarks": {"a": {"work": "1 TFLOP"}}}
    phases = [{"nodes": 100, "months": 6}, {"nodes": 300, "months": 54}]
    offer = {**declared("A", 300, a={"value": "1 s", "nodes": 200}), "phases": phases}
    with pytest.raises(ConfigError, match="200, more than the 100 of the machine"):
        scores(invoke, asked, offer)


def test_k_euro_3_from_the_files(invoke: Invoke) -> None:
    """K-EURO-3, computed; github PDC-support/arrhenius-benchmarks, README."""
    asked = {"metric": "throughput", "benchmarks": {"a": {"weight": 1}, "b": {"weight": 2}}}
    offer = declared("A", 100, a={"value": "600 s", "nodes": 4}, b={"value": "300 s", "nodes": 2})
    found = scores(invoke, asked, offer)[0]
    assert found["score"]["value"] == pytest.approx(100.0, rel=1e-12)
    # The weights count jobs: shown is what the formula takes, never a share of them.
    assert [(row["weight"], row["share"]) for row in found["benchmarks"]] == [(1, None), (2, None)]
    table = invoke(compare.command, "offer0.yaml", "--tender", "procurement.yaml", "--full").stdout.split(
        "benchmarks\n"
    )[1]
    column = [cell.strip() for cell in table.splitlines()[0].split("|")].index("w")
    assert [line.split("|")[column].strip() for line in table.splitlines()[2:4]] == ["1", "2"]
    explained = invoke(tender.command, "explain", "procurement.yaml", "--of", "offer0.yaml", "--json").stdout
    numbers = json.loads(explained)["numbers"]
    weights = [(entry["value"], entry["formula"]) for entry in numbers if entry["key"].endswith(".w")]
    assert weights == [(1, "weight"), (2, "weight")]


# Limits


@pytest.mark.parametrize(
    ("limits", "price", "verdicts", "admissible"),
    [
        ("{budget: 12 M EUR, power: 6 MW}", "10 k EUR", ["PASS", "PASS"], True),
        ("{budget: 10 M EUR}", "10 k EUR", ["FAIL"], False),
        ("{power: 5 MW}", "10 k EUR", ["FAIL"], False),
        ("{budget: 10 M EUR}", "10 k EUR +- 10 %", ["INCONCLUSIVE"], None),
        ("{budget: 10 M EUR}", None, ["INCONCLUSIVE"], None),
    ],
)
def test_an_offer_above_a_limit_is_not_admissible(
    invoke: Invoke, limits: str, price: str | None, verdicts: list[str], admissible: bool | None
) -> None:
    asked = APEX.replace("{ssi: 3}", limits)
    offer = f"{OFFER}price: {{node: {price}}}\n" if price else OFFER
    (system,) = scores(invoke, asked, f"{offer}power: {{node: 5 kW +- 2 %}}\n")
    assert ([limit["verdict"] for limit in system["limits"]], system["admissible"]) == (verdicts, admissible)
    shown = invoke(compare.command, "offer0.yaml", "--tender", "procurement.yaml", "--full")
    assert shown.return_value == (1 if admissible is False else 0)
    headline = {True: "", False: "not admissible", None: "not shown to be admissible"}[admissible]
    assert headline in shown.stdout and all(verdict in shown.stdout for verdict in verdicts)
    if verdicts == ["FAIL"]:
        assert ("budget: 10,240,000 EUR" if price and "budget" in limits else "power: 5,120 kW") in shown.stdout


# Runs


def made(base: Path, name: str, level: float, *benches: str, **more: Any) -> str:
    steps = [
        Recorded(bench=bench, repeat=at, events=rates(*[level * each] * 5))
        for bench in benches
        for at, each in enumerate(SHAPE)
    ]
    return str(record(base, *steps, name=name, **more).path)


def test_the_index_of_runs_is_that_of_the_comparison_of_the_two(invoke: Invoke) -> None:
    pair = [str(RUNS / "system_a"), str(RUNS / "system_b")]
    index = json.loads(invoke(compare.command, *pair, "--json").stdout)["comparison"]["indices"][0]
    weights = {"flops": 0.5, "digits": 1.0, "sft": 2.0, "ppo": 1.0}
    asked = {
        "metric": "index",
        "reference": {"run": pair[0]},
        "benchmarks": {name: {"weight": weight} for name, weight in weights.items()},
    }
    answer = invoke(compare.command, pair[1], "--tender", write("procurement.yaml", asked), "--json")
    score = json.loads(answer.stdout)["tender"]["systems"][0]["score"]
    assert score["value"] == pytest.approx(index["value"], rel=1e-12)
    assert score["ci95"] == pytest.approx(index["ci95"], rel=1e-9)


def test_what_sessions_have_in_common_is_in_a_score_as_in_the_index(tmp_path: Path, invoke: Invoke) -> None:
    """Both benchmarks are as much faster in a session: their errors are one."""
    reference = made(tmp_path, "ref", 100.0, "digits", "flops")
    sessions = ",".join(made(tmp_path, f"a{level}", level, "digits", "flops") for level in (190.0, 200.0, 211.0))
    index = json.loads(invoke(compare.command, reference, sessions, "--json").stdout)["comparison"]["indices"][0]
    asked = {"metric": "index", "reference": {"run": reference}, "benchmarks": {"digits": None, "flops": None}}
    answer = invoke(compare.command, sessions, "--tender", write("procurement.yaml", asked), "--json")
    score = json.loads(answer.stdout)["tender"]["systems"][0]["score"]
    assert score["value"] == pytest.approx(index["value"])
    assert score["ci95"] == pytest.approx(index["ci95"])


def test_two_systems_have_a_verdict_on_their_scores(tmp_path: Path, invoke: Invoke) -> None:
    runs = [made(tmp_path, name, level, "digits") for name, level in (("ref", 100.0), ("a", 200.0), ("b", 150.0))]
    asked = write(
        "procurement.yaml", {"metric": "ssi", "reference": {"run": runs[0], "nodes": 1}, "benchmarks": {"digits": None}}
    )
    answer = invoke(compare.command, *runs[1:], "--tender", asked, "--json")
    first, other = json.loads(answer.stdout)["tender"]["systems"]
    assert first["score"]["value"] == pytest.approx(2.0)
    assert (first["verdict"], other["verdict"], answer.return_value) == (None, "SLOWER", 1)
    # The reference is in both scores, and cancels: the ratio is as sure as that of the two runs alone.
    alone = json.loads(invoke(compare.command, *runs[1:], "--json").stdout)["comparison"]["benchmarks"][0]["contrasts"][
        0
    ]
    assert other["ratio"]["ci95"] == pytest.approx(alone["ci95"], rel=1e-9)


@pytest.mark.parametrize(
    ("least", "meets", "admissible", "code"),
    [(2.4, "PASS", True, 0), (2.5, "INCONCLUSIVE", None, 0), (2.6, "FAIL", False, 1)],
)
def test_an_offer_below_the_least_score_is_not_admissible(
    tmp_path: Path, invoke: Invoke, least: float, meets: str, admissible: bool | None, code: int
) -> None:
    runs = [made(tmp_path, name, level, "digits") for name, level in (("ref", 100.0), ("new", 250.0))]
    benchmarks = {"digits": {"reference": {"nodes": 1}}}
    asked = {"metric": "ssi", "reference": {"run": runs[0], "nodes": 8}, "benchmarks": benchmarks}
    (system,) = scores(invoke, {**asked, "limits": {"ssi": least}}, declared("A", 8, digits={"run": runs[1]}))
    assert (system["meets"], system["admissible"]) == (meets, admissible)
    assert system["breaches"] == (["ssi: 2.5, the minimum is 2.6"] if meets == "FAIL" else [])
    assert invoke(compare.command, "offer0.yaml", "--tender", "procurement.yaml").return_value == code


@pytest.mark.parametrize(("level", "launches", "admissible"), [(100.1, 4, True), (99.9, 4, False), (250.0, 1, None)])
def test_an_s_whose_interval_holds_the_rule_says_so(
    tmp_path: Path, invoke: Invoke, level: float, launches: int, admissible: bool | None
) -> None:
    ref = made(tmp_path, "ref", 100.0, "digits")
    steps = [Recorded(bench="digits", repeat=at, events=rates(*[level * SHAPE[at]] * 5)) for at in range(launches)]
    run = str(record(tmp_path, *steps, name="new").path)
    asked = {"metric": "ssi", "reference": {"run": ref, "nodes": 1}, "benchmarks": {"digits": None}}
    answer = invoke(compare.command, run, "--tender", write("procurement.yaml", asked), "--json")
    (system,) = json.loads(answer.stdout)["tender"]["systems"]
    (row,) = system["benchmarks"]
    assert (system["admissible"], bool(row["breach"])) == (admissible, admissible is False)
    interval = row["speedup"]["ci95"]
    assert row["doubt"] == "inconclusive: " + (f"[{interval[0]:.4g}, {interval[1]:.4g}]" if interval else "no interval")
    assert "inconclusive: " in invoke(compare.command, run, "--tender", "procurement.yaml").stdout


def test_declared_figures_win_nothing(tmp_path: Path, invoke: Invoke) -> None:
    run = made(tmp_path, "ref", 100.0, "a")
    asked = {
        "metric": "ssi",
        "reference": {"run": run, "nodes": 1},
        "benchmarks": {"a": {"figure_of_merit": "rate"}},
        "limits": {"ssi": 2},
    }
    units = json.loads(invoke(compare.command, run, "--tender", write("p.yaml", asked), "--json").stdout)
    units = units["tender"]["systems"][0]["benchmarks"][0]["figure"]["units"]
    offer = declared("D", 1, a={"value": f"9000 {units}", "nodes": 1})
    measured, system = scores(invoke, asked, declared("A", 1, a={"run": made(tmp_path, "a", 300.0, "a")}), offer)
    assert (measured["meets"], measured["doubts"]) == ("PASS", [])
    assert (system["meets"], system["verdict"]) == ("INCONCLUSIVE", "INCONCLUSIVE")
    shown = invoke(compare.command, "offer1.yaml", "--tender", "procurement.yaml").stdout
    assert "with declared figures that no run measured" in " ".join(
        shown.split("no verdict rests on these values")[0].split()
    )


@pytest.mark.parametrize("quick", ["ref", "a", "b"])
def test_a_quick_profile_decides_nothing_on_whichever_side_it_is(tmp_path: Path, invoke: Invoke, quick: str) -> None:
    levels = {"ref": 100.0, "a": 300.0, "b": 150.0}
    runs = [
        made(tmp_path, name, level, "digits", manifest={"profile": "quick" if name == quick else "default"})
        for name, level in levels.items()
    ]
    asked = {"metric": "index", "reference": {"run": runs[0]}, "benchmarks": {"digits": None}, "limits": {"index": 2}}
    answer = invoke(compare.command, *runs[1:], "--tender", write("procurement.yaml", asked), "--json")
    told = json.loads(answer.stdout)["tender"]
    first, other = told["systems"]
    assert (first["meets"] == "PASS", other["meets"] == "FAIL") == (quick == "b", quick == "a")
    assert (other["verdict"], answer.return_value) == ("INCONCLUSIVE", int(quick == "a"))
    who = "reference" if quick == "ref" else quick
    assert f"{who}: measured with the quick profile: every number is an indication only" in told["warnings"]
    assert any(line.startswith("a, b, reference: one session each") for line in told["warnings"])


def test_the_reference_itself_breaks_no_rule(tmp_path: Path, invoke: Invoke) -> None:
    run = str(RUNS / "system_a")
    benchmarks = dict.fromkeys(("flops", "digits", "sft", "ppo"))
    asked = write(
        "procurement.yaml", {"metric": "ssi", "reference": {"run": run, "nodes": 1}, "benchmarks": benchmarks}
    )
    answer = invoke(compare.command, run, "--tender", asked, "--json")
    (system,) = json.loads(answer.stdout)["tender"]["systems"]
    assert (system["admissible"], system["score"]["value"]) == (True, pytest.approx(1.0))


def test_a_figure_of_merit_of_metrics_and_arguments(tmp_path: Path, invoke: Invoke) -> None:
    more: dict[str, Any] = {"manifest": {"suite": {"digits": {"argv": {"--sequence-length": 128}}}}}
    runs = [made(tmp_path, name, level, "digits", **more) for name, level in (("ref", 100.0), ("new", 250.0))]
    bench = {"figure_of_merit": "1e6 / (rate * sequence_length)", "units": "s", "reference": {"nodes": 1}}
    asked = {"metric": "ssi", "reference": {"run": runs[0], "nodes": 4}, "benchmarks": {"digits": bench}}
    answer = invoke(compare.command, runs[1], "--tender", write("procurement.yaml", asked), "--json")
    (row,) = json.loads(answer.stdout)["tender"]["systems"][0]["benchmarks"]
    mean = (1.0 * 1.01 * 0.99 * 1.005) ** 0.25
    assert row["figure"]["value"] == pytest.approx(1e6 / (250 * mean * 128))
    assert (row["figure"]["units"], row["figure"]["direction"]) == ("s", "lower")
    assert row["speedup"]["value"] == pytest.approx(2.5)
    # U = (n_ref / n) (N / N_ref)
    assert row["utilization"] == pytest.approx((1 / 1) * (1 / 4))


def instances_on(base: Path, name: str, nodes: int) -> str:
    """A run of two instances on each node, each of which reaches 50 years a day, whatever the nodes."""
    own = data(metric="years_per_day", value=50.0, units="years/day", direction="higher")
    steps = [
        Recorded(
            bench="weather",
            tag=f"D{device}",
            node=node,
            devices=(device,),
            repeat=at,
            events=(*rates(*[each] * 5), own),
        )
        for at, each in enumerate(SHAPE)
        for node in ([f"n{number}" for number in range(nodes)] if nodes > 1 else ["local"])
        for device in (0, 1)
    ]
    return str(record(base, *steps, name=name).path)


@pytest.mark.parametrize(
    "formula", ["rate", "1e6 / rate", "instance_rate * instances", "years_per_day * instances", "20 / instances"]
)
def test_whoever_measures_on_fewer_nodes_has_no_higher_score_for_it(
    tmp_path: Path, invoke: Invoke, formula: str
) -> None:
    runs = {nodes: instances_on(tmp_path, f"n{nodes}", nodes) for nodes in (1, 2, 4)}
    bench = {"figure_of_merit": formula, **({"units": "s"} if "/" in formula else {})}
    asked = {"metric": "ssi", "reference": {"run": runs[2], "nodes": 8}, "benchmarks": {"weather": bench}}
    offers = [declared(f"{nodes}", 16, weather={"run": run}) for nodes, run in runs.items()]
    assert [offer["score"]["value"] for offer in scores(invoke, asked, *offers)] == [pytest.approx(2.0)] * 3


@pytest.mark.parametrize("formula", ["years_per_day", "instance_rate", "1 / instance_rate"])
def test_a_figure_of_one_instance_of_other_counts_is_not_shared_out_over_nodes(
    tmp_path: Path, invoke: Invoke, formula: str
) -> None:
    runs = {nodes: instances_on(tmp_path, f"n{nodes}", nodes) for nodes in (1, 2)}
    bench = {"figure_of_merit": formula, **({"units": "s"} if "/" in formula else {})}
    asked: dict[str, Any] = {
        "metric": "ssi",
        "reference": {"run": runs[2], "nodes": 8},
        "benchmarks": {"weather": bench},
    }
    offers = [declared(f"{nodes}", 16, weather={"run": run}) for nodes, run in runs.items()]
    fewer, same = scores(invoke, asked, *offers)
    assert same["score"]["value"] == pytest.approx(2.0)
    whole = {"years_per_day": "years_per_day * instances", "instance_rate": "instance_rate * instances"}
    assert (fewer["score"], fewer["why_not"]) == (
        None,
        "weather is the figure of a single instance of 2, of 4 on the reference, which ssi cannot divide by nodes. The figure of"
        f" all instances is '{whole.get(formula, '(1 / instance_rate) / instances')}'",
    )
    checked = invoke(tender.command, "check", "procurement.yaml", "offer0.yaml", "offer1.yaml").stderr
    assert checked == f"the tender and 2 offers are valid\nno score: 1: {fewer['why_not']}\n"
    # The index compares one instance with one.
    first, second = scores(invoke, asked, *offers, metric="index")
    assert first["score"]["value"] == pytest.approx(second["score"]["value"])


@pytest.mark.parametrize("published", [True, False])
def test_ssni_compares_runs_on_as_many_nodes(tmp_path: Path, invoke: Invoke, published: bool) -> None:
    runs = {nodes: instances_on(tmp_path, f"n{nodes}", nodes) for nodes in (1, 2)}
    bench = {"reference": {"value": "150 images/s"}} if published else None
    reference = {"nodes": 8} if published else {"nodes": 8, "run": instances_on(tmp_path, "ref", 1)}
    asked = {"metric": "ssni", "reference": reference, "benchmarks": {"weather": bench}}
    offers = [declared(f"{nodes}", 16, weather={"run": run}) for nodes, run in runs.items()]
    single, double = scores(invoke, asked, *offers)
    # Two instances, each the geometric mean of SHAPE; S = 1 beside itself.
    mean = (1.0 * 1.01 * 0.99 * 1.005) ** 0.25
    assert single["score"]["value"] == pytest.approx(2 * (2 * mean / 150 if published else 1.0))
    assert (double["score"], double["why_not"]) == (
        None,
        "weather was run on 2 nodes, the reference on 1: ssni needs the same number",
    )


def test_a_ratio_to_the_reference_is_of_as_many_nodes(tmp_path: Path, invoke: Invoke) -> None:
    runs = {nodes: instances_on(tmp_path, f"n{nodes}", nodes) for nodes in (1, 2)}
    asked = {"metric": "index", "reference": {"run": runs[1]}, "benchmarks": {"weather": {"figure_of_merit": "rate"}}}
    offers = [declared(f"{nodes}", 16, weather={"run": run}) for nodes, run in runs.items()]
    single, double = scores(invoke, asked, *offers)
    assert single["score"]["value"] == pytest.approx(1.0)
    assert (double["score"], double["why_not"]) == (
        None,
        "weather was run on 2 nodes, the reference on 1: index needs the same number",
    )


def test_a_figure_without_units_is_better_as_its_metric_is(tmp_path: Path, invoke: Invoke) -> None:
    runs = [made(tmp_path, name, level, "digits") for name, level in (("ref", 100.0), ("new", 250.0))]
    asked = {
        "metric": "index",
        "reference": {"run": runs[0]},
        "benchmarks": {"digits": {"figure_of_merit": "3 / rate"}},
    }
    answer = invoke(compare.command, runs[1], "--tender", write("procurement.yaml", asked), "--json")
    assert json.loads(answer.stdout)["tender"]["systems"][0]["score"]["value"] == pytest.approx(2.5)


def test_below_three_launches_the_score_has_no_interval_and_decides_nothing(tmp_path: Path, invoke: Invoke) -> None:
    runs = [
        str(record(tmp_path, Recorded(events=rates(level)), name=name).path)
        for name, level in (("ref", 100.0), ("new", 250.0))
    ]
    asked = {"metric": "index", "reference": {"run": runs[0]}, "benchmarks": {"digits": None}, "limits": {"index": 2}}
    answer = invoke(compare.command, runs[1], "--tender", write("procurement.yaml", asked), "--json")
    (system,) = json.loads(answer.stdout)["tender"]["systems"]
    assert (system["score"]["ci95"], system["meets"]) == (None, "INCONCLUSIVE")


def test_an_offer_is_not_compared_with_the_nodes_that_a_run_happened_to_use(tmp_path: Path, invoke: Invoke) -> None:
    runs = [made(tmp_path, name, level, "digits") for name, level in (("ref", 100.0), ("new", 250.0))]
    asked: dict[str, Any] = {"metric": "ssi", "reference": {"run": runs[0]}, "benchmarks": {"digits": None}}
    offer = write("offer.yaml", declared("A", 96, digits={"run": runs[1]}))
    with pytest.raises(ConfigError) as error:
        invoke(compare.command, offer, "--tender", write("procurement.yaml", asked))
    (problem,) = error.value.problems
    assert str(problem) == (
        "procurement.yaml:3:3: reference: the nodes of the reference system are missing, ssi needs them together with all nodes"
        " of an offer. Its run had 1 node. Write 'nodes: 1024'"
    )
    # A run is a whole machine beside the reference's run, and the index counts no nodes.
    assert invoke(compare.command, runs[1], "--tender", "procurement.yaml").return_value == 0
    assert invoke(compare.command, offer, "--tender", "procurement.yaml", "--metric", "index").return_value == 0
    asked["reference"]["nodes"] = 8
    (system,) = scores(invoke, asked, declared("A", 96, digits={"run": runs[1]}))
    assert system["score"]["value"] == pytest.approx(2.5 * 96 / 8)


def test_a_projected_benchmark_is_in_no_score(tmp_path: Path, invoke: Invoke) -> None:
    runs = [made(tmp_path, name, 200.0, "a", "b") for name in ("ref", "n1", "n2")]
    asked = {
        "metric": "ssi",
        "reference": {"run": runs[0], "nodes": 8},
        "benchmarks": {"a": None, "b": {"required": False}},
    }
    offer = declared("A", 8, a={"run": runs[1]}, b={"run": runs[1:], "nodes": 8, "measured": False})
    (system,) = scores(invoke, asked, offer)
    a, b = system["benchmarks"]
    assert (a["share"], b["share"], b["figure"]) == (1.0, None, None)
    assert b["why_not"] == "is projected: no measured figure at this count of nodes"
    (system,) = scores(invoke, {**asked, "benchmarks": {"a": None, "b": None}}, offer)
    assert (system["score"], system["admissible"]) == (None, False)


def test_an_optional_benchmark_counts_only_where_every_offer_has_it(invoke: Invoke) -> None:
    asked = APEX.replace("meraculous: {", "meraculous: {required: false, ")
    without = OFFER[: OFFER.index("  meraculous")].replace("vendor: A", "vendor: B")
    both = scores(invoke, asked, OFFER, without)
    assert both[0]["score"] == both[1]["score"]
    assert both[0]["benchmarks"][2]["share"] is None
    assert [each["benchmarks"][2]["standing"] for each in both] == ["declared", None]
    (alone,) = scores(invoke, asked, OFFER)
    assert alone["benchmarks"][2]["share"] == 0.25


def test_other_work_than_the_reference_is_no_score_unless_across(tmp_path: Path, invoke: Invoke) -> None:
    runs = [
        made(tmp_path, name, 100.0, "digits", manifest={"suite": {"digits": {"argv": {"--batch-size": size}}}})
        for name, size in (("ref", 8), ("new", 16))
    ]
    asked = write(
        "procurement.yaml", {"metric": "index", "reference": {"run": runs[0]}, "benchmarks": {"digits": None}}
    )
    (system,) = json.loads(invoke(compare.command, runs[1], "--tender", asked, "--json").stdout)["tender"]["systems"]
    assert system["why_not"].startswith("digits does other work than ref")
    answer = invoke(compare.command, runs[1], "--tender", asked, "--across", "--json")
    assert json.loads(answer.stdout)["tender"]["systems"][0]["score"]["value"] == pytest.approx(1.0)


# Formats


class Cells(HTMLParser):
    """The text of every cell of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self._is_in = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._is_in = tag in ("td", "th")
        if self._is_in:
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self._is_in:
            self.cells[-1] += data


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_people_read_every_term_of_a_score(invoke: Invoke, form: str) -> None:
    write("procurement.yaml", APEX), write("offer.yaml", OFFER)
    text = invoke(compare.command, "offer.yaml", "--tender", "procurement.yaml", "--format", form).stdout
    cells = Cells(text).cells if form == "html" else text.replace("|", " ").split()
    for number in ("3.06127", "699.78", "1.2612", "1.9994", "0.25", "ported", "declared"):
        assert number in cells, number


def test_the_first_line_names_the_best_offer_and_the_next_command_shows_all(invoke: Invoke) -> None:
    write("procurement.yaml", APEX), write("a.yaml", OFFER), write("b.yaml", OFFER.replace("vendor: A", "vendor: B"))
    shown = invoke(compare.command, "a.yaml", "b.yaml", "--tender", "procurement.yaml", "--format", "brief").stdout
    first, *_, last = shown.splitlines()
    assert first.startswith("No offer is shown to be admissible. Of the others, A has the highest score")
    assert last.startswith("next: `milabench compare ") and "--full`" in last
    alone = invoke(compare.command, "a.yaml", "--tender", "procurement.yaml").stdout
    text = "ssi 3.061, not shown to be admissible, with declared figures that no run measured, minimum 3: inconclusive."
    assert alone.splitlines()[0] == f"A: {text}"


def test_a_format_that_a_score_does_not_have_is_refused(invoke: Invoke) -> None:
    write("procurement.yaml", APEX), write("offer.yaml", OFFER)
    with pytest.raises(UsageError, match="--format csv: choose one of text, markdown, html, json"):
        invoke(compare.command, "offer.yaml", "--tender", "procurement.yaml", "--format", "csv")


# Where numbers come from


def test_every_number_of_a_score_says_where_it_comes_from(invoke: Invoke) -> None:
    write("procurement.yaml", APEX), write("offer.yaml", OFFER)
    answer = invoke(tender.command, "explain", "procurement.yaml", "--of", "offer.yaml", "--json")
    numbers = {number["key"]: number for number in json.loads(answer.stdout)["numbers"]}
    assert numbers["benchmarks.milc.weight"]["from"] == ["procurement.yaml:6:18"]
    assert numbers["benchmarks.gtc.capability"]["from"] == ["built-in default"]
    assert numbers["A.milc.figure"]["from"] == ["offer.yaml:5:17"]
    assert numbers["A.milc.reference"]["from"] == ["procurement.yaml:6:55"]
    assert numbers["A.N"]["from"] == ["offer.yaml:2:8"]
    assert numbers["A.gtc.U"]["formula"] == "(n_ref / n) (N / N_ref)"
    assert numbers["A.ssi"]["value"] == pytest.approx(3.0612740016171007)
    assert "nersc.gov, APEX" in numbers["A.ssi"]["formula"]


def test_a_measured_number_names_its_run_and_records(tmp_path: Path, invoke: Invoke) -> None:
    runs = [made(tmp_path, name, 100.0, "digits") for name in ("ref", "new")]
    asked = write(
        "procurement.yaml", {"metric": "index", "reference": {"run": runs[0]}, "benchmarks": {"digits": None}}
    )
    answer = invoke(tender.command, "explain", asked, "new.digits", "--of", runs[1], "--json")
    numbers = {number["key"]: number for number in json.loads(answer.stdout)["numbers"]}
    assert numbers["new.digits.figure"]["formula"] == "rate, 4 launches"
    assert numbers["new.digits.figure"]["from"] == [
        "new.2026-03-14_12-00-00: digits.D0.data, digits.D0.R1.data, digits.D0.R2.data, digits.D0.R3.data"
    ]
    assert numbers["new.digits.figure"]["ci95"] is not None
    assert numbers["new.digits.reference"]["from"][0].startswith("ref.2026-03-14_12-00-00: digits.D0.data")
    assert all(key.startswith("new.digits") for key in numbers)


def test_explain_has_what_the_work_takes_and_how(tmp_path: Path, invoke: Invoke) -> None:
    run = made(tmp_path, "new", 100.0, "digits")
    terms = {"currency": "EUR", "years": 5, "electricity": "0.12 EUR/kWh", "pue": "1.3", "grid_carbon": "350 g/kWh"}
    asked = {"metric": "index", "benchmarks": {"digits": {"reference": {"value": "50 images/s"}}}, "terms": terms}
    bid = declared("A", 40, digits={"run": run})
    write("o.yaml", {**bid, "price": {"node": "100 k EUR", "fixed": "1 M EUR"}, "power": {"node": "5 kW +- 2 %"}})
    answer = invoke(tender.command, "explain", write("procurement.yaml", asked), "A", "--of", "o.yaml", "--json")
    numbers = {number["key"]: number for number in json.loads(answer.stdout)["numbers"]}
    energy, cost = numbers["A.digits.energy.year"], numbers["A.digits.cost.year"]
    assert (energy["value"], energy["units"]) == (pytest.approx(40 * 5 * 1.3 * 8760), "kWh")
    assert energy["ci95"][1] / energy["value"] == pytest.approx(1.02)
    assert energy["formula"] == "(power of the nodes * utilization * 8760 h * PUE) for all 40 nodes"
    assert cost["value"] == pytest.approx((40 * 100e3 + 1e6) / 5 + 0.12 * energy["value"])
    assert cost["formula"] == "(price * CRF(interest, years) + energy * electricity) for all 40 nodes"
    assert numbers["A.digits.carbon.node year"]["value"] == pytest.approx(energy["value"] * 0.35 / 40)
    assert numbers["A.price.fixed"]["from"][0].startswith("o.yaml:")


def test_explain_shows_what_is_below_a_key(invoke: Invoke) -> None:
    asked = write("procurement.yaml", APEX + "terms: {pue: 1.3 +- 0.05, interest: 0 %}\n")
    text = invoke(tender.command, "explain", asked, "terms").stdout
    assert "terms.pue" in text and "[1.2519, 1.3500]" in text and "procurement.yaml:9:14" in text
    assert "benchmarks" not in text
    with pytest.raises(UsageError, match=r"no number 'terms.peu' here. Did you mean 'terms.pue'\?"):
        invoke(tender.command, "explain", asked, "terms.peu")


def test_check_reports_all_mistakes_of_a_tender_and_its_offers(invoke: Invoke) -> None:
    write("procurement.yaml", APEX)
    write("a.yaml", OFFER), write("b.yaml", OFFER.replace("gtc", "gct")), write("c.yaml", OFFER + "price: {node: 3}\n")
    assert invoke(tender.command, "check", "procurement.yaml", "a.yaml").stderr == "the tender and 1 offer are valid\n"
    with pytest.raises(ConfigError) as error:
        invoke(tender.command, "check", "procurement.yaml", "b.yaml", "c.yaml")
    assert [problem.where.split(":")[0] for problem in error.value.problems] == ["b.yaml", "b.yaml", "c.yaml"]


def test_check_warns_of_a_reference_whose_numbers_are_suspect(tmp_path: Path, invoke: Invoke) -> None:
    steps = [
        Recorded(bench="a", repeat=repeat, events=rates(*[100.0] * 3, units="items/s"), reasons=("throttled",))
        for repeat in range(3)
    ]
    run = str(record(tmp_path, *steps, name="doubtful").path)
    write("procurement.yaml", {"reference": {"run": run, "nodes": 8}, "benchmarks": {"a": None}})
    told = invoke(tender.command, "check", "procurement.yaml").stderr
    assert "warning: reference" in told and "a is suspect (throttled)" in told


def test_check_looks_into_what_the_files_name(tmp_path: Path, invoke: Invoke) -> None:
    run = made(tmp_path, "one", 100.0, "a", "b")
    asked = {
        "suite": "gone.yaml",
        "reference": {"run": run, "nodes": 8},
        "benchmarks": {
            "a": {"figure_of_merit": "rate / 0"},
            "b": None,
            "c": {"required": False, "figure_of_merit": "x"},
        },
    }
    write("procurement.yaml", asked)
    write("a.yaml", declared("A", 8, a={"run": "gone.zip"}, b={"run": "nowhere.zip"}))
    write("b.yaml", declared("B", 8, a={"run": run}, b={"run": run, "nodes": 4}))
    with pytest.raises(ConfigError) as error:
        invoke(tender.command, "check", "procurement.yaml", "a.yaml", "b.yaml")
    said = [f"{problem.where.split(':')[0]} {problem.path}: {problem.what}" for problem in error.value.problems]
    for expected in (
        f"procurement.yaml suite: {tmp_path / 'gone.yaml'} is not there",
        f"a.yaml benchmarks.a.run: {tmp_path / 'gone.zip'} is not there",
        f"a.yaml benchmarks.b.run: {tmp_path / 'nowhere.zip'} is not there",
        "b.yaml benchmarks.b.nodes: 4, and its run measured 1",
    ):
        assert expected in said
    assert any(line.startswith("procurement.yaml benchmarks.a.figure_of_merit: in the expression") for line in said)
    assert any("'c' is not in this run" in line for line in said)
    write("procurement.yaml", {**asked, "suite": "procurement.yaml", "reference": {"run": "none.zip"}})
    with pytest.raises(ConfigError, match=r"reference\.run: .*none\.zip is not there"):
        invoke(tender.command, "check", "procurement.yaml")


@pytest.mark.parametrize(
    ("reference", "used", "expected"),
    [
        ({"nodes": 1}, 2, "benchmarks.a.reference.nodes: 2, more than the 1 of the reference system"),
        (
            {"nodes": 8},
            2,
            "benchmarks.a.reference.nodes: 2, and the reference's run measured 1. Give the nodes of the run",
        ),
        ({"nodes": 0.5}, None, "reference.nodes: 0.5, and its run had 1"),
    ],
)
@pytest.mark.parametrize("metric", ["ssi", "index"])
def test_nodes_of_the_reference_are_those_that_it_had(
    tmp_path: Path, invoke: Invoke, reference: dict[str, Any], used: int | None, expected: str, metric: str
) -> None:
    run = made(tmp_path, "ref", 100.0, "a")
    bench = None if used is None else {"reference": {"nodes": used}}
    asked = {"metric": metric, "reference": {"run": run, **reference}, "benchmarks": {"a": bench}}
    with pytest.raises(ConfigError) as error:
        invoke(tender.command, "check", write("procurement.yaml", asked))
    (problem,) = error.value.problems
    assert problem.where.startswith("procurement.yaml:") and f"{problem}".partition(": ")[2].startswith(expected)
    with pytest.raises(ConfigError, match=r"reference\.nodes"):
        invoke(compare.command, run, "--tender", "procurement.yaml")


def test_nodes_beside_a_published_figure_are_those_of_its_publication(tmp_path: Path, invoke: Invoke) -> None:
    run = made(tmp_path, "ref", 100.0, "a")
    bench = {"reference": {"value": "50 images/s", "nodes": 4}}
    asked = {"metric": "ssi", "reference": {"run": run, "nodes": 8}, "benchmarks": {"a": bench}}
    assert invoke(tender.command, "check", write("procurement.yaml", asked)).stderr == "the tender is valid\n"


def test_what_cannot_be_read_is_one_problem_among_the_others(tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text("{")
    (tmp_path / "text.zip").write_bytes(b"PK\x03\x04 no archive")
    write("a.yaml", OFFER.replace("value: 350 s", "run: damaged"))
    write("b.yaml", OFFER.replace("value: 350 s", "run: text.zip"))
    write("c.yaml", OFFER.replace("gtc", "gct"))
    (tmp_path / "d.yaml").write_bytes(b"\xff\xfe")
    names = ("a.yaml", "b.yaml", "c.yaml", "d.yaml", "none.yaml")
    with pytest.raises(ConfigError) as error:
        invoke(tender.command, "check", write("procurement.yaml", APEX), *names)
    said = [f"{problem}" for problem in error.value.problems]
    for name in names:
        assert any(line.startswith(name) for line in said), (name, said)
    broken = write("broken.yaml", APEX.replace("metric: ssi", "metric: sssi"))
    with pytest.raises(ConfigError) as error:
        invoke(tender.command, "check", broken, "a.yaml", write("e.yaml", OFFER.replace("1024", "-1")))
    said = [f"{problem}" for problem in error.value.problems]
    assert any(line.startswith("broken.yaml:2:9: metric: ") for line in said)
    assert any(line.startswith("e.yaml:2:8: nodes: ") for line in said)


# Bad input: one line with file, line and column


def refused(invoke: Invoke, asked: str | dict[str, Any], offer: str | dict[str, Any], *words: str) -> list[str]:
    names = (write("offer.yaml", offer), "--tender", write("procurement.yaml", asked), *words)
    with pytest.raises(MilabenchError) as error:
        invoke(compare.command, *names)
    assert error.value.exit_code == 2
    return str(error.value).split("\nerror: ")


@pytest.mark.parametrize(
    ("asked", "offer", "expected"),
    [
        pytest.param(
            APEX.replace("weight: 2", "weight: -2"),
            OFFER,
            "procurement.yaml:6:18: benchmarks.milc.weight: expected a number that is at least 0, got -2",
            id="a negative weight",
        ),
        pytest.param(
            APEX.replace("weight: 2", "weight: 0").replace("weight: 1", "weight: 0"),
            OFFER,
            "procurement.yaml:5:17: benchmarks: all weights are 0. Give at least one a weight",
            id="all weights zero",
        ),
        pytest.param(
            APEX,
            OFFER.replace("gtc", "x").replace("milc", "y").replace("meraculous", "z"),
            "offer.yaml:4:3: benchmarks: is an offer for another suite: procurement.yaml has none of its benchmarks. Asked for:"
            " gtc, milc, meraculous",
            id="an offer for another suite",
        ),
        pytest.param(
            APEX,
            OFFER.replace("value: 350 s", f"run: {RUNS / 'system_a'}"),
            "offer.yaml:4:14: benchmarks.gtc.run: system_a is a run of another suite: it has no benchmark 'gtc'. Name the run"
            " that measured it",
            id="a run of another suite in an offer",
        ),
        pytest.param(
            APEX.replace("{nodes: 5586}", f"{{nodes: 5586, run: {RUNS / 'system_a'}}}").replace("value: 42.74 s, ", ""),
            OFFER,
            "procurement.yaml:3:31: reference.run: system_a: 'meraculous' is not in this run. Give"
            " benchmarks.meraculous.reference a value, or name another run",
            id="a reference without a benchmark",
        ),
        pytest.param(
            APEX,
            OFFER.replace("350 s", "350 min"),
            "offer.yaml:4:16: benchmarks.gtc.value: units differ: 's' of the reference, 'min' of A. Give both the same figure of"
            " merit, or convert the units",
            id="units that differ",
        ),
        pytest.param(
            APEX + "terms: {currency: EUR}\n",
            OFFER + "price: {node: 3 k USD}\n",
            "offer.yaml:7:15: price.node: is in USD, and the tender at procurement.yaml is in EUR. Convert to the same currency",
            id="prices in two currencies",
        ),
        pytest.param(
            APEX,
            OFFER.replace("value: 350 s", "run: a.zip, measured: false"),
            "offer.yaml:4:14: benchmarks.gtc.run: is projected, from 1 measured count. Name runs on at least two counts of nodes",
            id="one measured count for a projection",
        ),
        pytest.param(
            APEX,
            OFFER.replace("value: 350 s, nodes: 200", f"run: {RUNS / 'nothing'}"),
            f"offer.yaml:4:14: benchmarks.gtc.run: {RUNS / 'nothing'} is not there. Paths are relative to the file",
            id="a run that is not there",
        ),
        pytest.param(
            APEX,
            OFFER.replace(", nodes: 200", ""),
            "offer.yaml:4:8: benchmarks.gtc.nodes: is missing, ssi needs it",
            id="a number that the metric needs",
        ),
        pytest.param(
            APEX,
            OFFER.replace("nodes: 1024", "nodes: 5.5"),
            "offer.yaml:2:8: nodes: expected a whole number, got 5.5",
            id="half a node",
        ),
    ],
)
def test_bad_input_is_one_line_with_its_place(
    invoke: Invoke, asked: str | dict[str, Any], offer: str | dict[str, Any], expected: str
) -> None:
    assert refused(invoke, asked, offer) == [expected]


def test_a_measured_benchmark_on_other_nodes_than_its_run_is_refused(tmp_path: Path, invoke: Invoke) -> None:
    run = made(tmp_path, "one", 100.0, "gtc")
    asked = APEX.replace("699.78 s", "50 images/s")
    (line,) = refused(invoke, asked, OFFER.replace("value: 350 s", f"run: {run}"))
    assert "benchmarks.gtc.nodes: 200, and its run measured 1. Give the nodes of the run" in line


def test_a_metric_of_another_kind_says_what_the_tender_lacks(invoke: Invoke) -> None:
    lines = refused(invoke, APEX, OFFER, "--metric", "ssp")
    assert (
        lines[0] == "procurement.yaml:5:8: benchmarks.gtc: its work is missing, ssp needs it. Write 'work: 1065 TFLOP'"
    )
    assert "procurement.yaml:6:18: benchmarks.milc.weight: ssp has no weights. Leave them out" in lines


def test_weights_that_a_metric_has_not_are_those_that_are_written(invoke: Invoke) -> None:
    asked = APEX.replace("weight: 1, ", "").replace("metric: ssi", "metric: ssp")
    lines = [line for line in refused(invoke, asked, OFFER) if "weight" in line]
    assert lines == ["procurement.yaml:6:18: benchmarks.milc.weight: ssp has no weights. Leave them out"]


def test_scores_that_were_removed_name_the_one_that_there_is(invoke: Invoke) -> None:
    (line,) = refused(invoke, APEX.replace("metric: ssi", "metric: specrate"), OFFER)
    assert line.endswith("got 'specrate'. It was removed: index is the same mean of ratios")
    with pytest.raises(UsageError, match=r"--metric specspeed was removed. --metric index is the same mean of ratios"):
        invoke(compare.command, "offer.yaml", "--tender", "procurement.yaml", "--metric", "specspeed")


def test_work_in_several_units_is_a_mistake_of_the_tender(invoke: Invoke) -> None:
    asked = {"metric": "ssp", "benchmarks": {"gtc": {"work": "5 TFLOP"}, "milc": {"work": "3 GB"}}}
    (line,) = refused(invoke, asked, OFFER[: OFFER.index("  meraculous")])
    assert line.startswith("procurement.yaml:")
    assert "benchmarks.milc.work: units differ: 'TFLOP' of gtc, 'GB' here" in line


def test_options_that_contradict_a_tender_are_refused(invoke: Invoke) -> None:
    write("procurement.yaml", APEX), write("offer.yaml", OFFER)
    with pytest.raises(UsageError, match="--metric ssi needs the tender"):
        invoke(compare.command, "offer.yaml", "--metric", "ssi")
    with pytest.raises(UsageError, match="--why cannot be used with --tender"):
        invoke(compare.command, "offer.yaml", "--tender", "procurement.yaml", "--why")
    with pytest.raises(UsageError, match="'A' is given twice"):
        invoke(compare.command, "offer.yaml", "offer.yaml", "--tender", "procurement.yaml")
    with pytest.raises(NothingSelected, match="system_a: is a run of another suite"):
        invoke(compare.command, RUNS / "system_a", "--tender", "procurement.yaml")
    with pytest.raises((RecordError, NothingSelected), match="nope"):
        invoke(compare.command, "nope", "--tender", "procurement.yaml")


def test_the_option_offers_every_metric() -> None:
    assert tuple(METRICS) == compare.SCORE_METRICS
