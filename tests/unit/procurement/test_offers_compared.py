"""`offer compare`: four offers, on a page and in a workbook whose formulas come to the same numbers."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from milabench.cli import compare
from milabench.errors import MilabenchError, NothingSelected, RecordError, UsageError
from milabench.procurement import offer_command as offer
from milabench.procurement.offer_archives import create_offer
from milabench.procurement.scores import METRICS
from tests.formulas import Book
from tests.offered import LED_BY_D, VENDORS, make_offers, offer_file, tender_file, vendor_run


def ran(command: Any, *words: object) -> Result:
    return CliRunner().invoke(command, list(map(str, words)), standalone_mode=False, catch_exceptions=False)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_offers(tmp_path_factory.mktemp("four"))


def shown(four: tuple[Path, Path], *more: object) -> Result:
    return ran(offer.command, "compare", four[0], "--tender", four[1], *more)


@pytest.mark.slow
def test_scores_costs_and_verdicts_of_all_offers(four: tuple[Path, Path]) -> None:
    result = shown(four, "--json")
    assert result.return_value == 7  # C changed its source
    value = json.loads(result.stdout)
    assert value["schema"] == 1
    by_name = {each["name"]: each for each in value["offers"]}
    assert {name: each["verdict"] for name, each in by_name.items()} == {
        "A A-1000": "PASS",
        "B B-1000": "PASS",
        "C C-1000": "FAIL",
        "D D-1000": "PASS",
    }
    names = [each["name"] for each in value["tender"]["systems"]]
    assert names == list(by_name) == [f"{vendor} {vendor}-1000" for vendor in LED_BY_D]
    leading, first, second, third = value["tender"]["systems"]
    assert (leading["verdict"], first["verdict"]) == (None, "SLOWER")
    award = "D D-1000 has the highest score of the admissible offers, and is shown to be above every other offer"
    assert value["award"] == f"{award} that may be admissible." and award in " ".join(shown(four).stdout.split())
    assert (first["admissible"], first["breaches"]) == (True, [])
    assert third["admissible"] is False and third["breaches"][0] == "verification: FAIL"
    # bert: n_ref 2, weight 2, reference 100; llama: n_ref 4, reference 50; N_ref 64; all runs on one node of two devices.
    bert, llama = 2 * 120 * 1.001 / 100 * 2 * 10, 2 * 60 * 1.001 / 50 * 4 * 10
    assert first["score"]["value"] == pytest.approx((bert**2 * llama) ** (1 / 3), rel=1e-5)
    assert second["verdict"] == "SLOWER"  # faster nodes, and too few of them
    a = by_name["A A-1000"]
    assert a["price"] == {"value": 640 * 40e3 + 1e6, "units": "EUR", "ci95": [26.6e6, 26.6e6]}
    energy = 640 * 1.0 * 1.3 * 0.8 * 8760 * 0.12
    assert a["energy_a_year"]["value"] == pytest.approx(energy)
    assert a["all_years"]["value"] == pytest.approx(26.6e6 + 5 * 0.06 * 25.6e6 + 5 * energy)
    assert (a["within_budget"], a["within_power"]) == ("yes", "yes")


@pytest.mark.slow
def test_an_archive_is_scored_as_the_offer_that_is_in_it(four: tuple[Path, Path]) -> None:
    """Not as the run of one node that its records are: nodes, tier and name are the offer's, as in the table of all offers."""
    table = json.loads(shown(four, "--json").stdout)["tender"]["systems"][1:]
    archives = [four[0] / "A.zip", four[0] / "B.zip", four[0] / "C.zip"]
    told = json.loads(ran(compare.command, *archives, "--tender", four[1], "--json").stdout)["tender"]["systems"]
    for key in ("name", "nodes", "score", "limits", "admissible", "breaches", "meets"):
        assert [each[key] for each in told] == [each[key] for each in table], key
    declared = four[0].parent / "A" / "offer.yaml"
    mixed = json.loads(ran(compare.command, declared, archives[1], "--tender", four[1], "--json").stdout)
    assert [each["score"]["value"] for each in mixed["tender"]["systems"]] == pytest.approx(
        [each["score"]["value"] for each in table[:2]]
    )


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["ssi", "ssni", "index"])
def test_the_workbook_recomputes_to_the_same_numbers(four: tuple[Path, Path], tmp_path: Path, metric: str) -> None:
    target = tmp_path / "offers.xlsx"
    if metric != "ssi":  # which does not count nodes: as many on the reference
        asked = yaml.safe_load(four[1].read_text())
        for bench in asked["benchmarks"].values():
            bench["reference"]["nodes"] = 1
        single = four[1].with_name("single.yaml")
        single.write_text(yaml.safe_dump(asked))
        four = four[0], single
    assert shown(four, "--metric", metric, "-o", target).return_value == 7
    book = Book(target)
    order = "BACD" if metric == "index" else LED_BY_D  # the index counts no nodes, of which B has fewer
    assert book.formulas.sheetnames == ["offers", "terms", *(f"{name} {name}-1000" for name in order)]
    assert book.check() >= 60
    told = json.loads(shown(four, "--metric", metric, "--json").stdout)
    heads = [cell.value for cell in book.formulas["offers"][2]]
    for at, (system, costs) in enumerate(zip(told["tender"]["systems"], told["offers"], strict=True), start=3):

        def cell(head: str, at: int = at) -> Any:
            return book.of("offers", book.formulas["offers"].cell(at, heads.index(head) + 1).coordinate)

        assert cell("system") == system["name"] and cell("verified") == costs["verdict"]
        assert math.isclose(cell("score"), system["score"]["value"], rel_tol=1e-12)
        assert math.isclose(cell("all years"), costs["all_years"]["value"], rel_tol=1e-12)
        assert math.isclose(cell("a year"), costs["a_year"]["value"], rel_tol=1e-12)
        if at > 3:
            assert math.isclose(cell("over the first"), system["ratio"]["value"], rel_tol=1e-12)


