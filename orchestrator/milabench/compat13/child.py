"""Runs foreign benchfiles: says how the benchmarks of milabench 1.3 are started, or does their own install or prepare.

    PYTHON -I child.py < REQUEST > ANSWER       the facts of a suite's benchfiles, a JSON object for each definition
    PYTHON -I child.py do install|prepare FILE  a coroutine of the only benchmark of the request in FILE
    PYTHON -I child.py do prepare - -- WORDS    the same for the benchmark of the variable MILABENCH_CONFIG; WORDS are the
                                                planned command, which the class starts with `super().prepare()`

Standard library only, Python 3.10. Imports nothing of the control plane. `milabench` is here the folder `names`
next to this file. Each definition is read in a process of its own, which has no more than LIMIT_S seconds.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import copy
import importlib
import inspect
import itertools
import json
import os
import runpy
import select
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

LIMIT_S = 20.0
_GRACE_S = 2.0  # for a benchfile that catches what ends it
BENCHFILE = "benchfile.py"
CHILD = str(Path(__file__).resolve())
NAMES = Path(CHILD).parent / "names"

Json = dict[str, Any]
Report = Callable[[Json], None]


class ForeignError(Exception):
    """An error of foreign code, in a line. `where` is a line of a file, `is_final` when no time is left for the rest."""

    def __init__(self, where: str, what: str, *, is_final: bool = False) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what
        self.is_final = is_final

    def as_json(self) -> Json:
        """Return the error as it stands in an answer."""
        return {"error": {"where": self.where, "what": self.what}}


class OutOfTime(BaseException):
    """A definition has used its time. No Exception, so that benchfiles do not catch it by chance."""


# ---------------------------------------------------------------- one definition, in a process of its own


def describe(definition: Json, report: Report) -> Json:
    """Return the benchfile's facts about each benchmark of a definition. Raises ForeignError."""
    before = dict(os.environ)
    code = code_folder(definition)
    pack_class = load_pack(code, report)
    loaded = dict(os.environ)
    benchmarks = []
    first = None
    own_prepare = is_overridden(pack_class, "prepare")
    for benchmark in definition["benchmarks"]:
        os.environ.clear()
        os.environ.update(loaded)
        call = Call(code, report)
        try:
            pack = new_pack(pack_class, benchmark, code, call, "prepare")
            first = first or pack
            runs = placed_processes(pack_class, benchmark, code, call, before)
            benchmarks.append({"processes": runs, "prepare": preparation(pack, own_prepare, call, before)})
        except ForeignError as error:
            if error.is_final:
                raise
            benchmarks.append(error.as_json())
    about = first or pack_class
    return {
        "main_script": text_or_none(getattr(about, "main_script", None)),
        "prepare_script": text_or_none(getattr(about, "prepare_script", None)),
        "base_requirements": file_names(getattr(about, "base_requirements", None)),
        "own_install": is_overridden(pack_class, "install") or is_overridden(pack_class, "checked_install"),
        "own_prepare": own_prepare,
        "benchmarks": benchmarks,
    }


def code_folder(definition: Json) -> Path:
    """Return the working copy of the definition, or its folder where there is no copy yet."""
    code = Path(definition["code"])
    return code if (code / BENCHFILE).is_file() else Path(definition["folder"])


class Call:
    """Calls foreign code: its exceptions become a ForeignError that names the method and the line."""

    def __init__(self, code: Path, report: Report) -> None:
        self._folders = (f"{code}{os.sep}", os.path.realpath(code) + os.sep)
        self._report = report

    @contextlib.contextmanager
    def __call__(self, method: str) -> Iterator[None]:
        self._report({"calling": method})
        label = f"{method}: " if method else ""
        try:
            yield
        except OutOfTime as error:
            raise ForeignError(self._where(error), f"{label}not done after {LIMIT_S:g} s", is_final=True) from None
        except SyntaxError as error:
            where = f"{self._name(error.filename or BENCHFILE)}:{error.lineno}"
            raise ForeignError(where, f"{label}SyntaxError: {error.msg}") from None
        except BaseException as error:
            message = (str(error).strip().splitlines() or [""])[0]
            what = f"{label}{type(error).__name__}{': ' if message else ''}{message}"
            raise ForeignError(self._where(error), what) from None

    def _where(self, error: BaseException) -> str:
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(self._folders)
        ]
        return f"{self._name(frames[-1].filename)}:{frames[-1].lineno}" if frames else BENCHFILE

    def _name(self, file: str) -> str:
        return next((file[len(folder) :] for folder in self._folders if file.startswith(folder)), file)


