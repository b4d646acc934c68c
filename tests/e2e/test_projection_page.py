"""The page of a projection in a real browser: what is drawn where, what stands apart, and that it fits a telephone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from milabench.procurement.project_command import command as project
from tests import chromium
from tests.drawn_runs import HOSTILE
from tests.scaled_runs import COUNTS, on_nodes, usl

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        chromium.program() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
    ),
]

TABLES = "[...document.querySelectorAll('table')]"
BORDER = "document.querySelector('path.limit').getBBox().x"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("scaled")
    runs = [str(on_nodes(base, count, usl(count), bench=HOSTILE).path) for count in COUNTS]
    page = base / "projection.html"
    done = CliRunner().invoke(project, [*runs, "--to", "32,128", "-o", str(page)], standalone_mode=False)
    assert done.exception is None, done.output
    return page


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, path: Path) -> Iterator[chromium.Page]:
    with chromium.page(tmp_path_factory.mktemp("browser")) as page:
        page.look()
        page.open(path)
        yield page


def test_it_asks_for_itself_alone_and_complains_of_nothing(shown: chromium.Page) -> None:
    assert [each for each in shown.requests if not each.startswith("data:,")] == [shown.run("location.href")]
    assert shown.errors == [] and shown.run("document.scripts.length") == 1


def test_measured_points_lie_left_of_the_line_and_the_rest_is_another_region(shown: chromium.Page) -> None:
    points = shown.run(
        "[...document.querySelectorAll('.point')].map((each) => { const b = each.getBBox(); return b.x + b.width / 2 })"
    )
    border = shown.run(BORDER)
    assert len(points) == len(COUNTS) and points == sorted(points)
    assert points[-1] == pytest.approx(border, abs=3), "the last measured count is the border"
    assert shown.run("document.querySelector('rect.panel').getBBox().x") == pytest.approx(border, abs=1)


def test_the_law_and_its_band_reach_beyond_what_was_measured(shown: chromium.Page) -> None:
    ends = "(() => { const b = document.querySelector('%s').getBBox(); return [b.x, b.x + b.width] })()"
    first, last = shown.run(ends % "path.band-of-law")
    assert first < shown.run(BORDER) < last - 100
    assert shown.run("getComputedStyle(document.querySelector('path.band-of-law')).fill") != "none"
    laws = shown.run("[...document.querySelectorAll('path.law')].map((each) => each.textContent)")
    assert laws == ["ideal", "amdahl", "usl"]


def test_projected_rows_are_marked_and_in_no_table_with_measured_ones(shown: chromium.Page) -> None:
    rows = (
        TABLES
        + ".filter((table) => %s).map((table) => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent))"
    )
    apart = shown.run(rows % "table.closest('.projected')")
    assert apart == [["?\N{NO-BREAK SPACE}32 ", "?\N{NO-BREAK SPACE}128 "]]
    others = shown.run(rows % "!table.closest('.projected')")
    assert others[0] == list(map(str, COUNTS))
    assert not {"32", "128"} & {cell.strip("? ") for table in others for cell in table}


def test_it_fits_a_telephone_and_paper(shown: chromium.Page) -> None:
    shown.look(width=375, height=700)
    assert shown.run("document.documentElement.scrollWidth") <= 375
    assert len(shown.pdf()) > 10_000
    shown.look()
