"""Probes on attributes of modules, of classes and of the script: functions whose arguments, calls or results are observed."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter_ns
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypedDict

from benchmate import observe_loss
from benchmate.batch_size import BatchSize, plain_count
from benchmate.compile_time import leave_probes_uncompiled
from benchmate.errors import ProbeError
from benchmate.line_loops import observe_line, why_no_loop
from benchmate.loop_observer import NEVER, WORKED
from benchmate.observed_loops import Steps, observe_iterable
from benchmate.patching import Patch, Wrap, apply_when_imported
from benchmate.probe_registry import Probe, expect
from benchmate.session import current

if TYPE_CHECKING:
    from typing import Required, Unpack

    from benchmate.loop_observer import Observer
    from benchmate.phases import InstrumentHost

__all__ = ["argument", "batches", "calls", "iterable", "loop", "patch", "pause", "result"]
Function = Callable[..., Any]
Task = str | Callable[..., "str | None"]
Items = int | float | Callable[..., object]


class LoopOptions(TypedDict, total=False):
    """The keywords of every probe of loops. Functions are asked about the call, or the iterable, that is to be observed.

    `batch_size` counts the items of a batch, `when` says whether it is observed, `task` is what it is (None: not observed).
    `stop` ends the program with the window, `required` fails the step where the probe never fires.
    """

    units: Required[str]
    batch_size: BatchSize
    task: Task
    when: Function | None
    stop: bool | None
    required: bool


class LoopProbe(Probe):
    """A probe that observes loops, with `LoopOptions`."""

    def __init__(
        self,
        text: str,
        *,
        units: str,
        batch_size: BatchSize = None,
        task: Task = "train",
        when: Function | None = None,
        stop: bool | None = None,
        required: bool = True,
    ) -> None:
        super().__init__(text, required=required)
        self.units, self.batch_size, self.task, self.stop = units, batch_size, task, stop
        self._when = None if when is None else truth_of(when, self)

    def observer(self, *args: object, **kwargs: object) -> Observer | None:
        """Return the observer of the loops over the result of a call. None when they are not to be observed."""
        if self._when is not None and not self._when(*args, **kwargs):
            return None
        task = self.task if isinstance(self.task, str) else self.guarded(self.task, default=None)(*args, **kwargs)
        return None if task is None else current().observer(task, self.units, self.stop)

    def observed(self, iterable: Any) -> object:
        """Return an iterable with the loops over it observed."""
        self.fire()
        observer = self.observer(iterable)
        return iterable if observer is None else observe_iterable(iterable, observer, self.batch_size)


def truth_of(when: Function, probe: Probe) -> Callable[..., bool]:
    """Return the condition `when` of a probe, guarded: to ask whether an array is true raises, too."""

    # Not a function within `guarded`: a condition may look at the frames that led to it.
    def call(*args: object, **kwargs: object) -> bool:
        try:
            return bool(when(*args, **kwargs))
        except Exception as error:
            probe.failed(error)
            return False

    return call


def patch(ov: InstrumentHost, target: str, wrap: Wrap, *, required: bool = True) -> None:
    """Replace the object of the dotted path by `wrap(original)`, as soon as it exists. It must be called at least once."""
    probe = Probe(f"patch {target}", required=required)

    def counting(original: object) -> object:
        successor = wrap(original)
        if not callable(successor) or isinstance(successor, type):
            probe.fire()
            return successor

        def replacement(*args: object, **kwargs: object) -> object:
            probe.fire()
            result: object = successor(*args, **kwargs)
            return result

        # For an original without a name of its own, such as a functools.partial.
        return functools.update_wrapper(replacement, successor)

    _replace(ov, probe, target, counting, of_function=False)


def iterable(ov: InstrumentHost, target: str, *others: str, **options: Unpack[LoopOptions]) -> None:
    """Observe the loops over the result of a function, also of a generator function or of `__iter__` of a class.

    Where it returns an iterator, the first step of the loop includes the call, in which a loader may start its workers.
    `others` are functions like it, which need not exist.
    """
    probe = LoopProbe(f"iterable {target}", **options)

    def wrap(original: Function) -> Function:
        if inspect.isasyncgenfunction(original) or inspect.iscoroutinefunction(original):
            probe.failed(ProbeError(f"{target} is async: its batches are no result of the call"))
            return original

        def replacement(*args: object, **kwargs: object) -> object:
            observer = probe.observer(*args, **kwargs)
            if observer is None:
                return original(*args, **kwargs)
            observer.begin_loop()
            result = original(*args, **kwargs)
            probe.fire()
            if inspect.isgenerator(result) or not hasattr(type(result), "__next__"):
                observer.begun = None  # the call has not begun to make batches
            return observe_iterable(result, observer, probe.batch_size)

        return replacement

    _replace(ov, probe, target, wrap)
    for other in others:
        place_patch(ov, Patch(other, wrap))


def loop(ov: InstrumentHost, line: int, **options: Unpack[LoopOptions]) -> None:
    """Observe the `for` or `while` at this line of the program. Each iteration of a `while` is a step of a single item.

    For loops that no name leads to. Place it before the program is loaded. `task` is a name, no function.
    """
    probe = LoopProbe(f"loop at line {line}", **options)
    probe.why_not = lambda: why_no_loop(line)
    expect(probe)
    ended = StepEnd(probe, units=probe.units, items=1, task=str(probe.task), stop=probe.stop)
    began_ns, shortest_ns = 0, NEVER  # of the iteration under way, 0 without one; of all that came to their end

    def observe_while(condition: object) -> object:
        nonlocal began_ns, shortest_ns
        goes_on, last_ns, now_ns = bool(condition), began_ns, perf_counter_ns()
        began_ns = now_ns if goes_on else 0
        if last_ns:
            shortest_ns = min(shortest_ns, now_ns - last_ns)
            ended((), {})
        elif goes_on:
            ended.begin()
        return goes_on

    def while_ended() -> None:
        # By `break`, say: a step, where it took as long as an iteration that has worked.
        nonlocal began_ns
        last_ns, began_ns = began_ns, 0
        if last_ns and perf_counter_ns() - last_ns >= WORKED * shortest_ns:
            ended((), {})

    observe_line(line, probe.observed, observe_while, while_ended)


def argument(ov: InstrumentHost, target: str, name: str, **options: Unpack[LoopOptions]) -> None:
    """Observe the loops over an argument of a function."""
    probe = LoopProbe(f"argument {name} of {target}", **options)

    def wrap(original: Function) -> Function:
        parameters = inspect.signature(original).parameters
        if name not in parameters:
            probe.failed(ProbeError(f"{target} has no argument {name!r}. It has {', '.join(parameters)}"))
            return original
        position = list(parameters).index(name)
        is_positional = parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY

        def replacement(*args: object, **kwargs: object) -> object:
            # Not bound to the signature: a decorator may take arguments that the decorated function has not.
            is_given = name in kwargs or (is_positional and position < len(args))
            if is_given and (observer := probe.observer(*args, **kwargs)) is not None:
                probe.fire()
                given = kwargs[name] if name in kwargs else args[position]
                observed = observe_iterable(given, observer, probe.batch_size)  # type: ignore[arg-type]
                if name in kwargs:
                    kwargs[name] = observed
                else:
                    args = (*args[:position], observed, *args[position + 1 :])
            return original(*args, **kwargs)

        return replacement

    _replace(ov, probe, target, wrap)


def calls(
    ov: InstrumentHost,
    target: str,
    *,
    units: str,
    items: Items = 1,
    task: str = "train",
    when: Function | None = None,
    result: Function | None = None,
    loss: Callable[[Any], object] | None = None,
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe steps that end with each call of a function. `loss(result)` is observed as the loss where it is given.

    The result of a step is what the call returns, or `result(*args, **kwargs)`: a callback has it among its arguments. JAX is
    waited for by it; without one, all live arrays are searched at each step.
    A call within a call of the same function is a part of its step. A call of which `items` returns None ends no step.
    """
    probe = Probe(f"calls of {target}", required=required)

    end_step = StepEnd(probe, units=units, items=items, task=task, stop=stop)
    is_step = None if when is None else truth_of(when, probe)
    result_of = None if result is None else probe.guarded(result, default=None)
    loss_of = None if loss is None else probe.guarded(loss, default=None)

    running: set[int] = set()
    """The threads in which the function is running."""

    def wrap(original: Function) -> Function:
        def replacement(*args: object, **kwargs: object) -> object:
            thread = threading.get_ident()
            if thread in running:
                return original(*args, **kwargs)
            running.add(thread)
            try:
                returned = original(*args, **kwargs)
            finally:
                running.discard(thread)
            if is_step is None or is_step(*args, **kwargs):
                result = returned if result_of is None else result_of(*args, **kwargs)
                if loss_of is not None:
                    observe_loss(loss_of(result), task)
                end_step(args, kwargs, result)
            return returned

        return replacement

    _replace(ov, probe, target, wrap)