def load_pack(code: Path, report: Report) -> Any:
    """Return the `__pack__` of the folder's benchfile. Raises ForeignError."""
    with Call(code, report)(""):
        names = runpy.run_path(str(code / BENCHFILE), run_name="<run_path>")
    if not isinstance(names.get("__pack__"), type):
        raise ForeignError(BENCHFILE, "`__pack__` is no class. Write `__pack__ = NAME_OF_THE_CLASS` at module level")
    return names["__pack__"]


def new_pack(pack_class: Any, benchmark: Json, code: Path, call: Call, phase: str, **config: Any) -> Any:
    """Return a pack of the benchmark for a phase. `config` are the placement's additions."""
    resolved: Json = copy.deepcopy(benchmark["config"])
    system = {**(resolved.get("system") or {})}
    nodes = benchmark.get("nodes") or system.get("nodes") or []
    dirs = {name: str(path) for name, path in benchmark["dirs"].items()}
    resolved.update(definition=str(code), dirs=dirs, system={**system, "nodes": nodes})
    resolved.setdefault("tag", [resolved["name"]])
    resolved.update(config)
    importlib.import_module("milabench.system").system_global.set(resolved["system"])
    with call("__init__"):
        pack = pack_class(resolved)
        pack.phase = phase
    return pack


def placed_processes(pack_class: Any, benchmark: Json, code: Path, call: Call, before: Mapping[str, str]) -> Json:
    """Return the processes of each placement. A placement in which nothing is started is left out."""
    runs: Json = {}
    for placement in benchmark["placements"]:
        pack = new_pack(pack_class, benchmark, code, call, "run", **placement_config(benchmark, placement))
        commands = command_values("build_run_plan", pack, call, before)
        mine = [command for command in commands if is_for(placement, command, benchmark.get("nodes") or [])]
        for index, command in enumerate(mine):
            tag = placement["tag"] if len(mine) == 1 else [*placement["tag"], own_tag(placement, command, index)]
            key = f"{placement['key']}/{index}" if index else placement["key"]
            shown = {name: command[name] for name in ("words", "env", "cwd", "stdout", "devices", "container")}
            runs[key] = {"placement": placement["key"], "tag": tag, **shown}
    return runs


def placement_config(benchmark: Json, placement: Json) -> Json:
    """Return the additions to a placed benchmark's config."""
    config = benchmark["config"]
    devices = list(placement["devices"])
    tag = list(placement["tag"])
    added: Json = {"tag": tag, "devices": devices}
    if str((config.get("plan") or {}).get("method", "")).replace("-", "_") == "per_gpu":
        added["device"] = devices[0] if devices else 0
    else:
        added["job-number"] = int(tag[-1]) if tag[-1].isdecimal() else 0
    return added


def command_values(method: str, pack: Any, call: Call, before: Mapping[str, str]) -> list[Json]:
    """Return the processes of the command that `pack.METHOD()` returns."""
    foreign = importlib.import_module("milabench.commands")
    with call(method):
        plan = getattr(pack, method)()
        if not isinstance(plan, foreign.Command):
            raise TypeError(f"expected a command, got {plan!r}")
    values = []
    with call(method):
        for each in plan.packs():
            each.phase = pack.phase
        described = list(plan.commands())
    for owner, words, options in described:
        with call("make_env"):
            env = own_env(owner, options, before)
        with call("working_directory"):
            cwd = str(options.get("cwd") or owner.working_directory)
        values.append(
            {
                "words": foreign.program_words(owner, words),
                "env": env,
                "cwd": cwd,
                "stdout": bool(options.get("use_stdout")),
                "devices": list(owner.config.get("devices") or []),
                "container": options.get("container"),
                "host": options.get("host"),
                "rank": options.get("rank"),
                "owner_tag": list(owner.config.get("tag") or []),
            }
        )
    return values


