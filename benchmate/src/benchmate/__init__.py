"""The instruments of milabench: times, watches and validates unmodified training scripts.

Importing this package imports neither torch nor numpy nor voir; each function brings what it needs when it is first called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from benchmate.batch_size import BatchSize
    from benchmate.loss_recorder import LossRecorder
    from benchmate.observer import Steps

__version__ = "0.1.0"
__all__ = ["config", "fail", "message", "metric", "observe_loss", "observed", "option", "steps"]

# The losses of each task in this process: asking the session for them each time costs more than the loss.
_loss_recorders: dict[str, LossRecorder] = {}

T = TypeVar("T", bound=Iterable[Any])


def observed(
    iterable: T,
    *,
    units: str = "items/s",
    batch_size: BatchSize = None,
    task: str = "train",
    stop: bool | None = None,
    parts: bool = False,
) -> T:
    """The same iterable, with each step of a loop over it timed. See the README for the keywords."""
    from benchmate.observer import Observed, ObservedIterator
    from benchmate.session import current

    if parts:
        current().with_parts(task)
    kind = ObservedIterator if hasattr(iterable, "__next__") else Observed
    return kind(iterable, current().observer(task, units, stop), batch_size)  # type: ignore[return-value]


def steps(*, units: str = "items/s", task: str = "train", stop: bool | None = None) -> Steps:
    """A function to call at the end of every step, with the step's number of items, where there is no iterable to wrap."""
    from benchmate.observer import Steps
    from benchmate.session import current

    return Steps(current().observer(task, units, stop))


def observe_loss(value: Any, task: str = "train") -> None:
    """Observe a loss: a float, or a tensor, which on a device is read after the window and never waited for.

    How many of them are read, and when: `benchmate.loss_recorder.LossRecorder`.
    """
    losses = _loss_recorders.get(task)
    if losses is None:
        from benchmate.session import current

        losses = _loss_recorders[task] = current().loss_recorder(task)
    losses.count = count = losses.count + 1
    # Most tensors are passed over here, before they are touched: a call more would be half of what that costs.
    if count > losses.until or type(value) is float:
        losses.take(count - 1, value)


def metric(name: str, value: float, units: str = "", direction: str = "none", **more: Any) -> None:
    """A measurement of its own; `direction` says which way is better: higher, lower or none."""
    from benchmate.session import current

    if direction not in ("higher", "lower", "none"):
        raise ValueError(f"metric {name}: direction={direction!r}: expected higher, lower or none")
    current().metric(name, value, units, direction, **more)


def message(text: str) -> None:
    """One line for the reader of the run."""
    from benchmate.session import current

    current().message(text)


def fail(why: str, detail: str) -> None:
    """Fail the step, for one of the reasons of the protocol (`invalid`, `no-data`, ...), whatever the exit code will be."""
    from benchmate.session import current

    current().fail(why, detail)


def config() -> Mapping[str, Any]:
    """The resolved configuration of the benchmark; empty without one."""
    from benchmate.session import current

    return current().config.values


def option(name: str, default: Any = None) -> Any:
    """A key of the benchmark's own options, as the suite gave it."""
    from benchmate.session import current

    return current().config.options.get(name, default)
