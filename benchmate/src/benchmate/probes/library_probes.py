"""Probes on the usual entry points of libraries: torch's DataLoader and optimizers, transformers' Trainer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmate.batch_size import BatchSize
from benchmate.patching import Patch
from benchmate.probe_registry import Probe, expect
from benchmate.probes.patch_probes import Function, Items, Task, calls, iterable, place_patch, step_end
from benchmate.session import current

if TYPE_CHECKING:
    from benchmate.voir_types import InstrumentHost


def dataloader(
    ov: InstrumentHost,
    *,
    units: str,
    batch_size: BatchSize = None,
    task: Task | None = None,
    when: Function | None = None,
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe every loop over a torch DataLoader; one begun with gradients off is `validation` unless `task` says otherwise."""
    iterable(
        ov,
        "torch.utils.data.dataloader.DataLoader.__iter__",
        units=units,
        batch_size=batch_size,
        task=_task_by_gradients if task is None else task,
        when=when,
        stop=stop,
        required=required,
    )


def optimizer_step(
    ov: InstrumentHost,
    *,
    units: str = "steps/s",
    items: Items = 1,
    task: str = "train",
    stop: bool | None = None,
    required: bool = True,
) -> None:
    """Observe steps that end with each `step` of any torch optimizer; `items` may be a function of the optimizer."""
    probe = expect(Probe("optimizer_step", required=required, why_not=lambda: "no torch optimizer made a step"))
    end_step = step_end(probe, units=units, items=items, task=task, stop=stop)

    def wrap(profile_hook_step: Function) -> Function:
        # torch's own hook runs after the step of every optimizer, subclasses of the script's included.
        optimizers = sys.modules["torch.optim.optimizer"]
        optimizers.register_optimizer_step_post_hook(lambda optimizer, _args, _kwargs: end_step((optimizer,), {}))
        return profile_hook_step

    place_patch(ov, Patch("torch.optim.optimizer.register_optimizer_step_post_hook", wrap))


def trainer(
    ov: InstrumentHost,
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
        loss=lambda loss: loss,
        stop=stop,
        required=required,
    )


def parts(ov: InstrumentHost, task: str = "train") -> None:
    """Record with each observation of a task its parts: forward, backward, optimizer. For torch."""

    def instrument(ov: InstrumentHost) -> Iterator[object]:
        yield ov.phases.parse_args
        current().record_parts(task)

    ov.require(instrument)


def _tokens(_trainer: object, _model: object, inputs: Any, *_rest: object, **_more: object) -> int:
    count: int = inputs["input_ids"].numel()
    return count


def _task_by_gradients(*_args: object, **_kwargs: object) -> str:
    return "train" if sys.modules["torch"].is_grad_enabled() else "validation"
