"""accept, baseline, outliers, bundle, verify, db, history and export, as commands: what they print, write and answer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milabench.events.rundir import Run
from milabench.execute.locks import hold_run, this_orchestrator
from tests.recorded_run import SYSTEM, Recorded, rates, record

Milabench = Callable[..., Any]


def run(
    base: Path, name: str, level: float = 800, *, host: str = "n0", day: int = 1, slow: float = 1.0, size: str = ""
) -> Run:
    steps = [
        Recorded(
            tag=f"D{device}",
            devices=(device,),
            repeat=repeat,
            events=rates(*[level * (slow if device else 1.0) * (1 + repeat / 1000)] * 3),
        )
        for repeat in range(3)
        for device in range(2)
    ]
    system = {**SYSTEM, "nodes": [{**SYSTEM["nodes"][0], "hostname": host}]}
    created = f"2026-03-{day:02d}T12:00:00+00:00"
    suite = {"suite": {"digits": {"size": size}}} if size else {}
    return record(base, *steps, name=name, manifest={"system": system, "created": created, **suite})


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "base"


# ------------------------------------------------------------------------------------------------------------- accept


def test_accept_answers_with_its_verdict(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    run(base, "old"), run(base, "new", 1000)
    codes = {}
    for bound in ("1.2 x reference", "1.3 x reference", "1.25 x reference"):
        (tmp_path / "a.yaml").write_text(f"benchmarks: {{digits: {{minimum: {bound}}}}}\n")
        said = milabench("accept", "new", "--criteria", "a.yaml", "--reference", "old")
        codes[bound] = (said.code, said.out.split(":")[0])
    assert codes == {
        "1.2 x reference": (0, "PASS"),
        "1.3 x reference": (7, "FAIL"),
        "1.25 x reference": (8, "INCONCLUSIVE"),
    }


def test_accept_writes_a_document(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    run(base, "new")
    (tmp_path / "a.yaml").write_text("title: t\nrequired: [digits]\n")
    said = milabench("accept", "--criteria", "a.yaml", "-o", "a.md")
    assert (said.code, said.out, said.err) == (0, "", "written to a.md\nPASS\n")
    assert milabench("accept", "--criteria", "a.yaml", "-o", "a.html").code == 0
    assert milabench("accept", "--criteria", "a.yaml", "-o", "a.docx").code == 2
    assert (tmp_path / "a.md").read_text().startswith("# PASS: t\n")


def test_accept_says_what_it_lacks(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    run(base, "new")
    assert milabench("accept").err.startswith("error: missing option --criteria FILE")
    assert milabench("accept", "--criteria", "no.yaml").err == (
        "error: no.yaml: cannot be read: no such file or directory. Check the path\n"
    )
    (tmp_path / "a.yaml").write_text("benchmarks: {digits: {minimum: 1 x reference}}\n")
    said = milabench("accept", "--criteria", "a.yaml")
    assert (said.code, said.err) == (2, "error: a.yaml: asks for 'x reference': name that run with --reference\n")


def test_the_reference_may_be_a_report_of_a_run_that_is_gone(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    old = run(base, "old")
    milabench("report", "old", "-o", "old.json")
    shutil.rmtree(old.path)
    run(base, "new", 1000)
    (tmp_path / "a.yaml").write_text("benchmarks: {digits: {minimum: 1.2 x reference}}\n")
    assert milabench("accept", "new", "--criteria", "a.yaml", "--reference", "old.json").code == 0
    assert milabench("accept", "new", "--criteria", "a.yaml", "--reference", "nobody").code == 3


# -------------------------------------------------------------------------------------------------------------- fleet


def test_outliers_names_the_device_and_answers_1(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(3)]
    for name in names:
        run(base, name, host=name)
    run(base, "bad", host="bad", slow=0.9)
    said = milabench("baseline", *names, "-o", "b.json")
    assert (said.code, said.err) == (0, "written to b.json\nmetrics: 1, places: 6\n")
    said = milabench("outliers", "bad", "--baseline", "b.json")
    assert said.code == 1
    assert re.search(r"bad/D1 \(GPU-1\) +\| worse +\| digits +\| rate +\| +720.7\d* images/s", said.out)
    [one] = json.loads(milabench("outliers", "bad", "--baseline", "b.json", "--json").out)["outliers"]
    assert (one["node"], one["device"], one["metric"], one["side"]) == ("bad", "D1", "rate", "worse")
    assert milabench("outliers", "n0", "--baseline", "b.json").code == 0
    assert milabench("outliers", "bad", "--baseline", "b.json", "--floor", "0.2").code == 0


def test_a_baseline_of_few_places_warns(milabench: Milabench, base: Path) -> None:
    run(base, "n0")
    assert "warning: fewer than 5 places measured digits" in milabench("baseline", "n0", "-o", "b.json").err


def test_another_file_is_no_baseline(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    run(base, "n0")
    (tmp_path / "b.json").write_text("[]")
    said = milabench("outliers", "n0", "--baseline", "b.json")
    assert (said.code, said.err) == (6, "error: b.json: is not a baseline: it is not a JSON object\n")


# ------------------------------------------------------------------------------------------------------------- bundle


def test_a_bundle_of_one_run_stands_for_the_run(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    old = run(base, "old")
    milabench("bundle", "old", "-o", "old.zip")
    shutil.rmtree(old.path)
    run(base, "new", 1000), run(base, "newer", 1000)
    assert "FASTER" in milabench("compare", "old.zip", "new").out
    assert "old" in milabench("report", "new", "--reference", "old.zip", "--full").out
    (tmp_path / "a.yaml").write_text("benchmarks: {digits: {minimum: 1.2 x reference}}\n")
    assert milabench("accept", "new", "--criteria", "a.yaml", "--reference", "old.zip").code == 0
    milabench("bundle", "new", "newer", "-o", "two.zip")
    said = milabench("compare", "two.zip", "new")
    assert (said.code, said.err) == (
        6,
        "error: two.zip: holds 2 runs, expected a single run. Make a bundle of that run alone\n",
    )
    edited(tmp_path / "old.zip", tmp_path / "bad.zip", lambda name, content: content.replace(b"800", b"900"))
    said = milabench("compare", "bad.zip", "new")
    assert said.code == 6
    assert re.match(r"error: bad.zip: was modified: .*\. `milabench verify bad.zip` shows everything\n", said.err)


def edited(source: Path, target: Path, change: Callable[[str, bytes], bytes | None], **added: bytes) -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            content = change(info.filename, old.read(info))
            if content is not None:
                new.writestr(info, content)
        for name, content in added.items():
            new.writestr(name, content)


def test_a_bundle_is_the_same_twice_and_verifies(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    run(base, "a"), run(base, "b", 900)
    said = milabench("bundle", "a", "b", "-o", "x.zip")
    assert said.code == 0, said.err
    milabench("bundle", "a", "b", "-o", "y.zip")
    assert (tmp_path / "x.zip").read_bytes() == (tmp_path / "y.zip").read_bytes()
    shutil.rmtree(base)  # everything that verify needs is in the bundle
    found = json.loads(milabench("verify", "x.zip", "--json").out)
    assert (found["unaltered"], found["wrong"], found["signed"]) == (True, [], False)
    assert found["numbers"] > 100
    assert found["chain"] in said.out


def test_an_edited_bundle_is_named_file_by_file(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    path = run(base, "a").path.name
    milabench("bundle", "a", "-o", "x.zip")

    def change(name: str, content: bytes) -> bytes | None:
        if name.endswith("digits.D0.data"):
            return content.replace(b'"rate":800.0', b'"rate":900.0').replace(b'"n":800.0', b'"n":900.0')
        return None if name.endswith("digits.D1.data") else content

    edited(tmp_path / "x.zip", tmp_path / "z.zip", change, extra=b"?")
    said = milabench("verify", "z.zip")
    assert said.code == 6
    assert said.out.startswith("z.zip: ALTERED\n")
    for line in (f"changed: runs/{path}/digits.D0.data", "added: extra", f"removed: runs/{path}/digits.D1.data"):
        assert f"  {line}\n" in said.out
    assert f"{path}: benchmarks[digits].perf: recorded as" in said.out


def test_numbers_that_are_not_the_records_are_found_though_every_hash_fits(
    milabench: Milabench, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(base, "a")
    with monkeypatch.context() as patch:  # a bundle by somebody who wrote other numbers into it
        from milabench.analysis.summary_model import Summary

        honest = Summary.to_json
        patch.setattr(
            Summary,
            "to_json",
            lambda self: json.loads(json.dumps(honest(self)).replace('"outcome": "passed"', '"outcome": "failed"')),
        )
        milabench("bundle", "a", "-o", "x.zip")
    said = milabench("verify", "x.zip")
    assert (said.code, said.out.count("ALTERED")) == (6, 1)
    assert 'benchmarks[digits].outcome: recorded as "failed", recomputed as "passed"' in said.out


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="not installed: apt-get install openssh-client")
def test_a_signature_is_by_somebody(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    run(base, "a")
    for name in ("key", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
        public = (tmp_path / f"{name}.pub").read_text()
        (tmp_path / f"{name}.allowed").write_text(f'lab@example.org namespaces="milabench-bundle" {public}')
    assert milabench("bundle", "a", "-o", "x.zip", "--sign", "key").code == 0
    assert "signed: ED25519 key SHA256:" in milabench("verify", "x.zip").out
    said = milabench("verify", "x.zip", "--allowed-signers", "key.allowed")
    assert (said.code, "  signed: lab@example.org\n" in said.out + "\n") == (0, True)
    said = milabench("verify", "x.zip", "--allowed-signers", "other.allowed")
    assert (said.code, said.out.splitlines()[:2]) == (
        6,
        ["x.zip: UNTRUSTED", "  it was made with a key that is not among the allowed signers"],
    )

    def other_list(name: str, content: bytes) -> bytes:
        return content.replace(b'"notes"', b'"Notes"') if name == "bundle.json" else content

    edited(tmp_path / "x.zip", tmp_path / "z.zip", other_list)
    said = milabench("verify", "z.zip")
    assert (said.code, "invalid signature" in said.out) == (6, True)
    for name in ("key", "other"):
        said = milabench("verify", "z.zip", "--allowed-signers", f"{name}.allowed")
        assert (said.code, said.out.splitlines()[0], "invalid signature" in said.out) == (6, "z.zip: ALTERED", True)
    assert milabench("bundle", "a", "-o", "w.zip", "--sign", "nokey").code == 2
    assert not (tmp_path / "w.zip").exists()


def test_an_unsigned_bundle_is_not_by_anybody(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    run(base, "a")
    milabench("bundle", "a", "-o", "x.zip")
    (tmp_path / "allowed").write_text("")
    said = milabench("verify", "x.zip", "--allowed-signers", "allowed")
    assert (said.code, said.out.splitlines()[:2]) == (6, ["x.zip: UNTRUSTED", "  it is not signed"])


def test_another_zip_is_no_bundle(milabench: Milabench, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("a", "b")
    said = milabench("verify", "x.zip")
    assert (said.code, said.err) == (
        6,
        "error: x.zip: not a bundle: it has no bundle.json. Create it with `milabench bundle`\n",
    )
    assert milabench("verify", "none.zip").err == "error: none.zip: no such file\n"


# ------------------------------------------------------------------------------------------------------------ history


def test_a_run_is_in_the_store_once(milabench: Milabench, base: Path) -> None:
    name = run(base, "a").path.name
    assert milabench("db", "add", "a").out == f"{name}: added\n"
    assert milabench("db", "add", "a").out == f"{name}: already in the store\n"
    with (base / "runs" / name / "digits.D0.data").open("ab") as file:
        file.write(b'{"event":"data","data":{"metric":"accuracy","value":0.5},"pipe":"data"}\n')
    assert milabench("db", "add", "a").out == f"{name}: changed: replaced\n"
    assert json.loads(milabench("db", "query", "SELECT count(*) AS n FROM runs", "--json").out) == [{"n": 1}]


def test_a_query_is_a_table_csv_or_json(milabench: Milabench, base: Path) -> None:
    run(base, "a")
    milabench("db", "add")
    sql = "SELECT bench, units, replicates FROM results"
    assert milabench("db", "query", sql, "--csv").out == "bench,units,replicates\r\ndigits,images/s,3\r\n"
    assert json.loads(milabench("db", "query", sql, "--json").out) == [
        {"bench": "digits", "units": "images/s", "replicates": 3}
    ]
    assert "digits | images/s" in milabench("db", "query", sql).out


def test_a_query_only_reads(milabench: Milabench, base: Path) -> None:
    run(base, "a")
    milabench("db", "add")
    writing = ("DELETE FROM runs", "DROP TABLE runs", f"ATTACH '{base}/a.db' AS a", f"VACUUM INTO '{base}/b.db'")
    for sql in (*writing, "SELEC", "SELECT 1; SELECT 2"):
        said = milabench("db", "query", sql)
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), sql
    assert milabench("db", "query", "SELECT count(*) FROM runs").code == 0
    assert not list(base.glob("*.db"))


@pytest.mark.slow
def test_the_history_of_each_size_is_apart(milabench: Milabench, base: Path) -> None:
    for day in range(1, 13):
        run(base, f"tiny{day}", 51_000, day=day, size="tiny"), run(base, f"device{day}", 800, day=day, size="device")
    milabench("db", "add", *(f"{size}{day}" for size in ("tiny", "device") for day in range(1, 13)))
    found = {one["size"]: one for one in json.loads(milabench("history", "digits", "--json").out)["trends"]}
    assert {size: (len(one["points"]), one["changes"]) for size, one in found.items()} == {
        "tiny": (12, []),
        "device": (12, []),
    }
    assert ", size tiny\n" in milabench("history", "digits").out


def test_an_empty_store_and_an_unknown_benchmark_are_one_line(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    said = milabench("history", "digits")
    store = base / "history.sqlite"
    assert (said.code, said.err) == (
        3,
        f"error: {store}: no results store. Create it with `milabench db add RUN... --db {store}`\n",
    )
    elsewhere = milabench("history", "digits", "--db", "my results.sqlite").err
    assert "`milabench db add RUN... --db 'my results.sqlite'`" in elsewhere
    (tmp_path / "empty").write_bytes(b"")
    assert milabench("db", "query", "SELECT 1", "--db", "empty").code == 3
    (tmp_path / "text").write_text("no database at all, but a long enough text to be looked at")
    said = milabench("db", "query", "SELECT 1", "--db", "text")
    assert (said.code, said.err) == (6, "error: text: not a results store: file is not a database\n")
    assert milabench("db", "add", "nobody").code == 3
    record(base, name="prepare", manifest={"phase": "prepare"})
    assert milabench("db", "add", "prepare").err.endswith(": is the record of prepare, in which nothing was measured\n")
    run(base, "a")
    milabench("db", "add")
    assert milabench("history", "bert").err.endswith("no run of 'bert' with a rate is in the store. It has digits\n")


def test_history_finds_the_night_when_a_benchmark_became_faster(milabench: Milabench, base: Path) -> None:
    names = [run(base, f"night{day:02d}", 860 if day > 6 else 800 + day % 2, day=day).path.name for day in range(1, 13)]
    assert milabench("db", "add", *names).code == 0
    said = milabench("history", "digits")
    assert said.out.startswith("digits: rate in images/s, n0, H100\n")
    [marked] = [line for line in said.out.splitlines() if "(better)" in line]
    assert "night07" in marked
    [trend] = json.loads(milabench("history", "digits", "--json").out)["trends"]
    assert [(change["run"], change["side"]) for change in trend["changes"]] == [(names[6], "better")]
    assert len(trend["points"]) == 12
    assert len(json.loads(milabench("history", "digits", "--last", "3", "--json").out)["trends"][0]["points"]) == 3


def test_a_report_of_the_store_is_the_report_of_the_run(milabench: Milabench, base: Path) -> None:
    found = run(base, "a")
    run(base, "b", 900, day=2)
    milabench("db", "add", "a", "b")
    before = milabench("report", "a")
    shutil.rmtree(found.path)
    assert milabench("report", "a", "--from-db") == before
    assert milabench("report", "--from-db").out.splitlines()[0] == milabench("report", "b").out.splitlines()[0]
    assert milabench("report", "a", "--from-db", "-f", "html").code == 2
    said = milabench("report", "nobody", "--from-db")
    assert (said.code, said.err.count("\n"), "no run is called 'nobody'" in said.err) == (3, 1, True)


def test_postgresql_without_its_driver_says_how_to_get_it(
    milabench: Milabench, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    run(base, "a")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    said = milabench("db", "add", "a", "--db", "postgresql://user:secret@localhost/results")
    assert (said.code, "pip install 'milabench[postgresql]'" in said.err, "secret" in said.err) == (2, True, False)


def test_export_without_pyarrow_says_how_to_get_it(
    milabench: Milabench, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    run(base, "a")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = milabench("export", "a", "-o", "x.parquet")
    assert (said.code, "pip install 'milabench[parquet]'" in said.err) == (2, True)
    assert milabench("export", "a", "-o", "x.xlsx").code == 2


def test_export_writes_a_row_for_each_metric(milabench: Milabench, base: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="the extra milabench[parquet] is not installed")
    run(base, "a"), run(base, "b")
    assert milabench("export", "a", "b", "-o", "x.parquet").code == 0
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert len(rows) == 12
    assert {row["run_name"].split(".")[0] for row in rows} == {"a", "b"}
    first = rows[0]
    assert (first["bench"], first["metric"], first["value"], first["run_host"]) == ("digits", "rate", 800.0, "n0")


# ---------------------------------------------------------------------------------------------------- while it is active


@pytest.mark.parametrize(
    "argv",
    [
        ("accept", "a", "--criteria", "a.yaml"),
        ("baseline", "a", "-o", "x"),
        ("bundle", "a", "-o", "x"),
        ("db", "add", "a"),
        ("export", "a", "-o", "x.parquet"),
    ],
)
def test_an_active_run_has_no_results_yet(
    milabench: Milabench, base: Path, tmp_path: Path, argv: tuple[str, ...]
) -> None:
    (tmp_path / "a.yaml").write_text("required: [digits]\n")
    found = run(base, "a")
    with hold_run(found.path, this_orchestrator("marker")):
        said = milabench(*argv)
    assert (said.code, said.out) == (6, "")
    assert re.fullmatch(
        r"error: a\S+: is still running \(process \d+\). Wait for its end, or end it with `milabench cancel a\S+`\n",
        said.err,
    )
    assert not (tmp_path / "x").exists()
