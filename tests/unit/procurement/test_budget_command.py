"""`milabench budget`, from files to what it prints; the arithmetic itself is in unit/procurement/test_budget.py."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Milabench = Callable[..., Any]

TENDER = """\
title: APEX
metric: ssi
reference: {nodes: 5586}
benchmarks:
  gtc: {weight: 1, reference: {value: 699.78 s, nodes: 1376}}
  milc: {weight: 2, capability: 4, reference: {value: 2411.04 s, nodes: 2048}}
  meraculous: {weight: 1, reference: {value: 42.74 s, nodes: 400}}
terms: {currency: EUR, years: 5, upkeep: 6 %, electricity: 0.12 +- 0.02 EUR/kWh, pue: 1.3 +- 0.05, utilization: 0.8 +- 0.1,
        grid_carbon: 350 g/kWh, embodied_carbon: 1200 kg}
limits: {budget: 400 M EUR, power: 8 MW}
"""
A = """\
vendor: A
nodes: 1024
price: {node: 300 k EUR +- 5 %, fixed: 1 M EUR}
power: {node: 10.2 kW +- 2 %, level: L1}
benchmarks:
  gtc: {value: 350 s +- 3 %, nodes: 200}
  milc: {value: 1500 s +- 3 %, nodes: 512}
  meraculous: {value: 40 s +- 3 %, nodes: 50}
"""
B = """\
vendor: B
nodes: 2048
power: {node: 5 kW}
benchmarks:
  gtc: {value: 500 s, nodes: 250}
  milc: {value: 1800 s, nodes: 700}
  meraculous: {value: 41 s, nodes: 60}
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    for name, text in (("procurement", TENDER), ("a", A), ("b", B)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: str(tmp_path / f"{name}.yaml") for name in ("procurement", "a", "b")}


def answers(milabench: Milabench, *argv: str) -> list[dict[str, Any]]:
    said = milabench("budget", *argv, "--json")
    assert (said.code, said.err) == (0, "")
    value = json.loads(said.out)
    assert value["schema"] == 1
    listed: list[dict[str, Any]] = value["answers"]
    return listed


def test_how_many_of_b_match_a(milabench: Milabench, files: dict[str, str]) -> None:
    (answer,) = answers(milabench, files["procurement"], "--match", files["a"], files["b"])
    # K-SSI-1 gives A 3.0612740016171007; B alone, from the same formula:
    speedups = (699.78 / 500, 2411.04 / 1800, 42.74 / 41)
    uses = tuple(ref / n * 2048 / 5586 for ref, n in ((1376, 250), (2048, 700), (400, 60)))
    of_b = 1.0
    for factor, weight in zip(
        [c * u * s for c, u, s in zip((1, 4, 1), uses, speedups, strict=True)], (1, 2, 1), strict=True
    ):
        of_b *= factor ** (weight / 4)
    wanted = 3.0612740016171007 / of_b * 2048
    assert answer["quotient"]["value"] == pytest.approx(wanted, rel=1e-12)
    assert answer["nodes"] == int(wanted) + 1
    assert answer["bounds"][0] < wanted < answer["bounds"][1]
    assert answer["score"]["value"] >= 3.0612740016171007
    assert answer["ratio"]["value"] == pytest.approx(answer["nodes"] / wanted)
    named = {entry["name"]: entry["basis"] for entry in answer["sensitivity"]["inputs"]}
    assert named["gtc on A"] == "scored"
    assert named["weight of milc"] == "assumed"


@pytest.mark.slow
def test_years_that_may_be_off_are_an_input_of_what_money_buys(
    milabench: Milabench, files: dict[str, str], tmp_path: Path
) -> None:
    asked = tmp_path / "asked.yaml"
    asked.write_text(TENDER.replace("years: 5,", "years: 5 +- 1,"))
    (answer,) = answers(milabench, str(asked), files["a"], "--spend", "400M")
    (exact,) = answers(milabench, files["procurement"], files["a"], "--spend", "400M")
    inputs = {entry["name"]: entry for entry in answer["sensitivity"]["inputs"]}
    assert (inputs["years"]["basis"], inputs["years"]["range"]) == ("stated", pytest.approx([5 / 1.2, 6]))
    assert not any(entry["name"] == "years" for entry in exact["sensitivity"]["inputs"])
    assert answer["nodes"] == exact["nodes"] and answer["bounds"][0] < exact["bounds"][0]
    of_node = 300e3 * (1 + 5 / 1.2 * 0.06) + 5 / 1.2 * 10.2 * 1.3 * 0.8 * 8760 * 0.12
    assert inputs["years"]["swing"][0] == pytest.approx(399e6 / of_node * 3.0612740016171007 / 1024)


@pytest.mark.slow
def test_what_money_buys_and_what_fits_in_a_power(milabench: Milabench, files: dict[str, str]) -> None:
    (money,) = answers(milabench, files["procurement"], files["a"], "--spend", "400M")
    # K-COST-4 counts 445755.648 a node.
    assert money["nodes"] == int(399e6 / 445755.648)
    assert money["score"]["value"] == pytest.approx(3.0612740016171007 * money["nodes"] / 1024)
    assert money["cost"]["units"] == "EUR"
    assert money["bounds"][0] < money["nodes"] < money["bounds"][1]
    (power,) = answers(milabench, files["procurement"], files["a"], "--power", "8MW")
    assert (power["nodes"], power["power_level"]) == (784, "L1")
    assert power["carbon_kg"]["value"] == pytest.approx(784 * (10.2 * 1.3 * 0.8 * 8760 * 0.35 + 1200 / 5))


