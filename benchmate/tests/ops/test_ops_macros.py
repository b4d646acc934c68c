"""What range macros stand for, in which order, under which ids."""

from __future__ import annotations

import itertools

import pytest
from configurations import number, operator, tensor
from hypothesis import given
from hypothesis import strategies as st

from benchmate.ops import (
    DefaultConfigIterator,
    IterableList,
    ListProduct,
    RangeConfigIterator,
    TableProduct,
    full_range,
)
from benchmate.ops.base import OpsError
from benchmate.ops.config_file import iterate_inputs, parse_operators
from benchmate.ops.config_iterators import argument_variants, expand_spec


def walked(config):
    return [one for spec in parse_operators(config) for one in iterate_inputs(spec, "cpu")]


def test_a_range_holds_both_ends():
    assert list(full_range(1, 5)) == [1, 2, 3, 4, 5]
    assert list(full_range(16, 64, 16)) == [16, 32, 48, 64]
    assert list(full_range(1, 6, 2)) == [1, 3, 5]
    assert list(full_range(4, 0, -2)) == [4, 2, 0]
    assert len(list(full_range(0.1, 0.5, 0.1))) == 5
    again = full_range(1, 2)
    assert [list(one) for one in ListProduct([again, again])] == [[1, 1], [1, 2], [2, 1], [2, 2]]
    with pytest.raises(ValueError, match="other than 0"):
        list(full_range(1, 2, 0))


def test_products_vary_the_last_place_fastest_and_can_be_walked_again():
    product = ListProduct([full_range(1, 1), IterableList([3, 4]), "ab"])
    made = list(ListProduct([IterableList([1, 2]), IterableList([3, 4]), "ab"]))
    assert made == [[1, 3, "ab"], [1, 4, "ab"], [2, 3, "ab"], [2, 4, "ab"]]
    assert len({id(one) for one in made}) == 4
    assert list(product) == [[1, 3, "ab"], [1, 4, "ab"]]
    table = TableProduct({"m": IterableList([1, 2]), "n": IterableList([3, 4])})
    assert list(table) == list(table) == [{"m": m, "n": n} for m in (1, 2) for n in (3, 4)]


@given(st.lists(st.lists(st.integers(), max_size=3), max_size=4))
def test_a_product_is_that_of_itertools(values):
    assert [tuple(one) for one in ListProduct(values)] == list(itertools.product(*values))


def test_args_vary_slower_than_kwargs_and_keys_in_the_order_of_the_file():
    args = [number([1, 2, 1], __range__=["value"]), number([7, 8, 1], __range__=["value"])]
    kwargs = {"beta": number([True, False], "bool", __range__=["value"])}
    made = [
        (*(one["value"] for one in spec["args"]), spec["kwargs"]["beta"]["value"]) for spec in expand_spec(args, kwargs)
    ]
    assert made == list(itertools.product((1, 2), (7, 8), (True, False)))
    shape_first = {
        "type": "tensor",
        "shape": [[1, 2, 1], 3],
        "dtype": ["float", "half"],
        "__range__": ["shape", "dtype"],
    }
    assert [(one["shape"], one["dtype"]) for one in argument_variants(shape_first)] == [
        ([1, 3], "float"),
        ([1, 3], "half"),
        ([2, 3], "float"),
        ([2, 3], "half"),
    ]


def test_lists_and_tuples_cross_the_variants_of_their_items():
    spec = {
        "type": "genericlist",
        "value": [number([1, 2, 1], __range__=["value"]), tensor(4), number([3, 4, 1], __range__=["value"])],
        "__range__": ["value"],
    }
    made = [[item.get("value") for item in one["value"]] for one in argument_variants(spec)]
    assert made == [[1, None, 3], [1, None, 4], [2, None, 3], [2, None, 4]]


