"""Chooses the probes for a program, its framework's or a probe on the loop of the script, and writes them as a voirfile."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from milabench.own_program.reading import FoundPause, Reading
from milabench.own_program.script import Found, Loop, Script

_BATCHES = re.compile(r"load|batch|(\b|_)dl(\b|_)")
_NO_TEXTS = r"pixel_values|input_(values|features)|ImageProcessor|FeatureExtractor"
_TRAINERS = r"\w\.\w*Trainer\b"
_NO_SAMPLES = "samples: a step counts as a sample. `{}=64` in the probe sets how many samples a step has"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramObservation:
    """How a program's steps are observed, as lines of a voirfile.

    `steps` is the probe that times them, `why` its object in words, `found` the place in the script. `loss` is what backward()
    is called on, None where that is not the loss.
    `pauses` are left out of the rate. `missing` names the unobserved parts, each with a remedy. `is_brief`: the program usually
    ends before a window is complete.
    """

    steps: str
    why: str
    found: Found
    loss: Found | None = None
    pauses: tuple[FoundPause, ...] = ()
    missing: tuple[str, ...] = ()
    is_brief: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    """A library that trains by itself, in a call like `call`: the probe on its steps.

    `package` is the one that a program imports. `texts` and the first of each of `pauses` are patterns in the program's text,
    after the full names that it imports: of programs that this is about, and of those that pause in this function, by this name.
    """

    package: str
    call: str
    steps: str
    why: str
    texts: tuple[str, ...] = ()
    pauses: tuple[tuple[str, str, str], ...] = ()
    missing: tuple[str, ...] = ("loss: the library keeps it",)
    is_brief: bool = False


_TEXT_TRAINER = _Library(
    package="transformers|trl",
    call=r"(.*\.)?\w*Trainer",
    steps='probes.trainer(ov, units="tokens/s")',
    why="the training steps of transformers' Trainer, and their loss",
    texts=(_TRAINERS,),
    pauses=(
        ("", "transformers.trainer.Trainer._save_checkpoint", "checkpoint"),
        ("eval_", "transformers.trainer.Trainer.evaluate", "validation"),
    ),
    missing=(),
)
_LIBRARIES = (
    _Library(
        package="lightning|pytorch_lightning",
        call=r".*\.fit|.*\bLightningCLI",
        steps='probes.lightning(ov, units="samples/s")',
        why="the training steps of Lightning's Trainer, and their loss",
        texts=(r"\w\.(Trainer|LightningCLI)\b",),
        pauses=(("validation_step", "{lightning}.loops.evaluation_loop._EvaluationLoop.run", "validation"),),
        missing=(),
    ),
    replace(
        _TEXT_TRAINER,
        texts=(_TRAINERS, _NO_TEXTS),
        steps='probes.trainer(ov, units="samples/s", '
        "items=lambda trainer, model, inputs, *rest: len(next(iter(inputs.values()))))",
    ),
    _TEXT_TRAINER,
    _Library(
        package="keras|tensorflow",
        call=r".*\.fit",
        steps='probes.calls(ov, "keras.src.callbacks.callback_list.CallbackList.on_train_batch_end", units="steps/s", '
        "result=lambda callbacks, batch, logs=None: logs, items=lambda callbacks, batch, logs=None: "
        'min(batch + 1, callbacks.params["steps"] or batch + 1) - batch - 1 + callbacks.model.steps_per_execution)',
        why="the batches of Keras' fit",
        pauses=(("validation_(data|split)=", "keras.src.models.model.Model.evaluate", "validation"),),
        missing=("loss: Keras gives it to callbacks",),
    ),
    _Library(
        package="spacy",
        call=r".*\bnlp\.update|spacy\.cli\.setup_cli",
        steps='probes.calls(ov, "spacy.language.Language.update", units="words/s", '
        "items=lambda nlp, examples, *rest, **more: sum(map(len, examples)))",
        why="the updates of spaCy's pipeline",
        pauses=(("setup_cli", "spacy.language.Language.evaluate", "validation"),),
    ),
    *(
        _Library(
            package=package,
            call=rf"{package}\.train|.*\.fit",
            steps=f'probes.calls(ov, "{package}.{module}.Booster.update", units="rounds/s")',
            why=f"the boosting rounds of {name}",
            is_brief=True,
        )
        for package, module, name in (("xgboost", "core", "XGBoost"), ("lightgbm", "basic", "LightGBM"))
    ),
)


def observation_of(reading: Reading) -> ProgramObservation | None:
    """Return how a program is observed. None where it has no step that anything could observe."""
    names = (each.name for script in reading.scripts for each in script.imported)
    others = (name for name in names if name.partition(".")[0] in reading.imports)  # not those of its own modules
    text = "\n".join((*others, *(ast.unparse(script.tree) for script in reading.scripts)))
    for library in _LIBRARIES:
        imported = any(re.fullmatch(library.package, name) for name in reading.imports)
        if not imported or not all(re.search(each, text) for each in library.texts):
            continue
        if (found := reading.first_call(library.call)) is not None:
            return _of_library(library, reading, replace(found, what=f"{found.what}(...)"), text)
    observed = _torch(reading) or _own_loop(reading)
    return None if observed is None else replace(observed, pauses=reading.pauses)


def _of_library(library: _Library, reading: Reading, found: Found, text: str) -> ProgramObservation:
    lightning = "lightning.pytorch" if "lightning" in reading.imports else "pytorch_lightning"
    return ProgramObservation(
        steps=library.steps,
        why=library.why,
        found=found,
        pauses=tuple(
            FoundPause(target=target.format(lightning=lightning), name=name, found=found)
            for pattern, target, name in library.pauses
            if re.search(pattern, text)
        ),
        missing=library.missing,
        is_brief=library.is_brief,
    )


def _torch(reading: Reading) -> ProgramObservation | None:
    backward = reading.first_call(r".*\.backward")
    loop, loader, optimizer = reading.loop, reading.loader, reading.optimizer
    if "torch" not in reading.imports or (optimizer is None and reading.loss is None):
        return None
    missing = []
    if reading.first_call(r".*\.scale") is not None:
        missing.append("loss: it is scaled before backward(). Observe the function that returns it with probes.result")
    elif backward is None:
        missing.append("loss: nothing calls backward()")
    loss = None if missing else reading.loss
    if loop is not None and loader is not None and not loop.file:
        is_batches = _BATCHES.search(loader.what.lower()) is not None
        size = 'units="samples/s"' if is_batches else 'units="steps/s", batch_size=1'
        steps, why, found = f"probes.loop(ov, {loop.line}, {size})", "the training loop over its batches", loader
    elif loader is not None and reading.first_call(r"(.*\.)?\w*DataLoader") is not None:
        steps, why = 'probes.dataloader(ov, units="samples/s")', "every loop over a DataLoader, where gradients are on"
        found = loader
    elif loop is not None and not loop.file and reading.has_several_optimizers:
        steps = f'probes.loop(ov, {loop.line}, units="steps/s", batch_size=1)'
        why, found = "the iterations of the program's own loop", loop
        missing.append(_NO_SAMPLES.format("batch_size"))
    elif optimizer is not None and backward is not None:
        steps, why, found = 'probes.optimizer_step(ov, units="steps/s")', "every step of the optimizer", optimizer
        missing.append(_NO_SAMPLES.format("items"))
    else:
        return None
    return ProgramObservation(steps=steps, why=why, found=found, loss=loss, missing=tuple(missing))


def _own_loop(reading: Reading) -> ProgramObservation | None:
    if reading.loop is not None and not reading.loop.file:
        why, size, found = "the iterations of the program's own loop", "batch_size", reading.loop
        steps = f'probes.loop(ov, {found.line}, units="steps/s", batch_size=1)'
    elif reading.step is not None:
        why, size, found = "the calls of the program's own step", "items", reading.step
        steps = f'probes.calls(ov, "{found.what}", units="steps/s")'
    else:
        return None
    missing = (
        _NO_SAMPLES.format(size),
        "loss: observe the function that returns it with probes.result",
    )
    return ProgramObservation(steps=steps, why=why, found=found, missing=missing)


def voirfile_text(name: str, reading: Reading, observation: ProgramObservation) -> str:
    """Return the voirfile of a program that is called `name`."""
    lines = [
        f'"""The probes for {name}. The README of benchmate has all of them, under "Which way in"."""',
        "",
        "from benchmate import probes",
        "",
        "",
        "def instrument_main(ov):",
        f'    """Observe {observation.why}."""',
        *(f"    {line}" for line in _probes(observation)),
        *(f"    # {line}" for line in _notes(reading, observation)),
    ]
    return "\n".join(lines) + "\n"


def _probes(observation: ProgramObservation) -> Iterator[str]:
    yield f"# steps: {observation.found}"
    yield observation.steps
    if observation.loss is not None:
        yield f"# loss: {observation.loss}"
        yield "probes.backward(ov)"
    for pause in observation.pauses:
        yield f"# {pause.name}: {pause.found}"
        yield f'probes.pause(ov, "{pause.target}", name="{pause.name}")'


def _notes(reading: Reading, observation: ProgramObservation) -> Iterator[str]:
    """Yield the other findings, and the parts that were not found."""
    parts: dict[str, Found | None] = {"loop": reading.loop, "loader": reading.loader, "optimizer": reading.optimizer}
    for what, found in parts.items():
        if found is not None and found != observation.found:
            yield f"found: the {what}: {found}"
    for what in observation.missing:
        yield f"not observed: {what}"
    if not observation.pauses:
        yield "not found: a validation or a checkpoint in the loop, so everything between two steps counts"


def ways_text(script: str, reading: Reading, observation: ProgramObservation | None) -> str:
    """Return the ways to measure a program that is timed as a whole, with an example of each for this script."""
    if observation is None:
        head, steps = "no training loop was found", dict(_possible_steps(reading.scripts[0]))
    else:
        head, steps = f"{observation.why} usually end before half a minute", {observation.why: observation.steps}
    lines = [
        f"{head}. Possible measurements:",
        "  the time of the whole program, as in the suite now",
        f"  a number that it prints, such as: milabench bench --metric 'loss (\\S+)' --direction lower -- python {script}",
        *(f"  {what}, in a voirfile (suite.yaml says how): {probe}" for what, probe in steps.items()),
    ]
    return "\n".join(lines)


def _possible_steps(main: Script) -> Iterator[tuple[str, str]]:
    """Yield a function of a script and a loop, each with the probe that takes it for steps."""
    for function in sorted(main.functions - {"main"})[:1]:
        yield f"calls of {function} as steps", f'probes.calls(ov, "__main__.{function}", units="steps/s")'
    lines = [node.lineno for node in ast.walk(main.tree) if isinstance(node, Loop)]
    for line in lines[:1]:
        yield f"the loop at line {line}", f'probes.loop(ov, {line}, units="steps/s", batch_size=1)'
