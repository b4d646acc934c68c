"""The texts of the files of a benchmark, from the reading of its program."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from milabench.bench.api import Git, PyPI
from milabench.config.interpolate import escaped
from milabench.driver.tasks import verbatim
from milabench.own_program.interpreter import DISTRIBUTIONS, Interpreter
from milabench.own_program.observation import ProgramObservation
from milabench.own_program.program import Program
from milabench.own_program.reading import Reading
from milabench.own_program.voirfile import voirfile_text

PROGRAM = "program"
"""The folder of the program in its benchmark's folder."""
# Packages that a library imports only when it trains.
LATE: Mapping[str, tuple[str, ...]] = {"transformers": ("accelerate",), "keras": ("tensorflow", "torch", "jax")}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenProgram:
    """A program after reading: fetched from `source`, copied, or, if `is_installed`, a module of an installed package.

    The program's script or packages are below `folder` of the source or copy. `requires` are the requirements of its release,
    `own` the packages in the source. It is started in `cwd`; empty: in a new folder for each repeat.
    """

    name: str
    program: Program
    source: Git | PyPI | None
    is_installed: bool = False
    folder: str = ""
    interpreter: Interpreter
    reading: Reading
    observation: ProgramObservation | None
    requires: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    cwd: str = ""

    @property
    def place(self) -> str:
        """The folder of its script or packages, in the words of a suite."""
        root = f"{{benchmark_folder}}/{PROGRAM}" if self.source is None else f"{{milabench_code}}/{self.source.folder}"
        return f"{root}/{self.folder}".rstrip("/")


def benchmark_files(written: WrittenProgram, schema: str) -> dict[str, str]:
    """Return the texts of a benchmark's files by name. `schema` is the path to the schema of suites."""
    observation = written.observation
    voirfile = "" if observation is None else voirfile_text(written.name, written.reading, observation)
    return {
        "README.md": _readme(written),
        "benchfile.py": _benchfile(written),
        "requirements.in": "".join(f"{line}\n" for line in requirement_lines(written)),
        "suite.yaml": _suite(written, schema),
        **({"voirfile.py": voirfile} if voirfile else {}),
    }


def requirement_lines(written: WrittenProgram) -> Iterator[str]:
    """Yield what a release requires, and a requirement for each other package that a program imports.

    The versions are its interpreter's.
    """
    interpreter = written.interpreter
    yield f"# The packages that the program imports, in the versions of {interpreter.prefix}."
    yield from written.requires
    seen = {_normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in written.requires}
    for name, line in sorted(written.reading.imports.items(), key=lambda item: item[1]):
        for package in (name, *LATE.get(name, ())):
            distribution, version = interpreter.packages.get(package, (DISTRIBUTIONS.get(package, package), ""))
            if package in written.own or _normal(distribution) in seen:
                continue
            if version:
                seen.add(_normal(distribution))
                # A build for one kind of device (+cpu) is on another index.
                yield f"{distribution}=={version.partition('+')[0]}"
            elif package in interpreter.missing and package == name:
                yield f"# {distribution}: imported in line {line}, not installed there"


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _benchfile(written: WrittenProgram) -> str:
    program, source = written.program, None if written.is_installed else written.source
    fields = {
        "module": _quoted(program.module) if program.module else "",
        "script": "" if program.module else _quoted(program.script if source else f"{PROGRAM}/{program.script}"),
        "python_path": f"({_quoted(written.folder)},)" if source and written.folder else "",
        "voirfile": "" if written.observation else "None",
    }
    kind = ""
    if source is not None:
        kind = type(source).__name__
        values = ", ".join(f"{key}={_quoted(value)}" for key, value in asdict(source).items())
        fields = {"source": f"{kind}({values})", **fields}
    lines = [
        f'"""{written.name}: {program.name}, unmodified."""',
        "",
        f"from milabench import Benchmark{f', {kind}' if kind else ''}",
        "",
        "benchmark = Benchmark(",
        *(f"    {key}={value}," for key, value in fields.items() if value),
        '    # A script that makes its data once, with the arguments of the run: prepare="prepare.py".',
        "    prepare=None,",
        ")",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _suite(written: WrittenProgram, schema: str) -> str:
    program, is_observed = written.program, written.observation is not None
    is_ours = written.source is None or not is_observed  # a benchfile with a source says itself where its packages are
    given = {
        "plan": {"method": "multigpu" if program.launcher and is_observed else "per_gpu"},
        **({"env": {"PYTHONPATH": written.place}} if program.module and is_ours and not written.is_installed else {}),
        **({"cwd": escaped(written.cwd)} if written.cwd else {}),
        **({"argv": _verbatim(program.arguments)} if is_observed else {"command": _command(written), "timed": True}),
    }
    lines = [
        f"# yaml-language-server: $schema={schema}",
        "# A suite of this benchmark. `include:` it from another suite, or copy the entry there.",
        "profile: default",
        "",
        f"{written.name}:",
        "  definition: .",
        "  tags: [new]",
        "  weight: 1.0",
        "  max_duration: 1800",
        "  install_variant: unpinned           # from requirements.in. `milabench pin` writes locks, then remove this line",
        # JSON is YAML, and quotes everything.
        *(f"  {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in given.items()),
    ]
    return "\n".join(lines) + "\n"


def _command(written: WrittenProgram) -> list[str]:
    """Return the words that start the program where it lies."""
    program = written.program
    script = f"{written.place}/{program.script}"
    return [script if word == program.script else _verbatim([word])[0] for word in program.plain("python")]


def _verbatim(words: tuple[str, ...] | list[str]) -> list[str]:
    return [escaped(verbatim(word)) for word in words]


def _readme(written: WrittenProgram) -> str:
    observation = written.observation
    step = "not known yet" if observation is None else observation.why
    return (
        f"# {written.name}\n\n"
        "<!-- Write a sentence for readers of a report: the computation, the stressed part of the machine, the unit. -->\n\n"
        f"- program: {written.program.name}\n"
        f"- each of these is a step: {step}\n"
        "- measured by: voirfile.py\n"
    )
