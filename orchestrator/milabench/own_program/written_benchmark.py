"""The texts of the files of a benchmark, from the reading of its program."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from packaging.utils import canonicalize_name

from milabench.bench.api import Git, PyPI
from milabench.config.interpolate import escaped
from milabench.driver.tasks import verbatim
from milabench.own_program.interpreter import DISTRIBUTIONS, Interpreter
from milabench.own_program.observation import ProgramObservation, voirfile_text
from milabench.own_program.origins import ProgramOrigin
from milabench.own_program.program import Program
from milabench.own_program.reading import Reading
from milabench.scaffold.new_benchmark import benchfile_text

PROGRAM = "program"
"""The folder of the program in its benchmark's folder."""
# Packages that fetch models from Hugging Face's hub.
_HUB = frozenset({"datasets", "diffusers", "huggingface_hub", "sentence_transformers", "timm", "transformers", "trl"})
# Packages that a library imports only when it trains.
LATE: Mapping[str, tuple[str, ...]] = {"transformers": ("accelerate",), "keras": ("tensorflow", "torch", "jax")}


@dataclass(frozen=True, kw_only=True)
class WrittenProgram:
    """A program after reading, which is fetched from the source of its origin, copied, or installed.

    The program's script or packages are below `folder` of the source or copy. `observation` None: it is timed as a whole. It is
    started in `cwd`; empty: in a new folder for each repeat. `models` is the user's folder for Hugging Face's hub.
    """

    name: str
    program: Program
    origin: ProgramOrigin
    folder: str
    interpreter: Interpreter
    reading: Reading
    observation: ProgramObservation | None
    cwd: str
    models: str

    @property
    def source(self) -> Git | PyPI | None:
        """What it is fetched from. None: it is copied."""
        return self.origin.source

    @cached_property
    def is_installed(self) -> bool:
        """Whether it is a module of an installed package: where a release has to be built, it cannot be imported as unpacked."""
        return self.origin.installed is not None or (bool(self.program.module) and self.origin.is_compiled)

    @cached_property
    def requires(self) -> tuple[str, ...]:
        """The requirements of its release. A script finds the release's own packages only where they are installed."""
        if not isinstance(self.source, PyPI):
            return ()
        if self.is_installed or not self.program.module:
            return (f"{self.source.project}=={self.source.version}",)
        return tuple(self.origin.requires)

    @property
    def place(self) -> str:
        """The folder of its script or packages, in the words of a suite."""
        root = f"{{benchmark_folder}}/{PROGRAM}" if self.source is None else f"{{milabench_code}}/{self.source.folder}"
        return f"{root}/{self.folder}".rstrip("/")


def benchmark_files(written: WrittenProgram, schema: str) -> dict[str, str]:
    """Return the texts of a benchmark's files by name. `schema` is the path to the schema of suites."""
    files = {
        "README.md": _readme(written),
        "benchfile.py": _benchfile(written),
        "requirements.in": "".join(f"{line}\n" for line in requirement_lines(written)),
        "suite.yaml": _suite(written, schema),
    }
    if written.observation is not None:
        files["voirfile.py"] = voirfile_text(written.name, written.reading, written.observation)
    return files


def requirement_lines(written: WrittenProgram) -> Iterator[str]:
    """Yield what a release requires, and a requirement for each other package that a program imports.

    The versions are its interpreter's.
    """
    interpreter, own = written.interpreter, written.origin.packages
    yield f"# The packages that the program imports, in the versions of {interpreter.prefix}."
    yield from written.requires
    seen = {canonicalize_name(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in written.requires}
    for name, line in sorted(written.reading.imports.items(), key=lambda item: item[1]):
        for package in (name, *LATE.get(name, ())):
            distribution, version = interpreter.packages.get(package, (DISTRIBUTIONS.get(package, package), ""))
            if package in own or canonicalize_name(distribution) in seen:
                continue
            if version:
                seen.add(canonicalize_name(distribution))
                # A build for one kind of device (+cpu) is on another index.
                yield f"{distribution}=={version.partition('+')[0]}"
            elif package in interpreter.missing and package == name:
                yield f"# {distribution}: imported in line {line}, not installed there"


def _benchfile(written: WrittenProgram) -> str:
    program, source = written.program, None if written.is_installed else written.source
    declared: dict[str, object] = {} if source is None else {"source": source}
    if program.module:
        declared["module"] = program.module
    else:
        declared["script"] = program.script if source else f"{PROGRAM}/{program.script}"
    if source and written.folder:
        declared["python_path"] = (written.folder,)
    if written.observation is None:
        declared["voirfile"] = None
    about = (
        f"{written.name}: {program.name}, unmodified.\n\n"
        'A script that makes its data once, with the arguments of the run: prepare="prepare.py".\n'
    )
    return benchfile_text(about, {**declared, "prepare": None})


def _suite(written: WrittenProgram, schema: str) -> str:
    program, is_observed = written.program, written.observation is not None
    environ = _environment(written)
    given = {
        "plan": {"method": "multigpu" if program.is_launched and is_observed else "per_gpu"},
        **({"env": environ} if environ else {}),
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
    if not is_observed:
        arguments = json.dumps(_verbatim(program.arguments), ensure_ascii=False)
        lines.append(
            "  # For steps: write voirfile.py, remove voirfile=None from benchfile.py, and replace command and timed by"
        )
        lines.append(f"  # argv: {arguments}")
    return "\n".join(lines) + "\n"


def _environment(written: WrittenProgram) -> dict[str, str]:
    """Return the variables of the program: where its packages are, and its user's models and token of the hub."""
    is_ours = written.source is None or written.observation is None  # else the benchfile says where its packages are
    is_path = bool(written.program.module) and is_ours and not written.is_installed
    is_hub = written.source is None and not _HUB.isdisjoint(written.reading.imports)
    # `-m` looks in the current folder first, where the original is. Before Python 3.11 nothing keeps it out.
    is_original_beside = is_path and bool(written.cwd)
    return {
        **({"PYTHONPATH": written.place} if is_path else {}),
        **({"PYTHONSAFEPATH": "1"} if is_original_beside else {}),
        **({"HF_HOME": written.models} if is_hub else {}),
    }


def _command(written: WrittenProgram) -> list[str]:
    """Return the words that start the program where it lies."""
    program = written.program
    script = f"{written.place}/{program.script}"
    return [script if word == program.script else _verbatim([word])[0] for word in program.plain("python")]


def _verbatim(words: tuple[str, ...] | list[str]) -> list[str]:
    return [escaped(verbatim(word)) for word in words]


def _readme(written: WrittenProgram) -> str:
    observation = written.observation
    measured = "its time as a whole" if observation is None else f"{observation.why}, by voirfile.py"
    return (
        f"# {written.name}\n\n"
        "<!-- Write a sentence for readers of a report: the computation, the stressed part of the machine, the unit. -->\n\n"
        f"- program: {written.program.name}\n"
        f"- measured: {measured}\n"
    )
