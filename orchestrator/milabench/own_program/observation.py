"""Chooses the probes for a program: those of its framework, or a probe on the loop of the script."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from milabench.own_program.reading import Found, FoundPause, Reading
from milabench.own_program.script import Script, ScriptCall

_BATCHES = re.compile(r"load|batch|\bdl\b")
_KERAS_TRAINERS = {"torch": "TorchTrainer", "jax": "JAXTrainer", "tensorflow": "TensorFlowTrainer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramObservation:
    """How a program's steps are observed, as lines of a voirfile.

    `steps` is the probe that times them, `why` its object in words, `found` the place in the script. `loss` is a probe or empty.
    `pauses` are left out of the rate. `missing` names the unobserved parts, each with a remedy. `is_brief`: the program usually
    ends before a window is complete.
    """

    steps: str
    why: str
    found: Found
    loss: str = ""
    loss_found: Found | None = None
    pauses: tuple[FoundPause, ...] = ()
    missing: tuple[str, ...] = ()
    is_brief: bool = False


def observation_of(reading: Reading, environ: Mapping[str, str]) -> ProgramObservation | None:
    """Return how a program is observed; None where it has no step that anything could observe.

    `environ` has the backend of Keras, where the program does not choose it.
    """
    for way in _WAYS:
        if (observation := way(reading, environ)) is not None:
            return observation
    return None


def _place(script: Script, call: ScriptCall) -> Found:
    file = "" if script.module == "__main__" else f"{script.module.replace('.', '/')}.py"
    return Found(what=f"{ast.unparse(call.node.func)}(...)", line=call.line, file=file)


def _first(reading: Reading, pattern: str) -> Found | None:
    return next((_place(script, call) for script, call in reading.calls(pattern)), None)


def _lightning(reading: Reading, _: Mapping[str, str]) -> ProgramObservation | None:
    package = next((name for name in ("lightning", "pytorch_lightning") if name in reading.imports), None)
    if package is None or (found := _first(reading, r".*\.fit")) is None:
        return None
    module = "lightning.pytorch" if package == "lightning" else package
    validates = any("validation_step" in ast.unparse(script.tree) for script in reading.scripts)
    loop = FoundPause(target=f"{module}.loops.evaluation_loop._EvaluationLoop.run", name="validation", found=found)
    return ProgramObservation(
        steps='probes.lightning(ov, units="samples/s")',
        why="the training steps of Lightning's Trainer, and their loss",
        found=found,
        pauses=(loop,) if validates else (),
    )


def _trainer(reading: Reading, _: Mapping[str, str]) -> ProgramObservation | None:
    if not {"transformers", "trl"} & set(reading.imports) or (found := _first(reading, r"(.*\.)?\w*Trainer")) is None:
        return None
    text = " ".join(ast.unparse(script.tree) for script in reading.scripts)
    is_text = not any(word in text for word in ("pixel_values", "ImageProcessor", "FeatureExtractor"))
    items = "" if is_text else ", items=lambda trainer, model, inputs, *rest: len(next(iter(inputs.values())))"
    pauses = [("_save_checkpoint", "checkpoint"), *([("evaluate", "validation")] if "eval_dataset" in text else [])]
    return ProgramObservation(
        steps=f'probes.trainer(ov, units="{"tokens" if is_text else "samples"}/s"{items})',
        why="the training steps of transformers' Trainer, and their loss",
        found=found,
        pauses=tuple(
            FoundPause(target=f"transformers.trainer.Trainer.{method}", name=name, found=found)
            for method, name in pauses
        ),
    )


def _keras(reading: Reading, environ: Mapping[str, str]) -> ProgramObservation | None:
    if not {"keras", "tensorflow"} & set(reading.imports) or (found := _first(reading, r".*\.fit")) is None:
        return None
    backend = _keras_backend(reading) or environ.get("KERAS_BACKEND", "tensorflow")
    call = next(call for _, call in reading.calls(r".*\.fit"))
    pauses: tuple[FoundPause, ...] = ()
    if {"validation_data", "validation_split"} & set(call.keywords) and backend in _KERAS_TRAINERS:
        target = f"keras.src.backend.{backend}.trainer.{_KERAS_TRAINERS[backend]}.evaluate"
        pauses = (FoundPause(target=target, name="validation", found=found),)
    return ProgramObservation(
        steps='probes.calls(ov, "keras.src.callbacks.callback_list.CallbackList.on_train_batch_end", units="steps/s")',
        why="the batches of Keras' fit",
        found=found,
        pauses=pauses,
        missing=("loss: Keras gives it to callbacks",),
    )


def _keras_backend(reading: Reading) -> str | None:
    """Return the backend that a program sets itself."""
    for script in reading.scripts:
        for node in ast.walk(script.tree):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Constant)
                and ast.unparse(node.targets[0]) == "os.environ['KERAS_BACKEND']"
            ):
                return str(node.value.value)
    return None


Way = Callable[[Reading, Mapping[str, str]], "ProgramObservation | None"]


def _library(package: str, pattern: str, probe: str, why: str, *, is_brief: bool = False) -> Way:
    """Return the way of a library that trains by itself: in a call like this, which this probe observes."""

    def way(reading: Reading, _: Mapping[str, str]) -> ProgramObservation | None:
        if package not in reading.imports or (found := _first(reading, pattern)) is None:
            return None
        missing = ("loss: the library keeps it",)
        return ProgramObservation(steps=probe, why=why, found=found, missing=missing, is_brief=is_brief)

    return way


def _torch(reading: Reading, _: Mapping[str, str]) -> ProgramObservation | None:
    if "torch" not in reading.imports or (reading.optimizer is None and reading.loss is None):
        return None
    is_scaled = next(reading.calls(r".*\.scale"), None) is not None
    has_backward = next(reading.calls(r".*\.backward"), None) is not None
    missing = []
    if is_scaled:
        missing.append("loss: it is scaled before backward(); observe the function that returns it with probes.result")
    elif not has_backward:
        missing.append("loss: nothing calls backward()")
    is_observed = has_backward and not is_scaled
    loop, loader = reading.loop, reading.loader
    if loop is not None and loader is not None and not loop.file:
        is_batches = _BATCHES.search(loader.what.lower()) is not None
        size = 'units="samples/s"' if is_batches else 'units="steps/s", batch_size=1'
        steps, why, found = f"probes.loop(ov, {loop.line}, {size})", "the training loop over its batches", loader
    elif loader is not None and _first(reading, r"(.*\.)?\w*DataLoader") is not None:
        steps, why = 'probes.dataloader(ov, units="samples/s")', "every loop over a DataLoader, where gradients are on"
        found = loader
    elif reading.optimizer is not None and has_backward:
        steps, why = 'probes.optimizer_step(ov, units="steps/s")', "every step of the optimizer"
        found = reading.optimizer
        missing.append("samples: a step is one; `items=64` in the probe says how many samples it has")
    else:
        return None
    return ProgramObservation(
        steps=steps,
        why=why,
        found=found,
        loss="probes.backward(ov)" if is_observed else "",
        loss_found=reading.loss if is_observed else None,
        pauses=reading.pauses,
        missing=tuple(missing),
    )


def _own_loop(reading: Reading, _: Mapping[str, str]) -> ProgramObservation | None:
    if reading.loop is None or reading.loop.file:
        return None
    return ProgramObservation(
        steps=f'probes.loop(ov, {reading.loop.line}, units="steps/s", batch_size=1)',
        why="the iterations of the program's own loop",
        found=reading.loop,
        pauses=reading.pauses,
        missing=(
            "samples: a step is one; `batch_size=64` in the probe says how many samples it has",
            "loss: observe the function that returns it with probes.result",
        ),
    )


_WAYS = (
    _lightning,
    _trainer,
    _keras,
    _library(
        "spacy",
        r".*\bnlp\.update",
        'probes.calls(ov, "spacy.language.Language.update", units="samples/s", '
        "items=lambda nlp, examples, *rest, **more: len(examples))",
        "the updates of spaCy's pipeline",
    ),
    _library(
        "xgboost",
        r"xgboost\.train|.*\.fit",
        'probes.calls(ov, "xgboost.core.Booster.update", units="rounds/s")',
        "the boosting rounds of XGBoost",
        is_brief=True,
    ),
    _library(
        "lightgbm",
        r"lightgbm\.train|.*\.fit",
        'probes.calls(ov, "lightgbm.basic.Booster.update", units="rounds/s")',
        "the boosting rounds of LightGBM",
        is_brief=True,
    ),
    _torch,
    _own_loop,
)