def test_where_no_offer_is_admissible_the_exit_code_says_so(four: tuple[Path, Path], tmp_path: Path) -> None:
    asked = {**yaml.safe_load(four[1].read_text()), "limits": {"ssi": 1e6}}
    strict = four[1].with_name("strict.yaml")
    strict.write_text(yaml.safe_dump(asked))
    (tmp_path / "offers").mkdir()
    (tmp_path / "offers" / "A.zip").write_bytes((four[0] / "A.zip").read_bytes())
    result = ran(offer.command, "compare", tmp_path / "offers", "--tender", strict)
    assert result.return_value == 1
    assert "No offer is admissible." in result.stdout


def test_a_suspect_figure_is_marked_in_the_workbook(four: tuple[Path, Path], tmp_path: Path) -> None:
    suite, target = four[1].parent / "suite" / "suite.yaml", tmp_path / "offers.xlsx"
    run = vendor_run(tmp_path / "E", suite, {"bert": 120.0, "llama": 60.0}, name="run-E", reasons=("throttled",)).path
    declared = offer_file(tmp_path / "E", "E", {bench: {"run": str(run)} for bench in ("bert", "llama")}, nodes=640)
    (tmp_path / "offers").mkdir()
    create_offer(four[1], declared, tmp_path / "offers" / "E.zip", None)
    ran(offer.command, "compare", tmp_path / "offers", "--tender", four[1], "-o", target)
    book = Book(target).formulas
    marked = [cell.value for cell in book["offers"][2]].index("suspect figures") + 1
    assert book["offers"].cell(3, marked).value == "bert"
    sheet = book["E E-1000"]
    column = [cell.value for cell in sheet[5]].index("figure is") + 1
    marks = {sheet.cell(row, 1).value: sheet.cell(row, column).value for row in (6, 7)}
    assert marks["bert"].startswith("suspect (throttled") and marks["llama"].startswith(("valid", "imprecise"))


