"""The page of budget answers in a real browser: bars to either side of the result, shares, and that it fits a telephone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from milabench.procurement.budget_command import command as budget
from tests import chromium
from tests.drawn_runs import HOSTILE
from tests.unit.procurement.test_budget_command import TENDER, A, B

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        chromium.program() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
    ),
]

DRAWINGS = "[...document.querySelectorAll('figure svg')]"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    folder = tmp_path_factory.mktemp("budget")
    vendor = "'" + HOSTILE.replace("'", "''") + "'"
    for name, text in (("tender", TENDER), ("a", A), ("b", B.replace("vendor: B", f"vendor: {vendor}"))):
        (folder / f"{name}.yaml").write_text(text)
    named = [str(folder / f"{name}.yaml") for name in ("tender", "a", "b")]
    page = folder / "budget.html"
    done = CliRunner().invoke(budget, [named[0], "--match", *named[1:], "-o", str(page)], standalone_mode=False)
    assert done.exception is None, done.output
    with chromium.page(tmp_path_factory.mktemp("browser")) as browser:
        browser.look()
        browser.open(page)
        yield browser


def test_it_asks_for_itself_alone_and_complains_of_nothing(shown: chromium.Page) -> None:
    assert [each for each in shown.requests if not each.startswith("data:,")] == [shown.run("location.href")]
    assert shown.errors == [] and shown.run("document.scripts.length") == 1


def test_every_input_has_a_bar_to_either_side_of_the_result(shown: chromium.Page) -> None:
    centre = shown.run(f"{DRAWINGS}[0].querySelector('path.one').getBBox().x")
    for kind in ("rect.bar", "rect.frame"):
        boxes = shown.run(
            f"{DRAWINGS}[0] && [...{DRAWINGS}[0].querySelectorAll('{kind}')].map((each) => "
            "{ const b = each.getBBox(); return [b.x, b.x + b.width] })"
        )
        assert len(boxes) == 6, "three figures of A and three weights"
        assert all(min(abs(left - centre), abs(right - centre)) < 2 for left, right in boxes)


def test_the_widest_swing_comes_first(shown: chromium.Page) -> None:
    widths = shown.run(
        f"[...{DRAWINGS}[0].querySelectorAll('rect.bar')].map((each, at) => each.getBBox().width + "
        f"{DRAWINGS}[0].querySelectorAll('rect.frame')[at].getBBox().width)"
    )
    assert widths == sorted(widths, reverse=True)


def test_it_fits_a_telephone(shown: chromium.Page) -> None:
    shown.look(width=375, height=800)
    assert shown.run("document.documentElement.scrollWidth <= window.innerWidth")
    shown.look()
