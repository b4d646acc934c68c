"""How many items are in a batch."""

from __future__ import annotations

import sys
import types
from collections import namedtuple
from dataclasses import dataclass

import pytest

from benchmate.batch_size import BatchSizeGuess, size_function
from benchmate.errors import BatchSizeError


class Tensor:
    def __init__(self, *shape, device="cpu"):
        self.shape = shape
        self.device = type("Device", (), {"type": device})()

    def __int__(self):
        return self.shape[0]


@dataclass
class Sample:
    name: str
    values: Tensor


@pytest.mark.parametrize(("is_split", "length"), [(False, 8), (True, 4)])
def test_a_rank_of_accelerate_knows_the_size_of_its_batches(monkeypatch, is_split, length):
    class BatchSampler:
        batch_size = 8

    monkeypatch.setitem(sys.modules, "torch.utils.data", types.SimpleNamespace(BatchSampler=BatchSampler))
    monkeypatch.setitem(
        sys.modules, "accelerate.data_loader", types.SimpleNamespace(BatchSamplerShard=types.SimpleNamespace)
    )
    shard = types.SimpleNamespace(batch_sampler=BatchSampler(), split_batches=is_split, num_processes=2)
    # Joined graphs: the first tensor has a row for each node.
    assert BatchSizeGuess(types.SimpleNamespace(batch_sampler=shard)).of((Tensor(90, 3),)) == length


def test_what_is_said_of_a_loader_is_the_same_in_each_epoch(monkeypatch):
    # It is said once, by its text; the first batch of joined graphs has another number of nodes each time.
    sampler = types.SimpleNamespace(batch_size=8, drop_last=True)
    monkeypatch.setitem(sys.modules, "torch.utils.data", types.SimpleNamespace(BatchSampler=types.SimpleNamespace))
    told = []
    for nodes in (90, 110):
        assert BatchSizeGuess(types.SimpleNamespace(batch_sampler=sampler), told.append).of((Tensor(nodes, 3),)) == 8
    assert len(told) == 2
    assert len(set(told)) == 1


@pytest.mark.parametrize(
    "batch",
    [
        Tensor(8, 3),
        [Tensor(8), Tensor(8, 9)],
        {"images": [Tensor(3, 5, 5), Tensor(3, 6, 5)] * 4},
        [{"image": Tensor(3, 5, 5)}] * 8,
        (["names"], Tensor(8)),
        {"text": "abc", "input_ids": Tensor(8, 2)},
        namedtuple("Pair", "x y")(Tensor(8), Tensor(8)),
        Sample("a", Tensor(8)),
        [{"deep": (Tensor(8),)}],
    ],
)
def test_the_size_is_the_first_dimension_of_the_first_tensor(batch):
    guess = BatchSizeGuess()
    assert [guess.of(batch), guess.of(batch)] == [8, 8]


def test_samples_of_different_sizes_in_one_tensor_have_a_number():
    class Strided:
        """torch's strided nested tensor."""

        @property
        def shape(self):
            raise RuntimeError("Internal error: NestedTensorImpl doesn't support sizes. Please file an issue.")

    assert BatchSizeGuess().of(Tensor(8, object(), 64)) == 8  # a jagged one: its second dimension is a symbol
    assert BatchSizeGuess().of((Strided(), Tensor(8))) == 8
    with pytest.raises(BatchSizeError, match="cannot tell how many items"):
        BatchSizeGuess().of(Strided())


class Endless:
    def __len__(self):
        raise NotImplementedError


class BatchSampler:
    """torch's."""

    batch_size, drop_last = 8, False

    def __init__(self, sampler):
        self.sampler = sampler

    def __len__(self):
        return len(self.sampler)