def test_the_workbook_recomputes_the_costs_of_phases(tmp_path: Path) -> None:
    values = {"bert": {"value": "120 items/s", "nodes": 2}, "llama": {"value": "60 items/s", "nodes": 4}}
    phases = [{"nodes": 256, "months": 6}, {"nodes": 1024, "months": 54}]
    folder = declared_offers(tmp_path, values, phases)
    shown(folder, "-o", tmp_path / "x.xlsx")
    book = Book(tmp_path / "x.xlsx")
    assert book.check() >= 10
    (told,) = json.loads(shown(folder, "--json").stdout)["offers"]
    assert told["nodes_in_use"] == pytest.approx((256 * 6 + 1024 * 54) / (1024 * 60))
    heads = [cell.value for cell in book.formulas["offers"][2]]
    for head, key in (("all years", "all_years"), ("a year", "a_year"), ("energy a year", "energy_a_year")):
        found = book.of("offers", book.formulas["offers"].cell(3, heads.index(head) + 1).coordinate)
        assert math.isclose(found, told[key]["value"], rel_tol=1e-12)


def declared_offers(
    folder: Path, values: dict[str, Any], phases: Sequence[Any] = (), **tender: Any
) -> tuple[Path, Path]:
    """One offer without records, which every metric can score."""
    asked = tender_file(folder / "tender", **tender)
    declared = offer_file(folder / "vendor", "A", values, nodes=1024, phases=list(phases))
    (folder / "offers").mkdir()
    ran(offer.command, "create", "--tender", asked, "--offer", declared, "-o", folder / "offers" / "a.zip")
    return folder / "offers", asked


@pytest.mark.parametrize(
    ("metric", "mean"), [(name, mean) for name, metric in METRICS.items() for mean in metric.means]
)
def test_every_metric_has_a_worksheet(tmp_path: Path, metric: str, mean: str) -> None:
    benchmarks: dict[str, Any] = {
        "gtc": {"reference": {"value": "699.78 s", "nodes": 1376}, "work": "1065 TFLOP"},
        "milc": {"reference": {"value": "2411.04 s", "nodes": 2048}, "work": "3350 TFLOP"},
    }
    if METRICS[metric].is_weighted:
        benchmarks["milc"]["weight"] = 2
    values = {"gtc": {"value": "350 s", "nodes": 200}, "milc": {"value": "1500 s", "nodes": 512}}
    asked = {"benchmarks": benchmarks, "metric": metric, "mean": mean, "reference": {"nodes": 5586}, "limits": {}}
    folder = declared_offers(tmp_path, values, **asked)
    shown(folder, "-o", tmp_path / "x.xlsx")
    book = Book(tmp_path / "x.xlsx")
    assert book.check() >= 10
    score = json.loads(shown(folder, "--json").stdout)["tender"]["systems"][0]["score"]["value"]
    assert math.isclose(book.of("A A-1000", "B1"), score, rel_tol=1e-12)


