"""Probes on ptera selectors: values inside functions of the program, observed or replaced."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmate import observe_loss
from benchmate.compile_time import leave_probes_uncompiled
from benchmate.errors import ProbeError
from benchmate.observed_loops import TransparentProxy
from benchmate.probe_registry import Probe, expect
from benchmate.probes.patch_probes import LoopProbe

if TYPE_CHECKING:
    from typing import Unpack

    from benchmate.phases import InstrumentHost
    from benchmate.probes.patch_probes import LoopOptions


__all__ = ["criterion", "loader", "loss", "replace", "value"]


def replace(ov: InstrumentHost, selector: str, function: Callable[[Any], object], *, required: bool = True) -> None:
    """Replace the value that `selector` focuses on, usually a return value, by `function(value)`."""
    _attach(ov, selector, Probe(f"replace {selector!r}", required=required), function, overridable=True)


def loader(ov: InstrumentHost, selector: str, **options: Unpack[LoopOptions]) -> None:
    """Observe the loops over a factory's result: `"//make_loader() as loader"`. `when` and `task` are asked about it."""
    probe = LoopProbe(f"replace {selector!r}", **options)
    _attach(ov, selector, probe, probe.observed, overridable=True)


def criterion(ov: InstrumentHost, selector: str, *, task: str = "train", required: bool = True) -> None:
    """Observe, as a loss, the result of each call of the criterion that a factory returns."""

    def observed(value: Any) -> object:
        # A module of torch is moved to a device, and becomes a part of others: in its place it would not.
        if not hasattr(value, "register_forward_hook"):
            return _ObservedCriterion(value, _task=task)
        value.register_forward_hook(partial(_observe_output, task))
        return value

    replace(ov, selector, observed, required=required)


def loss(ov: InstrumentHost, selector: str, *, task: str = "train", required: bool = True) -> None:
    """Observe a variable, or a return value, as the loss: `"//train > loss"`."""
    value(ov, selector, lambda loss: observe_loss(loss, task), required=required)


def value(ov: InstrumentHost, selector: str, function: Callable[[Any], object], *, required: bool = True) -> None:
    """Call `function` with each value that `selector` captures."""
    _attach(ov, selector, Probe(f"value {selector!r}", required=required), function)


def _attach(
    ov: InstrumentHost, selector: str, probe: Probe, function: Callable[[Any], object], *, overridable: bool = False
) -> None:
    """While the script runs, call `function` with the captures of `selector`, or replace them by its result."""

    def instrument(ov: InstrumentHost) -> Iterator[object]:
        yield ov.phases.load_script(priority=1)
        # Imported late, like ptera itself: most voirfiles have no selector.
        from benchmate.probes.ptera_streams import open_stream

        stream = open_stream(selector, probe, env=vars(sys.modules["__main__"]), overridable=overridable)
        names = stream._selectors[0].main
        if names is None or names.capture is None:
            raise ProbeError(
                f"probe {selector!r}: captures nothing. Name a variable ('//f > x') or a result ('//f() as x')"
            )
        captured = stream[names.capture]
        (captured.override if overridable else captured.subscribe)(probe.guarded(function, default=None))
        yield ov.phases.load_script(priority=0)
        with stream:
            yield ov.phases.run_script

    expect(probe)
    leave_probes_uncompiled()
    ov.require(instrument)


def _observe_output(task: str, _module: object, _inputs: object, output: object) -> None:
    observe_loss(output, task)


class _ObservedCriterion(TransparentProxy):
    """A criterion whose results are observed."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        result = self._wrapped(*args, **kwargs)
        observe_loss(result, self._task)
        return result
