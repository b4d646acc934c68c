"""Probes on the usual entry points of libraries: torch's DataLoader and optimizers, transformers' and Lightning's Trainer."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from benchmate import fail, observe_loss
from benchmate.batch_size import BatchSize, size_function
from benchmate.errors import BatchSizeError
from benchmate.patching import Patch, optimizer_step_hook
from benchmate.probe_registry import Probe, expect
from benchmate.probes.patch_probes import Function, Items, StepEnd, batches, calls, iterable, patch, place_patch
from benchmate.session import current

if TYPE_CHECKING:
    from typing import Unpack

    from benchmate.phases import InstrumentHost
    from benchmate.probes.patch_probes import LoopOptions


__all__ = ["accelerated_ranks", "backward", "dataloader", "lightning", "optimizer_step", "parts", "trainer"]


def dataloader(ov: InstrumentHost, **options: Unpack[LoopOptions]) -> None:
    """Observe every loop over a torch DataLoader. A loop begun with gradients off is `validation` unless `task` is given."""
    options["task"] = options.get("task") or _task_by_gradients
    # torchdata's is a DataLoader with an `__iter__` of its own.
    stateful = "torchdata.stateful_dataloader.stateful_dataloader.StatefulDataLoader.__iter__"
    iterable(ov, "torch.utils.data.dataloader.DataLoader.__iter__", stateful, **options)


def optimizer_step(
    ov: InstrumentHost,
    *,
    units: str = "steps/s",
    items: Items = 1,
    task: str = "train",
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe steps that end with each `step` of any torch optimizer. `items` may be a function of the optimizer.

    Where two optimizers step in turn it must be one, and return None for the optimizer that ends no step.
    """
    probe = expect(Probe("optimizer_step", required=required))
    probe.why_not = lambda: "no torch optimizer made a step"
    end_step = StepEnd(probe, units=units, items=items, task=task, stop=stop)

    def ended(optimizer: object, _args: object, _kwargs: object) -> None:
        end_step((optimizer,), {}, source=None if callable(items) else optimizer)

    place_patch(ov, optimizer_step_hook(ended))


def trainer(
    ov: InstrumentHost,
    *,
    units: str = "tokens/s",
    items: Items | None = None,
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe the training steps of transformers' Trainer and its subclasses, and their loss.

    A step is a `training_step`: with gradient accumulation, several before an optimizer step. Items are the elements of
    `input_ids`, padding included, because the device computes it. `items(trainer, model, inputs, ...)` may differ.
    """
    calls(
        ov,
        "transformers.trainer.Trainer.training_step",
        units=units,
        items=_tokens if items is None else items,
        loss=lambda loss: loss,
        stop=stop,
        required=required,
    )
    batches(ov, "transformers.trainer.Trainer.get_batch_samples", required=False)


def lightning(
    ov: InstrumentHost,
    *,
    units: str,
    batch_size: BatchSize = None,
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe the training steps of Lightning's Trainer, each up to the hook on_train_batch_end, and their loss.

    Not the loop over its loader: that is a batch ahead of the training, so that its last request is not the last step.
    """
    probe = expect(Probe("lightning", required=required))
    probe.why_not = lambda: "no Trainer of Lightning made a training step"
    size, n = size_function(batch_size)
    for package in ("lightning.pytorch", "pytorch_lightning"):

        def wrap(fit: Function, package: str = package) -> Function:
            base = sys.modules[f"{package}.callbacks.callback"].Callback

            class EndOfSteps(base):  # type: ignore[misc,valid-type]
                def __init__(self) -> None:
                    self.size = size
                    self.end_step = StepEnd(probe, units=units, items=self.items, task="train", stop=stop)

                def items(
                    self, _trainer: object, _module: object, _outputs: object, batch: object, *_: object
                ) -> float:
                    return n if self.size is None else self.size(batch)

                def on_train_epoch_start(self, trainer: Any, *_: object) -> None:
                    message = functools.partial(current().message, once=True)
                    self.size, _n = size_function(batch_size, trainer.train_dataloader, message)

                def on_train_start(self, *_: object) -> None:
                    self.end_step.begin()

                def on_train_batch_end(self, *args: Any) -> None:
                    outputs = args[2]
                    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
                    if loss is not None:
                        observe_loss(loss)
                    self.end_step(args, {})

                def __reduce__(self) -> tuple[object, ...]:
                    return base, ()  # a copy, in a process that the program spawns, observes nothing

            @functools.wraps(fit)
            def replacement(trainer: Any, *args: object, **kwargs: object) -> object:
                if not any(isinstance(callback, EndOfSteps) for callback in trainer.callbacks):
                    trainer.callbacks.append(
                        EndOfSteps()
                    )  # the last: what others do at the end of a step is part of it
                return fit(trainer, *args, **kwargs)

            return replacement

        place_patch(ov, Patch(f"{package}.trainer.trainer.Trainer.fit", wrap))
        target = f"{package}.strategies.strategy.Strategy.batch_to_device"
        batches(ov, target, when=lambda strategy, *_, **__: strategy.lightning_module.trainer.training, required=False)


def accelerated_ranks(ov: InstrumentHost) -> None:
    """Fail ranks that train each for itself: without an accelerator accelerate does not tell them of each other by itself."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))

    def checking(backward: Function) -> Function:
        def checked(accelerator: Any, *args: Any, **kwargs: Any) -> Any:
            if accelerator.num_processes != ranks:
                fail("invalid", f"not distributed: of {ranks} ranks accelerate knows {accelerator.num_processes}")
            return backward(accelerator, *args, **kwargs)

        return checked

    if ranks > 1:
        patch(ov, "accelerate.accelerator.Accelerator.backward", checking)


def backward(ov: InstrumentHost, *, required: bool = True) -> None:
    """Observe, as the loss, each torch tensor on which the program calls `backward()`."""

    def observing(original: Function) -> Function:
        def replacement(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            observe_loss(tensor)
            return original(tensor, *args, **kwargs)

        return replacement

    patch(ov, "torch._tensor.Tensor.backward", observing, required=required)


def parts(ov: InstrumentHost, task: str = "train") -> None:
    """Record with each observation of a task its parts: forward, backward, optimizer. For torch."""

    def instrument(ov: InstrumentHost) -> Iterator[object]:
        yield ov.phases.parse_args
        current().record_parts(task)

    ov.require(instrument)


def _tokens(_trainer: object, _model: object, inputs: Any, *_rest: object, **_more: object) -> int:
    try:
        count: int = inputs["input_ids"].numel()
    except (LookupError, TypeError):
        what = f"the inputs of a step, of type {type(inputs).__name__}, have no input_ids"
        raise BatchSizeError(f"{what}. Give items=: a function of trainer, model and inputs") from None
    return count


def _task_by_gradients(*_args: object, **_kwargs: object) -> str:
    return "train" if sys.modules["torch"].is_grad_enabled() else "validation"
