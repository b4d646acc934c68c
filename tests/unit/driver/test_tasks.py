"""Task files: what is read, where it is wrong, and what becomes of the options of a command."""

from __future__ import annotations

import re
from textwrap import dedent, indent

import pytest

from milabench.analysis.log_metrics import REDUCTIONS
from milabench.config.schema import REDUCTIONS as OF_SUITES
from milabench.config.source_map import plain
from milabench.driver.tasks import (
    METHODS,
    ConfiguredTask,
    TaskMetric,
    as_nodes,
    edited,
    parse_tasks,
    verbatim,
    workers_of,
)
from milabench.errors import ConfigError

FILE = r"""
[speeds]
patterns = ['Speed: (\d+\.\d+|\d+) samples/sec', 'exact_match\': (\d+\.\d+)']
metrics = ['speed', 'Images per sec']
compute_method = ['average', 'last']
command_to_execute = python train.py --gpus 8 --epochs 20
num_gpus = 8
"""
PLACE = "tasks.cfg:1:1"


def task(text: str, name: str = "speeds") -> ConfiguredTask:
    return parse_tasks(text, "tasks.cfg").task(name)


def with_command(command: str, num_gpus: int = 8) -> ConfiguredTask:
    return ConfiguredTask(name="t", metrics=(), command=command, num_gpus=num_gpus)


def problems(text: str, name: str = "speeds") -> list[str]:
    with pytest.raises(ConfigError) as found:
        task(text, name)
    return [str(problem) for problem in found.value.problems]


def test_a_section_is_a_task() -> None:
    assert task(FILE) == ConfiguredTask(
        name="speeds",
        metrics=(
            TaskMetric(name="speed", pattern=r"Speed: (\d+\.\d+|\d+) samples/sec", method="average"),
            TaskMetric(name="Images per sec", pattern=r"exact_match': (\d+\.\d+)", method="last"),
        ),
        command="python train.py --gpus 8 --epochs 20",
        num_gpus=8,
    )


def test_a_section_that_is_indented_as_a_whole_is_read_also_behind_another_one() -> None:
    sample = indent(FILE.replace("[speeds]", "[more]"), " ")
    assert task(FILE + sample, "more") == task(FILE.replace("[speeds]", "[more]"), "more")
    assert task(FILE + sample) == task(FILE)


def test_keys_that_are_indented_below_their_heading_are_no_continuation() -> None:
    assert task(FILE.replace("\nmetrics", "\n    metrics").replace("\nnum_gpus", "\n    num_gpus")) == task(FILE)


def test_a_value_goes_on_in_deeper_lines() -> None:
    text = FILE.replace("--gpus 8 --epochs 20", "--gpus 8\n    --epochs = 20\n    ; a comment\n    && date")
    assert task(text).command == "python train.py --gpus 8\n--epochs = 20\n&& date"
    lists = FILE.replace("['speed', ", "['speed',\n           ")
    assert task(lists) == task(FILE)


def test_percent_signs_dollars_and_braces_are_themselves() -> None:
    command = "echo 100% %(x)s $HOME ${HOME} {a} && sudo true"
    made = as_nodes(task(FILE.replace("python train.py --gpus 8 --epochs 20", command)), "")
    assert plain(made["command"]) == command.replace("{", "{{").replace("}", "}}")
    assert verbatim("{") == "{{"


@pytest.mark.parametrize(
    ("written", "pattern"),
    [
        (r"'a\d'", r"a\d"),
        (r"r'a\'b'", r"a\'b"),
        (r'"a\"b"', 'a"b'),
        (r"'a\\d'", r"a\d"),
        ("'a' 'b'", "ab"),
        (r"'\x41\102\u0043'", "ABC"),
        (r"'tab\t'", "tab\t"),
        ('"""a"""', "a"),
    ],
)
def test_text_is_read_as_python_reads_it(written: str, pattern: str) -> None:
    text = f"[t]\npatterns = [{written}]\nmetrics = ['m',]\ncompute_method = ['last']\n"
    assert task(text, "t").metrics[0].pattern == pattern


def test_lists_of_unequal_length_are_an_error_with_its_place() -> None:
    assert problems(FILE.replace("'average', 'last'", "'average'")) == [
        "tasks.cfg:5:18: speeds.compute_method: the lists are of unequal length: patterns 2, metrics 2, compute_method 1. "
        "Each belongs to the metric at its place"
    ]


def test_a_bad_regular_expression_is_an_error_with_the_position_in_it() -> None:
    (said,) = problems(FILE.replace(r"'Speed: (\d+\.\d+|\d+)", r"'Speed: (\d+\.\d+|\d+"))
    assert said.startswith("tasks.cfg:3:13: speeds.patterns: ")
    assert said.endswith("missing ), unterminated subpattern at position 7")


def test_two_groups_are_an_error() -> None:
    (said,) = problems(FILE.replace("Speed: (", "(Speed): ("))
    assert "it has 2 groups. Keep a single group" in said


def test_a_method_that_there_is_not_is_an_error_with_the_nearest_one() -> None:
    (said,) = problems(FILE.replace("'average'", "'avrage'"))
    assert said == "tasks.cfg:5:19: speeds.compute_method: unknown method 'avrage'. Did you mean 'average'?"


@pytest.mark.parametrize("value", ["speed", "[1, 2]", "['a' 'b", "['a'] x", "['a',, 'b']", "[f'a', 'b']"])
def test_what_is_no_list_of_text_is_an_error_with_its_place(value: str) -> None:
    (said,) = problems(FILE.replace("['speed', 'Images per sec']", value))
    assert re.match(r"tasks\.cfg:4:\d+: speeds\.metrics: expected a list of text such as \['a', 'b'\] here", said)


