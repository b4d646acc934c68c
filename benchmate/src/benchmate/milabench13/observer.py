"""`benchmate.observer` of milabench 1.3: wrappers for the loader, criterion and optimizer of a voirfile or a program."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

from voir.helpers import current_overseer

from benchmate import observe_loss
from benchmate.errors import BenchmateError
from benchmate.metrics import ManualTimedIterator, Push, TimedIterator, give_push, record_push, sumggle_push
from benchmate.session import current


class BenchObserver:
    """Observes a training loop: `loader` or `iterate` wrap its iterable, `criterion` and `record_loss` see its losses.

    Positional and other keyword arguments go to `benchmate.metrics.TimedIterator`. `backward_callback` is called after
    `backward` of each loss of `criterion`, `step_callback` after each step of `optimizer`. With `stdout` a program in a script
    of its own writes the values for `record_metric` to stdout.
    """

    def __init__(
        self,
        *args: Any,
        backward_callback: Callable[[], object] | None = None,
        step_callback: Callable[[], object] | None = None,
        stdout: bool = False,
        rank: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.backward_callback = backward_callback
        self.optimizer_step_callback = step_callback
        self.stdout = stdout
        self.rank = int(os.environ.get("RANK") or 0) if rank is None else rank
        self.task = "train"
        self.pusher: Push = sumggle_push() if stdout else give_push()
        self.instance: TimedIterator | None = None

    @property
    def wrapped(self) -> TimedIterator | None:
        """The wrapped loader. None before it exists."""
        return self.instance

    def loader(self, loader: Iterable[Any], custom_step: bool = False) -> Any:
        """Return the loader with each step of a loop over it observed. With `custom_step` the program ends steps by `step()`.

        A program may give the same loader, or a new loader, in each epoch: all their items count.
        """
        if self.instance is None or (loader is not self.instance and loader is not self.instance.loader):
            if self.instance is not None:
                current().message(f"{self.task}: several loaders were given to one observer, and all count", once=True)
            kind = ManualTimedIterator if custom_step else TimedIterator
            self.instance = kind(loader, *self.args, **self.kwargs)
            self.instance.task = self.task
        return self.instance

    def iterate(self, iterator: Iterable[Any], custom_step: bool = False) -> Any:
        """Return the result of `loader`."""
        return self.loader(iterator, custom_step)

    def original_dataloader(self) -> TimedIterator | None:
        """Return the wrapped loader. None before it exists."""
        return self.instance

    def step(self) -> None:
        """End a step of a loop with `custom_step`."""
        if not isinstance(self.instance, ManualTimedIterator):
            raise BenchmateError("BenchObserver.step(): wrap the loader first, with loader(..., custom_step=True)")
        self.instance.step()

    def record_loss(self, loss: Any) -> Any:
        """Record a loss, without waiting for its device, and return it."""
        observe_loss(loss, self.task)
        return loss

    def record_metric(self, time: float | None = None, **kwargs: Any) -> None:
        """Record a rate, a loss, or other numbers by their names."""
        given = {**kwargs, **({} if time is None else {"time": time})}
        (self.pusher if self.stdout else record_push)(**given)

    def criterion(self, criterion: Callable[..., Any]) -> Callable[..., Any]:
        """Return the criterion with its losses recorded, and their `backward` followed by the callback."""

        def observed_criterion(*args: Any, **kwargs: Any) -> Any:
            loss = criterion(*args, **kwargs)
            if self.backward_callback is not None:
                loss.backward = _followed_by(_without_owner(loss.backward), self.backward_callback)
            return self.record_loss(loss)

        return observed_criterion

    def optimizer(self, optimizer: Any) -> Any:
        """Return the optimizer, its `step` followed by the callback."""
        if self.optimizer_step_callback is not None:
            followed = _followed_by(optimizer.step, self.optimizer_step_callback)

            # A scheduler of torch wraps the function of a bound method, before or after this.
            @functools.wraps(optimizer.step)
            def step(_: object, *args: Any, **kwargs: Any) -> Any:
                return followed(*args, **kwargs)

            optimizer.step = MethodType(step, optimizer)
        return optimizer

    def override_return_value(self, function: Callable[..., Any], override: Callable[[Any], Any]) -> None:
        """Replace the result of a function by `override(result)`, while the program runs under voir."""
        from ptera import refstring

        overseer = current_overseer.get()
        if overseer is None:
            raise RuntimeError("override_return_value: not under voir")
        overseer.probe(f"{refstring(function)}() as retval", overridable=True)["retval"].override(override)


def _without_owner(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a bound method that does not hold its object: a loss that held itself would keep its graph for long."""
    if not isinstance(method, MethodType):
        return method
    reference: Any = weakref.WeakMethod(method)

    def call(*args: Any, **kwargs: Any) -> Any:
        return reference()(*args, **kwargs)

    return call


def _followed_by(function: Callable[..., Any], callback: Callable[[], object]) -> Callable[..., Any]:
    def followed(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        callback()
        return result

    return followed