@pytest.mark.parametrize("without", ["", ", electricity: 0.12 +- 0.02 EUR/kWh", "years: 5, "])
def test_what_money_buys_costs_as_much_as_an_offer_of_so_many_nodes(
    milabench: Milabench, files: dict[str, str], tmp_path: Path, without: str
) -> None:
    """The two are computed apart: for one node and times their number, and for the whole of an offer."""
    assert without in TENDER
    asked = tmp_path / "asked.yaml"
    asked.write_text(TENDER.replace(without, ""))
    (bought,) = answers(milabench, str(asked), files["a"], "--spend", "400M")
    offered = tmp_path / "offered.yaml"
    offered.write_text(A.replace("nodes: 1024", f"nodes: {bought['nodes']}"))
    said = json.loads(milabench("compare", str(offered), "--tender", str(asked), "--json").out)
    (limit,) = [each for each in said["tender"]["systems"][0]["limits"] if each["limit"] == "budget"]
    assert bought["cost"]["value"] == pytest.approx(limit["offered"]["value"])
    # The whole's cost takes the share of the nodes in its price as a constant.
    assert bought["cost"]["ci95"] == pytest.approx(limit["offered"]["ci95"], rel=1e-4)
    assert limit["offered"]["value"] <= 400e6


@pytest.mark.slow
def test_without_a_question_the_limits_of_the_tender_are_asked(milabench: Milabench, files: dict[str, str]) -> None:
    said = milabench("budget", files["procurement"], files["a"], files["b"])
    assert (said.code, said.err) == (0, "")
    assert "400,000,000 EUR over 5 years pays for 895 nodes of A" in said.out.replace("\n", " ")
    assert "784 nodes of A" in said.out.replace("\n", " ")
    assert "1600 nodes of B fit in 8000 kW" in said.out.replace("\n", " ")
    assert "B: the price of a node is not known" in said.out
    assert "score by budget, A (spend)" in said.out


@pytest.mark.slow
def test_a_system_that_cannot_answer_does_not_hide_the_others(
    milabench: Milabench, files: dict[str, str], tmp_path: Path
) -> None:
    unscored = tmp_path / "c.yaml"
    projected = "{run: [x, y], nodes: 9, measured: false}"
    unscored.write_text(B.replace("vendor: B", "vendor: C").replace("{value: 41 s, nodes: 60}", projected))
    for name in "xy":
        (tmp_path / name).write_text("{}")
    said = milabench("budget", files["procurement"], files["a"], files["b"], str(unscored), "--spend", "400M")
    shown = " ".join(said.out.split())
    assert (said.code, said.err) == (0, "")
    assert "400,000,000 EUR over 5 years pays for 895 nodes of A" in shown
    assert "not answered C: has no score: meraculous is projected" in shown
    assert "B: the price of a node is not known" in shown
    said = milabench("budget", files["procurement"], "--match", str(unscored), files["a"])
    assert (said.code, said.out) == (2, "") and "C: has no score" in said.err


def test_a_system_that_breaks_the_rule_of_the_metric_is_said_to(
    milabench: Milabench, files: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "b.yaml").write_text(B.replace("41 s", "45 s"))
    words = (files["procurement"], files["b"], "--power", "8 MW")
    said = milabench("budget", *words)
    line = "B: meraculous: speed-up S = 0.9498, the tender requires S >= 1"
    assert (said.code, f"rules broken with any number of nodes\n  {line}\n" in said.out) == (0, True)
    (broken,) = json.loads(milabench("budget", *words, "--json").out)["breaches"]
    assert f"{broken['system']}: {broken['rule']}" == line


def test_the_page_draws_swings(milabench: Milabench, files: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "budget.html"
    said = milabench("budget", files["procurement"], files["a"], "--spend", "400M", "-o", str(page))
    assert said.code == 0
    text = page.read_text()
    assert len(re.findall(r"<svg[^>]* role=\"img\"", text)) == 1
    assert "Swings: score by budget, A (spend)" in text
    for name in ("price of a node", "price of energy", "share of the year in use", "weight of milc"):
        assert name in text
    assert "budget by ssi: APEX" in milabench("budget", files["procurement"], files["a"], "--format", "markdown").out


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ([], 2, "names no system: give runs or offers, or --match A B"),
        (["{a}", "--spend", "2 M USD"], 2, "--spend: is in USD, and the tender in EUR. Convert to the same currency"),
        (["{a}", "--spend", "much"], 2, "--spend"),
        (["{a}", "--power", "3 EUR"], 2, "its units are W, kW, MW"),
        (["{a}", "--spend", "1M"], 2, "A: its fixed price of 1,000,000 EUR leaves no part of 1,000,000 EUR for nodes"),
        (["{b}", "--spend", "4M"], 2, "B: the price of a node is not known. Give its offer price: {node: 300 k EUR}"),
        (
            ["{a}", "--metric", "index"],
            2,
            "index does not grow with the nodes of a system. Choose ssi, ssni, ssp, throughput with --metric",
        ),
        (["--match", "{a}", "{a}"], 2, "is the same system twice. Name another"),
        (["{a}", "--vary", "200%"], 2, "expected a share such as 10% or 0.1, got '200%'"),
    ],
)
def test_what_cannot_be_answered_is_one_line(
    milabench: Milabench, files: dict[str, str], argv: list[str], code: int, message: str
) -> None:
    said = milabench("budget", files["procurement"], *(word.format(**files) for word in argv))
    assert (said.code, said.out) == (code, "")
    assert message in said.err
