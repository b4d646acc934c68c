"""The pages in a real browser: they sort, filter, print and fit a telephone, and ask for nothing but themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from milabench.cli.compare import command as compare
from milabench.cli.report import command as report
from milabench.procurement.offer_command import command as offer_command
from tests import chromium
from tests.drawn_runs import HOSTILE, NAMES, system
from tests.offered import LED_BY_D, make_offers
from tests.serving_runs import LOADS, RATES, serving_run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        chromium.program() is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
    ),
]

TABLE = "[...document.querySelectorAll('table')].find((table) => table.caption.textContent.startsWith('benchmarks'))"
NAMES_SHOWN = f"[...{TABLE}.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[0].textContent)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("pages")
    old, new = (str(system(base, name, faster).path) for name, faster in (("old", 1.0), ("new", 1.2)))
    swept = [str(serving_run(base / "swept", name, slower).path) for name, slower in (("old", 1.0), (HOSTILE, 1.2))]
    torn = serving_run(base / "swept", "torn", loads=(*LOADS, 128), failed={"concurrency=128": HOSTILE})
    found = {name: base / f"{name}.html" for name in ("report", "compare", "sweep", "curves", "scores")}
    tender, offer = base / "procurement.yaml", base / "offer.yaml"
    wanted = {name: {"required": False} for name in NAMES}
    asked = {"metric": "ssi", "reference": {"run": old, "nodes": 1}, "benchmarks": wanted}
    tender.write_text(json.dumps({"title": HOSTILE, **asked}))
    offer.write_text(json.dumps({"vendor": HOSTILE, "nodes": 1, "benchmarks": {name: {"run": new} for name in NAMES}}))
    for command, words in (
        (report, [new, "-o", found["report"]]),
        (compare, [old, new, "--why", "-o", found["compare"]]),
        (report, [torn.path, "-o", found["sweep"]]),
        (compare, [*swept, "-o", found["curves"]]),
        (compare, [new, offer, "--tender", tender, "-o", found["scores"]]),
    ):
        done = CliRunner().invoke(command, [str(word) for word in words], standalone_mode=False)
        assert done.exception is None, done.output
    site = base / "site"
    done = CliRunner().invoke(report, ["--base", str(base), "--site", str(site)], standalone_mode=False)
    assert done.exception is None, done.output
    offered, asked = make_offers(base / "tender", title=HOSTILE)
    found["offers"] = base / "offers.html"
    words = ["compare", offered, "--tender", asked, "-o", found["offers"]]
    done = CliRunner().invoke(offer_command, [str(word) for word in words], standalone_mode=False)
    assert done.exception is None, done.output
    return {**found, "index": site / "index.html", "history": site / "history-bert.html"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    with chromium.page(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(params=["report", "compare", "sweep", "curves", "scores", "offers", "index", "history"])
def shown(request: pytest.FixtureRequest, browser: chromium.Page, pages: dict[str, Path]) -> chromium.Page:
    """Either page, freshly opened."""
    opened(browser, pages[request.param])
    return browser


def opened(browser: chromium.Page, path: Path) -> None:
    browser.requests.clear()
    browser.errors.clear()
    browser.look()
    browser.open(path)


def click(browser: chromium.Page, target: str) -> None:
    browser.run(f"({target}).click()")


def test_a_site_is_walked_from_the_index_to_a_run_and_back(browser: chromium.Page, pages: dict[str, Path]) -> None:
    opened(browser, pages["index"])
    runs = "[...document.querySelectorAll('tbody th a')].map((link) => link.getAttribute('href'))"
    first = browser.run(runs)[0]
    opened(browser, pages["index"].parent / first)
    back = "[...document.querySelectorAll('nav a')][0].getAttribute('href')"
    assert (browser.run(back), browser.run("document.querySelector('h1').textContent")[:13]) == (
        "index.html",
        "milabench run",
    )
    assert browser.errors == []


def head(name: str) -> str:
    return f"[...{TABLE}.tHead.rows[0].cells].find((cell) => cell.textContent.startsWith('{name}'))"


def test_a_page_asks_for_itself_alone_and_complains_of_nothing(shown: chromium.Page) -> None:
    assert [address for address in shown.requests if not address.startswith("data:,")] == [shown.run("location.href")]
    click(shown, "document.getElementById('theme')")
    click(shown, "document.getElementById('all')")
    assert shown.errors == []


def test_no_name_became_a_script(shown: chromium.Page) -> None:
    assert shown.run("document.scripts.length") == 1
    assert HOSTILE in shown.run("document.body.textContent") or "over time" in shown.run(
        "document.title + document.body.textContent"
    )


def test_a_click_sorts_and_another_turns_the_order(browser: chromium.Page, pages: dict[str, Path]) -> None:
    opened(browser, pages["report"])
    perf = f"[...{TABLE}.tBodies[0].rows].map((row) => parseFloat(row.cells[2].textContent)).filter((v) => !isNaN(v))"
    button = f"{head('perf')}.querySelector('button')"
    click(browser, button)
    up = browser.run(perf)
    assert up == sorted(up) and browser.run(f"{head('perf')}.getAttribute('aria-sort')") == "ascending"
    click(browser, button)
    assert browser.run(perf) == up[::-1] and browser.run(f"{head('perf')}.getAttribute('aria-sort')") == "descending"
    assert browser.run(NAMES_SHOWN)[-1] in ("opt-6_7b", "whisper"), "what has no value stays last"


def test_a_table_is_sorted_with_the_keyboard_alone(browser: chromium.Page, pages: dict[str, Path]) -> None:
    opened(browser, pages["compare"])
    browser.run(f"{head('bench')}.querySelector('button').focus()")
    browser.press("Enter", "Enter", "\r")
    names = browser.run(NAMES_SHOWN)
    assert names == browser.run(f"{NAMES_SHOWN}.sort((a, b) => a.localeCompare(b, 'en', {{ numeric: true }}))")
    assert browser.run(f"{head('bench')}.getAttribute('aria-sort')") == "ascending"
    browser.press("Tab", "Tab")
    assert browser.run("document.activeElement.textContent") == "units"


def test_rows_are_filtered_by_words_and_by_state(browser: chromium.Page, pages: dict[str, Path]) -> None:
    opened(browser, pages["compare"])
    bar = f"{TABLE}.parentElement.previousElementSibling"
    fill = "const box = {}.querySelector('{}'); box.value = '{}'; box.dispatchEvent(new Event('{}'));"
    browser.run("{" + fill.format(bar, "input", "llama", "input") + "}")
    assert browser.run(NAMES_SHOWN) == ["llama-sft"]
    assert browser.run(f"{bar}.querySelector('output').textContent") == f"1 of {len(NAMES) + 1} rows"
    browser.run("{" + fill.format(bar, "input", "", "input") + "}")
    browser.run("{" + fill.format(bar, "select", "excluded", "change") + "}")
    assert sorted(browser.run(NAMES_SHOWN)) == ["opt-6_7b", "whisper"]


def ground(browser: chromium.Page) -> Any:
    return browser.run("getComputedStyle(document.body).backgroundColor")


def test_the_page_follows_the_system_until_the_reader_chooses(browser: chromium.Page, pages: dict[str, Path]) -> None:
    opened(browser, pages["report"])
    browser.run("localStorage.clear()")
    browser.open(pages["report"])
    light = ground(browser)
    browser.look(dark=True)
    dark = ground(browser)
    assert light == "rgb(255, 255, 255)" != dark
    click(browser, "document.getElementById('theme')")
    assert ground(browser) == light
    browser.look(dark=True, media="print")
    assert ground(browser) == light
    browser.run("localStorage.clear()")


def test_a_link_to_a_benchmark_opens_its_details(browser: chromium.Page, pages: dict[str, Path]) -> None:
    opened(browser, pages["report"])
    link = "[...document.querySelectorAll('tbody a')].find((each) => each.textContent === 'resnet50')"
    click(browser, link)
    opened_ones = "[...document.querySelectorAll('details[open] h3')].map((each) => each.textContent)"
    answer = f"new Promise((done) => setTimeout(() => done({opened_ones})))"
    assert browser.run(answer) == ["resnet50"]


def test_what_is_folded_is_printed(browser: chromium.Page, pages: dict[str, Path]) -> None:
    opened(browser, pages["report"])
    folded = browser.pdf()
    assert folded.startswith(b"%PDF") and browser.run("document.querySelectorAll('details[open]').length") == 0
    browser.run("for (const one of document.querySelectorAll('details')) one.remove()")
    assert folded.count(b"/Type /Page\n") > 2 * browser.pdf().count(b"/Type /Page\n")


def test_a_telephone_scrolls_tables_and_drawings_but_not_the_page(shown: chromium.Page) -> None:
    shown.look(width=390, height=800)
    click(shown, "document.getElementById('all')")
    assert shown.run("document.documentElement.scrollWidth") <= 390
    assert shown.errors == []


def test_a_page_of_scores_names_every_system_its_terms_and_what_is_broken(
    browser: chromium.Page, pages: dict[str, Path]
) -> None:
    opened(browser, pages["scores"])
    rows = f"[...{TABLE}.tBodies[0].rows].map((row) => [row.cells[0].textContent, row.cells[1].textContent])"
    assert [HOSTILE, "bert"] in browser.run(rows)
    sections = "[...document.querySelectorAll('article > section > h2')].map((each) => each.textContent)"
    assert browser.run(sections)[:2] == ["Scores", "Benchmarks"]
    alerts = "[...document.querySelectorAll('.alerts h2')].map((each) => each.textContent)"
    assert "Not in the score (1)" in browser.run(alerts)


@pytest.mark.parametrize(("page", "servers"), [("sweep", 1), ("curves", 2)])
def test_the_curves_of_servers_lie_within_their_drawings(
    browser: chromium.Page, pages: dict[str, Path], page: str, servers: int
) -> None:
    opened(browser, pages[page])
    captions = "[...document.querySelectorAll('#curves figcaption')].map((each) => each.textContent)"
    assert browser.run(captions) == [
        "Throughput against the tokens/s of a user",
        "Time to the first token (p90) against requests in flight",
        "Time to the first token (p90) against requests/s that arrive",
    ]
    points = "[...document.querySelectorAll('#curves figure')].map((each) => each.querySelectorAll('.scroll > svg .dots').length)"
    assert browser.run(points) == [servers * (len(LOADS) + len(RATES)), servers * len(LOADS), servers * len(RATES)]
    outside = """[...document.querySelectorAll('#curves .scroll > svg')].flatMap((svg) => {
        const frame = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text, .dots, .whisker')].filter((each) => {
            const box = each.getBoundingClientRect();
            return box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom;
        }).map((each) => each.textContent);
    })"""
    assert browser.run(outside) == []
    overlapping = """[...document.querySelectorAll('#curves .scroll > svg')].flatMap((svg) => {
        const boxes = [...svg.querySelectorAll('text.halo')].map((each) => each.getBoundingClientRect());
        return boxes.filter((one, at) => boxes.slice(0, at).some((other) =>
            one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom));
    }).length"""
    assert browser.run(overlapping) == 0


def test_the_page_of_offers_has_all_of_them_and_draws_their_scores(
    browser: chromium.Page, pages: dict[str, Path]
) -> None:
    opened(browser, pages["offers"])
    first_cells = "[...table.tBodies[0].rows].map((row) => row.cells[0].textContent)"
    rows = f"[...document.querySelectorAll('table')].map((table) => {first_cells})"
    tables = browser.run(rows)
    names = [f"{vendor} {vendor}-1000" for vendor in LED_BY_D]
    assert sum(table == names for table in tables) == 3  # scores, costs, verification
    assert browser.run("document.querySelectorAll('figure svg').length") == 1
    assert "is ported, declared as-is" in browser.run("document.body.textContent")
    assert not browser.errors and all(request.startswith("file:") for request in browser.requests)
