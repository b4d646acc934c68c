"""The drawings of curves: what they dominate as steps, each point with its load, nothing by colour alone."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from milabench.analysis.serving_model import CurvePoint, PointValue, ServingCurve
from milabench.pages.axis import log_ticks
from milabench.sweeps.drawings import curve_figure, serving_figures, ttft_figure

HOSTILE = "<script>alert(1)</script>"


def at(load: float, user: float, output: float, ttft: float = 100.0, **more: object) -> CurvePoint:
    numbers = {"user_tps": user, "output_tps": output, "ttft_p90_ms": ttft}
    values = {name: PointValue(value=number, ci95=(0.9 * number, 1.1 * number)) for name, number in numbers.items()}
    about = {"name": f"concurrency={load:g}", "concurrency": load, "values": values}
    return CurvePoint(**{**about, **more})  # type: ignore[arg-type]  # a builder


def drawn(markup: str | None) -> ET.Element:
    assert markup is not None
    return ET.fromstring(markup.replace(' aria-hidden="true"', ""))


def steps(root: ET.Element) -> list[str]:
    return [path.get("d", "") for path in root.iter("path") if "line thin" in (path.get("class") or "")]


def texts(root: ET.Element) -> list[str]:
    return ["".join(text.itertext()) for text in root.iter("text")]


def test_a_curve_is_a_step_function_of_the_points_that_no_other_dominates() -> None:
    # 3 is worse in both than 2; what the others dominate has its corner at each of them.
    curve = ServingCurve(points=(at(1, 50, 100), at(2, 40, 300), at(3, 30, 200), at(4, 10, 600)))
    (path,) = steps(drawn(curve_figure([("a", curve)])))
    corners = [float(number) for number in re.findall(r"[HV]([\d.]+)", path)]
    across, up = corners[1::2], corners[::2]
    assert len(up) == 3 and up == sorted(up, reverse=True)  # upwards is less in SVG
    assert across[:2] == sorted(across[:2], reverse=True) and across[2] == min(across)
    scale = dict(zip((100, 300, 600), up, strict=True))
    assert (scale[100] - scale[300]) / (scale[100] - scale[600]) == pytest.approx(200 / 500, abs=0.002)


def test_an_interval_far_beyond_all_points_goes_on_at_the_end_of_the_axis() -> None:
    wide = {"user_tps": PointValue(value=40.0, ci95=(1e-6, 1e9)), "output_tps": PointValue(value=300.0)}
    root = drawn(curve_figure([("a", ServingCurve(points=(at(1, 50, 100), at(2, 40, 300, values=wide))))]))
    bars = [path.get("d", "") for path in root.iter("path") if path.get("class") == "whisker"]
    ends = [len(re.findall(r"v6", bar)) for bar in bars]
    assert sorted(ends) == [1, 2]  # of the two along the axis, one has an end only on its left
    ticks = [float(text) for text in texts(root) if text.isdigit()]
    assert 50 < max(ticks) < 1000


def test_every_measured_point_says_its_load_and_what_it_is() -> None:
    points = (
        at(8, 40, 300, meets_slo=True),
        at(16, 20, 400, meets_slo=False),
        at(0, 30, 350, name="rate=2.5", concurrency=None, rate=2.5),
        at(0, 25, 380, name="scenario=offline", concurrency=None),
        at(32, 1, 1, state="failed"),
    )
    root = drawn(curve_figure([("a", ServingCurve(points=points, best="concurrency=8"))]))
    labels = [text for text in texts(root) if text.startswith(("c ", "2.5", "scenario"))]
    assert labels == ["c 16 ✕", "scenario=offline", "2.5/s", "c 8 ★"]  # from the top down
    tooltips = {title.text for title in root.iter("title")}
    numbers = "tokens of a user (1000 / TPOT p90) 20.00 tokens/s, output tokens 400.00 tokens/s, TTFT p90 100.00 ms"
    assert f"concurrency=16: {numbers}" in tooltips


def test_loads_that_lie_on_each_other_share_a_label_that_stays_within_the_drawing() -> None:
    curve = ServingCurve(points=(*(at(8 * n, 50 + n / 100, 300 + n) for n in range(1, 30)), at(1, 40, 100)))
    root = drawn(curve_figure([("a", curve)]))
    shared = next(text for text in root.iter("text") if (text.text or "").startswith("c 8, c 16, c 24"))
    assert (shared.text or "").count("c ") == 29 and shared.get("text-anchor") == "end"
    assert "c 1" in texts(root)


def test_two_curves_differ_in_shape_and_in_dash_and_have_a_legend() -> None:
    curve = ServingCurve(points=(at(1, 50, 100), at(2, 40, 300)))
    root = drawn(curve_figure([("old", curve), (HOSTILE, curve)]))
    assert ["".join(item.itertext()).strip() for item in root.iter("li")] == ["old", HOSTILE]
    svg = root.findall(".//svg")[-1]
    groups = [group for group in svg.iter("g") if (group.get("class") or "").startswith("dots")]
    shapes = {group.get("class"): [child.tag for child in group] for group in groups}
    assert shapes == {"dots a": ["circle"], "dots b": ["path"]}
    assert not list(root.iter("script"))
    alone = drawn(curve_figure([("old", curve)]))
    assert not list(alone.iter("li"))


def test_the_time_to_the_first_token_is_drawn_for_each_kind_of_load_with_the_limit() -> None:
    closed, opened = at(1, 1, 1, 90), at(0, 1, 1, 110, name="rate=2", concurrency=None, rate=2.0)
    curve = ServingCurve(points=(closed, at(64, 1, 1, 4000), opened), slo={"ttft_p90_ms": 500.0})
    found = serving_figures([("a", curve)])
    captions = [caption.text for one in found for caption in drawn(one).iter("figcaption")]
    assert captions == [
        "Throughput against the tokens/s of a user",
        "Time to the first token (p90) against requests in flight",
        "Time to the first token (p90) against requests/s that arrive",
    ]
    root = drawn(ttft_figure([("a", curve)], "concurrency"))
    assert "SLO 500 ms" in texts(root)
    # From 90 to 4000 ms and from 1 to 64 requests: both axes by their logarithms.
    assert {"100", "1000", "1", "64"} <= set(texts(root))


def test_without_a_point_that_has_both_numbers_nothing_is_drawn() -> None:
    bare = CurvePoint(name="scenario=offline", values={"output_tps": PointValue(value=3.0)})
    assert serving_figures([("a", ServingCurve(points=(bare,)))]) == []
    assert serving_figures([("a", ServingCurve())]) == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1, 10, [1, 2, 5, 10]), (90, 1200, [100, 200, 500, 1000]), (3, 4, [3])],
)
def test_a_logarithmic_axis_has_1_2_and_5(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(expected)
