"""Which batch size a benchmark gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.batch_size.size_search import largest_fitting
from milabench.config.source_map import BUILT_IN, Origins, SourceLocation, mapping_at
from milabench.config.yaml_reader import parse_document
from milabench.errors import ConfigError
from milabench.plan.model import Step
from milabench.plan.sizing import (
    Observation,
    Sizer,
    SizerOptions,
    device_slug,
    largest_within,
    parse_scaling,
    scaling_text,
    sizer_options,
)
from tests.examples import examples

LINE = tuple(
    Observation(batch_size=size, memory_mib=100 + 10 * size, rate=rate) for size, rate in ((8, 5), (16, 9), (32, 7))
)


def sized(own: int = 12, memory: float | None = 1000, **options: object) -> int:
    return Sizer(options=SizerOptions(**options), observations={"b": LINE}).size("b", own, memory)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 12),
        ({"auto": True}, 90),
        ({"auto": True, "capacity_mib": 200}, 10),
        ({"auto": True, "capacity_mib": 50}, 1),
        ({"optimized": True}, 16),
        ({"optimized": True, "auto": True}, 16),
        ({"batch_size": 7, "auto": True, "mult": 3, "multiple": 4}, 7),
        ({"mult": 0.5}, 6),
        ({"add": -5}, 7),
        ({"mult": 2, "add": 3}, 27),
        ({"mult": 0.001}, 1),
        ({"multiple": 8}, 8),
        ({"multiple": 16}, 1),
        ({"power": 2}, 8),
        ({"power": 3}, 9),
        ({"auto": True, "mult": 1.5, "multiple": 8}, 128),
        ({"auto": True, "power": 2}, 64),
    ],
)
def test_options_of_the_sizer(options: dict[str, object], expected: int) -> None:
    assert sized(**options) == expected


def test_without_observations_the_default_is_kept_and_scaled() -> None:
    sizer = Sizer(options=SizerOptions(auto=True, mult=2), source="f.yaml")
    assert sizer.size("b", 12, 1000) == 24
    assert sizer.why_unsized("b", 1000) == "b: keeps its own batch size: f.yaml has no observation of this benchmark"


@pytest.mark.parametrize(
    ("options", "seen", "memory", "reason"),
    [
        ({"auto": True}, LINE, None, "the memory of the device is not known"),
        ({"auto": True}, (Observation(batch_size=3, rate=1),), 100, "no memory that grows"),
        (
            {"auto": True},
            (Observation(batch_size=1, memory_mib=9), Observation(batch_size=2, memory_mib=8)),
            100,
            "no memory",
        ),
        ({"optimized": True}, (Observation(batch_size=3, memory_mib=1),), 100, "none of its observations has a rate"),
    ],
)
def test_observations_that_cannot_decide_say_why(
    options: dict[str, bool], seen: tuple[Observation, ...], memory: float | None, reason: str
) -> None:
    sizer = Sizer(options=SizerOptions(**options), observations={"b": seen}, source="f.yaml")
    assert sizer.size("b", 12, memory) == 12
    assert reason in (sizer.why_unsized("b", memory) or "")


@pytest.mark.parametrize("options", [{}, {"batch_size": 3, "auto": True}, {"mult": 2}])
def test_options_that_need_no_observation_have_nothing_to_say(options: dict[str, int]) -> None:
    assert Sizer(options=SizerOptions(**options)).why_unsized("b", None) is None  # type: ignore[arg-type]


def test_one_observation_is_scaled_in_proportion() -> None:
    assert largest_within(1000, (Observation(batch_size=4, memory_mib=100),)) == 40


@examples(100)
@given(
    fixed=st.integers(0, 10_000),
    slope=st.integers(1, 500),
    sizes=st.lists(st.integers(1, 4096), min_size=2, max_size=6, unique=True),
    wanted=st.integers(1, 10_000),
)
def test_a_line_is_found_again(fixed: int, slope: int, sizes: list[int], wanted: int) -> None:
    seen = [Observation(batch_size=size, memory_mib=fixed + slope * size) for size in sizes]
    assert largest_within(fixed + slope * (wanted + 0.5), seen) == wanted


def options_of(text: str) -> SizerOptions:
    """The options in a system file whose only line is that of the sizer."""
    root = parse_document(f"options: {{sizer: {text}}}", SourceLocation("s.yaml", "")).root
    return sizer_options(Origins(root))


def test_options_are_read_and_their_slips_told_with_places() -> None:
    assert options_of("{auto: 1, capacity: 80 GiB, config: f, mult: 2}") == SizerOptions(
        auto=True, capacity_mib=81920, mult=2
    )
    assert options_of("null") == sizer_options(Origins(mapping_at({}, BUILT_IN))) == SizerOptions()
    with pytest.raises(ConfigError) as caught:
        options_of("{auto: 3, mutl: 2, power: 1, capacity: much}")
    assert str(caught.value).split("\nerror: ") == [
        "s.yaml:1:25: system.options.sizer.auto: expected 0 or 1, got 3",
        "s.yaml:1:28: system.options.sizer: unknown key 'mutl'. Did you mean 'mult'?",
        "s.yaml:1:44: system.options.sizer.power: expected a whole number that is at least 2, got 1",
        "s.yaml:1:57: system.options.sizer.capacity: expected an amount of memory such as 80 GiB, got 'much'",
    ]


# --- files -----------------------------------------------------------------------------------------------------------


def test_what_is_saved_is_read_back_and_keeps_what_was_there() -> None:
    before = (
        b'# head\n# more\nold: [{batch_size: 1, memory: 2.5, note: mine}]\n"a b":\n  observations: []\n  arg: --x\n'
    )
    text = scaling_text(parse_scaling(before, "f"), {"old": LINE[:1], "a b": LINE[1:2], "new": LINE[2:]})
    after = parse_scaling(text.encode(), "f")
    assert after.observations == {
        "old": (Observation(batch_size=1, memory_mib=2.5), LINE[0]),
        "a b": (LINE[1],),
        "new": (LINE[2],),
    }
    assert after.data["old"][0]["note"] == "mine"
    assert after.data["a b"]["arg"] == "--x"
    assert after.head == "# head\n# more\n"


def test_files_of_milabench_1_3_are_read() -> None:
    text = b"b:\n  observations:\n  - {batch_size: 32, cpu: 8, memory: 37702.5 MiB, perf: 74.15, time: 17}\n"
    assert parse_scaling(text, "f").observations == {"b": (Observation(batch_size=32, memory_mib=37702, rate=74.15),)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "f:1:1: expected a mapping"),
        ("a: 3", "f:1:4: a: expected a list of observations"),
        ("a: [{batch_size: 0}]", "f:1:18: a.0.batch_size: expected a whole number that is at least 1, got 0"),
        ("a: [{batch_size: 1, memory: lots}]", "f:1:29: a.0.memory: expected an amount of memory"),
        ("a: [{batch_size: 1, rate: fast}, 3]", "f:1:27: a.0.rate: expected a number, got 'fast'"),
        ("a: [{memory: 3}]", "f:1:5: a.0: the key 'batch_size' is missing"),
        ("a: [", "f:2:1: not YAML"),
        (f"a: {{model: {{? {'1' * 5000} : 5 MiB}}}}", "f:1:5018: a.model.1"),  # more digits than Python reads
    ],
)
def test_a_file_that_makes_no_sense_is_told_with_the_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_scaling(text.encode(), "f")
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("text", ["", "# only a comment\n"])
def test_an_empty_file_has_observed_nothing(text: str) -> None:
    empty = parse_scaling(text.encode(), "f")
    assert empty.observations == {}
    assert parse_scaling(scaling_text(empty, {"b": LINE}).encode(), "f").observations == {"b": LINE}


@pytest.mark.parametrize(
    ("name", "slug"), [("NVIDIA H200", "nvidia-h200"), ("AMD  MI300X (x8)", "amd-mi300x-x8"), ("", "device")]
)
def test_devices_have_file_names(name: str, slug: str) -> None:
    assert device_slug(name) == slug


# --- search ----------------------------------------------------------------------------------------------------------


def searched(limit: int, start: int, **bounds: int) -> tuple[int | None, list[int]]:
    """What the search answers where sizes up to `limit` fit, and the sizes that it tried."""
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= limit

    return largest_fitting(fits, start, **bounds), tried


@pytest.mark.parametrize(
    ("limit", "start", "bounds", "answer", "tried"),
    [
        (50, 8, {}, 50, [8, 16, 32, 64, 48, 56, 52, 50, 51]),
        (0, 8, {}, None, [8, 4, 2, 1]),
        (3, 8, {}, 3, [8, 4, 2, 3]),
        (10**6, 8, {"most": 20}, 20, [8, 16, 20]),
        (10**6, 64, {"most": 20}, 20, [20]),
        (3, 1, {"least": 4}, None, [4]),
        (50, 8, {"apart": 8}, 48, [8, 16, 32, 64, 48, 56]),
        (1, 1, {"most": 1}, 1, [1]),
    ],
)
def test_the_search_doubles_then_bisects(
    limit: int, start: int, bounds: dict[str, int], answer: int | None, tried: list[int]
) -> None:
    assert searched(limit, start, **bounds) == (answer, tried)


@examples(200)
@given(limit=st.integers(0, 5000), start=st.integers(1, 5000), least=st.integers(1, 50), most=st.integers(50, 5000))
def test_the_search_finds_the_limit_and_tries_nothing_twice(limit: int, start: int, least: int, most: int) -> None:
    answer, tried = searched(limit, start, least=least, most=most)
    assert answer == (min(limit, most) if limit >= least else None)
    assert len(tried) == len(set(tried))
    assert all(least <= size <= most for size in tried)


@pytest.mark.parametrize(
    ("argv", "config", "said"),
    [
        (("python", "main.py", "--batch-size", "64"), {}, "--batch-size 64"),
        (
            ("python", "--per_device_train_batch_size=8", "data.batch=4"),
            {},
            "--per_device_train_batch_size=8, data.batch=4",
        ),
        (("/bin/sh", "-c", "train '--batch-size-per-gpu 2'; batch 9", "a"), {}, "--batch-size-per-gpu 2"),
        (("main.py", "--batches", "8", "--batch-dir=3d", "--batch", "auto"), {}, ""),
        (("main.py", "-b", "16"), {"batch_size": 16}, "batch size 16"),
    ],
)
def test_a_step_says_how_many_items_it_takes_at_a_time(
    argv: tuple[str, ...], config: dict[str, int], said: str
) -> None:
    assert Step(id="a", bench="a", phase="run", argv=argv, config=config).sizing == said
