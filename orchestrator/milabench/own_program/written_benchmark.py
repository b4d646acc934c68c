"""The texts of the files of a benchmark, from the reading of its program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from milabench.bench.api import Git
from milabench.config.interpolate import escaped
from milabench.driver.tasks import verbatim
from milabench.own_program.interpreter import Interpreter
from milabench.own_program.observation import ProgramObservation
from milabench.own_program.program import Program
from milabench.own_program.reading import Reading
from milabench.own_program.voirfile import voirfile_text

PROGRAM = "program"
"""The folder of the program in that of its benchmark."""
# Packages that a library imports only when it trains.
LATE: Mapping[str, tuple[str, ...]] = {"transformers": ("accelerate",), "keras": ("tensorflow", "torch", "jax")}
# Distributions whose name differs from that of the module, for modules that are not installed.
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow", "cv2": "opencv-python", "yaml": "PyYAML"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenProgram:
    """A program after reading; its `path` is in the folder of the benchmark, or in a repository.

    It is started in `cwd`; empty: in a new folder for each repeat.
    """

    name: str
    program: Program
    path: str
    source: Git | None
    interpreter: Interpreter
    reading: Reading
    observation: ProgramObservation | None
    cwd: str = ""


def benchmark_files(written: WrittenProgram, schema: str) -> dict[str, str]:
    """Return the texts of a benchmark's files by name; `schema` is the path to that of suites."""
    observation = written.observation
    voirfile = "" if observation is None else voirfile_text(written.name, written.reading, observation)
    return {
        "README.md": _readme(written),
        "benchfile.py": _benchfile(written),
        "requirements.in": "".join(f"{line}\n" for line in requirement_lines(written.reading, written.interpreter)),
        "suite.yaml": _suite(written, schema),
        **({"voirfile.py": voirfile} if voirfile else {}),
    }


def requirement_lines(reading: Reading, interpreter: Interpreter) -> Iterator[str]:
    """Yield a requirement for each package that a program imports, in the version that its interpreter has of it."""
    yield f"# The packages that the program imports, in the versions of {interpreter.prefix}."
    seen: set[str] = set()
    for name, line in sorted(reading.imports.items(), key=lambda item: item[1]):
        for package in (name, *LATE.get(name, ())):
            if package in interpreter.packages:
                distribution, version = interpreter.packages[package]
                if distribution not in seen:
                    seen.add(distribution)
                    # A build for one kind of device (+cpu) is on another index.
                    yield f"{distribution}=={version.partition('+')[0]}"
            elif package in interpreter.missing and package == name:
                yield f"# {_DISTRIBUTIONS.get(name, name)}: imported in line {line}, not installed there"


def _benchfile(written: WrittenProgram) -> str:
    program, source = written.program, written.source
    origin = "from a repository" if source else "a copy of it"
    lines = [f'"""{written.name}: {program.name}, {origin}, unmodified."""', ""]
    lines.append(f"from milabench import Benchmark{', Git' if source else ''}")
    lines += ["", "benchmark = Benchmark("]
    if source is not None:
        lines.append(f"    source=Git({_quoted(source.url)}, rev={_quoted(source.rev)}),")
    if program.module:
        lines.append(f"    module={_quoted(program.module)},")
    else:
        lines.append(f"    script={_quoted(written.path)},")
    if written.observation is None:
        lines.append("    voirfile=None,  # no step was found: the suite times the whole program")
    lines += [
        '    # A script that makes its data once, with the arguments of the run: prepare="prepare.py".',
        "    prepare=None,",
        ")",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _suite(written: WrittenProgram, schema: str) -> str:
    program = written.program
    method = "multigpu" if program.launcher and written.observation else "per_gpu"
    lines = [
        f"# yaml-language-server: $schema={schema}",
        "# A suite of this one benchmark; `include:` it from another suite, or copy the entry there.",
        "profile: default",
        "",
        f"{written.name}:",
        "  definition: .",
        "  tags: [new]",
        "  weight: 1.0",
        "  max_duration: 1800",
        "  install_variant: unpinned           # from requirements.in; `milabench pin` writes locks, then remove this line",
        f"  plan: {{method: {method}}}",
    ]
    if program.module and written.source is None:
        lines.append(f'  env: {{PYTHONPATH: "{{benchmark_folder}}/{PROGRAM}"}}')
    if written.cwd:
        lines.append(f"  cwd: {_quoted(escaped(written.cwd))}       # it opens files by paths from there")
    if written.observation is None:
        lines += [f"  command: {_words(_command(written))}", "  timed: true"]
    else:
        lines.append(f"  argv: {_words(_verbatim(program.arguments))}")
    return "\n".join(lines) + "\n"


def _command(written: WrittenProgram) -> Iterator[str]:
    """Yield the words that start the program where it lies."""
    folder = "{benchmark_folder}" if written.source is None else f"{{milabench_code}}/{written.source.folder}"
    for word in written.program.plain("python"):
        yield f"{folder}/{written.path}" if word == written.program.script else "".join(_verbatim([word]))


def _verbatim(words: Iterable[str]) -> Iterator[str]:
    return (escaped(verbatim(word)) for word in words)


def _words(words: Iterable[str]) -> str:
    # JSON is YAML, and quotes everything.
    return json.dumps(list(words), ensure_ascii=False)


def _readme(written: WrittenProgram) -> str:
    observation = written.observation
    step = "not known yet" if observation is None else observation.why
    return (
        f"# {written.name}\n\n"
        "<!-- One sentence here, for whoever reads a report: what is computed, what it stresses, in which unit. -->\n\n"
        f"- program: {written.program.name}\n"
        f"- a step is one of: {step}\n"
        "- measured by: voirfile.py\n"
    )
