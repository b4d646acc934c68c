"""`offer create` and `offer verify`, from files to verdicts: what was changed, what stands behind a number, what is altered."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from milabench.archives import verify_command as verify
from milabench.archives.bundle import create_bundle
from milabench.archives.bundle_runs import bundle_parts, bundle_runs
from milabench.errors import ConfigError, MilabenchError, RecordError, UsageError
from milabench.events.rundir import open_run
from milabench.procurement import offer_command as offer
from milabench.procurement.requests import MeterRequest
from milabench.procurement.run_meters import import_meter
from tests.metered_runs import LAUNCHES, metered_run, wall_csv
from tests.offered import HASH, LOCK, offer_file, own_suite, tender_file, vendor_run

SPEEDS = {"bert": 120.0, "llama": 60.0}
Offered = Callable[..., tuple[Path, Path]]


@pytest.fixture
def offered(tmp_path: Path) -> Offered:
    """Makes the archive of an offer, and the tender: bert as declared, llama as the tender has it."""

    def make(
        bert: dict[str, Any] | None = None, *, more: dict[str, Any] | None = None, **run: Any
    ) -> tuple[Path, Path]:
        tender = tender_file(tmp_path / "tender")
        path = vendor_run(tmp_path / "vendor", tmp_path / "tender" / "suite" / "suite.yaml", SPEEDS, **run).path
        benchmarks = {"bert": {"run": str(path), **(bert or {})}, "llama": {"run": str(path)}}
        declared = offer_file(tmp_path / "vendor", "A", benchmarks, **(more or {}))
        assert ran("create", "--tender", tender, "--offer", declared, "-o", tmp_path / "a.zip").exit_code == 0
        return tmp_path / "a.zip", tender

    return make


def ran(*words: object) -> Result:
    return CliRunner().invoke(offer.command, list(map(str, words)), standalone_mode=False, catch_exceptions=False)


def verified(archive: Path, tender: Path, *more: str, code: int = 0) -> dict[str, Any]:
    result = ran("verify", archive, "--tender", tender, "--json", *more)
    assert result.return_value == code, result.stdout
    value: dict[str, Any] = json.loads(result.stdout)
    assert value["schema"] == 1
    return value


def refused(error: type[MilabenchError], *words: object) -> str:
    with pytest.raises(error) as raised:
        ran(*words)
    return str(raised.value)


def test_an_offer_of_the_tenders_own_suite_passes_and_is_a_bundle(offered: Offered) -> None:
    archive, tender = offered()
    found = verified(archive, tender)
    assert found["verdict"] == "PASS" and found["changes"] == []
    assert [(row["bench"], row["standing"], row["nodes"]) for row in found["evidence"]] == [
        ("bert", "measured", [1]),
        ("llama", "measured", [1]),
    ]
    assert found["evidence"][0]["value"] == pytest.approx(2 * 120 * 1.001, rel=1e-6)
    assert found["bundle"]["numbers"] > 20 and found["bundle"]["unaltered"]
    done = CliRunner().invoke(verify.command, [str(archive)], standalone_mode=False)
    assert done.return_value == 0 and "unaltered" in done.stdout


def test_the_evidence_has_the_figure_of_merit_that_the_tender_asks_for(offered: Offered) -> None:
    archive, tender = offered()
    asked = yaml.safe_load(tender.read_text())
    asked["benchmarks"]["bert"] |= {"figure_of_merit": "3e6 / (rate * hidden)", "units": "s"}
    tender.write_text(yaml.safe_dump(asked))
    bert, llama = verified(archive, tender)["evidence"]
    assert (bert["units"], llama["units"]) == ("s", "items/s")
    assert bert["value"] == pytest.approx(3e6 / (2 * 120 * 1.001 * 64), rel=1e-6)
    asked["benchmarks"]["bert"]["figure_of_merit"] = "rate * depth"
    tender.write_text(yaml.safe_dump(asked))
    bert, _ = verified(archive, tender, code=7)["evidence"]
    assert bert["value"] is None and "there is no name 'depth'" in bert["why_not"]


def test_the_same_offer_gives_the_same_bytes(offered: Offered, tmp_path: Path) -> None:
    archive, tender = offered()
    again = tmp_path / "again.zip"
    ran("create", "--tender", tender, "--offer", tmp_path / "vendor" / "offer.yaml", "-o", again)
    assert archive.read_bytes() == again.read_bytes()


@pytest.mark.parametrize(
    ("run", "declared", "name", "tier", "verdict"),
    [
        ({"edits": {"bert/main.py": "# fused\n"}}, {}, "program", "ported", "beyond the tier"),
        ({"edits": {"bert/main.py": "# fused\n"}}, {"tier": "ported"}, "program", "ported", "not declared"),
        (
            {"edits": {"bert/main.py": "# fused\n"}},
            {"tier": "ported", "changes": ["main.py: fused"]},
            "program",
            "ported",
            "allowed",
        ),
        ({"overrides": ["bert.argv.--batch-size=64"]}, {}, "argv.--batch-size", "as-is", "allowed"),
        (
            {"overrides": ["bert.argv.--hidden=32"]},
            {"tier": "ported", "changes": ["--hidden"]},
            "argv.--hidden",
            "optimized",
            "beyond the tier",
        ),
        (
            {"overrides": ["bert.argv.--hidden=32"]},
            {"tier": "optimized", "changes": ["--hidden"]},
            "argv.--hidden",
            "optimized",
            "allowed",
        ),
        ({"overrides": ["bert.env.NCCL_ALGO=Tree"]}, {}, "env.NCCL_ALGO", "as-is", "allowed"),
        ({"lock": LOCK.replace("2.4.0", "2.4.1")}, {}, "lock file", "as-is", "allowed"),
        (
            {"manifest": {"profile": "smoke"}},
            {"tier": "optimized", "changes": ["shorter"]},
            "measure.profile",
            None,
            "beyond the tier",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_change_is_named_and_put_into_a_tier(
    offered: Offered, run: dict[str, Any], declared: dict[str, Any], name: str, tier: str | None, verdict: str
) -> None:
    archive, tender = offered(declared, **run)
    found = verified(archive, tender, code=0 if verdict == "allowed" else 7)
    changes = {change["name"]: change for change in found["changes"] if change["bench"] == "bert"}
    assert set(changes) == {name}
    assert (changes[name]["tier"], changes[name]["verdict"]) == (tier, verdict)


def test_a_changed_lock_names_its_packages_and_a_new_package_too(offered: Offered) -> None:
    archive, tender = offered(lock=f"numpy==2.4.1 {HASH}\nRich==13.9.4 {HASH}\nfast_attn==1.0 {HASH}\n")
    (change,) = (one for one in verified(archive, tender)["changes"] if one["bench"] == "bert")
    assert (change["tender"], change["offer"]) == ("fast-attn none, numpy 2.4.0", "fast-attn 1.0, numpy 2.4.1")


@pytest.fixture
def counted(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """What verifying an offer finds of which bert is projected to 8 nodes from runs on others, and llama declared."""

    def make(*counts: int, **bert: Any) -> dict[str, Any]:
        tender = tender_file(tmp_path / "tender")
        suite = tmp_path / "tender" / "suite" / "suite.yaml"
        paths = [
            vendor_run(tmp_path / "vendor", suite, SPEEDS, name=f"run{at}", nodes=nodes).path
            for at, nodes in enumerate(counts)
        ]
        benchmarks = {
            "bert": {"run": list(map(str, paths)), "nodes": 8, "measured": False, **bert},
            "llama": {"value": "70 items/s", "nodes": 4},
        }
        declared = offer_file(tmp_path / "vendor", "A", benchmarks)
        ran("create", "--tender", tender, "--offer", declared, "-o", tmp_path / "a.zip")
        return json.loads(ran("verify", tmp_path / "a.zip", "--tender", tender, "--json").stdout)  # type: ignore[no-any-return]

    return make


@pytest.mark.slow
def test_measured_projected_and_declared_are_told_apart(counted: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    found = counted(1, 2, 3, 4)
    assert [(row["bench"], row["standing"], row["value"]) for row in found["evidence"]] == [
        ("bert", "projected", None),
        ("llama", "declared", 70.0),
    ]
    assert [finding["what"] for finding in found["findings"] if finding["verdict"] == "INCONCLUSIVE"] == [
        "benchmarks.llama"
    ]
    # Eight times the node that the runs are multiples of, as `milabench project` has it.
    projected = found["evidence"][0]["projected"]
    assert (projected["count"], projected["law"], projected["largest_measured"]) == (8, "ideal", 4)
    assert projected["projected_value"] == pytest.approx(8 * 2 * 120 * 1.001, rel=1e-5)
    low, high = projected["prediction_interval"]
    assert low < 8 * 2 * 120 < high
    (said,) = (each["why"] for each in found["findings"] if each["what"] == "benchmarks.bert")
    assert said.startswith("projected to 8 nodes: 1921.9 items/s by ideal (") and said.endswith("1, 2, 3, 4 nodes")
    shown = ran("verify", tmp_path / "a.zip", "--tender", tmp_path / "tender" / "procurement.yaml").stdout
    assert "projected, in no score" in shown


def test_a_projection_that_its_own_runs_do_not_show_fails(counted: Callable[..., dict[str, Any]]) -> None:
    found = counted(1, 1)
    assert found["verdict"] == "FAIL"
    assert "a single measured count (1 node) shows no scaling" in found["evidence"][0]["why_not"]


@pytest.mark.parametrize(("bound", "verdict"), [("", "FAIL"), ("a simulation of the network", "INCONCLUSIVE")])
def test_beyond_eight_times_the_largest_count_somebody_has_to_answer(
    counted: Callable[..., dict[str, Any]], bound: str, verdict: str
) -> None:
    found = counted(1, 2, nodes=64, bound=bound)
    assert found["verdict"] == verdict  # of what is declared of llama, nothing is shown
    why = next(each["why"] for each in found["findings"] if each["what"] == "benchmarks.bert")
    assert ("beyond 8 times the largest measured count (2)" in why) == (not bound)
    assert ("without an interval: two measured counts settle no law but ideal" in why) == bool(bound)


def test_only_numbers_with_records_are_said_to_be_computed_again(offered: Offered, tmp_path: Path) -> None:
    archive, tender = offered()
    assert (
        "All numbers of 1 run were computed again from the records. 0 failures"
        in ran("verify", archive, "--tender", tender, "--wide").stdout
    )
    declared = {name: {"value": "70 items/s", "nodes": 4} for name in SPEEDS}
    offer = offer_file(tmp_path / "vendor", "A", declared)
    packed = ran("create", "--tender", tender, "--offer", offer, "-o", tmp_path / "none.zip").stdout
    assert "0 runs" in packed
    shown = ran("verify", tmp_path / "none.zip", "--tender", tender, "--wide")
    assert shown.return_value == 8
    assert "No number was computed again, for no run is in the archive" in shown.stdout
    assert "Declared only: bert, llama" in " ".join(shown.stdout.split())
    assert "All numbers" not in shown.stdout


@pytest.mark.parametrize(
    ("power", "watts", "verdict", "why"),
    [
        ({"node": "1 kW", "level": "L1"}, 300.0, "INCONCLUSIVE", "the records show device power, no EE HPC level"),
        ({"node": "0.5 kW", "level": "provisioned"}, 300.0, "FAIL", "the devices of a node alone drew 0.6 kW"),
        ({"node": "1 kW", "level": "board"}, 300.0, "PASS", "shown by the devices"),
        ({"node": "1 kW", "level": "board"}, None, "INCONCLUSIVE", "no device recorded its power"),
        ({"node": "1 kW", "level": "meter"}, 300.0, "INCONCLUSIVE", "no meter's readings"),
    ],
)
def test_the_power_is_held_against_what_was_measured(
    offered: Offered, power: dict[str, str], watts: float | None, verdict: str, why: str
) -> None:
    archive, tender = offered(more={"power": power}, power_w=watts)
    found = verified(archive, tender, code={"PASS": 0, "FAIL": 7, "INCONCLUSIVE": 8}[verdict])
    assert found["power"]["verdict"] == verdict and why in found["power"]["why"]
    if power["level"] == "L1":
        assert any("before conversion" in line for line in found["power"]["missing"])


@pytest.mark.parametrize(
    ("declared", "verdict", "why"),
    [
        ("0.45 kW", "FAIL", "more than is declared"),
        ("0.58 kW +- 2 %", "FAIL", "more than is declared"),
        ("0.6 kW", "INCONCLUSIVE", "more than is declared"),
        ("0.58 kW +- 5 %", "PASS", "shown by a meter"),
        ("0.62 kW", "PASS", "shown by a meter"),
    ],
)
def test_no_less_power_is_declared_than_the_offers_own_meter_shows(
    tmp_path: Path, declared: str, verdict: str, why: str
) -> None:
    """The node draws 200 W and 1.1 times its device: 299 W for ten seconds of each launch, 640 W for the rest."""
    at_work = sum((10 * 299 + (stop - start - 10) * 640) / (stop - start) for start, stop in LAUNCHES) / len(LAUNCHES)
    run = metered_run(tmp_path / "base")
    (tmp_path / "pdu.csv").write_text(wall_csv(37.0))
    (tmp_path / "meter.yaml").write_text("nodes: 1\nerror: 1 %\n")
    meter = MeterRequest(
        run=str(run.path), file=tmp_path / "pdu.csv", base=tmp_path, declaration=tmp_path / "meter.yaml"
    )
    import_meter(meter)
    bench = {"llama": {"reference": {"value": "10 tokens/s"}}}
    (tmp_path / "procurement.yaml").write_text(yaml.safe_dump({"metric": "index", "benchmarks": bench}))
    power = {"node": declared, "level": "meter"}
    offered = offer_file(tmp_path, "A", {"llama": {"run": str(run.path)}}, power=power)
    archive = tmp_path / "a.zip"
    ran("create", "--tender", tmp_path / "procurement.yaml", "--offer", offered, "-o", archive)
    found = verified(archive, tmp_path / "procurement.yaml", code=7 if verdict == "FAIL" else 8)["power"]
    assert (found["verdict"], why in found["why"]) == (verdict, True)
    if verdict != "PASS":
        shown = float(found["why"].removeprefix("a meter shows ").partition(" kW")[0])
        assert shown == pytest.approx(at_work / 1000, rel=0.005)


def test_a_number_that_was_altered_is_found_whatever_the_declaration_says(offered: Offered, tmp_path: Path) -> None:
    archive, tender = offered()
    forged = tmp_path / "forged.zip"
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(forged, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename == "offer.yaml":
                content = content.replace(b"40 k EUR", b"39 k EUR")
            new.writestr(info, content)
    found = verified(forged, tender, code=6)
    assert found["bundle"]["wrong"] == ["changed: offer.yaml"]
    assert ran("verify", forged, "--tender", tender).stdout.startswith("ALTERED: A A-1000")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen on this machine")
def test_a_signature_says_who_offers(offered: Offered, tmp_path: Path) -> None:
    _, tender = offered()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    public = (tmp_path / "key.pub").read_text().split()
    (tmp_path / "allowed").write_text(f"a@example.com {public[0]} {public[1]}\n")
    signed = tmp_path / "signed.zip"
    declared = tmp_path / "vendor" / "offer.yaml"
    ran("create", "--tender", tender, "--offer", declared, "-o", signed, "--sign", tmp_path / "key")
    found = verified(signed, tender, "--allowed-signers", str(tmp_path / "allowed"))
    assert (found["bundle"]["signer"], found["bundle"]["trusted"]) == ("a@example.com", True)
    verified(tmp_path / "a.zip", tender, "--allowed-signers", str(tmp_path / "allowed"), code=6)
    (tmp_path / "others").write_text("")
    shown = ran("verify", signed, "--tender", tender, "--allowed-signers", tmp_path / "others").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[0] == "UNTRUSTED: A A-1000" and "signed by none of the allowed signers" in lines
    assert any(line.startswith("it was made with a key that is not among") for line in lines)


def test_without_a_suite_changes_cannot_be_found_and_that_is_said(offered: Offered, tmp_path: Path) -> None:
    archive, tender = offered()
    tender.write_text(tender.read_text().replace("suite: suite/suite.yaml\n", ""))
    result = ran("verify", archive, "--tender", tender)
    assert result.return_value == 8
    assert "changes cannot be found" in result.stdout
    assert "was made for another text of the tender" in result.stderr


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_every_format_says_the_verdict(offered: Offered, form: str) -> None:
    archive, tender = offered({"tier": "as-is"}, edits={"bert/main.py": "# fused\n"})
    shown = ran("verify", archive, "--tender", tender, "--format", form).stdout
    assert "FAIL: A A-1000" in shown and "beyond the tier" in shown


def test_bad_input_is_one_line_with_its_place(tmp_path: Path) -> None:
    tender = tender_file(tmp_path / "tender")
    run = vendor_run(tmp_path / "vendor", tmp_path / "tender" / "suite" / "suite.yaml", SPEEDS).path
    (tmp_path / "report.json").write_text("{}")
    for benchmarks, line in (
        ({"bert": {"run": str(tmp_path / "report.json")}}, "report.json has no records"),
        ({"bert": {"run": str(tmp_path / "gone.zip")}}, "gone.zip: cannot be read"),
        ({"birt": {"run": str(run)}}, "is an offer for another suite"),
    ):
        others = {} if "birt" in benchmarks else {"llama": {"run": str(run)}}
        declared = offer_file(tmp_path / "vendor", "A", {**benchmarks, **others})
        words = ("create", "--tender", tender, "--offer", declared, "-o", tmp_path / "a.zip")
        said = refused(ConfigError, *words)
        assert line in said and "offer.yaml:" in said and "\n" not in said.strip()
        assert not (tmp_path / "a.zip").exists()


def test_a_run_that_was_copied_out_of_its_base_is_not_packed_without_its_locks(tmp_path: Path) -> None:
    tender = tender_file(tmp_path / "tender")
    run = vendor_run(tmp_path / "vendor", own_suite(tmp_path / "again"), SPEEDS).path
    copied = shutil.copytree(run, tmp_path / "elsewhere" / "runs" / run.name)
    declared = offer_file(tmp_path / "vendor", "A", {name: {"run": str(copied)} for name in SPEEDS})
    said = refused(RecordError, "create", "--tender", tender, "--offer", declared, "-o", tmp_path / "a.zip")
    assert "is gone, and its lock file with it. An offer needs the locks of its run: pack it in the base" in said
    assert not (tmp_path / "a.zip").exists()


def test_an_archive_that_lacks_the_locks_of_its_runs_fails(offered: Offered, tmp_path: Path) -> None:
    archive, tender = offered()
    (manifest,) = (tmp_path / "vendor").glob("**/manifest.json")
    with zipfile.ZipFile(archive) as file:
        declared = {name: file.read(name) for name in ("offer.yaml", "offer.json")}
    part = replace(bundle_parts(open_run(manifest.parent)), locks={})
    create_bundle(tmp_path / "old.zip", [part], declared=declared)
    found = verified(tmp_path / "old.zip", tender, code=7)
    assert found["verdict"] == "FAIL"
    assert "nothing shows which packages ran" in ran("verify", tmp_path / "old.zip", "--tender", tender).stdout


def test_what_is_no_offer_is_refused(offered: Offered, tmp_path: Path) -> None:
    archive, tender = offered()
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(tmp_path / "other.zip", "w") as new:
        for info in old.infolist():
            if info.filename != "offer.json":
                new.writestr(info, old.read(info))
    assert "it has no offer.json" in refused(RecordError, "verify", tmp_path / "other.zip", "--tender", tender)
    (tmp_path / "text.zip").write_text("no zip")
    assert "not a readable zip file" in refused(RecordError, "verify", tmp_path / "text.zip", "--tender", tender)


def test_a_bundle_stands_for_a_run(tmp_path: Path) -> None:
    from milabench.archives import bundle_command as bundle

    tender = tender_file(tmp_path / "tender")
    suite = own_suite(tmp_path / "again")
    run = vendor_run(tmp_path / "vendor", suite, SPEEDS).path
    packed = tmp_path / "vendor" / "run.zip"
    assert CliRunner().invoke(bundle.command, [str(run), "-o", str(packed)], standalone_mode=False).exception is None
    declared = offer_file(tmp_path / "vendor", "A", {name: {"run": "run.zip"} for name in SPEEDS})
    ran("create", "--tender", tender, "--offer", declared, "-o", tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert f"locks/{run.name}/bert/requirements.txt" in file.namelist()
    assert verified(tmp_path / "a.zip", tender)["verdict"] == "PASS"


def test_verify_takes_an_offer_with_its_tender_too(offered: Offered, tmp_path: Path) -> None:
    archive, tender = offered(edits={"bert/main.py": "# fused\n"})

    def run(*words: object) -> Result:
        return CliRunner().invoke(verify.command, list(map(str, words)), standalone_mode=False, catch_exceptions=False)

    result = run("--offer", archive, tender, "--json")
    assert (result.return_value, json.loads(result.stdout)) == (7, verified(archive, tender, code=7))
    assert run("--offer", archive, tender).stdout == ran("verify", archive, "--tender", tender).stdout
    with pytest.raises(UsageError, match="--offer: name the tender that it answers too"):
        run("--offer", archive)
    with pytest.raises(UsageError, match="Add --offer"):
        run(archive, tender)


# What compares by a tender without verifying


def told(*words: object) -> Result:
    from milabench.cli import compare

    return CliRunner().invoke(compare.command, list(map(str, words)), standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize("named", ["run", "declaration", "archive"])
def test_a_comparison_by_the_tender_says_what_is_not_its_suite(offered: Offered, tmp_path: Path, named: str) -> None:
    archive, tender = offered(edits={"bert/main.py": "# fused\n"}, overrides=["bert.argv.--batch-size=64"])
    vendor = tmp_path / "vendor"
    given = {"run": vendor / "runs" / "offered", "declaration": vendor / "offer.yaml", "archive": archive}[named]
    result = told(given, "--tender", tender, "--json")
    (warning,) = (line for line in json.loads(result.stdout)["tender"]["warnings"] if "differs" in line)
    name = "offered" if named == "run" else "A A-1000"
    assert warning.startswith(f"{name}: differs from the tender's suite ")
    assert warning.endswith("suite.yaml: bert: argv.--batch-size 64 for 8 (as-is), program (ported, beyond the tier)")
    (system,) = json.loads(result.stdout)["tender"]["systems"]
    found = verified(archive, tender, code=7)
    assert system["changes"] == found["changes"]


def test_a_comparison_of_the_tenders_own_suite_says_nothing_of_it(offered: Offered, tmp_path: Path) -> None:
    _, tender = offered()
    run = tmp_path / "vendor" / "runs" / "offered"
    value = json.loads(told(run, "--tender", tender, "--json").stdout)["tender"]
    assert value["systems"][0]["changes"] == []
    assert not [line for line in value["warnings"] if "suite" in line]


def test_a_report_of_which_no_suite_is_recorded_says_so(offered: Offered, tmp_path: Path) -> None:
    from milabench.cli import report

    _, tender = offered()
    run = tmp_path / "vendor" / "runs" / "offered"
    done = CliRunner().invoke(report.command, [str(run), "-o", str(tmp_path / "r.json")], standalone_mode=False)
    assert done.exception is None
    report_of = json.loads((tmp_path / "r.json").read_text())
    del report_of["manifest"]  # as versions before wrote it
    (tmp_path / "r.json").write_text(json.dumps(report_of))
    value = json.loads(told(tmp_path / "r.json", "--tender", tender, "--json").stdout)["tender"]
    assert [line for line in value["warnings"] if "records no suite of bert, llama" in line]


def test_a_report_by_the_tender_says_what_is_not_its_suite(offered: Offered, tmp_path: Path) -> None:
    from milabench.cli import report

    _, tender = offered(overrides=["bert.argv.--batch-size=64"])
    words = [str(tmp_path / "vendor" / "runs" / "offered"), "--tender", str(tender), "--reference", "none"]
    result = CliRunner().invoke(report.command, words, standalone_mode=False, catch_exceptions=False)
    assert "differs from the tender's suite" in result.stderr and "argv.--batch-size 64 for 8 (as-is)" in result.stderr


def test_a_budget_question_says_what_is_not_the_tenders_suite(offered: Offered, tmp_path: Path) -> None:
    from milabench.procurement import budget_command as budget

    archive, tender = offered(overrides=["bert.argv.--batch-size=64"])
    words = [str(tender), str(archive), "--power", "300 kW"]
    result = CliRunner().invoke(budget.command, words, standalone_mode=False, catch_exceptions=False)
    assert "A A-1000: differs from the tender's suite" in result.stderr
    assert "argv.--batch-size 64 for 8 (as-is)" in result.stderr


def test_an_archive_for_another_text_of_the_tender_is_said_wherever_it_is_read(
    offered: Offered, tmp_path: Path
) -> None:

    archive, tender = offered()
    tender.write_text(f"# later\n{tender.read_text()}")
    (tmp_path / "offers").mkdir()
    shutil.copy(archive, tmp_path / "offers")
    said = "was made for another text of the tender"
    assert said in told(archive, "--tender", tender).stderr
    table = CliRunner().invoke(
        offer.command, ["compare", str(tmp_path / "offers"), "--tender", str(tender)], standalone_mode=False
    )
    assert said in table.stderr


def test_a_killed_creation_leaves_nothing_in_the_temporary_folder_and_the_next_removes_the_rest(
    offered: Offered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, tender = offered()
    (run,) = (tmp_path / "vendor").rglob("manifest.json")
    bundle = tmp_path / "run.zip"
    bundle_runs(bundle, None, [str(run.parent)])
    benchmarks = {name: {"run": str(bundle)} for name in SPEEDS}
    declared = offer_file(tmp_path / "vendor", "B", benchmarks)
    temporary, out = tmp_path / "tmp", tmp_path / "out"
    temporary.mkdir()
    out.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    argv = ("create", "--tender", tender, "--offer", declared, "-o", out / "b.zip")
    pid = os.fork()
    if not pid:

        def hook(event: str, values: tuple[object, ...]) -> None:
            if event == "open" and f"{out}/" in str(values[0]):
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        ran(*argv)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert [path.name for path in out.iterdir()] == [".b.zip.building"]
    assert list(temporary.iterdir()) == []
    assert ran(*argv).exit_code == 0
    assert [path.name for path in out.iterdir()] == ["b.zip"]
    assert list(temporary.iterdir()) == []
