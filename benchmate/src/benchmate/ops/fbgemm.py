"""FBGEMM's batched embedding bags: the operator, the iterator and the generator of its configurations.

Build arguments, in this order: number of tables, rows, dimension (a number for all tables or a genericlist, one for each),
pooling mode (0 sum, 1 mean, or the name), weighted, precision of the weights (fp32, fp16, int8), optimizer. Keyword arguments go
to the optimizer. Input arguments: batch size, pooling factor (a number or one for each table), and optionally alpha, which
chooses the rows: above 1 a Zipf distribution, at most 0.5 sequential, else uniform.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmate.ops.base import Arguments, Generator, JsonMapping, Keywords, OperatorFailed, OperatorSkipped, Tensor
from benchmate.ops.config_iterators import ConfigIterator, Identified
from benchmate.ops.interface import DataGenerator, Passes
from benchmate.ops.operators import BuildableOp
from benchmate.ops.registry import spelling_hint

POOLING = {0: "SUM", 1: "MEAN", "sum": "SUM", "mean": "MEAN", "none": "NONE"}
SEQUENTIAL = 0.5
# The names of environment variables are the original's.
DISTRIBUTION = "split_embedding_distribution"
FILES = {name: f"split_embedding_{name}" for name in ("indices", "offsets", "weights")}


class SplitTableOp(BuildableOp):
    """SplitTableBatchedEmbeddingBagsCodegen. Raises OperatorSkipped where fbgemm_gpu cannot be imported, however that fails."""

    def __init__(self) -> None:
        super().__init__(self._make_tables)
        try:
            from fbgemm_gpu import split_table_batched_embeddings_ops_common as common
            from fbgemm_gpu import split_table_batched_embeddings_ops_training as training
        except Exception as error:  # a missing package, a library built for another torch, a driver that is not there
            raise OperatorSkipped(f"fbgemm_gpu cannot be imported: {type(error).__name__}: {error}") from error
        self._common, self._training = common, training

    def _make_tables(self, *args: Any, **kwargs: Any) -> Any:
        """Return the tables. Raises OperatorFailed for too few arguments."""
        tables, rows, dims, pooling, _, precision, optimizer = table_arguments(args)
        common, training = self._common, self._training
        is_cuda = self.device.startswith("cuda")
        where = common.EmbeddingLocation.DEVICE if is_cuda else common.EmbeddingLocation.HOST
        compute = training.ComputeDevice.CUDA if is_cuda else training.ComputeDevice.CPU
        return training.SplitTableBatchedEmbeddingBagsCodegen(
            [(rows[n], dims[n], where, compute) for n in range(tables)],
            pooling_mode=common.PoolingMode[POOLING[pooling]],
            weights_precision=_member(training.SparseType, precision),
            optimizer=_member(training.OptimType, str(kwargs.pop("optimizer", optimizer))),
            device=self.device,
            **kwargs,
        )

    def passes(self, args: Arguments, kwargs: Keywords) -> Passes:
        # The optimizer's step is fused into the backward pass, so one cannot be repeated after a single forward, nor the
        # forward pass after it, which reads what the step has changed.
        return dataclasses.replace(super().passes(args, kwargs), backward_again=None, reference=None)


class SplitTableInputIterator(ConfigIterator):
    """Input specifications with macros carried out, each with the arguments of the tables that it is for, under "tables"."""

    def generate(self) -> Iterator[Identified]:
        build = self.configs.get("build") or {}
        tables = build.get("args", []) if isinstance(build, Mapping) else []
        for number, _, expanded in self.expand_all():
            yield number, {**expanded, "tables": tables}


class SplitTableInputGenerator(DataGenerator):
    """(indices, offsets, weights or None), made from the sizes, or read from files of torch.save.

    A file is named by "indices_tensor", "offsets_tensor" or "weights_tensor" in the specification, or by the variables
    split_embedding_indices, _offsets and _weights. split_embedding_distribution is the alpha of the draws.
    """

    def __init__(self, seed: int | str | None = 0) -> None:
        self.seed = seed

    def get_data(self, config: JsonMapping, device: str) -> tuple[tuple[Tensor | None, ...], Keywords]:
        import torch

        given = [_plain(argument) for argument in config["args"]]
        if "tables" in config:
            tables, rows, _, _, weighted, *_ = table_arguments([_plain(argument) for argument in config["tables"]])
            batch_size, pooling, *rest = given
        else:
            # Without our iterator, as a program of the original's library calls it: tables and input in one list.
            counts, rest = given[:3], given[7:]
            batch_size, pooling, weighted = given[3:6]
            tables, rows, *_ = table_arguments([*counts, 0, weighted])
        alpha = float(rest[0] if rest else os.environ.get(DISTRIBUTION, "1"))
        factors = pooling if isinstance(pooling, list) else [pooling] * tables
        generator = torch.Generator().manual_seed(random.Random(self.seed).getrandbits(63))
        # On the host, where a seed gives the same rows for every device.
        drawn = [rows_of(rows[n], batch_size * factors[n], alpha, generator) for n in range(tables)]
        lengths = itertools.chain.from_iterable([factors[n]] * batch_size for n in range(tables))
        indices = torch.cat(drawn)
        tensors: dict[str, Tensor | None] = {
            "indices": indices,
            "offsets": torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.long),
            "weights": torch.rand(indices.numel(), generator=generator) if weighted else None,
        }
        for name, variable in FILES.items():
            path = config.get(f"{name}_tensor") or os.environ.get(variable)
            if path:
                tensors[name] = torch.load(path, weights_only=True)
        return tuple(None if tensor is None else tensor.to(device) for tensor in tensors.values()), {}


def _member(kind: Any, text: str) -> Any:
    """Return the member of an enumeration by its value, which configurations have (exact_row_wise_adagrad), else by its name."""
    known = {member.name.lower(): member for member in kind} | {member.value: member for member in kind}
    if text.lower() not in known:
        raise OperatorFailed(f"unknown {kind.__name__} '{text}'{spelling_hint(text, known)}")
    return known[text.lower()]


def rows_of(rows: int, count: int, alpha: float, generator: Generator) -> Tensor:
    """Return `count` row numbers below `rows`: Zipf for alpha above 1, sequential for at most 0.5, else uniform."""
    import torch

    if alpha <= SEQUENTIAL:
        return torch.arange(count) % rows
    if alpha <= 1:
        return torch.randint(rows, (count,), generator=generator)
    # The continuous Zipf law on [1, rows + 1) by inversion, cut down to whole ranks.
    uniform = torch.rand(count, generator=generator, dtype=torch.float64)
    exponent = 1 - alpha
    ranks = (1 + uniform * ((rows + 1.0) ** exponent - 1)) ** (1 / exponent)
    return (ranks.long() - 1).clamp_(0, rows - 1)


def table_arguments(args: Sequence[Any]) -> tuple[int, list[int], list[int], Any, bool, str, str]:
    """Return (tables, rows, dimensions, pooling, weighted, precision, optimizer), rows and dimensions for each table."""
    if len(args) < 5:
        raise OperatorFailed(
            "its build takes: number of tables, rows, dimension, pooling, weighted[, precision, optimizer]"
        )
    defaults = ("fp32", "exact_rowwise_adagrad")
    tables, rows, dims, pooling, weighted, precision, optimizer = [*args, *defaults[len(args) - 5 :]][:7]
    rows, dims = (list(sizes) if isinstance(sizes, (list, tuple)) else [sizes] * tables for sizes in (rows, dims))
    return tables, rows, dims, pooling, bool(weighted), str(precision), str(optimizer)


def _plain(argument: JsonMapping) -> Any:
    value = argument.get("value")
    return [_plain(item) for item in value] if isinstance(value, list) else value