def batches(ov: InstrumentHost, target: str, *, when: Function | None = None, required: bool = True) -> None:
    """Name the function that gives each batch to a training loop which is not over an observed loader: `answers` need it.

    The function must exist. Calls of which `when` is false are left alone.
    """
    probe = Probe(f"batches of {target}", required=required)
    is_batch = None if when is None else truth_of(when, probe)

    def wrap(original: Function) -> Function:
        probe.fire()
        if current().answers is None:
            return original

        def replacement(*args: object, **kwargs: object) -> object:
            session = current()
            if session.answers is None or (is_batch is not None and not is_batch(*args, **kwargs)):
                return original(*args, **kwargs)
            return session.answers.fed(lambda: original(*args, **kwargs), session.observers.get("train"))

        return replacement

    _replace(ov, probe, target, wrap)


def result(ov: InstrumentHost, target: str, function: Callable[[Any], object], *, required: bool = True) -> None:
    """Call `function` with the result of each call of the dotted path's object."""
    probe = Probe(f"result of {target}", required=required)
    observe = probe.guarded(function, default=None)

    def wrap(original: Function) -> Function:
        def replacement(*args: object, **kwargs: object) -> object:
            result = original(*args, **kwargs)
            probe.fire()
            observe(result)
            return result

        return replacement

    _replace(ov, probe, target, wrap)