def test_k_ssi_1_in_a_worksheet(tmp_path: Path) -> None:
    """K-SSI-1, computed; nersc.gov, APEX benchmarks, SSI page."""
    names, weights, capability = ("gtc", "milc", "mera"), (1, 2, 1), (1, 4, 1)
    references = (("699.78 s", 1376), ("2411.04 s", 2048), ("42.74 s", 400))
    benchmarks = {
        name: {"weight": w, "capability": c, "reference": {"value": value, "nodes": nodes}}
        for name, w, c, (value, nodes) in zip(names, weights, capability, references, strict=True)
    }
    offered = (("350 s", 200), ("1500 s", 512), ("40 s", 50))
    values = {name: {"value": value, "nodes": nodes} for name, (value, nodes) in zip(names, offered, strict=True)}
    folder = declared_offers(tmp_path, values, benchmarks=benchmarks, reference={"nodes": 5586}, limits={})
    shown(folder, "-o", tmp_path / "x.xlsx")
    book = Book(tmp_path / "x.xlsx")
    assert math.isclose(book.of("A A-1000", "B1"), 3.0612740016171007, rel_tol=1e-12)
    assert [book.of("A A-1000", f"N{row}") for row in (6, 7, 8)] == pytest.approx(
        [1.2612101682778374, 0.7332617257429288, 1.4665234514858576], rel=1e-12
    )
    assert [book.of("A A-1000", f"M{row}") for row in (6, 7, 8)] == pytest.approx(
        [1.9993714285714286, 1.60736, 1.0685], rel=1e-12
    )


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_every_format_has_all_offers_and_what_fails(four: tuple[Path, Path], form: str) -> None:
    page = shown(four, "--format", form).stdout
    assert all(f"{vendor} {vendor}-1000" in page for vendor in VENDORS)
    assert "FAIL" in page and "is ported, declared as-is" in page


def with_lower_price(archive: Path, target: Path) -> None:
    """A copy of an archive whose declaration names another price."""
    target.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            new.writestr(info, old.read(info).replace(b"40 k EUR", b"30 k EUR"))


@pytest.mark.slow
def test_an_altered_offer_is_not_admissible_and_decides_nothing(four: tuple[Path, Path], tmp_path: Path) -> None:
    with_lower_price(four[0] / "D.zip", tmp_path / "offers" / "D.zip")
    (tmp_path / "offers" / "B.zip").write_bytes((four[0] / "B.zip").read_bytes())
    unaltered = json.loads(shown(four, "--json").stdout)["tender"]["systems"]
    assert [each["verdict"] for each in unaltered] == [None, "SLOWER", "SLOWER", "SLOWER"]
    result = ran(offer.command, "compare", tmp_path / "offers", "--tender", four[1], "--json")
    assert result.return_value == 6
    whole, altered = json.loads(result.stdout)["tender"]["systems"]
    assert (whole["admissible"], altered["admissible"]) == (True, False)
    assert altered["breaches"] == ["verification: ALTERED"] and altered["doubts"] == ["its archive was modified"]
    assert (altered["verdict"], altered["meets"]) == ("INCONCLUSIVE", "INCONCLUSIVE")


def test_an_offer_that_no_allowed_signer_signed_is_refused_and_not_called_altered(
    four: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "offers").mkdir()
    (tmp_path / "offers" / "A.zip").write_bytes((four[0] / "A.zip").read_bytes())
    (tmp_path / "signers").write_text("")
    words = ("--tender", four[1], "--allowed-signers", tmp_path / "signers")
    result = ran(offer.command, "compare", tmp_path / "offers", *words)
    assert result.return_value == 6
    assert "altered, or not signed by an allowed signer\n  A A-1000: it is not signed\n" in result.stdout
    assert "modified" not in result.stdout
    answer = json.loads(ran(offer.command, "compare", tmp_path / "offers", *words, "--json").stdout)
    (side,), (system,) = answer["offers"], answer["tender"]["systems"]
    assert (side["verdict"], system["admissible"]) == ("UNTRUSTED", False)
    assert system["doubts"] == ["its archive is by none of the allowed signers"]


def test_an_altered_offer_is_shown_as_such(four: tuple[Path, Path], tmp_path: Path) -> None:
    with_lower_price(four[0] / "A.zip", tmp_path / "offers" / "A.zip")
    result = ran(offer.command, "compare", tmp_path / "offers", "--tender", four[1], "--json")
    assert result.return_value == 6
    (side,) = json.loads(result.stdout)["offers"]
    assert side["verdict"] == "ALTERED" and side["altered"] == ["changed: offer.yaml"]
    with pytest.raises(MilabenchError, match=r"A\.zip: was modified: changed: offer\.yaml"):
        ran(compare.command, tmp_path / "offers" / "A.zip", "--tender", four[1])


