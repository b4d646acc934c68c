"""The configuration file: the documented one is taken as it is, a wrong one is refused with its place before anything runs."""

from __future__ import annotations

import json

import pytest
from configurations import CONFIGS, GENERATOR, number, operator, tensor

from benchmate.ops import create_bench_config, create_op_args, create_type
from benchmate.ops.base import OpsError
from benchmate.ops.config_file import iterate_inputs, parse_operators, parse_operators_text, read_operators
from benchmate.ops.json_files import parse_json, read_unpacked

DOCUMENTED = [
    {"type": "int", "value": 237},
    {"type": "int", "value_range": [100, 1000]},
    {"type": "long", "value": 8328},
    {"type": "long", "value_range": [1000, 10000]},
    {"type": "float", "value": 1.2},
    {"type": "float", "value_range": [0.0, 2.0]},
    {"type": "double", "value": 3.4},
    {"type": "double", "value_range": [0.5, 5.5]},
    {"type": "bool", "value": False},
    {"type": "device", "value": "cpu"},
    {"type": "str", "value": "a string value"},
    {"type": "str"},
    {"type": "none"},
    {"type": "genericlist", "value": [{"type": "int", "value": 237}, tensor(16, 32)]},
    {"type": "tuple", "value": [tensor(16, 32), tensor(16, 32)]},
    tensor(128, 256),
    tensor(),
    tensor(4, dtype="long", name="indices", requires_grad=False),
]


def test_every_documented_type_is_taken():
    [spec] = parse_operators({"torch.add": operator(DOCUMENTED)})
    [one] = iterate_inputs(spec, "cpu")
    assert one.input["args"] == DOCUMENTED


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_our_own_configurations_are_taken(path):
    assert sum(1 for spec in read_operators(str(path)) for _ in iterate_inputs(spec, "cpu")) > 0


def test_input_may_have_only_kwargs_and_may_be_empty():
    """D5 of the original: a KeyError for 'args', an UnboundLocalError for no input."""
    [spec] = parse_operators({"torch.zeros": operator({"kwargs": {"size": number(1)}})})
    assert [one.input for one in iterate_inputs(spec, "cpu")] == [{"kwargs": {"size": number(1)}}]
    [spec] = parse_operators({"torch.zeros": operator()})
    assert list(iterate_inputs(spec, "cpu")) == []


