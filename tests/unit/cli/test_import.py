"""`milabench import`: what milabench 1.3 and nccl-tests wrote becomes runs that every other verb reads."""

from __future__ import annotations

import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.examples import thinned
from tests.mutations import mutations
from tests.old_runs import nccl, old_pack, old_run, remote_pack, skipped_pack

pytestmark = pytest.mark.turns(3)

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


def test_zip_files_in_a_folder_are_imported_with_it(milabench: Milabench, tmp_path: Path) -> None:
    old_run(tmp_path / "old" / OLD, "resnet50")
    zipped = old_run(tmp_path / "other.2024-08-20_20:14:51.193380", "bert", rates=[200.0] * 65)
    with zipfile.ZipFile(tmp_path / "old" / "other.zip", "w") as file:
        for each in zipped.glob("*.data"):
            file.write(each, f"{zipped.name}/{each.name}")
    with zipfile.ZipFile(tmp_path / "old" / "photos.zip", "w") as file:
        file.writestr("a.jpg", "")
    (tmp_path / "old" / "torn.zip").write_text("PK")
    said = milabench("import", str(tmp_path / "old"))
    names = [Path(line.partition(": ")[0]).name.partition(".")[0] for line in said.out.splitlines()]
    assert (said.code, names) == (0, ["lofilano", "other"])
    assert said.err == (
        f"left out: {tmp_path}/old/photos.zip: no run of milabench 1.3 in it\n"
        f"left out: {tmp_path}/old/torn.zip: is not a zip file\n"
    )


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
    text = milabench("report", "--format", "text").out
    assert "failures" in text.lower()
    assert "rerun" not in text  # no suite here would run it again


Recorded = tuple[str, Any, str | None]
STOP: Recorded = ("stop", None, "data")
ERROR: Recorded = ("error", {"type": "ValueError", "message": "bad"}, "data")
NO_LOSS: Recorded = ("data", {"task": "train", "loss": float("nan")}, "data")
NOT_TRAINED: Recorded = ("data", {"task": "eval", "rate": 5.0, "units": "items/s"}, "data")
EXITED = "of a step that ended with exit code 0, which milabench 1.3 counts as a success"
STOPPED = "of a step that was stopped, for it had all its observations, which milabench 1.3 counts as a success"


@pytest.mark.parametrize(
    ("code", "before_end", "count", "ending", "said"),
    [
        (0, [STOP], 65, "passed", []),
        (-15, [STOP], 65, "passed", []),
        (1, [STOP], 65, "passed", []),  # a launcher whose ranks were ended
        (1, [STOP, ERROR], 65, "passed", [f"ValueError: bad: {STOPPED}"]),
        (-9, [STOP], 65, "passed", [f"exit code -9: {STOPPED}"]),
        ("ERROR", [STOP], 65, "passed", [f"no exit code: {STOPPED}"]),
        ("ERROR", [ERROR], 65, "failed: exit: ValueError: bad", []),  # interrupted
        (-15, [STOP], 0, "passed", [f"no rate of the task train: {STOPPED}"]),
        (0, [ERROR], 65, "passed", [f"ValueError: bad: {EXITED}"]),
        (1, [], 65, "failed: exit", []),
        (-15, [], 65, "failed: signal", []),
        (0, [], 0, "failed: no-data: exit code 0 without a rate of the task train", []),
        (0, [NOT_TRAINED], 0, "failed: no-data: exit code 0 without a rate of the task train", []),
        (0, [NO_LOSS], 65, "failed: invalid: 1 of 66 losses are no number", []),
    ],
)
def test_a_step_has_passed_where_milabench_1_3_says_so_and_what_it_overlooks_is_said(
    milabench: Milabench,
    tmp_path: Path,
    code: int | str,
    before_end: list[Recorded],
    count: int,
    ending: str,
    said: list[str],
) -> None:
    old = old_run(tmp_path / OLD, "resnet50", devices=1, code=code, rates=[300.0] * count, before_end=before_end)
    milabench("import", str(old))
    for run in ("", str(old)):
        [bench] = report(milabench, run)["benchmarks"]
        whys = [": ".join(filter(None, (failure["why"], failure["detail"]))) for failure in bench["failures"]]
        assert ": ".join([bench["outcome"], *whys]) == ending
        assert [message for message in bench["messages"] if "milabench 1.3" in message] == said