def test_the_loader_behind_a_progress_bar_says_how_large_batches_are(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.data", types.SimpleNamespace(BatchSampler=BatchSampler))
    bar = types.SimpleNamespace(iterable=types.SimpleNamespace(batch_sampler=BatchSampler(range(20))))
    guess = BatchSizeGuess(bar)
    assert [guess.of(Tensor(length, 8, 64)) for length in (49, 31, 8)] == [8, 8, 4]


def test_a_mapping_with_a_shape_of_its_own_is_looked_into():
    class TensorDict(dict):
        shape = ()

        def __iter__(self):
            raise TypeError("iteration over a 0-d tensordict")

    assert BatchSizeGuess().of(TensorDict(x=Tensor(8, 3))) == 8
    with pytest.raises(BatchSizeError, match=r"TensorDict with keys \['x'\]"):
        BatchSizeGuess().of(TensorDict(x="text"))


@pytest.mark.parametrize("attribute", ["_index_sampler", "batch_sampler"])
@pytest.mark.parametrize("sampler", [object(), Endless()])
def test_a_loader_of_an_iterable_data_set_is_asked_for_no_length(monkeypatch, attribute, sampler):
    # As torch has it: the sampler of such a data set has no end, so that the sampler of its batches has no length either.
    monkeypatch.setitem(sys.modules, "torch.utils.data", types.SimpleNamespace(BatchSampler=BatchSampler))
    told = []
    guess = BatchSizeGuess(types.SimpleNamespace(**{attribute: BatchSampler(sampler)}), told.append)
    assert [guess.of((Tensor(8, 3), Tensor(8))), guess.of((Tensor(5, 3), Tensor(5)))] == [8, 5]
    assert told == []


@pytest.mark.parametrize(
    "batch",
    [
        [Tensor(8), Tensor(9)],
        [Tensor(3, 16, 16)] * 6,
        [(Tensor(3, 16, 16), 1)] * 8,
        ((Tensor(3, 16, 16),) * 8, (Tensor(2),) * 8),
    ],
)
def test_a_batch_that_can_be_read_in_two_ways_is_refused(batch):
    with pytest.raises(BatchSizeError, match="or another number may be in a batch"):
        BatchSizeGuess().of(batch)


@pytest.mark.parametrize("batch", [3, "text", ["a", "b"], {}, None, [Tensor()]])
def test_a_batch_without_tensors_is_an_error_with_a_hint(batch):
    with pytest.raises(BatchSizeError, match="Give batch_size="):
        BatchSizeGuess().of(batch)


def test_the_size_may_be_a_number_a_key_or_a_function():
    assert size_function(32) == (None, 32)
    assert size_function("ids")[0]({"ids": Tensor(5)}) == 5
    assert size_function("ids")[0]({"ids": "abc"}) == 3
    assert size_function("ids")[0]({"ids": [Tensor(37), Tensor(12)]}) == 2  # not the length of the first
    assert size_function("ids")[0]({"ids": {"input": Tensor(5)}}) == 5
    assert size_function(lambda batch: Tensor(7))[0](None) == 7
    with pytest.raises(BatchSizeError, match="has no key 'ids'"):
        size_function("ids")[0]({"other": 1})
    with pytest.raises(BatchSizeError, match="reading it would wait for the device"):
        size_function(lambda batch: Tensor(7, device="cuda"))[0](None)
    with pytest.raises(BatchSizeError, match="Give batch_size="):
        size_function(True)


def test_batches_may_change_their_shape_and_type():
    guess = BatchSizeGuess()
    batches = [(Tensor(8), 1), (Tensor(3), 1), {"x": Tensor(5)}, ["name", Tensor(4)], (Tensor(2),)]
    assert [guess.of(batch) for batch in batches] == [8, 3, 5, 4, 2]


class Odd:
    """An object of a program that answers nothing."""

    def __repr__(self):
        raise RuntimeError("no text")

    @property
    def shape(self):
        raise RuntimeError("no sizes")


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ([0] * 10**6, r"\[0, 0, 0, 0, 0, 0, \.\.\.\]"),
        (Odd(), "<Odd instance"),
    ],
)
def test_what_is_no_number_is_refused_in_a_few_words(number, shown):
    size, _ = size_function(lambda batch: number)
    assert size is not None
    with pytest.raises(BatchSizeError, match=f"^batch_size returned {shown}.*expected a number$"):
        size(None)


def test_an_array_without_a_shape_is_passed_over():
    assert BatchSizeGuess().of({"nested": Odd(), "targets": Tensor(8)}) == 8
    with pytest.raises(BatchSizeError, match="of type Odd"):
        BatchSizeGuess().of(Odd())