def test_all_that_is_wrong_with_a_section_is_said_at_once() -> None:
    text = FILE.replace("num_gpus = 8", "num_gpus = eight").replace("'last'", "'lst'").replace("metrics =", "metrcs =")
    assert len(problems(text)) == 3


def test_a_section_that_there_is_not_is_an_error_with_the_nearest_one() -> None:
    assert problems(FILE, "sppeds") == ["tasks.cfg: sppeds: unknown section. Did you mean 'speeds'?"]


def test_a_line_that_belongs_to_nothing_is_an_error_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"tasks\.cfg:1:1: expected \[section\], key = value"):
        parse_tasks("hello\n", "tasks.cfg")


def test_what_is_wrong_elsewhere_in_the_file_is_no_matter() -> None:
    assert task(FILE + "\n[broken]\npatterns = [\n") == task(FILE)


def test_what_the_default_section_says_holds_for_every_section() -> None:
    text = "[DEFAULT]\ncompute_method = ['last', 'last']\n" + FILE.replace("compute_method = ['average', 'last']\n", "")
    assert [metric.method for metric in task(text).metrics] == ["last", "last"]


def test_what_is_there_twice_is_a_warning_and_the_later_one_holds() -> None:
    made = task(FILE + FILE.replace("gpus = 8", "gpus = 1\nnum_gpus = 2"))
    assert made.num_gpus == 2
    assert [warning.what for warning in made.warnings] == [
        "the section is there twice, first in line 2",
        "num_gpus is there twice. The later value is used",
    ]


def test_a_pattern_that_finds_what_another_one_is_for_is_a_warning() -> None:
    text = """
        [t]
        patterns = ['E2E average (.*)', 'Non E2E average (.*)']
        metrics = ['a', 'b']
        compute_method = ['last', 'last']
    """
    (warning,) = task(dedent(text), "t").warnings
    assert warning.what == "'E2E average (.*)' of a also matches what 'Non E2E average (.*)' of b does"


def test_every_method_is_a_reduction_of_suites() -> None:
    assert set(METHODS.values()) <= set(OF_SUITES) <= set(REDUCTIONS)


def test_workers_divide_totals_and_multiply_aggregates() -> None:
    made = ConfiguredTask(
        name="t",
        metrics=(
            TaskMetric(name="time", pattern="t", method="total", where=PLACE),
            TaskMetric(name="rate", pattern="r", method="average_aggregate", where=PLACE),
            TaskMetric(name="acc", pattern="a", method="last", where=PLACE),
        ),
        where=PLACE,
    )
    scales = {name: metric["scale"] for name, metric in plain(as_nodes(made, "", 4)["metrics"]).items()}
    assert scales == {"time": 0.25, "rate": 4.0, "acc": 1.0}
    with pytest.raises(ConfigError, match="Set DEEPLEARNING_WORKERS_COUNT"):
        as_nodes(made, "")


def test_the_number_of_workers_is_a_number() -> None:
    assert (workers_of(""), workers_of("0"), workers_of("2")) == (None, None, 2)
    with pytest.raises(ConfigError, match="expected a number of workers, got 'two'"):
        workers_of("two")


@pytest.mark.parametrize(
    ("command", "count", "expected"),
    [
        ("t --gpus 8 -x", 4, "t --gpus 4 -x"),
        ("t --gpus=8", 4, "t --gpus=4"),
        ("t --gpus 8 -x", 0, "t -x"),
        ("t --gpus 1,0,2,3,4,5,6,7 -x", 4, "t --gpus 1,0,2,3 -x"),
        ("t --gpus 0,1", 4, "t --gpus 0,1,2,3"),
        ("t --num_gpus=8;x", 16, "t --num_gpus=16;x"),
        ("t --num_gpus=8", 0, "t --num_gpus=0"),
        ("t --gpus $N --gpus-per-node 8", 4, "t --gpus $N --gpus-per-node 8"),
        ("t --gpus 1,0,2,3,4,5,6,7", 8, "t --gpus 1,0,2,3,4,5,6,7"),
    ],
)
def test_the_number_of_gpus_is_replaced_whole(command: str, count: int, expected: str) -> None:
    changed = edited(with_command(command), num_gpus=count)
    assert (changed.command, changed.num_gpus) == (expected, count)


def test_options_are_replaced_whatever_their_value_and_spelling_is() -> None:
    command = "t --num-epochs 80 --kv-store dist --dtype=float16 && date"
    changed = edited(with_command(command), epochs=3, kvstore="device", dtype="float32")
    assert changed.command == "t --num-epochs 3 --kv-store device --dtype=float32 && date"
    assert edited(with_command("t --epochs 20 x"), epochs=3).command == "t --epochs 3 x"
    assert edited(with_command("(t --epochs 20) > log"), epochs=3).command == "(t --epochs 3) > log"
    assert edited(with_command("t --epochs $(cat n) x"), epochs=3).command == "t --epochs 3 x"
    assert edited(with_command("bash -c 't --gpus 8'"), num_gpus=2).command == "bash -c 't --gpus 2'"
    assert edited(with_command('bash -c "t --gpus 8"'), num_gpus=2).command == 'bash -c "t --gpus 2"'
    assert edited(with_command('t --dtype "float16"'), dtype="float32").command == "t --dtype float32"


def test_an_option_that_the_command_does_not_have_is_an_error() -> None:
    with pytest.raises(ConfigError, match="its command has no --dtype to replace"):
        edited(with_command("t --epochs 20"), dtype="float16")
