"""The probes of a voirfile: each places an observer in a program that knows nothing of it, and must fire.

Every function takes the overseer first and may be called in any phase before the script runs.
"""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from benchmate import observe_loss, session
from benchmate.batch_size import BatchSize, plain_count
from benchmate.errors import BatchSizeError, ProbeError
from benchmate.observer import Observed, ObservedIterator, Steps
from benchmate.patching import ImportWatcher, Patch, Wrap

Task = str | Callable[..., "str | None"]
Items = int | float | Callable[..., Any]


class Probe:
    """One thing that was asked for: what it is, whether it fired, and what to say when it did not."""

    def __init__(
        self, text: str, *, required: bool = True, why_not: Callable[[], str] = lambda: "it was never reached"
    ) -> None:
        self.text = text
        self.required = required
        self.why_not = why_not
        self.fired = False

    def guarded(self, function: Callable[..., Any], default: Any = None) -> Callable[..., Any]:
        """The function, with its exceptions failing the step instead of the script."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.failed(error)
                return default

        return call

    def failed(self, error: BaseException) -> None:
        """An instrument's own code raised."""
        detail = str(error) if isinstance(error, (ProbeError, BatchSizeError)) else f"{type(error).__name__}: {error}"
        current = session.current()
        if ("probe", f"{self.text}: {detail}") not in current.failures:
            current.error(error, traceback.format_exc())
            current.fail("probe", f"{self.text}: {detail}")


class Book:
    """All probes of a process, and the patches that wait for their module."""

    def __init__(self) -> None:
        self.probes: list[Probe] = []
        self._waiting: list[Patch] = []
        self._watcher = ImportWatcher(self.apply)

    def add(self, probe: Probe) -> Probe:
        """Expect this probe to fire."""
        self.probes.append(probe)
        return probe

    def place(self, patch: Patch) -> None:
        """Apply the patch now, or as soon as its module has been imported."""
        if not patch.apply():
            self._waiting.append(patch)
            self._watcher.watch(patch.parts)

    def apply(self) -> None:
        """Apply what has become possible."""
        self._waiting = [patch for patch in self._waiting if not patch.apply()]

    def silent(self) -> list[Probe]:
        """The probes that never fired."""
        return [probe for probe in self.probes if not probe.fired]


_book = Book()


def book() -> Book:
    """The probes of this process."""
    return _book


# ptera


def replace(ov: Any, selector: str, function: Callable[[Any], Any], *, required: bool = True) -> None:
    """Replace the value that `selector` focuses on, a return value as a rule, by `function(value)`."""
    probe = Probe(f"replace {selector!r}", required=required)
    _on_stream(ov, selector, probe, lambda stream: stream.override(probe.guarded(function)), overridable=True)


