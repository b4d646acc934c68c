"""The page as a browser and a screen reader find it: parsed, not searched."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from milabench import pages as html
from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import System
from milabench.analysis.score import score
from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import BenchSummary, ReplicateResult, Summary
from milabench.analysis.system_diff import system_differences
from milabench.analysis.throughput import Throughput
from milabench.analysis.traces import Curve, DeviceTrace, RankTrace, Trace, Tracing
from milabench.events.rundir import Run
from milabench.pages.details import fineness, selected_steps
from milabench.pages.markup import Markup, el
from tests.drawn_runs import HOSTILE, NAMES, system
from tests.recorded_run import Recorded, data, rates, record

EMPTY = {"meta", "link", "input", "br", "hr"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    def all(self, tag: str = "") -> Iterator[Node]:
        """The nodes below, in order."""
        for child in self.children:
            if isinstance(child, Node):
                if not tag or child.tag == tag:
                    yield child
                yield from child.all(tag)

    def first(self, where: Callable[[Node], bool]) -> Node:
        return next(node for node in self.all() if where(node))

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def kinds(self) -> set[str]:
        return set(self.attributes.get("class", "").split())


class Parser(HTMLParser):
    """A tree; raises AssertionError where an element is not closed by its own end."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Node("root")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        assert len(node.attributes) == len(attrs), f"an attribute twice in {attrs}"
        self.open[-1].children.append(node)
        if tag not in EMPTY:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parsed(page: str) -> Node:
    parser = Parser()
    parser.feed(page)
    parser.close()
    assert parser.open == [parser.root]
    return parser.root


def compared(runs: Sequence[Run]) -> str:
    systems = [System(name=str(run.manifest["name"]), summary=summarise(run), manifest=run.manifest) for run in runs]
    comparison = compare_systems(systems)
    return html.render_comparison(
        comparison, system_differences(systems, comparison.rows), [Tracing().of(run) for run in runs]
    )


