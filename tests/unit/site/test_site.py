"""A static site of a base: complete, self-contained, replaced page by page, and never written over anything else."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from milabench.cli import report
from milabench.errors import NothingSelected, RecordError, UsageError
from milabench.events.rundir import Run
from tests.drawn_runs import HOSTILE, system
from tests.recorded_run import SYSTEM, Recorded, rates, record
from tests.unit.pages.test_pages import Node, parsed

SITE = "site"
Write = Callable[..., Result]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def run(*argv: str | Path, folder: Path = tmp_path / SITE) -> Result:
        words = [*map(str, argv), "--base", str(tmp_path), "--site", str(folder)]
        return CliRunner().invoke(report.command, words, standalone_mode=False, catch_exceptions=False)

    return run


def made(base: Path, name: str, level: float = 100.0, host: str = "box", bench: str = "digits") -> Run:
    (node,) = SYSTEM["nodes"]
    machine = {"arch": "cuda", "nodes": [{**node, "hostname": host}]}
    steps = [Recorded(bench=bench, repeat=at, events=rates(*[level + at] * 5)) for at in range(3)]
    manifest = {"system": machine, "suite_file": "/home/joe/suites/mine.yaml", "about": {bench: "Learns <i>digits</i>"}}
    return record(base, *steps, name=name, manifest=manifest)


def pages(folder: Path) -> dict[str, Node]:
    return {path.name: parsed(path.read_text()) for path in sorted(folder.glob("*.html"))}


def links(page: Node) -> Iterator[str]:
    return (link for node in page.all("a") if not (link := node.attributes["href"]).startswith("#"))


def test_every_run_has_a_page_and_every_benchmark_a_history(tmp_path: Path, write: Write) -> None:
    for number, name in enumerate(("a", "b", "c")):
        made(tmp_path, name, 100.0 + number)
    said = write()
    assert "3 runs, 3 new pages" in said.stderr
    found = pages(tmp_path / SITE)
    index = found["index.html"]
    assert set(links(index)) == found.keys() - {"index.html"} and len(found) == 5
    for name, page in found.items():
        assert name == "index.html" or "index.html" in set(links(page))
    rows = [row for row in index.all("tr") if row.attributes.get("data-state")]
    assert len(rows) == 3
    for word in ("passed", "mine.yaml", "2 x H100", "default"):
        assert word in rows[0].text
    assert "/home/joe" not in index.text and "Learns <i>digits</i>" in index.text


def test_pages_ask_for_nothing_but_files_beside_them(tmp_path: Path, write: Write) -> None:
    """Also where names of runs, benchmarks and machines are made to be read as HTML."""
    system(tmp_path, "old", 1.0), system(tmp_path, HOSTILE.replace("/", ""), 1.2)
    made(tmp_path, "a b", host=HOSTILE, bench='"><img src=x onerror=alert(1)>')
    write()
    found = pages(tmp_path / SITE)
    for page in found.values():
        assert len(list(page.all("script"))) == 1
        assert not [node.tag for node in page.all() if node.tag in ("img", "iframe", "object", "i", "form")]
        for node in page.all():
            assert not any(name == "src" or name == "style" or name.startswith("on") for name in node.attributes)
            href = node.attributes.get("href", "#")
            assert href.startswith(("#", "data:,")) or href in found
    assert HOSTILE in found["index.html"].text


def test_a_folder_that_is_no_site_is_refused_and_left_as_it_was(tmp_path: Path, write: Write) -> None:
    made(tmp_path, "a")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    for state in (None, "{}", "[]", "{", '{"kind": "another"}'):
        if state is not None:
            (mine / ".milabench-site.json").write_text(state)
        before = {path.name: path.read_text() for path in mine.iterdir()}
        with pytest.raises(UsageError, match="is not empty and not a site"):
            write(folder=mine)
        assert {path.name: path.read_text() for path in mine.iterdir()} == before
    with pytest.raises(RecordError, match="cannot be written"):
        write(folder=mine / "thesis.txt" / "below")


def test_what_a_site_does_not_own_is_neither_replaced_nor_removed(tmp_path: Path, write: Write) -> None:
    made(tmp_path, "a")
    write()
    folder, precious = tmp_path / SITE, tmp_path / "precious.html"
    precious.write_text("mine"), (folder / "CNAME").write_text("example.org")
    state = json.loads((folder / ".milabench-site.json").read_text())
    state["pages"] |= {"../precious.html": "x", str(precious): "x", ".milabench-site.json": "x", "CNAME": "x"}
    (folder / ".milabench-site.json").write_text(json.dumps(state))
    (folder / "index.html").unlink()
    (folder / "index.html").symlink_to(precious)
    write()
    assert precious.read_text() == "mine" and (folder / "CNAME").read_text() == "example.org"
    assert not (folder / "index.html").is_symlink()


def test_pages_of_runs_that_are_gone_go_and_others_are_not_made_again(tmp_path: Path, write: Write) -> None:
    kept, gone = made(tmp_path, "kept"), made(tmp_path, "gone", bench="other")
    write()
    folder = tmp_path / SITE
    page = folder / f"run-{kept.path.name}.html"
    before = page.stat().st_ino
    shutil.rmtree(gone.path)
    assert "0 new pages" in write().stderr
    assert page.stat().st_ino == before
    assert sorted(pages(folder)) == ["history-digits.html", "index.html", page.name]


def test_a_site_that_cannot_be_finished_leads_nowhere_wrong(tmp_path: Path, write: Write) -> None:
    made(tmp_path, "a")
    write()
    folder = tmp_path / SITE
    index = (folder / "index.html").read_text()
    made(tmp_path, "b", bench="other")
    (folder / "history-other.html").mkdir()  # stands in for a disk that is full
    with pytest.raises(RecordError, match=r"history-other\.html: cannot be written"):
        write()
    assert (folder / "index.html").read_text() == index
    assert all((folder / link).is_file() for link in links(parsed(index)))
    (folder / "history-other.html").rmdir()
    write()
    assert "history-other.html" in set(links(pages(folder)["index.html"]))


def test_a_first_site_that_was_interrupted_is_known_as_one(tmp_path: Path, write: Write) -> None:
    made(tmp_path, "a")
    folder = tmp_path / SITE
    # The index needs a name that is taken: all else has been written by then.
    folder.mkdir()
    write()
    (folder / "index.html").unlink()
    (folder / "index.html").mkdir()
    made(tmp_path, "b")
    with pytest.raises(RecordError, match=r"index\.html: cannot be written"):
        write()
    (folder / "index.html").rmdir()
    write()
    assert len(set(links(pages(folder)["index.html"]))) == 3


def test_two_do_not_write_one_site(tmp_path: Path, write: Write) -> None:
    made(tmp_path, "a")
    write()
    descriptor = os.open(tmp_path / SITE, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(RecordError, match="another milabench is writing this site"):
            write()
    finally:
        os.close(descriptor)
    write()


def test_a_run_whose_records_cannot_be_read_is_listed_with_the_reason(tmp_path: Path, write: Write) -> None:
    made(tmp_path, "good")
    bad = made(tmp_path, "bad")
    for path in bad.path.glob("*.data"):
        path.unlink()
        path.mkdir()
    write()
    index = pages(tmp_path / SITE)["index.html"]
    (row,) = [row.text for row in index.all("tr") if "bad." in row.text]
    assert "unreadable" in row and f"run-{bad.path.name}.html" not in set(links(index))


def test_the_map_of_a_fleet_marks_the_node_that_is_slow(tmp_path: Path, write: Write) -> None:
    made(tmp_path, "one")
    write()
    assert "fleet.html" not in pages(tmp_path / SITE)
    for number in range(6):
        made(tmp_path, f"n{number}", 80.0 if number == 5 else 100.0 + number / 10, host=f"node-{number}")
    write()
    found = pages(tmp_path / SITE)
    assert "fleet.html" in set(links(found["index.html"]))
    fleet = found["fleet.html"]
    marked = [row.text for row in fleet.all("tr") if any("badge" in node.kinds for node in row.all("span"))]
    assert len(marked) == 1 and "node-5" in marked[0] and "-19.9" in marked[0]
    assert "digits, % from 101" in fleet.text and "images/s" in fleet.text


def test_a_change_of_the_level_is_in_the_history(tmp_path: Path, write: Write) -> None:
    for number in range(24):
        run = made(tmp_path, f"r{number:02}", (100.0 if number < 12 else 80.0) + number % 3 / 10)
        manifest = json.loads((run.path / "manifest.json").read_text())
        created = f"2026-03-{number + 1:02}T12:00:00+00:00"
        (run.path / "manifest.json").write_text(json.dumps({**manifest, "created": created}))
    write()
    found = pages(tmp_path / SITE)
    (row,) = [row.text for row in found["history-digits.html"].all("tr") if "worse" in row.text]
    assert "r12" in row and "-1" in row
    assert "1 change of the level" in found["index.html"].text


@pytest.mark.parametrize("more", [("--json",), ("-o", "x.html"), ("--full",), ("--from-db",), ("--score", "compat")])
def test_other_outputs_contradict_a_site(tmp_path: Path, write: Write, more: tuple[str, ...]) -> None:
    made(tmp_path, "a")
    with pytest.raises(UsageError, match="--site"):
        write(*more)


def test_a_bad_reference_leaves_the_site_as_it_was(tmp_path: Path, write: Write) -> None:
    made(tmp_path, "a")
    write()
    before = {path.name: path.read_bytes() for path in (tmp_path / SITE).iterdir()}
    (tmp_path / "broken.json").write_text("{")
    for bad in (tmp_path / "none.json", tmp_path / "broken.json"):
        with pytest.raises((RecordError, NothingSelected), match=bad.stem):
            write("--reference", bad)
    assert {path.name: path.read_bytes() for path in (tmp_path / SITE).iterdir()} == before
    with pytest.raises((RecordError, NothingSelected)):
        write("--reference", tmp_path / "none.json", folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path, write: Write) -> None:
    made(tmp_path, "a")
    write()
    draft, others = tmp_path / SITE / ".0123456789abcdef.tmp", tmp_path / SITE / ".mine.tmp"
    draft.write_text("half"), others.write_text("mine")
    write()
    assert (draft.exists(), others.read_text()) == (False, "mine")


def test_a_base_without_runs_makes_no_site(tmp_path: Path, write: Write) -> None:
    with pytest.raises(NothingSelected, match="no runs"):
        write()
    assert not (tmp_path / SITE).exists()


def test_some_runs_by_name(tmp_path: Path, write: Write) -> None:
    made(tmp_path, "a"), made(tmp_path, "b")
    write("b")
    names: Any = [name for name in pages(tmp_path / SITE) if name.startswith("run-")]
    assert len(names) == 1 and names[0].startswith("run-b.")


def test_a_screen_reader_finds_its_way_on_every_page(tmp_path: Path, write: Write) -> None:
    for number in range(6):
        made(tmp_path, f"n{number}", 100.0 + number, host=f"node-{number}")
    write()
    for page in pages(tmp_path / SITE).values():
        levels = [int(node.tag[1]) for node in page.all() if node.tag in ("h1", "h2", "h3")]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        ids = [node.attributes["id"] for node in page.all() if "id" in node.attributes]
        targets = {href[1:] for node in page.all("a") if (href := node.attributes["href"]).startswith("#")}
        assert len(ids) == len(set(ids)) and targets <= set(ids)
        for table in page.all("table"):
            assert next(table.all("caption")).text
            assert {cell.attributes.get("scope") for cell in table.all("th")} == {"col", "row"}
        policy = page.first(lambda node: "http-equiv" in node.attributes).attributes["content"]
        assert policy.startswith("default-src 'none';")
