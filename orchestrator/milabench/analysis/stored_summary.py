"""A summary that was stored next to its run, with the long lists of its benchmarks undecoded until they are used.

Two thirds of such a file are verdicts of checks and metrics of single launches, of which a comparison of a hundred runs needs
next to nothing. Imports msgspec: import this module where summaries are read, not at start-up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast

import msgspec

from milabench.analysis.json_codec import from_checked_value, shape_of_type
from milabench.analysis.lazy_list import LazyList
from milabench.analysis.summary_io import processes_from_json, summary_of_benches
from milabench.analysis.summary_model import BenchSummary, LaunchRate, LazyReplicates, ReplicateResult, Summary
from milabench.analysis.throughput import Throughput
from milabench.errors import RecordError
from milabench.events.shapes import RATE_SHAPE, SUMMARY_SHAPE, UNREAD, Required, Shape, ShapeCheck, require_shape
from milabench.events.values import SMALLEST_NUMBER

_LAST_KEY = b',"made_of":'
_BENCH = SUMMARY_SHAPE["benchmarks"].shape[0]
_WHOLE = ("counts", "serving")
"""Objects of a benchmark that are read whole, and not only the keys of their shapes."""
_LISTS = ("validations", "metrics")
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class StoredSummary:
    """The result of `read`: the bytes of `summary.json`. Raises msgspec's errors when they are no JSON object."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read, self._content = read, read()
        self._parts = _PARTS.decode(self._content)
        self.made_of: Any = msgspec.json.decode(self._parts.pop("made_of", b"null"))
        self.digest = _digest_of(self._content)

    def values(self) -> dict[str, Any]:
        """Return the summary as JSON."""
        return {key: msgspec.json.decode(part) for key, part in self._parts.items()}

    def lazy_summary(self, manifest: Mapping[str, object], *, keep_lists: bool = True) -> Summary | None:
        """Return the summary with the long lists undecoded. None where it may not have the shape of a summary.

        Only of bytes as they were written. `manifest` as in `summary_from_json`. Unless `keep_lists`, the bytes of the lists,
        as large as all else together, do not stay in memory and are not checked: the file is read again when somebody looks
        at a list, which raises RecordError when it is another file by then, or they have another shape.
        """
        checked = _shape_check(with_lists=False).checked(self._content)
        if checked is None or (keep_lists and not _have_lists_shape(self._content)):
            return None
        reader = _ListReader(checked.benchmarks if keep_lists else None, self._read, self.digest)
        benches = tuple(_bench(own, (reader, index)) for index, own in enumerate(checked.benchmarks))
        others = {key: msgspec.json.decode(part) for key, part in self._parts.items() if key != "benchmarks"}
        return summary_of_benches(others, benches, manifest)


def _digest_of(content: bytes) -> str:
    """Return the digest of the text before the last key, which names the inputs of the summary."""
    digest = hashlib.sha256(memoryview(content)[: max(0, content.rfind(_LAST_KEY))])
    digest.update(b"}")
    return digest.hexdigest()


class _ListReader:
    """The long lists of a summary. Where they are not `kept`, the file is read again at their first use."""

    __slots__ = ("_digest", "_kept", "_read")

    def __init__(self, kept: Sequence[object] | None, read: Callable[[], bytes], digest: str) -> None:
        self._kept, self._read, self._digest = kept, read, digest

    def of_bench(self, index: int) -> Any:
        """Return the object that has a benchmark's lists, as they are written. Raises RecordError."""
        if self._kept is None:
            self._kept = self._read_again()
        return self._kept[index]

    def _read_again(self) -> Sequence[object]:
        try:
            content = self._read()
        except OSError as error:
            raise RecordError(f"a summary cannot be read again: {error}; repeat the command") from None
        if _digest_of(content) != self._digest:
            raise RecordError("a summary changed while it was read; repeat the command")
        try:
            if _have_lists_shape(content):
                return cast("Sequence[Any]", _shape_check(with_lists=False).checked(content).benchmarks)
        except ValueError:
            pass
        raise RecordError("a summary was altered; remove `summary.json` of each run: they are computed again")


_Source = tuple[_ListReader, int]