def pause(ov: InstrumentHost, target: str, *, name: str, required: bool = True) -> None:
    """Leave each call of a function out of the measurement. The report shows `name` with its share of the time.

    The function must exist, but need not be called: the window may be complete before its first call.
    """
    probe = Probe(f"pause {target}", required=required)

    def wrap(original: Function) -> Function:
        probe.fire()
        kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        if any(is_kind(original) for is_kind in kinds):
            probe.failed(ProbeError(f"{target} is a generator or async: its work happens after the call"))
            return original

        def replacement(*args: object, **kwargs: object) -> object:
            with current().pause(name):
                return original(*args, **kwargs)

        return replacement

    _replace(ov, probe, target, wrap)


class StepEnd:
    """Ends a step of a task, given an observed function's arguments and its result. `items` is a number or counts by these."""

    def __init__(self, probe: Probe, *, units: str, items: Items, task: str, stop: bool | None) -> None:
        self._probe, self._units, self._task, self._stop = probe, units, task, stop
        self._steps: Steps | None = None

        def count(args: tuple[object, ...], kwargs: Mapping[str, object]) -> int | float | None:
            if not callable(items):
                return items
            number = items(*args, **kwargs)
            return None if number is None else plain_count(number, "items")

        self._count = probe.guarded(count, default=0) if callable(items) else count

    def begin(self) -> None:
        """Begin the first step here."""
        self._observed().begin()

    def __call__(
        self, args: tuple[object, ...], kwargs: Mapping[str, object], result: object = None, source: object = None
    ) -> None:
        self._probe.fire()
        if self._steps is not None and self._steps.is_answering:
            return  # a step that is made again is not counted: its items may be known of new batches only
        n = self._count(args, kwargs)
        if n is not None:
            self._observed()(n, result, source)

    def _observed(self) -> Steps:
        # At the first call: before that, no record may show a task that was never run.
        if self._steps is None:
            self._steps = Steps(current().observer(self._task, self._units, self._stop))
        return self._steps


def place_patch(ov: InstrumentHost, placed: Patch) -> None:
    """Apply a patch of a module as soon as the module is imported, or of the script once its functions have been defined."""

    def instrument(ov: InstrumentHost) -> Iterator[object]:
        if placed.path[0] == "__main__":
            # Above 0: before the instruments that wait for the same phase in order to begin observing.
            yield ov.phases.load_script(priority=1)
        apply_when_imported(placed)

    leave_probes_uncompiled()
    ov.require(instrument)


def _replace(ov: InstrumentHost, probe: Probe, target: str, wrap: Wrap, *, of_function: bool = True) -> None:
    """Expect the probe, and replace the target by `wrap(original)`, a function with the names of the original."""

    def wrap_named(original: object) -> object:
        if of_function and not callable(original):
            probe.failed(ProbeError(f"{target} is a {type(original).__name__}, not a function. Use probes.patch"))
            return original
        # What is wrong with it fails the probe, and is not raised where the program imports the module.
        replacement = probe.guarded(wrap, default=original)(original)
        if isinstance(replacement, FunctionType) and replacement is not original and hasattr(original, "__name__"):
            functools.update_wrapper(replacement, original)  # type: ignore[arg-type]
            # What a function that is an object has besides: cache_clear() of functools, lower() of JAX, methods of a class.
            for name in dir(original):
                if not name.startswith("__"):
                    with contextlib.suppress(Exception):  # a property may raise anything
                        setattr(replacement, name, getattr(original, name))
        return replacement

    placed = Patch(target, wrap_named)
    probe.why_not = lambda: "it was never called" if placed.is_applied else placed.why_not()
    expect(probe)
    place_patch(ov, placed)
