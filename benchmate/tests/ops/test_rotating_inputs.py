"""Copies of inputs for cold calls: how many, and what a copy is."""

import pytest

from benchmate.ops.device import TorchDevice
from benchmate.ops.interface import tensors_in
from benchmate.ops.sampling import MAX_COPIES, rotate_inputs, sample_calls
from benchmate.ops.statistics import StopRule

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def device():
    found = TorchDevice("cpu")
    found.cache_bytes = 1 << 16
    return found


def inputs_of(rotation):
    return [call() for call in rotation.calls]


def bind(args, kwargs):
    return lambda: (args, kwargs)


def test_together_the_copies_exceed_the_cache_and_one_less_would_not(device):
    rotation = rotate_inputs(bind, [torch.ones(1000)], {}, device)
    assert len(rotation.calls) == 17
    assert rotation.total_bytes == 17 * 4000 > device.cache_bytes >= 16 * 4000


def test_inputs_that_exceed_the_cache_alone_are_not_copied(device):
    assert rotate_inputs(bind, [torch.ones(1 << 16)], {}, device) is None
    assert rotate_inputs(bind, [], {"alpha": 2}, device) is None


def test_tiny_inputs_are_not_copied_without_end(device):
    device.cache_bytes = 1 << 30
    assert len(rotate_inputs(bind, [torch.ones(1)], {}, device).calls) == MAX_COPIES


def test_each_copy_is_the_input_in_memory_of_its_own(device):
    first = torch.randn(64, 64).t()
    wanted = torch.randn(64, requires_grad=True)
    rotation = rotate_inputs(bind, [first, [wanted, 3]], {"other": first, "name": "x"}, device)
    places = set()
    for args, kwargs in inputs_of(rotation):
        assert torch.equal(args[0], first)
        assert args[0].stride() == first.stride()
        assert args[1][0].requires_grad
        assert args[1][0].is_leaf
        assert (args[1][1], kwargs["name"]) == (3, "x")
        # What was one tensor is one in the copy as well.
        assert kwargs["other"].data_ptr() == args[0].data_ptr()
        places.add(args[0].data_ptr())
    assert len(places) == len(rotation.calls)


def test_views_of_one_memory_are_copied_once_and_keep_their_places(device):
    whole = torch.arange(100.0)
    for args, _ in inputs_of(rotate_inputs(bind, [whole[10:20], whole[15:25], whole[:1].expand(50)], {}, device)):
        left, right, wide = args
        assert left.tolist() == whole[10:20].tolist()
        assert right.data_ptr() - left.data_ptr() == 5 * 4
        assert wide.stride() == (0,)


def test_what_is_not_strided_memory_is_not_copied(device):
    assert rotate_inputs(bind, [torch.eye(3).to_sparse()], {}, device) is None


def test_cold_calls_take_turns_and_hot_ones_do_not(device):
    seen = []
    calls = [lambda number=number: seen.append(number) for number in range(3)]
    rule = StopRule(precision=0.0, seconds=0.0, longest_s=0.0)
    found = sample_calls("cold", calls[0], device, rule, in_turn=calls)
    assert seen[0] == 0  # to warm up
    assert seen[1:] == [number % 3 for number in range(found.estimate.samples)]
    seen.clear()
    sample_calls("end-to-end", calls[0], device, rule, in_turn=calls)
    assert set(seen) == {0}


def test_tensors_are_found_in_structures_of_classes_of_their_own():
    class Result(dict):
        pass

    class Pair(tuple):
        pass

    assert len(list(tensors_in([Result(a=torch.ones(1)), Pair((torch.ones(1), 2)), {"b": [torch.ones(1)]}]))) == 3
