"""Which batch size a benchmark gets on a device: from observations on such devices, and the sizer's options."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final

from milabench.config.kinds import INVALID, Capacity, Kind, ValueParser, Whole, key, record_of
from milabench.config.problems import Problems
from milabench.config.schema import Positive, PositiveWhole
from milabench.config.source_map import Located, Origins, SourceLocation, mapping_at, plain, scalar, sequence
from milabench.errors import ConfigError, Problem

# Keys of `system.options.sizer` that say where observations are, not how to size.
_FILES = ("config", "save")
_SLUG = re.compile(r"[^a-z0-9]+")


class CapacityOrAll(Capacity):
    """An amount of memory, or `All`: None."""

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        return None if node.value == "All" else super().parse(node, path, parser)


class ObservedMemory(Capacity):
    """An amount of memory, of a bare number also what it has behind its point."""

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        is_bare = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return float(node.value) if is_bare else super().parse(node, path, parser)


class OnOff(Kind):
    """0 or 1, as environment variables have it, or a boolean."""

    expected = "0 or 1"

    def parse(self, node: Located, path: str, parser: ValueParser) -> Any:
        is_known = isinstance(node.value, bool | int) and node.value in (0, 1)
        return bool(node.value) if is_known else parser.expected(self.expected, node, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizerOptions:
    """The keys of `system.options.sizer`. Of those that choose a size, the first that is given decides."""

    batch_size: PositiveWhole | None = key("This size.", default=None)
    optimized: Annotated[bool, OnOff()] = key("The observed size with the best rate.", default=False)
    auto: Annotated[bool, OnOff()] = key(
        "The largest size whose memory fits the device, by the line through the observations.", default=False
    )
    mult: Positive | None = key("Factor of the size, unless it is a `batch_size`.", default=None)
    add: int | None = key("Added after that.", default=None)
    multiple: PositiveWhole | None = key("Round down to a multiple of this.", default=None)
    power: Annotated[int, Whole(at_least=2)] | None = key("Round down to a power of this base.", default=None)
    capacity_mib: Annotated[int, CapacityOrAll()] | None = key(
        "The memory of the device, also `All`.", name="capacity", default=None
    )

    @property
    def asks(self) -> bool:
        """Whether any batch size may differ from the benchmark's own."""
        return any(
            getattr(self, option.name) not in (None, False) for option in fields(self) if option.name != "capacity_mib"
        )

    @property
    def needs_observations(self) -> bool:
        """Whether observations decide."""
        return self.batch_size is None and (self.auto or self.optimized)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A batch size that fitted, with its peak memory in MiB and its rate, in the benchmark's unit, where known."""

    batch_size: PositiveWhole = key("The size.")
    memory_mib: Annotated[float, ObservedMemory()] | None = key("Peak memory in MiB.", name="memory", default=None)
    rate: float | None = key("Rate in the benchmark's unit.", alias="perf", default=None)

    def to_json(self) -> dict[str, float]:
        """Return it as scaling files spell it."""
        known = {"memory": self.memory_mib, "rate": self.rate}
        return {
            "batch_size": self.batch_size,
            **{key: float(f"{value:.6g}") for key, value in known.items() if value is not None},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizer:
    """The options, and the observations by benchmark. `source` is their file."""

    options: SizerOptions = SizerOptions()
    observations: Mapping[str, tuple[Observation, ...]] = field(default_factory=dict)
    source: str = ""

    def size(self, bench: str, own: int, memory_mib: float | None) -> int:
        """Return the batch size of a benchmark whose own is `own`, on devices with so much memory. At least 1."""
        if self.options.batch_size is not None:
            return self.options.batch_size
        observed = self._observed(bench, memory_mib) if self.options.needs_observations else own
        return _scaled(observed if isinstance(observed, int) else own, self.options)

    def why_unsized(self, bench: str, memory_mib: float | None) -> str | None:
        """Return why observations cannot decide on the size of this benchmark. None where they do or need not."""
        observed = self._observed(bench, memory_mib) if self.options.needs_observations else None
        return f"{bench}: keeps its own batch size: {observed}" if isinstance(observed, str) else None

    def _observed(self, bench: str, memory_mib: float | None) -> int | str:
        """Return the size on which observations decide, or why they cannot."""
        observations = self.observations.get(bench, ())
        if not observations:
            return f"{self.source or 'there'} has no observation of this benchmark"
        if self.options.optimized:
            rated = [observation for observation in observations if observation.rate is not None]
            best = max(rated, key=lambda observation: observation.rate or 0.0, default=None)
            return best.batch_size if best else f"{self.source}: none of its observations has a rate"
        capacity = memory_mib if self.options.capacity_mib is None else self.options.capacity_mib
        if not capacity:
            return "the memory of the device is not known. Give sizer.capacity"
        size = largest_within(capacity, observations)
        return size or f"{self.source}: its observations show no memory that grows with the batch size"


def largest_within(memory_mib: float, observations: Sequence[Observation]) -> int | None:
    """Return the batch size at which the least-squares line of memory over batch size reaches `memory_mib`, at least 1.

    With a single batch size the line goes through zero, which is too careful above it. None where no line rises.
    """
    points = [
        (observation.batch_size, observation.memory_mib)
        for observation in observations
        if observation.memory_mib is not None
    ]
    if not points:
        return None
    import statistics  # 5 ms, for those who size

    sizes, memories = zip(*points, strict=True)
    if len(set(sizes)) == 1:
        slope, fixed = statistics.fmean(memories) / sizes[0], 0.0
    else:
        slope, fixed = statistics.linear_regression(sizes, memories)
    # A size that is whole but for rounding is that size.
    return max(1, math.floor((memory_mib - fixed) / slope + 1e-6)) if slope > 0 else None


def _scaled(size: int, options: SizerOptions) -> int:
    scaled = size * (options.mult if options.mult is not None else 1) + (options.add or 0)
    whole = max(1, math.floor(scaled))
    if options.multiple is not None:
        whole = max(1, whole // options.multiple * options.multiple)
    if options.power is not None:
        below = 1
        while below * options.power <= whole:
            below *= options.power
        whole = below
    return whole


def sizer_options(system: Origins) -> SizerOptions:
    """Return the options of a system's sizer, from its origins. Raises ConfigError with everything that is wrong with them."""
    given = system.node("options.sizer")
    if given is None or given.value is None:
        return SizerOptions()
    if type(given.value) is dict:
        own = {name: value for name, value in given.value.items() if name not in _FILES}
        given = given.holding(own, given.flags)
    problems = Problems()
    options: SizerOptions = record_of(SizerOptions).parse(given, "system.options.sizer", ValueParser(problems, ""))
    problems.raise_any()
    return options


# ------------------------------------------------------------------------------------------------- files of observations


def device_slug(name: str) -> str:
    """Return the name of a device as scaling files are called: `NVIDIA H200` is nvidia-h200."""
    return _SLUG.sub("-", name.lower()).strip("-") or "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A file of observations: its content, and the part to keep when it is written again."""

    observations: Mapping[str, tuple[Observation, ...]] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    head: str = "# Batch sizes that fitted: peak memory in MiB, rate in the benchmark's unit.\n"


KEYS_OF_13: Final = frozenset({"arg", "model", "observations", "optimized", "tags"})
"""The keys of a benchmark in a file of milabench 1.3."""


def parse_scaling(content: bytes, name: str) -> Scaling:
    """Return a file of observations, `{benchmark: [{batch_size, memory, rate}]}`. Raises ConfigError with every problem.

    The files of milabench 1.3 are read too: `version`, the list below `observations`, or memory by size below `model`, amounts
    such as `37702.5 MiB`, `perf`.
    """
    # Not on top: environments are built on machines that have no YAML reader (execute/remote_install.py).
    from milabench.config.yaml_reader import decode_text, parse_document

    text = decode_text(content, name)
    root = parse_document(text, SourceLocation(name, "")).root
    if root.value is None:
        return Scaling(head=text)
    if type(root.value) is not dict:
        raise ConfigError(Problem(str(root.mark), "", "expected a mapping from benchmark to observations"))
    problems = Problems()
    benches = {name: node for name, node in root.value.items() if name != "version" or type(node.value) in (dict, list)}
    observations = {bench: tuple(_observations(bench, node, problems)) for bench, node in benches.items()}
    problems.raise_any()
    head = "".join(f"{line}\n" for line in itertools.takewhile(lambda line: line.startswith("#"), text.splitlines()))
    return Scaling(observations=observations, data=plain(root), head=head)


def _observations(bench: str, node: Located, problems: Problems) -> Iterator[Observation]:
    record, parser = record_of(Observation), ValueParser(problems, "")
    for path, entry in _entries(node, bench, problems):
        known = entry.value
        if type(known) is dict:  # other keys are somebody's notes
            known = {name: known[name] for name in record.keys if name in known}
        observation = record.parse(entry.holding(known, entry.flags), path, parser)
        if observation is not INVALID:
            yield observation


def _entries(node: Located, bench: str, problems: Problems) -> Iterator[tuple[str, Located]]:
    """Yield the entries of a benchmark: path and mapping. Those of 1.3 below `model` as if they were in a list."""
    listed = node
    if type(node.value) is dict:
        model = node.value.get("model")
        for size, memory in model.value.items() if model is not None and type(model.value) is dict else ():
            number = int(size) if size.isdecimal() and len(size) < 19 else size  # 64 bits hold no larger one
            entry = {"batch_size": scalar(number, memory.mark), "memory": memory}
            yield f"{bench}.model.{size}", mapping_at(entry, memory.mark)
        if node.value.keys() <= KEYS_OF_13:  # some have nothing but the name of the option, or nothing at all
            listed = node.value.get("observations") or sequence([], node.mark)
    if type(listed.value) is not list:
        problems.note(node.mark, bench, "expected a list of observations")
        return
    for position, item in enumerate(listed.value):
        yield f"{bench}.{position}", item


def scaling_text(scaling: Scaling, added: Mapping[str, Sequence[Observation]]) -> str:
    """Return the file with more observations in it. Everything that it said stays, but for comments between its lines."""
    from milabench.config.show import mapping_yaml

    data: dict[str, Any] = dict(scaling.data)
    for bench, observations in added.items():
        entries = [observation.to_json() for observation in observations]
        before = data.get(bench)
        if isinstance(before, Mapping):
            data[bench] = {**before, "observations": [*before.get("observations", ()), *entries]}
        else:
            data[bench] = [*(before or ()), *entries]
    head = scaling.head.rstrip("\n")
    return (f"{head}\n" if head.strip() else "") + mapping_yaml(data)


# --------------------------------------------------------------------------------------------------------------- search
