"""The layout of every page in a real browser, 1,280 and 400 pixels wide: nothing is cut off, hidden, or set flush right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import chromium
from tests.screens import NEXT_TO_SYSTEMS, screen, write_systems
from tests.serving_runs import serving_run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        chromium.program() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
    ),
]

WIDE, NARROW = 1280, 400
COMMANDS = {
    **{name: NEXT_TO_SYSTEMS[name] for name in ("compare", "compare-tender", "accept", "offer-compare", "budget")},
    "report": (*NEXT_TO_SYSTEMS["report"], "--reference", "reference"),
    "compare-why": ("compare", "old", "new", "reference", "--why"),
    "curves": ("report", "served/runs/served"),
}
SITE = ("index", "fleet", "run-new", "history-llama")
CELLS = "[...document.querySelectorAll('th, td')].filter((cell) => cell.offsetParent)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("layout")
    write_systems(base)
    served = serving_run(base / "served", "served").path
    served.rename(served.with_name("served"))
    for name, words in COMMANDS.items():
        said = screen(base, *words, "--base", ".", "-o", f"{name}.html")
        assert (base / f"{name}.html").exists(), said
    screen(base, "report", "--base", ".", "--site", "site")
    return {name: base / f"{name}.html" for name in COMMANDS} | {name: base / "site" / f"{name}.html" for name in SITE}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    with chromium.page(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(params=[*COMMANDS, *SITE])
def shown(request: pytest.FixtureRequest, browser: chromium.Page, pages: dict[str, Path]) -> chromium.Page:
    """A page, freshly opened, with its details."""
    browser.look(width=WIDE)
    browser.open(pages[request.param])
    browser.run("document.getElementById('all').click()")
    return browser


def test_no_column_of_a_table_is_cut_off_on_a_wide_page(shown: chromium.Page) -> None:
    wider = "(each) => each.querySelector('table') && each.scrollWidth > each.clientWidth"
    assert shown.run(f"[...document.querySelectorAll('.scroll')].filter({wider}).map((each) => each.textContent)") == []


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_nothing_but_tables_and_drawings_scrolls_or_hides_what_overflows(shown: chromium.Page, width: int) -> None:
    shown.look(width=width)
    hidden = """[...document.querySelectorAll('body *')].filter((each) => each.offsetParent
        && !each.closest('svg, .unseen, .scroll, input, select') && getComputedStyle(each).overflowX !== 'visible'
        && each.scrollWidth > each.clientWidth).map((each) => each.textContent)"""
    assert shown.run(hidden) == []
    outside = f"""[...document.querySelectorAll('nav *, .alerts *, .lead, .note')].filter((each) => each.offsetParent
        && each.getBoundingClientRect().right > {width}).map((each) => each.textContent)"""
    assert shown.run(outside) == []


def test_no_prose_is_flush_right(shown: chromium.Page) -> None:
    prose = """[...document.querySelectorAll('body *')].filter((each) => each.offsetParent && !each.closest('svg, thead')
        && ['right', 'end'].includes(getComputedStyle(each).textAlign) && each.textContent.trim().split(/\\s+/).length > 5)
        .map((each) => each.textContent)"""
    assert shown.run(prose) == []


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_short_name_is_on_one_line(shown: chromium.Page, width: int) -> None:
    shown.look(width=width)
    range_of = "(cell) => { const text = document.createRange(); text.selectNodeContents(cell); return text; }"
    short = "cell.scope === 'row' && cell.textContent.length <= 16"
    limit = "1.8 * parseFloat(getComputedStyle(cell).lineHeight)"
    broken = f"(cell) => {short} && ({range_of})(cell).getBoundingClientRect().height > {limit}"
    assert shown.run(f"{CELLS}.filter({broken}).map((cell) => cell.textContent)") == []


def test_no_backtick_is_left_in_a_page(shown: chromium.Page) -> None:
    assert "`" not in shown.run("document.querySelector('main').innerText")