def test_a_run_that_was_imported_by_other_rules_is_judged_by_these(milabench: Milabench, tmp_path: Path) -> None:
    milabench("import", str(old_run(tmp_path / OLD, "resnet50", code=-15, before_end=[STOP])))
    [journal] = (tmp_path / "base").rglob("journal.jsonl")
    journal.write_text(journal.read_text().replace('"outcome":"passed"', '"outcome":"failed","why":"signal"'))
    assert '"failed"' in journal.read_text()
    [bench] = report(milabench)["benchmarks"]
    assert (bench["outcome"], bench["counts"]["passed"]) == ("passed", 2)


def test_what_was_left_out_for_a_lack_of_capabilities_is_skipped_and_what_never_ended_is_missing(
    milabench: Milabench, tmp_path: Path
) -> None:
    old = old_run(tmp_path / OLD, "resnet50", "bert", devices=1)
    skipped_pack(old, "diffusion-nodes", "len(nodes) >= 2")
    cut = old / "bert.D0.data"
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:20]))
    milabench("import", str(old))
    for run in ("", str(old)):
        benches = {bench["bench"]: bench for bench in report(milabench, run)["benchmarks"]}
        assert {name: bench["outcome"] for name, bench in benches.items()} == {
            "resnet50": "passed",
            "bert": "missing",
            "diffusion-nodes": "skipped",
        }
        assert [skip["detail"] for skip in benches["diffusion-nodes"]["skipped"]] == ["len(nodes) >= 2"]
        assert benches["diffusion-nodes"]["messages"] == []
        # Of neither did milabench 1.3 count a step.
        assert [benches[name]["milabench13"]["n"] for name in ("resnet50", "bert", "diffusion-nodes")] == [1, 0, 0]


def test_a_tag_says_which_repeat_and_node_a_pack_is_of(milabench: Milabench, tmp_path: Path) -> None:
    old = tmp_path / OLD
    for repeat, rate in enumerate((100.0, 110.0)):
        old_pack(old, "bert", f"R{repeat}", "D0", rates=[rate] * 65)
    system = {"nodes": [{"name": "n1", "main": True}, {"name": "n2"}]}
    job = {"plan": {"method": "njobs", "n": 1}, "num_machines": 2, "devices": ["0", "1"], "system": system}
    old_pack(old, "llm", "n1", rates=[500.0] * 65, **job)
    old_pack(old, "llm", "n2", "nolog", rates=[], code=1, **job)
    milabench("import", str(old))
    for run in ("", str(old)):
        benches = {bench["bench"]: bench for bench in report(milabench, run)["benchmarks"]}
        bert, llm = benches["bert"], benches["llm"]
        assert (bert["replicates"], bert["instances"], bert["ngpu"]) == (2, 1, 1)
        assert bert["perf"] == pytest.approx((100 * 110) ** 0.5)
        assert (llm["outcome"], llm["nodes"], llm["ngpu"], llm["perf"]) == ("passed", 2, 4, pytest.approx(500))
        assert llm["milabench13"]["ngpu"] == 4
        assert llm["messages"] == [
            "exit code 1: of a step that is of a node that records no rates, which milabench 1.3 counts as a success"
        ]


def test_the_figures_of_milabench_1_3_stand_beside_ours_and_its_score_is_of_them(
    milabench: Milabench, tmp_path: Path
) -> None:
    old = tmp_path / OLD
    old_pack(old, "bert", "D0", rates=[1.0, 10.0, 12.0, 14.0, 99.0], weight=1.0)  # 12 without the two at the ends
    old_pack(old, "bert", "D1", rates=[20.0, 22.0], weight=1.0)  # too few to leave any out
    old_pack(old, "brax", "0", rates=[8.0] * 6, weight=3.0, plan={"method": "njobs", "n": 2}, devices=[0, 1])
    old_pack(old, "brax", "1", rates=[], code=1, weight=3.0, plan={"method": "njobs", "n": 2}, devices=[0, 1])
    old_pack(old, "llava", "D0", rates=[], code=1, weight=1.0)
    milabench("import", str(old))
    for run in ("", str(old)):
        said = milabench("report", "--score", "compat", "--json", *([run] if run else []))
        found = json.loads(said.out)
        figures = {bench["bench"]: bench["milabench13"] for bench in found["benchmarks"]}
        assert figures["bert"] == {
            "n": 2,
            "failed": 0,
            "ngpu": 1,
            "observations": 7,
            "rate": pytest.approx((10 + 12 + 14 + 20 + 22) / 5),
            "score": pytest.approx(12 + 21),
        }
        assert figures["brax"] == {"n": 2, "failed": 1, "ngpu": 2, "observations": 6, "rate": 8, "score": 4}
        assert figures["llava"] == {"n": 1, "failed": 1, "ngpu": 1, "observations": 0, "rate": None, "score": None}
        assert found["score"]["value"] == pytest.approx((34 * 5**3 * 1) ** (1 / 5))
        for form in ("brief", "text", "markdown", "html"):
            shown = [
                milabench("report", *score, "-f", form, *([run] if run else [])).out
                for score in ([], ["--score", "compat"])
            ]
            assert ["difference %" in text for text in shown] == [False, True], form
            assert "resume" not in "".join(shown), form


