"""The instruments of milabench: times, watches and validates unmodified training scripts.

Importing this package imports neither torch nor numpy nor voir. Each function imports its needs at its first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from benchmate.batch_size import BatchSize
    from benchmate.loss_recorder import LossRecorder
    from benchmate.observed_loops import Steps
    from benchmate.session import Session

__version__ = "0.1.0"
# The names that programs and voirfiles of milabench 1.3 import (`benchmate.observer`, `benchmate.metrics`, ...) are found there.
__path__.append(f"{__path__[0]}/milabench13")

# The loss recorder of each task: asking the session for it each time would cost more than recording the loss.
_loss_recorders: dict[str, LossRecorder] = {}

T = TypeVar("T", bound=Iterable[object])


def _session() -> Session:
    # Imported at the first use: importing benchmate must cost a script nothing.
    from benchmate.session import current

    return current()


def observed(
    iterable: T,
    *,
    units: str = "items/s",
    batch_size: BatchSize = None,
    task: str = "train",
    stop: bool | None = None,
    parts: bool = False,
) -> T:
    """Return the iterable with each step of a loop over it timed. See the README for the keywords."""
    from benchmate.observed_loops import observe_iterable

    if parts:
        _session().record_parts(task)
    # A proxy, which behaves like the iterable itself.
    return cast("T", observe_iterable(iterable, _session().observer(task, units, stop), batch_size))


def steps(*, units: str = "items/s", task: str = "train", stop: bool | None = None) -> Steps:
    """Return a function to call at the end of every step, with its number of items, where there is no iterable to wrap."""
    from benchmate.observed_loops import Steps

    return Steps(_session().observer(task, units, stop))


def pause(name: str) -> AbstractContextManager[None]:
    """Leave the work inside the `with` out of the measurement, under a name that the report shows with its share.

    Pauses inside one another, and of several threads at once, are a single pause, with the name of the first.
    """
    return _session().pause(name)


def observe_loss(value: object, task: str = "train") -> None:
    """Observe a loss: a float, or a tensor, which on a device is read after the window and never waited for.

    `benchmate.loss_recorder.LossRecorder` says how many of them are read, and when.
    """
    recorder = _loss_recorders.get(task)
    if recorder is None:
        session = _session()
        session.when_replaced(_loss_recorders.clear)
        recorder = _loss_recorders[task] = session.loss_recorder(task)
    recorder.count = count = recorder.count + 1
    # Most tensors are passed over here, before they are touched: one more call would be half of what that costs.
    if count > recorder.until or type(value) is float:
        recorder.take(count - 1, value)


def metric(name: str, value: float, units: str = "", direction: str = "none", **more: object) -> None:
    """Record a single measurement. `direction` says which way is better: higher, lower or none."""
    if direction not in ("higher", "lower", "none"):
        raise ValueError(f"metric {name}: direction={direction!r}: expected higher, lower or none")
    _session().metric(name, value, units, direction, **more)


def message(text: str) -> None:
    """Send a line for the reader of the run."""
    _session().message(text)


def fail(why: str, detail: str) -> None:
    """Fail the step for a reason of the protocol (`invalid`, `no-data`, ...), whatever the exit code will be."""
    _session().fail(why, detail)


def config() -> Mapping[str, Any]:
    """Return the resolved configuration of the benchmark. Empty where there is none."""
    return _session().config.values


def option(name: str, default: Any = None) -> Any:
    """Return one of the benchmark's own options, as the suite gave it."""
    return _session().config.options.get(name, default)


def prepare_folder(folder: Path, recipe: Mapping[str, object], make: Callable[[Path], object]) -> None:
    """Make a folder unless it is there with the same recipe: `make` fills an empty folder, which then appears, complete.

    The recipe names the inputs of the contents, and is kept in the folder as recipe.json. A line reports the work.
    """
    from benchmate.prepared_data import make_folder

    make_folder(folder, recipe, make)


def prepare_file(file: Path, recipe: Mapping[str, object], make: Callable[[Path], object]) -> None:
    """Make a file unless it is there with the same recipe, as prepare_folder does. The recipe is a hidden file next to it."""
    from benchmate.prepared_data import make_file

    make_file(file, recipe, make)