@cache
def _shape_check(*, with_lists: bool) -> ShapeCheck:
    """Return the check of everything that is read, including later reads, or of all but the long lists."""
    own = {name: _of_any_object(shape) for name, shape in shape_of_type(BenchSummary).items()}
    lists = {"metrics": [_metric_shape()]} if with_lists else dict.fromkeys(_LISTS, Required(UNREAD))
    bench = {**own, **_BENCH, **{name: own[name] for name in _WHOLE}, **lists}
    return ShapeCheck({**SUMMARY_SHAPE, "benchmarks": Required([bench])})


def _metric_shape() -> dict[str, Shape]:
    # Most metrics are no rates: what those must have, others need not.
    rate = {name: shape.shape if isinstance(shape, Required) else shape for name, shape in RATE_SHAPE.items()}
    return {**shape_of_type(Throughput), **rate, **_BENCH["metrics"][0]}


@cache
def _launch_check() -> ShapeCheck:
    """Return the check of the part of a benchmark's metrics that is read at once."""
    metric = _metric_shape()
    read = {name: metric[name] for name in ("metric", "value", "units", "place", "repeat")}
    return ShapeCheck([{**read, "main": object}])


def _have_lists_shape(content: bytes) -> bool:
    """Return whether the long lists are known to have their shape. Raises ValueError for a launch that lacks the common keys."""
    checked = _shape_check(with_lists=True).checked(content)
    if checked is None:
        return False
    for bench in checked.benchmarks:
        _require_rates(bench.bench, map(_is_whole, _rates(bench.metrics)))
    return True


def _require_rates(bench: str, are_whole: Iterable[bool]) -> None:
    if not all(are_whole):
        raise ValueError(f"{bench}: has a rate that is none")


def _of_any_object(shape: Shape) -> Shape:
    """Return the shape with any object in place of an object with known keys, or of a list of those. Its reader checks it."""
    if isinstance(shape, list):
        return [_of_any_object(shape[0])]
    return {} if isinstance(shape, Mapping) and str not in shape else shape


def _bench(checked: Any, source: _Source) -> BenchSummary:
    for name in _WHOLE:
        if (own := getattr(checked, name)) is not None:
            require_shape(own, _BENCH[name])
    metrics = _launch_check().checked(checked.metrics)
    if metrics is None:
        raise ValueError(f"{checked.bench}: has metrics that are none")
    launches = _rates(metrics)
    _require_rates(checked.bench, [launch.value >= SMALLEST_NUMBER for launch in launches])
    rates = [LaunchRate(launch.place or "", launch.repeat, launch.value) for launch in launches]
    return from_checked_value(
        BenchSummary,
        checked,
        validations=LazyList(source, _validations),
        metrics=LazyList(source, _metrics, _words(metrics)),
        processes=LazyReplicates(source, _processes, rates),
        instances=len({rate.slot for rate in rates}),
        replicates=len({launch.repeat for launch in launches if launch.units == launches[0].units}),
    )


def _words(metrics: Sequence[Any]) -> list[str]:
    """Return the words to look for in metrics: a benchmark of cases has a `main` metric, a benchmark on accelerators `energy`."""
    words = ["main"] if any(metric.main is not None for metric in metrics) else []
    return [*words, "energy"] if any(metric.metric == "energy" for metric in metrics) else words


def _rates(metrics: Iterable[Any]) -> list[Any]:
    """Return the checked metrics that launches are written as."""
    return [metric for metric in metrics if metric.metric == "rate" and metric.repeat is not None]


def _is_whole(launch: Any) -> bool:
    """Return whether a rate has the keys that rates must have, and other metrics need not."""
    return launch.value >= SMALLEST_NUMBER and bool(launch.steps or launch.step)


def _validations(source: _Source) -> Sequence[object]:
    reader, index = source
    return cast("Sequence[Any]", msgspec.json.decode(reader.of_bench(index).validations))


def _metrics(source: _Source) -> Sequence[Any]:
    reader, index = source
    return cast("Sequence[Any]", msgspec.json.decode(reader.of_bench(index).metrics))


def _processes(source: _Source) -> Sequence[ReplicateResult]:
    return processes_from_json(_metrics(source))