def test_a_total_without_weights_is_none_and_rates_below_zero_are_no_crash(
    milabench: Milabench, tmp_path: Path
) -> None:
    for weight, value in ((0.0, None), (1.0, 1.0)):
        old = tmp_path / f"w{weight:g}.2024-08-27_20:14:51.193380"
        old_pack(old, "odd", "D0", rates=[-5.0] * 6, weight=weight)
        found = json.loads(milabench("report", str(old), "--score", "compat", "--json").out)
        assert (found["score"]["value"], found["benchmarks"][0]["milabench13"]["rate"]) == (value, -5)


# What milabench 1.3 itself makes of the runs that it ships with its tests: (archive, benchmark, n, failed, rate).
CHECKOUT = os.environ.get("MILABENCH13", "")
KNOWN = [
    ("L40S.zip", "bert-fp32", 4, 0, 69.34924013817297),
    ("L40S.zip", "resnet50", 4, 0, 1138.50494270294),
    ("L40S.zip", "brax", 1, 0, 1064282.2235735096),
    ("L40S.zip", "fp16", 4, 0, 219.97071609690087),
    ("L40S.zip", "llm-lora-ddp-gpus", 1, 0, 5253.791689614373),
    ("L40S.zip", "rlhf-single", 4, 0, 1742.5391542898974),
    ("L40S.zip", "diffusion-single", 4, 4, 7.768347350955148),
    ("L40S.zip", "dimenet", 4, 4, None),
    ("L40S.zip", "vjepa-gpus", 1, 1, None),
    ("L40S.zip", "whisper", 4, 0, 428.71221231962403),
    ("8GPUs.zip", "bert-fp32", 8, 0, 29.25317941488981),
    ("8GPUs.zip", "resnet152-multi", 1, 0, 5329.831930691412),
    ("8GPUs.zip", "dlrm", 1, 0, 214677.4297399421),
    ("8GPUs.zip", "resnet50", 8, 0, 927.7656801343195),
    ("rijubigo.2023-03-24_13:45:27.512446", "benchio", 4, 0, 7979.818309641414),
    ("sedumoje.2023-03-24_13:57:35.089747", "benchio", 2, 0, 7759.746816790889),
]
# The counts of benchmarks (passed, failed, skipped), and the score of those that ran by their weights.
TOTALS = {
    "L40S.zip": (31, 12, 3, 166.06967694127775),
    "8GPUs.zip": (23, 0, 2, 637.8280197695469),
    "rijubigo.2023-03-24_13:45:27.512446": (1, 0, 0, 7980.818309641412),
    "sedumoje.2023-03-24_13:57:35.089747": (1, 0, 0, 7760.746816790883),
}


@pytest.mark.skipif(not CHECKOUT, reason="MILABENCH13 names no checkout of milabench 1.3")
@pytest.mark.parametrize("archive", TOTALS)
def test_the_known_answers_of_milabench_1_3_are_reproduced(milabench: Milabench, archive: str) -> None:
    assert milabench("import", str(Path(CHECKOUT, "tests", "runs", archive))).code == 0
    found = json.loads(milabench("report", "--score", "compat", "--json").out)
    benches = {bench["bench"]: bench for bench in found["benchmarks"]}
    for _, name, n, failed, rate in (known for known in KNOWN if known[0] == archive):
        figures = benches[name]["milabench13"]
        near = rate if rate is None else pytest.approx(rate, rel=1e-13)
        assert (figures["n"], figures["failed"], figures["rate"]) == (n, failed, near), name
    outcomes = [bench["outcome"] for bench in benches.values()]
    counts = tuple(map(outcomes.count, ("passed", "failed", "skipped")))
    assert (*counts, found["score"]["value"]) == (*TOTALS[archive][:3], pytest.approx(TOTALS[archive][3], rel=1e-13))


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
    assert (bench["outcome"], bench["failures"][0]["why"]) == ("failed", "wrong")


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
