"""The text of a voirfile: each probe with the line in the script, then the parts that were not found."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from milabench.own_program.observation import ProgramObservation
from milabench.own_program.reading import Reading
from milabench.own_program.script import Found, Loop


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
    main = reading.scripts[0]
    function = next(iter(sorted(main.functions - {"main"})), "")
    loop = next((node.lineno for node in ast.walk(main.tree) if isinstance(node, Loop)), None)
    steps = {
        f"calls of {function} as steps": f'probes.calls(ov, "__main__.{function}", units="steps/s")'
        if function
        else "",
        f"the loop at line {loop}": f'probes.loop(ov, {loop}, units="steps/s", batch_size=1)' if loop else "",
    }
    head = "no training loop was found"
    if observation is not None:
        steps = {observation.why: observation.steps}
        head = f"{observation.why} usually end before half a minute"
    lines = [
        f"{head}. Possible measurements:",
        "  the time of the whole program, as in the suite now",
        f"  a number that it prints, such as: milabench bench --metric 'loss (\\S+)' --direction lower -- python {script}",
        *(f"  {what}, in a voirfile (suite.yaml says how): {probe}" for what, probe in steps.items() if probe),
    ]
    return "\n".join(lines)