def reported(run: Run) -> str:
    return html.render([summarise(run)], [Tracing().of(run)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    base = tmp_path_factory.mktemp("runs")
    return system(base, "old", 1.0), system(base, "new", 1.2)


@pytest.fixture(scope="module")
def pages(runs: tuple[Run, Run]) -> dict[str, str]:
    return {"report": reported(runs[1]), "compare": compared(runs)}


@pytest.fixture(scope="module")
def trees(pages: dict[str, str]) -> dict[str, Node]:
    return {name: parsed(page) for name, page in pages.items()}


both = pytest.mark.parametrize("name", ["report", "compare"])


@pytest.mark.slow
@both
def test_every_name_is_text_and_never_an_element(trees: dict[str, Node], name: str) -> None:
    tree = trees[name]
    assert len(list(tree.all("script"))) == 1
    assert not list(tree.all("b")) or all("not" not in node.text for node in tree.all("b"))
    assert HOSTILE in tree.text and "79 of 80 GiB, <b>not</b> enough" in tree.text
    assert all(not attribute.startswith("on") for node in tree.all() for attribute in node.attributes)


@both
def test_the_page_asks_for_nothing_else(trees: dict[str, Node], name: str) -> None:
    for node in trees[name].all():
        assert "src" not in node.attributes and "style" not in node.attributes
        assert node.attributes.get("href", "#").startswith(("#", "data:,"))


@both
def test_only_its_own_style_and_script_may_run(trees: dict[str, Node], name: str) -> None:
    tree = trees[name]
    policy = tree.first(lambda node: "http-equiv" in node.attributes).attributes["content"]
    assert policy.startswith("default-src 'none';")
    for tag in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(next(tree.all(tag)).text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@both
def test_links_lead_to_one_place_each(trees: dict[str, Node], name: str) -> None:
    ids = [node.attributes["id"] for node in trees[name].all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    targets = {node.attributes["href"][1:] for node in trees[name].all("a")}
    assert targets <= set(ids) and len(targets) > len(NAMES)


@both
def test_a_screen_reader_finds_headings_tables_and_drawings(trees: dict[str, Node], name: str) -> None:
    tree = trees[name]
    levels = [int(node.tag[1]) for node in tree.all() if node.tag in ("h1", "h2", "h3")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert tree.children and next(tree.all("html")).attributes["lang"] == "en"
    for table in tree.all("table"):
        assert next(table.all("caption")).text
        assert {cell.attributes.get("scope") for cell in table.all("th")} == {"col", "row"}
    drawings = [node for node in tree.all("svg") if node.attributes.get("role") == "img"]
    assert drawings
    for node in drawings:
        first, second = (child for child in node.children[:2] if isinstance(child, Node))
        assert (first.tag, second.tag) == ("title", "desc") and first.text and second.text
    for node in tree.all("svg"):
        assert node.attributes.get("role") == "img" or node.attributes.get("aria-hidden") == "true"


@both
def test_what_is_wrong_stands_before_the_first_table(trees: dict[str, Node], name: str) -> None:
    nodes = list(trees[name].all())
    places = {
        "sentence": next(place for place, node in enumerate(nodes) if "lead" in node.kinds),
        "failures": next(place for place, node in enumerate(nodes) if node.tag == "h2" and "Failures" in node.text),
        "suspects": next(place for place, node in enumerate(nodes) if node.tag == "h2" and "Suspect" in node.text),
        "table": next(place for place, node in enumerate(nodes) if node.tag == "table"),
        "drawing": next(place for place, node in enumerate(nodes) if node.tag == "figure"),
    }
    assert sorted(places, key=places.__getitem__)[:3] == ["sentence", "failures", "suspects"]
    assert max(places["suspects"], places["failures"]) < min(places["table"], places["drawing"])


def figures(tree: Node, words: str) -> list[Node]:
    return [node for node in tree.all("figure") if words in next(node.all("figcaption")).text]


def test_throttling_is_marked_in_the_drawing_and_said_in_words(trees: dict[str, Node]) -> None:
    courses = figures(trees["report"], "resnet50.D1")
    assert courses
    for node in courses:
        assert any("throttled" in each.kinds for each in node.all("rect"))
        assert "THROTTLED in" in node.text and "hw_thermal" in node.text
    assert not any(
        "throttled" in each.kinds for node in figures(trees["report"], "bert.D1") for each in node.all("rect")
    )


def test_every_ratio_of_the_forest_has_its_interval_and_its_verdict_in_words(trees: dict[str, Node]) -> None:
    (forest,) = figures(trees["compare"], "Ratios to old")
    told = next(forest.all("desc")).text
    for bench in ("llama-sft", "resnet50", HOSTILE):
        assert f"{bench}: 1." in told
    assert "FASTER" in told and "95 % from" in told and "whisper: excluded: new failed" in told
    assert "index:" in told


def test_what_differs_between_systems_is_told_by_a_word_too(trees: dict[str, Node]) -> None:
    table = trees["compare"].first(lambda node: node.tag == "table" and "systems compared" in node.text)
    rows = {next(row.all("th")).text: row for row in table.all("tr") if row.attributes.get("data-state")}
    assert rows["os"].attributes["data-state"] == "differing" and "differs" in rows["os"].text
    assert rows["memory"].attributes["data-state"] == "same"


def test_one_launch_is_said_to_say_nothing_of_spread(tmp_path: Path) -> None:
    page = parsed(reported(record(tmp_path, Recorded(events=rates(1.0, 2.0, 3.0)), is_ended=False)))
    assert "Not shown: every benchmark ran as a single process" in page.text
    assert "no accelerator was sampled" in page.text.lower()
    assert "its records have no times" in page.text.lower()
    assert "CUT OFF" in page.text and "incomplete or still running" in page.text
    assert "Memory, overlap" not in page.text


def test_a_run_of_nothing_is_a_page(tmp_path: Path) -> None:
    page = parsed(reported(record(tmp_path, skipped=[{"bench": "opt", "why": "needs 8 devices"}])))
    assert "needs 8 devices" in page.text and "Score: none" in page.text


def test_records_that_make_no_sense_are_a_page_all_the_same(tmp_path: Path) -> None:
    timed = {"units": "a/s", "elapsed": 0.1, "n": 1}
    events = (
        data(task="train", rate=10.0, time=1e9, t0_ns=10**9, host_ns=10**8, **timed),
        data(task="train", rate=10.0, time=-5, t0_ns=0, host_ns=10**8, **timed),
        data(task="train", rate=-1e12, time="late", **timed),
        data(task="main", gpudata={"0": {"power_W": "hot", "temperature": [], "load": -3, "memory": 7}}, time=1e9),
        data(task="main", gpudata={"0": {"power_W": 1e12, "throttle": [3, None]}, "1": None}, time=2e9),
        data(task="train", window={"start": 3, "stop": 1, "start_ns": 5, "stop_ns": "x"}),
        data(task="main", cpudata={"load": None}, process=[], time=True),
    )
    page = parsed(reported(record(tmp_path, Recorded(events=events))))
    assert "Course of digits.D0" in page.text and "nan" not in {
        value for n in page.all() for value in n.attributes.values()
    }


def test_one_launch_a_side_has_a_ratio_without_an_interval(tmp_path: Path) -> None:
    runs = [system(tmp_path, name, faster, repeats=1) for name, faster in (("old", 1.0), ("new", 1.2))]
    (forest,) = figures(parsed(compared(runs)), "Ratios to old")
    assert "no interval" in next(forest.all("desc")).text and "(no interval)" in forest.text


def test_a_system_known_by_its_report_alone_is_said_to_have_no_series(runs: tuple[Run, Run]) -> None:
    systems = [System(name=str(run.manifest["name"]), summary=summarise(run)) for run in runs]
    page = parsed(html.render_comparison(compare_systems(systems), None, [Tracing().of(runs[0]), None]))
    assert "Known by a report alone, without records to draw: new" in page.text
    assert "ask for it with --why" in page.text


def test_several_runs_share_a_page(runs: tuple[Run, Run]) -> None:
    page = html.render([summarise(run) for run in runs], [Tracing().of(run) for run in runs])
    tree = parsed(page)
    assert [node.text for node in tree.all("h1")] == [f"milabench run {run.name}" for run in runs]
    ids = [node.attributes["id"] for node in tree.all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))


# ------------------------------------------------------------------------------------------------------------------ size


def wave(place: int) -> Curve:
    values = tuple(1000.0 + 37.123 * ((each * 7919 + place) % 101) for each in range(200))
    times = tuple(each * 1.5 for each in range(200))
    return Curve(time=times, low=values, high=tuple(value * 1.07 for value in values), count=1_000_000)


def large(benches: int, devices: int, repeats: int) -> tuple[Summary, tuple[Trace, ...]]:
    found, traced = [], []
    for bench in range(benches):
        name, processes = f"bench-{bench}", []
        for repeat in range(repeats):
            for device in range(devices):
                step = f"{name}.D{device}.R{repeat}"
                rank = RankTrace(rank=0, units="items/s", rate=wave(device), quantiles=tuple(map(float, range(1, 26))))
                curves = {key: wave(repeat) for key in ("power", "clock", "temperature", "load", "memory")}
                read = DeviceTrace(key=str(device), curves=curves, samples=36000, throttle_samples=36000)
                traced.append(Trace(step=step, bench=name, begin=0.0, ranks=(rank,), devices=(read,), host={}))
                rate = Throughput(value=1000.0 + device + repeat, units="items/s", observations=1_000_000)
                processes.append(
                    ReplicateResult(steps=(step,), slot=f"local/D{device}", repeat=repeat, throughput=rate)
                )
        steps = dict.fromkeys(("planned", "passed"), devices * repeats)
        counts = {**dict.fromkeys(("failed", "skipped", "missing", "cancelled"), 0), **steps}
        found.append(
            BenchSummary(bench=name, outcome="passed", counts=counts, processes=tuple(processes), perf=1000.0,
                         units="items/s", validity="valid", instances=devices, replicates=repeats)
        )  # fmt: skip
    return Summary(run="large", verdict="passed", benchmarks=tuple(found), score=score([])), tuple(traced)


@pytest.mark.slow
def test_fifty_benchmarks_on_eight_devices_fit_in_two_megabytes() -> None:
    summary, traced = large(benches=50, devices=8, repeats=3)
    page = html.render([summary], [traced])
    assert len(page.encode()) < 2_000_000
    assert "of 24 steps are drawn" in page


@pytest.mark.slow
def test_a_hundred_systems_have_their_indices_and_the_worst_ratios() -> None:
    summary, _ = large(benches=50, devices=1, repeats=3)
    systems = [System(name=f"node-{place}", summary=summary) for place in range(100)]
    page = html.render_comparison(compare_systems(systems), None, [None] * 100)
    assert len(page.encode()) < 2_000_000
    assert "2000 of 4950 ratios fit in the page" in page and "these are 100. Compare fewer" in page


@pytest.mark.slow
def test_what_does_not_fit_is_said_to_be_left_out() -> None:
    _, traced = large(benches=2000, devices=1, repeats=1)
    assert fineness([traced]).steps == 0
    page = parsed(html.render([large(benches=1, devices=1, repeats=1)[0]], [traced]))
    assert "left out: the page would be larger than 2 MB" in page.text


def test_a_throttled_step_is_among_those_that_are_drawn() -> None:
    _, traced = large(benches=1, devices=8, repeats=3)
    hot = traced[13]
    (device,) = hot.devices
    changed = DeviceTrace(key=device.key, curves=device.curves, samples=10, throttle_samples=10, held_back=3)
    hot = Trace(step=hot.step, bench=hot.bench, ranks=hot.ranks, devices=(changed,), host={})
    assert hot in selected_steps([*traced[:13], hot, *traced[14:]], 1)


# ---------------------------------------------------------------------------------------------------------------- markup


def test_text_is_escaped_and_markup_is_not_again() -> None:
    assert el("p", "<b>", el("i", "&"), title='"') == '<p title="&quot;">&lt;b&gt;<i>&amp;</i></p>'
    assert isinstance(el("p"), Markup)


def test_what_a_page_cannot_hold_is_replaced() -> None:
    assert el("p", "a\x00\ud800b\x1b[31m") == "<p>a\u2400\ufffdb\u241b[31m</p>"


def test_an_attribute_of_nothing_is_left_out() -> None:
    assert (
        el("button", hidden=True, class_=None, aria_label="x", disabled=False)
        == '<button hidden aria-label="x"></button>'
    )


def test_a_narrow_page_shows_no_column_that_a_narrow_terminal_does_without(runs: tuple[Run, Run]) -> None:
    """At 400 px the ratio and the verdict of a comparison stay."""
    page = compared(runs)
    heads = [head for head in parsed(page).all("th") if head.attributes.get("scope") == "col"]
    spare = {head.text: "spare" in head.kinds for head in heads}
    assert (spare["bench"], spare["ratio"], spare["verdict"], spare["units"]) == (False, False, False, True)
    narrow = page[page.index("@media (max-width: 640px)") :]
    assert ".spare { display: none; }" in narrow[: narrow.index("@media print")]