def test_a_list_macro_takes_each_item_whole():
    assert [
        one["shape"] for one in argument_variants(tensor(__list__=["shape"], dtype="float") | {"shape": [[2, 3], [4]]})
    ] == [
        [2, 3],
        [4],
    ]
    assert [one["value"] for one in argument_variants(number([0.5, 3.0], "float", __list__=["value"]))] == [0.5, 3.0]


def test_a_copy_takes_an_element_of_another_argument_after_expansion():
    second = {"type": "tensor", "dtype": "float", "shape": [0, 8], "__copy__": [{"shape": [0, [0, 1]]}]}
    args = [{"type": "tensor", "dtype": "float", "shape": [4, [2, 3, 1]], "__range__": ["shape"]}, second]
    assert [[one["shape"] for one in spec["args"]] for spec in expand_spec(args, {})] == [
        [[4, 2], [2, 8]],
        [[4, 3], [3, 8]],
    ]
    second["__copy__"] = [{"shape": [0, [0, 9]]}]
    with pytest.raises(OpsError, match=r"args\[1\].__copy__"):
        list(expand_spec(args, {}))


def test_a_size_that_a_copy_fills_in_may_be_a_placeholder():
    first = tensor(-1, 64, 128, __copy__=[{"shape": [0, [1, 2]]}])
    last = tensor(2, -1, __copy__=[{"shape": [-1, [1, 0]]}])
    [found] = walked({"torch.cat": operator([first, tensor(8, 16, 32), last], ranged=True)})
    assert [one["shape"] for one in found.input["args"]] == [[32, 64, 128], [8, 16, 32], [2, 8]]


def test_ids_are_config_build_input_and_do_not_accumulate():
    """D1 of the original: builds 0, 1, 2 had the ids 0|0, 0|0|1, 0|0|1|2."""
    found = walked(
        {"torch.nn.ReLU": operator([tensor(2)], [tensor(3)], build=[{"args": []}, {"args": []}, {"args": []}])}
    )
    assert [one.id for one in found] == ["0|0|0", "0|0|1", "0|1|0", "0|1|1", "0|2|0", "0|2|1"]
    assert [found[n].answers_to("torch.nn.ReLU|0|0|1|2|1") for n in range(6)] == [False] * 5 + [True]
    assert found[5].answers_to("torch.nn.ReLU|0|2|1")
    assert found[5].answers_to(found[5].hash)


def test_ranges_work_in_build_and_name_variant_and_combination():
    build = [
        {
            "args": [number([8, 16, 8], __range__=["value"])],
            "kwargs": {"bias": number([True, False], "bool", __range__=["value"])},
        }
    ]
    found = walked({"torch.nn.Linear": operator([tensor(4)], [tensor(5)], build=build, ranged=True)})
    assert [one.id for one in found] == [f"0|0_{build}|{variant}_0" for build in range(4) for variant in (0, 1)]
    assert [one.build["args"][0]["value"] for one in found[::2]] == [8, 8, 16, 16]


def test_the_hash_is_of_what_runs_wherever_it_stands():
    one = walked({"torch.mm": operator([tensor(2, 2)])})[0]
    same = walked({"torch.add": operator([tensor(1)]), "torch.mm": operator([tensor(9, 9)], [tensor(2, 2)])})[2]
    assert (one.hash, one.id) != (same.hash, same.id)
    assert one.hash == same.hash
    assert one.hash != walked({"torch.mm": operator([tensor(2, 3)])})[0].hash


def test_the_iterators_yield_ids_and_specifications():
    config = {"input": [{"args": [number([1, 2, 1], __range__=["value"])]}, {"args": []}]}
    assert [place for place, _ in RangeConfigIterator(config, "input", "cpu")] == ["0_0", "0_1", "1_0"]
    assert list(DefaultConfigIterator(config, "input", "cpu")) == list(enumerate(config["input"]))


def test_an_enormous_product_is_walked_one_by_one():
    args = [number([1, 10**6, 1], __range__=["value"])] * 6
    assert [one["args"][5]["value"] for one in itertools.islice(expand_spec(args, {}), 3)] == [1, 2, 3]