def loader(
    ov: Any,
    selector: str,
    *,
    units: str,
    batch_size: BatchSize = None,
    task: str = "train",
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe the loops over what a factory returns: `"//make_loader() as loader"`."""
    replace(ov, selector, _observing(units, batch_size, task, stop), required=required)


def criterion(ov: Any, selector: str, *, task: str = "train", required: bool = True) -> None:
    """Observe, as a loss, what each call of the criterion that a factory returns gives."""
    replace(ov, selector, lambda value: _Criterion(value, task), required=required)


def loss(ov: Any, selector: str, *, task: str = "train", required: bool = True) -> None:
    """Observe a variable, or a return value, as the loss: `"//train > loss"`."""
    value(ov, selector, lambda found: observe_loss(found, task), required=required)


def value(ov: Any, selector: str, function: Callable[[Any], object], *, required: bool = True) -> None:
    """Call `function` with each value that `selector` captures."""
    probe = Probe(f"value {selector!r}", required=required)
    _on_stream(ov, selector, probe, lambda stream: stream.subscribe(probe.guarded(function)))


def _on_stream(
    ov: Any, selector: str, probe: Probe, use: Callable[[Any], object], *, overridable: bool = False
) -> None:
    def instrument(ov: Any) -> Iterator[Any]:
        yield ov.phases.load_script(priority=1)
        from benchmate.selectors import make_probe

        env = dict(vars(sys.modules["__main__"]))
        stream = make_probe(
            selector,
            on_fire=lambda: setattr(probe, "fired", True),
            on_error=probe.failed,
            env=env,
            overridable=overridable,
        )
        names = stream._selectors[0].main
        if names is None or names.capture is None:
            raise ProbeError(
                f"probe {selector!r}: captures nothing; name a variable ('//f > x') or a result ('//f() as x')"
            )
        use(stream[names.capture])
        yield ov.phases.load_script(priority=0)
        with stream:
            yield ov.phases.run_script

    book().add(probe)
    ov.require(instrument)


class _Criterion:
    """A criterion whose results are observed; in every other respect the object that it wraps."""

    def __init__(self, wrapped: Any, task: str) -> None:
        self.__dict__.update(_wrapped=wrapped, _task=task)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._wrapped(*args, **kwargs)
        observe_loss(result, self._task)
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_wrapped"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._wrapped, name, value)


# Attributes of modules, classes and of the script


def patch(ov: Any, target: str, wrap: Wrap, *, required: bool = True) -> None:
    """Replace what the dotted path names by `wrap(original)`, as soon as it exists; it must be called once at least."""

    probe = _expect(f"patch {target}", required)

    def counting(original: Any) -> Any:
        successor = wrap(original)
        if not callable(successor) or isinstance(successor, type):
            probe.fired = True
            return successor

        @_like(original, successor)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            probe.fired = True
            return successor(*args, **kwargs)

        return replacement

    _place(ov, probe, target, counting)


def iterable(
    ov: Any,
    target: str,
    *,
    units: str,
    batch_size: BatchSize = None,
    task: Task = "train",
    when: Callable[..., Any] | None = None,
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe the loops over what a function returns; generator functions too, and `__iter__` of a class."""
    probe = _expect(f"iterable {target}", required)

    def wrap(original: Any) -> Any:
        @_like(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            name = _task_of(probe, task, when, args, kwargs)
            if name is None:
                return result
            probe.fired = True
            return observing(result, name)

        return replacement

    def observing(result: Any, name: str) -> Any:
        observer = session.current().observer(name, units, stop)
        kind = ObservedIterator if hasattr(result, "__next__") else Observed
        return kind(result, observer, batch_size)

    _place(ov, probe, target, wrap)


def argument(
    ov: Any,
    target: str,
    name: str,
    *,
    units: str,
    batch_size: BatchSize = None,
    task: Task = "train",
    when: Callable[..., Any] | None = None,
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe the loops over one argument of a function."""
    probe = _expect(f"argument {name} of {target}", required)

    def wrap(original: Any) -> Any:
        signature = inspect.signature(original)
        if name not in signature.parameters:
            probe.failed(ProbeError(f"{target} has no argument {name!r}; it has {', '.join(signature.parameters)}"))
            return original

        @_like(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            task_name = _task_of(probe, task, when, args, kwargs)
            if task_name is None:
                return original(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            if name in bound.arguments:
                probe.fired = True
                bound.arguments[name] = _observing(units, batch_size, task_name, stop)(bound.arguments[name])
            return original(*bound.args, **bound.kwargs)

        return replacement

    _place(ov, probe, target, wrap)


def calls(
    ov: Any,
    target: str,
    *,
    units: str,
    items: Items = 1,
    task: str = "train",
    when: Callable[..., Any] | None = None,
    loss: Callable[[Any], Any] | None = None,
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe steps that end with each call of a function; `loss(result)` is observed as the loss where it is given."""
    probe = _expect(f"calls of {target}", required)

    def wrap(original: Any) -> Any:
        mark: list[Steps] = []
        loss_of = None if loss is None else probe.guarded(loss)

        @_like(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if when is not None and not probe.guarded(when, False)(*args, **kwargs):
                return result
            probe.fired = True
            if loss_of is not None:
                observe_loss(loss_of(result), task)
            if not mark:
                mark.append(Steps(session.current().observer(task, units, stop)))
            mark[0](_items(probe, items, args, kwargs), result)
            return result

        return replacement

    _place(ov, probe, target, wrap)


def parts(ov: Any, task: str = "train") -> None:
    """Record with each observation of a task what its step consists of: forward, backward, optimizer. For torch."""

    def instrument(ov: Any) -> Iterator[Any]:
        yield ov.phases.parse_args
        session.current().with_parts(task)

    ov.require(instrument)


def result(ov: Any, target: str, function: Callable[[Any], object], *, required: bool = True) -> None:
    """Call `function` with the result of each call of what the dotted path names."""
    probe = _expect(f"result of {target}", required)

    def wrap(original: Any) -> Any:
        observe = probe.guarded(function)

        @_like(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            probe.fired = True
            observe(found)
            return found

        return replacement

    _place(ov, probe, target, wrap)


# Libraries


def dataloader(
    ov: Any,
    *,
    units: str,
    batch_size: BatchSize = None,
    task: Task | None = None,
    when: Callable[..., Any] | None = None,
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe every loop over a torch DataLoader; one begun with gradients off is `validation` unless `task` says otherwise."""
    iterable(
        ov,
        "torch.utils.data.dataloader.DataLoader.__iter__",
        units=units,
        batch_size=batch_size,
        task=_by_gradients if task is None else task,
        when=when,
        stop=stop,
        required=required,
    )


def optimizer_step(
    ov: Any,
    *,
    units: str = "steps/s",
    items: Items = 1,
    task: str = "train",
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe steps that end with each `step` of any torch optimizer; `items` may be a function of the optimizer."""
    probe = book().add(Probe("optimizer_step", required=required, why_not=lambda: "no torch optimizer made a step"))
    mark: list[Steps] = []

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        probe.fired = True
        if not mark:
            mark.append(Steps(session.current().observer(task, units, stop)))
        mark[0](_items(probe, items, (optimizer,), {}))

    def wrap(profile_hook_step: Any) -> Any:
        # torch's own hook runs after the step of every optimizer, subclasses of the script's included.
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(after_step)  # type: ignore[attr-defined]
        return profile_hook_step

    _when_ready(ov, Patch("torch.optim.optimizer.register_optimizer_step_post_hook", wrap))


def trainer(
    ov: Any,
    *,
    units: str = "tokens/s",
    items: Items | None = None,
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe the training steps of transformers' Trainer and its subclasses, and their loss.

    A step is a `training_step`: with gradient accumulation, one of several before an optimizer step. Items are the elements of
    `input_ids`, padding included, because that is what the device computes; `items(trainer, model, inputs, ...)` may differ.
    """
    calls(
        ov,
        "transformers.trainer.Trainer.training_step",
        units=units,
        items=_tokens if items is None else items,
        loss=lambda result: result,
        stop=stop,
        required=required,
    )


def _tokens(_trainer: Any, _model: Any, inputs: Any, *_rest: Any, **_more: Any) -> int:
    return inputs["input_ids"].numel()


def _by_gradients(*_args: Any, **_kwargs: Any) -> str:
    return "train" if sys.modules["torch"].is_grad_enabled() else "validation"


# What they share


def _expect(text: str, required: bool) -> Probe:
    return book().add(Probe(text, required=required))


def _place(ov: Any, probe: Probe, target: str, wrap: Wrap) -> None:
    placed = Patch(target, wrap)
    probe.why_not = lambda: "it was never called" if placed.is_applied else placed.why_not()
    _when_ready(ov, placed)


def _when_ready(ov: Any, placed: Patch) -> None:
    """Place a patch in a module at once; one in the script when its functions have been defined."""

    def instrument(ov: Any) -> Iterator[Any]:
        if placed.parts[0] == "__main__":
            yield ov.phases.load_script(priority=1)
        book().place(placed)

    ov.require(instrument)


def _observing(units: str, batch_size: BatchSize, task: str, stop: bool | None) -> Callable[[Any], Any]:
    def observing(iterable: Any) -> Any:
        observer = session.current().observer(task, units, stop)
        kind = ObservedIterator if hasattr(iterable, "__next__") else Observed
        return kind(iterable, observer, batch_size)

    return observing


def _task_of(probe: Probe, task: Task, when: Callable[..., Any] | None, args: Any, kwargs: Any) -> str | None:
    if when is not None and not probe.guarded(when, False)(*args, **kwargs):
        return None
    return task if isinstance(task, str) else probe.guarded(task)(*args, **kwargs)


def _items(probe: Probe, items: Items, args: Any, kwargs: Any) -> int | float:
    if not callable(items):
        return items
    return probe.guarded(lambda: plain_count(items(*args, **kwargs), "items"), 0)()


def _like(original: Any, fallback: Any = None) -> Callable[[Any], Any]:
    """functools.wraps, for originals that lack some of what it copies."""
    source = original if hasattr(original, "__name__") else fallback
    return functools.wraps(source) if source is not None else lambda function: function