def test_no_build_an_empty_build_and_several_are_different_things():
    builds = [
        [one.build for one in iterate_inputs(*parse_operators({"a": operator([], build=build)}), "cpu")]
        for build in (None, [], [{"args": []}])
    ]
    assert builds == [[None], [{"args": [], "kwargs": {}}], [{"args": []}]]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ([], "expected an object of operators, got a list"),
        ({"torch.mm": operator([tensor(2)]) | {"config": None}}, r"torch.mm.config: expected a list, got nothing"),
        ({"torch.mm": {"config": []}}, "no 'input_data_generator'"),
        (
            {"torch.mm": operator([tensor(2)], input_iterator="RangeIterator")},
            "unknown config iterator 'RangeIterator'. Did you mean",
        ),
        (
            {"torch.mm": operator([tensor(2)], input_data_generator="Torch:Default")},
            "unknown data generator 'Torch:Default'",
        ),
        ({"torch.mm": operator([tensor(2)], build=[], build_data_generator=None)}, "needs a 'build_data_generator'"),
        (
            {"torch.mm": operator([number("3")])},
            r"torch.mm.config\[0\].input\[0\].args\[0\].value: expected a whole number, got '3'",
        ),
        ({"torch.mm": operator([number(True)])}, "expected a whole number, got True"),
        ({"torch.mm": operator([{"type": "integer", "value": 3}])}, "unknown type 'integer'. Did you mean 'int'"),
        ({"torch.mm": operator([tensor(2, dtype="flaot")])}, "unknown dtype 'flaot'. Did you mean 'float'"),
        ({"torch.mm": operator([tensor(-2)])}, r"shape\[0\]: expected a size, got -2"),
        ({"torch.mm": operator([{"type": "tensor", "dtype": "float"}])}, "tensor needs 'shape'"),
        ({"torch.mm": operator([{"type": "int"}])}, "needs 'value' or 'value_range'"),
        ({"torch.mm": operator([{"type": "int", "value_range": [5, 1]}])}, "min 5 is above max 1"),
        ({"torch.mm": operator([{"type": "int", "value_range": [1]}])}, r"expected \[min, max\]"),
        ({"torch.mm": operator([number([1, 2, 1], __range__=["value"])])}, 'which needs "RangeConfigIterator"'),
        ({"torch.mm": operator([number([1, 2, 0], __range__=["value"])], ranged=True)}, "no step of 0"),
        ({"torch.mm": operator([number(3, __range__=["value"])], ranged=True)}, "expected a list, because __range__"),
        ({"torch.mm": operator({"args": {}})}, "args: expected a list, got an object"),
        ({"torch.mm": operator([{"type": "tuple", "value": [3]}])}, r"value\[0\]: expected an object with 'type'"),
        ({"torch.mm": operator([tensor(2, __copy__=[{"shape": 3}])], ranged=True)}, "__copy__: expected"),
        ({"torch.mm": operator([tensor(2, __copy__=3)], ranged=True)}, "__copy__: expected a list, got a number"),
        ({"torch.mm": operator([tensor(2, __range__=[["shape"]])], ranged=True)}, "expected a list, because __range__"),
        (
            {"torch.mm": operator([tensor(-1, -1, __copy__=[{"shape": [0, [0, 1]]}])], ranged=True)},
            r"shape\[1\]: expected a size, got -1",
        ),
    ],
)
def test_what_is_wrong_is_named(config, words):
    with pytest.raises(OpsError, match=words):
        parse_operators(config)


def test_a_number_of_another_kind_is_passed_on_with_a_warning(caplog):
    config = {"torch.mul": operator([number(2.5), number([1, 0.5], __list__=["value"])], ranged=True)}
    with caplog.at_level("WARNING", logger="benchmate.ops"):
        [spec] = parse_operators(config)
    assert [[one["value"] for one in found.input["args"]] for found in iterate_inputs(spec, "cpu")] == [
        [2.5, 1],
        [2.5, 0.5],
    ]
    where = "configuration: torch.mul.config[0].input[0].args"
    end = "which is passed on as it is"
    assert caplog.messages == [
        f"{where}[0].value: expected a whole number, got 2.5, {end}",
        f"{where}[1].value: expected a whole number, got 0.5, {end}",
    ]


def test_text_that_is_no_json_has_line_and_column():
    with pytest.raises(OpsError, match=r"f.json:3:1: not JSON: expecting property name"):
        parse_operators_text('{\n"a": 1, "b": 2,\n1}', "f.json")
    with pytest.raises(OpsError, match=r"'torch\.mm' is there twice"):
        parse_operators_text('{"torch.mm": {}, "torch.mm": {}}')
    with pytest.raises(OpsError, match="No such file"):
        read_operators("nowhere.json")


def test_a_program_makes_the_same_configuration_as_a_file():
    config = create_bench_config("torch.mm")
    args = [create_type("tensor", [2, 3], "float"), create_type("int_range", 1, 5), create_type("none")]
    config["torch.mm"]["config"][0] = {"input": [create_op_args(args, {"a": create_type("bool", True)})]}
    [one] = iterate_inputs(*parse_operators(json.loads(json.dumps(config))), "cpu")
    assert one.input["args"] == [tensor(2, 3), {"type": "int", "value_range": [1, 5]}, {"type": "none"}]
    assert config["torch.mm"]["input_data_generator"] == GENERATOR
    assert create_type("tensor", [4], "long")["requires_grad"] is False
    with pytest.raises(OpsError, match="unknown kind"):
        create_type("tensr", [1])


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "f.json").write_bytes(b'\xef\xbb\xbf{"torch.mm": {}}')
    assert parse_json(read_unpacked(str(tmp_path / "f.json"), "a file"), "f.json") == {"torch.mm": {}}