def test_an_offer_in_another_currency_fails_and_does_not_hide_the_others(
    four: tuple[Path, Path], tmp_path: Path
) -> None:
    elsewhere, folder = tmp_path / "elsewhere.yaml", tmp_path / "offers"
    folder.mkdir()
    text = four[1].read_text()
    elsewhere.write_text(text.replace("EUR", "GBP").replace("suite: suite/", f"suite: {four[1].parent}/suite/"))
    declared = four[0].parent / "B" / "offer.yaml"
    (declared.parent / "pounds.yaml").write_text(declared.read_text().replace("EUR", "GBP"))
    ran(
        offer.command,
        "create",
        "--tender",
        elsewhere,
        "--offer",
        declared.parent / "pounds.yaml",
        "-o",
        folder / "b.zip",
    )
    (folder / "a.zip").write_bytes((four[0] / "A.zip").read_bytes())
    result = ran(offer.command, "compare", folder, "--tender", four[1], "--json")
    value = json.loads(result.stdout)
    assert result.return_value == 7
    a, b = value["tender"]["systems"]
    assert (a["admissible"], b["admissible"]) == (True, False)
    assert [each["verdict"] for each in value["offers"]] == ["PASS", "FAIL"]
    (budget,) = [each for each in b["limits"] if each["limit"] == "budget"]
    assert (budget["offered"], budget["verdict"]) == (None, "INCONCLUSIVE")
    shown = ran(offer.command, "verify", folder / "b.zip", "--tender", four[1])
    assert shown.return_value == 7
    said = " ".join(shown.stdout.split())
    assert "FAIL price.node: is in GBP, and the tender at" in said and "is in EUR. Convert to the same currency" in said


def test_an_archive_that_cannot_be_read_does_not_hide_the_others(four: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "offers"
    folder.mkdir()
    content = (four[0] / "B.zip").read_bytes()
    (folder / "a whole.zip").write_bytes(content)
    (folder / "cut.zip").write_bytes(content[: len(content) // 2])
    (folder / "empty.zip").write_bytes(b"")
    result = ran(offer.command, "compare", folder, "--tender", four[1], "--json")
    value = json.loads(result.stdout)
    assert result.return_value == 6
    assert [each["name"] for each in value["offers"]] == ["B B-1000"]
    assert [each["file"] for each in value["unreadable"]] == ["cut.zip", "empty.zip"]
    assert all(each["why"].startswith("not a readable zip file") for each in value["unreadable"])
    page = ran(offer.command, "compare", folder, "--tender", four[1]).stdout
    assert "cannot be read, and not compared\n  cut.zip: not a readable zip file" in page
    ran(offer.command, "compare", folder, "--tender", four[1], "-o", tmp_path / "x.xlsx")
    book = Book(tmp_path / "x.xlsx")
    assert [book.formulas["offers"].cell(row, 1).value for row in (3, 4, 5)] == ["B B-1000", "cut.zip", "empty.zip"]
    (folder / "a whole.zip").unlink()
    with pytest.raises(RecordError, match=r"empty\.zip: not a readable zip file"):
        ran(offer.command, "compare", folder, "--tender", four[1])


def test_bad_input_is_one_line(four: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "twice").mkdir()
    for name in ("a.zip", "b.zip"):
        (tmp_path / "twice" / name).write_bytes((four[0] / "A.zip").read_bytes())
    cases: tuple[tuple[type[MilabenchError], tuple[object, ...], str], ...] = (
        (NothingSelected, (tmp_path / "none", "--tender", four[1]), "has no offer"),
        (UsageError, (tmp_path / "twice", "--tender", four[1]), "a.zip and b.zip: are offers of the same vendor"),
        (UsageError, (four[0], "--tender", four[1], "--format", "xlsx"), "a workbook is no text"),
    )
    for error, words, said in cases:
        with pytest.raises(error, match=said):
            ran(offer.command, "compare", *words)