def own_env(pack: Any, options: Mapping[str, Any], before: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process: make_env(), the command's, and those set in this process.

    Left out: the config and the thread count where they are as we give them, values that are None, and
    names with blanks, which no program asks for.
    """
    package = importlib.import_module("milabench.pack").Package
    usual = package.make_env(pack) if isinstance(pack, package) else {}
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    env = {**changed, **pack.make_env(), **(options.get("env") or {})}
    for name in ("MILABENCH_CONFIG", "OMP_NUM_THREADS"):
        if name in env and env[name] == usual.get(name):
            del env[name]
    return {
        str(name): str(value)
        for name, value in env.items()
        if value is not None and name and not any(letter.isspace() or letter == "=" for letter in str(name))
    }


def is_for(placement: Json, command: Json, nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the command runs in this placement: by its rank, by its node's address, else on the first node."""
    if command["rank"] is not None:
        return bool(command["rank"] == placement["rank"])
    if command["host"] is None:
        return bool(placement["rank"] == 0)
    node = next((node for node in nodes if node.get("name") == placement["node"]), {})
    return command["host"] in {placement["node"], node.get("ip"), node.get("hostname")}


def own_tag(placement: Json, command: Json, index: int) -> str:
    """Return the last part of the tag of a process among several of a placement."""
    added = [part for part in command["owner_tag"][len(placement["tag"]) :] if part != "nolog"]
    return ".".join(added) or str(index)


def preparation(pack: Any, is_own: bool, call: Call, before: Mapping[str, str]) -> Json | None:
    """Return the command that prepares, or None. For a coroutine of its own that is this file, with the command after `--`.

    Raises ForeignError when there are several commands.
    """
    if not hasattr(pack, "build_prepare_plan"):
        return None
    commands = command_values("build_prepare_plan", pack, call, before)
    if len(commands) != 1:
        raise ForeignError(
            BENCHFILE, f"build_prepare_plan: gives {len(commands)} processes, but only a single process is possible"
        )
    command = {name: commands[0][name] for name in ("words", "env", "cwd")}
    planned = [] if command["words"] == ["true"] else command["words"]
    if is_own:
        return {**command, "words": [f"{pack.dirs.venv}/bin/python", "-I", CHILD, "do", "prepare", "-", "--", *planned]}
    return command if planned else None


def text_or_none(value: Any) -> str | None:
    """Return a path or text as text. None for other values (a property of a class)."""
    return str(value) if isinstance(value, str | Path) and str(value) else None


def file_names(value: Any) -> list[str]:
    """Return a name, or several, as a list."""
    if isinstance(value, str | Path):
        return [str(value)] if str(value) else []
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


def is_overridden(pack_class: type, method: str) -> bool:
    """Return whether the class, or one of its foreign bases, does more in a coroutine than call its base's."""
    owners = itertools.takewhile(lambda owner: not owner.__module__.startswith("milabench."), pack_class.__mro__)
    return any(does_more(vars(owner)[method], method) for owner in owners if method in vars(owner))


def does_more(function: Any, method: str) -> bool:
    """Return whether a coroutine holds more than `await super().METHOD()`, by its source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return True
    (definition,) = tree.body
    if not isinstance(definition, ast.AsyncFunctionDef | ast.FunctionDef):
        return True
    idle = ("pass", f"await super().{method}()", f"return await super().{method}()")
    return any(
        ast.unparse(statement) not in idle
        for statement in definition.body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    )


# ---------------------------------------------------------------- the process of a definition


def answer_of(definition: Json) -> Json:
    """Return the answer about a definition, from a process that is ended when its time is up."""
    reading, writing = os.pipe()
    # What ends us waits for the end of the fork: Python ignores what a handler raises within it.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    worker = os.fork()
    if worker == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        os.close(reading)
        work(definition, writing)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        os.close(writing)
        return awaited_answer(reading, worker)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(worker, 0)


def work(definition: Json, pipe: int) -> None:
    """Describe the definition, write the answer to the pipe, and end this process."""

    def report(message: Json) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            data = data[os.write(pipe, data) :]

    def end(*_: object) -> None:
        # The next one ends the process, whatever its code catches and whether or not anybody waits for it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, _GRACE_S)
        raise OutOfTime

    # What benchfiles start is ended with them.
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        answer = describe(definition, report)
    except ForeignError as error:
        answer = error.as_json()
    except OutOfTime:
        answer = ForeignError(BENCHFILE, f"not done after {LIMIT_S:g} s").as_json()
    except BaseException as error:  # of this file: nothing that foreign code does may end the others' answers
        answer = ForeignError(BENCHFILE, f"{type(error).__name__}: {error}").as_json()
    signal.setitimer(signal.ITIMER_REAL, 0)
    report({"answer": answer})
    os._exit(0)


def awaited_answer(pipe: int, worker: int) -> Json:
    """Return the worker's answer, or why there is none: it has ended, or its time is up."""
    deadline = time.monotonic() + LIMIT_S + 2 * _GRACE_S
    pending, method = b"", ""
    what = f"not done after {LIMIT_S:g} s"
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(pipe, 1 << 16)
        if not data:
            code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            ending = f"signal {-code}" if code < 0 else f"exit code {code}"
            if code != -signal.SIGALRM:
                what = f"ended the process that reads it ({ending})"
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            message: Json = json.loads(line)
            if "answer" in message:
                answer: Json = message["answer"]
                return answer
            method = message["calling"]
    return ForeignError(BENCHFILE, f"{method}: {what}" if method else what).as_json()


# ---------------------------------------------------------------- install and prepare


def do(phase: str, file: str, planned: Sequence[str] | None) -> int:
    """Run the foreign coroutine of the phase. Return the exit code: 0, or 1 with a line on standard error."""
    if file == "-":
        config = json.loads(os.environ["MILABENCH_CONFIG"])
        benchmark = {"config": config, "dirs": config["dirs"]}
        code = Path(config["definition"])
    else:
        definition = json.loads(Path(file).read_text())["definitions"][0]
        (benchmark,) = definition["benchmarks"]
        code = Path(definition["code"])
    effects = importlib.import_module("milabench.effects")
    effects.ALLOWED.set(True)
    effects.PLANNED.set(planned)
    # In order with what the programs that it starts print.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        call = Call(code, lambda message: None)
        pack = new_pack(load_pack(code, lambda message: None), benchmark, code, call, phase)
        if hasattr(pack.dirs, "extra"):
            pack.dirs.extra.mkdir(parents=True, exist_ok=True)
        with call(phase):
            asyncio.run(pack.checked_install() if phase == "install" else pack.prepare())
    except ForeignError as error:
        sys.stdout.flush()
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


def main(arguments: Sequence[str]) -> int:
    """Answer the request on standard input, or do a single phase."""
    sys.path.insert(0, str(NAMES))
    if arguments[:1] == ["do"]:
        _, phase, file, *planned = arguments
        return do(phase, file, planned[1:] if planned else None)
    # Ended, it ends the process that it waits for.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    request = json.load(sys.stdin.buffer)
    importlib.import_module("milabench.pack")  # once, not in each process
    # Whatever foreign code and its programs print, the answer is alone on standard output.
    with os.fdopen(os.dup(1), "w") as answers, Path(os.devnull).open() as nothing:
        os.dup2(2, 1)
        os.dup2(nothing.fileno(), 0)
        json.dump({"definitions": [answer_of(definition) for definition in request["definitions"]]}, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
