"""The answers of a program: its first steps, made once more after the window from the same state, and the bits of their losses.

Devices of the same model that run the same program must give the same bits. A device that repeats the steps gives the same again.
The first steps are part of the warm-up: their batches, random states, parameters and settings of the optimizers are kept in host
memory. After the window the program's own loop gets the same batches, and its parameters are set back. Buffers of modules,
which change no loss of a training step, stay as they are.

The batches come from a loop over an observed loader (`keep`, `again`), or from a function that the program calls for
each of them (`fed`).
"""

from __future__ import annotations

import copy
import platform
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from benchmate.frameworks import initialized_devices
from benchmate.kernel_files import cpu_model
from benchmate.patching import call_when_imported
from benchmate.records import as_number

T = TypeVar("T")
MOST_STEPS = 64
"""Number of steps for which all losses in host memory are read. See benchmate.loss_recorder."""
_OVER = object()
"""Comes after the last batch: a batch may be anything, None too."""


class _OptimizerState:
    """An optimizer as it was before its first step, and its settings at each of the first ones."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.parameters = [
            (parameter, parameter.detach().to("cpu", copy=True))
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        self.state = copy.deepcopy(optimizer.state_dict()["state"])
        self.settings: list[list[dict[str, Any]]] = []
        self.again = 0

    def keep_settings(self) -> None:
        """Keep the settings of the step that is made next, such as its learning rate."""
        groups = self.optimizer.param_groups
        self.settings.append(
            [{name: copy.deepcopy(value) for name, value in group.items() if name != "params"} for group in groups]
        )

    def restore(self) -> None:
        """Set the parameters and the state back to those before the first step."""
        for parameter, kept in self.parameters:
            parameter.data.copy_(kept)
            parameter.grad = None
        now = self.optimizer.state_dict()
        self.optimizer.load_state_dict({**now, "state": copy.deepcopy(self.state)})
        self.again = 0

    def restore_settings(self) -> None:
        """Restore the settings that the same step had the first time."""
        if self.again < len(self.settings):
            for group, kept in zip(self.optimizer.param_groups, self.settings[self.again], strict=True):
                group.update(copy.deepcopy(kept))
        self.again += 1


class AnsweringLoop(Protocol):
    """The observer of a loop that makes its first steps again, as `Answers.fed` sees it."""

    is_answering: bool

    def end_answers(self) -> None:
        """End them, and with them the program."""


class Answers:
    """Keeps the first steps of a program and makes them again. `is_due`: they are complete and not yet made again.

    `asked` is the suite's request: `steps`, the `seed` set before the program begins, and whether `gradients` are compared.
    """

    def __init__(
        self,
        asked: Mapping[str, Any],
        rank_label: Mapping[str, int],
        record: Callable[[str, Mapping[str, object]], object],
        message: Callable[..., object],
    ) -> None:
        self._rank_label, self._record_data, self._message = rank_label, record, message
        self.steps = min(asked["steps"], MOST_STEPS)
        self._has_gradients = bool(asked.get("gradients"))
        self._batches: list[tuple[Any, list[tuple[Callable[[Any], object], Any]]]] = []
        """Each with the states of random numbers when the program got it."""
        self._optimizers: dict[int, _OptimizerState] = {}
        self._hook: Any = None
        self._is_first = True
        self.when_again: list[Callable[[], None]] = []
        """Called before the steps are made again."""
        self.is_again = False
        self.is_due = False
        self.is_fed = False
        """Whether the batches come from a function."""
        self._fed: Iterator[Any] | None = None
        self._losses: tuple[list[object], list[object]] = ([], [])
        """Of the first time and of the second."""
        self._norms: tuple[list[object], list[object]] = ([], [])
        seed = asked.get("seed", 1)
        random.seed(seed)
        call_when_imported("torch", lambda: sys.modules["torch"].manual_seed(seed))
        call_when_imported("numpy.random", lambda: sys.modules["numpy.random"].seed(seed))

    # The first time

    def keep(self, iterable: Iterable[T]) -> Iterable[T]:
        """Return the batches of a loop, of which the first of the program are kept."""
        if not self._is_first:
            return iterable
        iterator = iter(iterable)
        return chain(self._keep(iterator), iterator)

    def _keep(self, iterator: Iterator[T]) -> Iterator[T]:
        for batch in iterator:
            self._take(batch)
            yield batch
            if not self._is_first:
                return

    def _take(self, batch: Any) -> None:
        """Keep a batch of the first steps. The batch after them ends the first pass."""
        # What a function returns at once may be the batches of several steps.
        if max(len(self._batches), len(self._losses[0]) if self.is_fed else 0) >= self.steps:
            self._end_first()
            return
        try:
            self._batches.append((_parked(batch), _random_states()))
        except Exception as error:  # a batch may be of any class, and the program must get it
            self._give_up(f"a batch cannot be kept: {type(error).__name__}: {error}")
            return
        if len(self._batches) == 1:
            self._watch_optimizers()

    def fed(self, fetch: Callable[[], T], loop: AnsweringLoop | None) -> T:
        """Return the result of `fetch` for a loop that is not over an observed loader, or a batch of the repeated first steps."""
        if loop is not None and loop.is_answering:
            self._fed = self._fed or self.again()
            if (kept := next(self._fed, _OVER)) is not _OVER:
                return cast("T", kept)
            loop.end_answers()
        batch = fetch()
        if self._is_first:
            self.is_fed = True
            self._take(batch)
        return batch

    def _end_first(self) -> None:
        self._is_first, self.is_due = False, True
        self._unhook()

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _before_step(self, optimizer: Any, *_: object) -> None:
        try:
            self._look_at(optimizer)
        except Exception as error:  # the program's own optimizer may be anything, and must go on
            self._give_up(f"{type(optimizer).__name__}: {type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        self._message(f"answers: none: {why}", once=True)
        self._unhook()
        self._is_first = self.is_due = False
        self._batches, self._optimizers = [], {}

    def _look_at(self, optimizer: Any) -> None:
        state = self._optimizers.get(id(optimizer))
        if self.is_again:
            if state is not None:
                state.restore_settings()
        else:
            if state is None:
                state = self._optimizers[id(optimizer)] = _OptimizerState(optimizer)
            state.keep_settings()
        if self._has_gradients:
            self._norms[self.is_again].append(_gradient_norm(optimizer))

    def takes(self, loss: object) -> bool:
        """Take a loss of the steps in question. Return whether it belongs to the repeated steps."""
        if self._is_first and self._batches:
            self._losses[0].append(_kept_value(loss))
        elif self.is_again:
            self._losses[1].append(_kept_value(loss))
        return self.is_again

    # After the window

    def again(self) -> Iterator[Any]:
        """Set the program back to where it was before its first batches, yield these again, and record the answers."""
        self.is_due, self.is_again = False, True
        for function in self.when_again:
            function()
        try:
            for state in self._optimizers.values():
                state.restore()
            self._watch_optimizers()
            for batch, states in self._batches:
                for restore, kept in states:
                    restore(kept)
                yield _unparked(batch)
            self._record()
        except GeneratorExit:  # it has made fewer steps: they must not count as other answers
            self._give_up("the program left its loop while its first steps were made again")
            raise
        except Exception as error:  # the program has been measured, and must not fail for this
            self._give_up(f"the program cannot be set back: {type(error).__name__}: {error}")
        finally:
            self._unhook()
            self.is_again = False

    def _watch_optimizers(self) -> None:
        # It runs for every optimizer, subclasses of the script's included.
        torch_optimizer: Any = sys.modules.get("torch.optim.optimizer")
        if torch_optimizer is not None:
            self._hook = torch_optimizer.register_optimizer_step_pre_hook(self._before_step)

    def _record(self) -> None:
        first, again = ([_bits(value) for value in values] for values in self._losses)
        answers: dict[str, object] = {"device": _device_name(), "software": _software(), "first": first, "again": again}
        if self._has_gradients:
            answers["gradients"] = {
                name: [_bits(value) for value in values]
                for name, values in zip(("first", "again"), self._norms, strict=True)
            }
        if first or again:
            self._record_data("data", {"task": "train", **self._rank_label, "answers": answers})
        else:
            self._message("answers: none, for no loss is observed: add `probes.loss` to the voirfile")

    def close(self) -> None:
        """Say why there are no answers, where the program ended without them."""
        self._unhook()
        if self.is_again:
            self._give_up("the program left its loop while its first steps were made again")
        elif self.is_due:
            self._message("answers: the program ended before its first steps could be made again")
        elif self._is_first:
            self._message(
                f"answers: none, for the program did not begin {self.steps + 1} steps of a loop over an observed loader. "
                "Observe it (probes.loader, benchmate.observed), or name the function that returns each batch: "
                'probes.batches(ov, "module.function")'
            )


def _random_states() -> list[tuple[Callable[[Any], object], Any]]:
    """Return the state of each source of random numbers of the program, with the function that restores it."""
    states: list[tuple[Callable[[Any], object], Any]] = [(random.setstate, random.getstate())]
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        states.append((numpy_random.set_state, numpy_random.get_state()))
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        states.append((torch.set_rng_state, torch.get_rng_state()))
    for module in initialized_devices("cuda", "xpu"):
        states.append((module.set_rng_state, module.get_rng_state()))
    return states


def _device_name() -> str:
    """Return the model of the device that the program uses. Of the processor where it uses no other."""
    for module in initialized_devices("cuda", "xpu"):
        name: str = module.get_device_name()
        return name
    return cpu_model() or platform.machine()


def _software() -> str:
    """Return the releases that the bits of a result depend on, and the threads that share the sums of a processor."""
    found = [f"{name} {module.__version__}" for name in ("torch", "jax", "numpy") if (module := sys.modules.get(name))]
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        kinds = {"CUDA": torch.version.cuda, "ROCm": getattr(torch.version, "hip", None)}
        found += [f"{name} {version}" for name, version in kinds.items() if version]
        if torch.backends.cudnn.is_available():
            found.append(f"cuDNN {torch.backends.cudnn.version()}")
        found.append(f"{torch.get_num_threads()} threads")
    return ", ".join(found)


class _Parked(NamedTuple):
    """A tensor of a device, in host memory."""

    tensor: Any
    device: Any


def _parked(batch: Any) -> Any:
    """Return a batch in containers of its own, which the program may change, its tensors in host memory."""
    return _mapped(batch, lambda tensor: _Parked(tensor.detach().to("cpu", copy=True), tensor.device))


def _unparked(batch: Any) -> Any:
    return _mapped(batch, lambda parked: parked.tensor.to(parked.device, copy=True))


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return a copy of a batch, whose tensors have been replaced in its lists, tuples and mappings."""
    if isinstance(value, _Parked) or (type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")):
        return function(value)
    if isinstance(value, tuple):
        members = [_mapped(member, function) for member in value]
        return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
    if isinstance(value, list):
        copied = copy.copy(value)  # of a class of its own, perhaps
        copied[:] = [_mapped(member, function) for member in value]
        return copied
    if isinstance(value, Mapping) and hasattr(value, "copy"):
        replaced = value.copy()
        for name, member in value.items():
            replaced[name] = _mapped(member, function)
        return replaced
    return copy.deepcopy(value)  # an array of numpy, or an object, may be changed in place


def _kept_value(loss: Any) -> object:
    """Return a loss that the program cannot change any more. A loss on a device is not waited for."""
    detach = getattr(loss, "detach", None)
    return loss if detach is None else detach().clone()


def _gradient_norm(optimizer: Any) -> object:
    """Return the norm of all gradients of an optimizer, as a tensor that is not waited for. None without any."""
    torch: Any = sys.modules["torch"]
    gradients = [
        parameter.grad.detach()
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]
    if not gradients:
        return None
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(one.float()) for one in gradients]))


def _bits(value: object) -> str:
    """Return a number as text that has all of its bits. Empty where it is no number."""
    number = as_number(value)
    return "" if number is None else float(number).hex()
