"""The classes that a benchfile of milabench 1.3 derives from: the parts of a benchmark, and its start."""

from __future__ import annotations

import json
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from . import commands
from .effects import PLANNED, require_effects
from .fs import XPath
from .merge import merge
from .utils import assemble_options


class Dirs(Namespace):
    """The paths of a benchmark. An unknown path raises an error that says so."""

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError."""
        raise AttributeError(
            f"dirs.{name} is not known here: an own install has its own folder, dirs.code, and no other"
        )


class BasePackage:
    """A benchmark without a lifecycle of its own.

    `config` is its resolved mapping in the suite. `dirs` has the paths code (its folder), venv, data, runs, extra and cache.
    """

    def __init__(self, config: Any, core: Any = None) -> None:
        dirs = {name: XPath(path) for name, path in config["dirs"].items()}
        self.pack_path = XPath(config["definition"])
        self.dirs: Any = Dirs(**{**dirs, "code": self.pack_path})
        self.core = core or Namespace(dirs=self.dirs, pack_path=self.pack_path)
        self.config = config
        self.phase: str | None = None
        self.processes: list[Any] = []

    def copy(self, config: Mapping[str, Any]) -> Any:
        """Return the pack with these changes of its config."""
        other = type(self)(merge(self.config, config))
        other.phase = self.phase
        return other

    @property
    def constraints(self) -> XPath | None:
        """The file of the suite's pip constraints, if it has any."""
        return self.dirs.extra / "pip-constraints.txt" if (self.config.get("pip") or {}).get("constraints") else None

    @property
    def argv(self) -> list[Any]:
        """The arguments of the program, with the suite's templates as they are."""
        return assemble_options(self.config.get("argv") or [])

    @property
    def tag(self) -> str:
        """The name of the placement."""
        return ".".join(self.config.get("tag") or [self.config["name"]])

    @property
    def logdir(self) -> XPath:
        """The folder of the run."""
        name = str(self.config.get("run_name") or "run")
        own = XPath(name).expanduser().absolute()
        return XPath(own if name[0] in "/.~" else self.dirs.runs / name)

    def logfile(self, extension: str) -> XPath:
        """Return a file of this placement in the folder of the run."""
        return XPath(self.logdir / f"{self.tag}.{extension}")

    @property
    def working_directory(self) -> XPath:
        """The folder in which its programs are started."""
        return XPath(self.dirs.code)

    def make_env(self) -> dict[str, Any]:
        """Return the variables that install, prepare and run have besides the caller's."""
        return {}

    def full_env(self, env: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return `make_env()` with the environment activated, and the variables of the suite and `env`."""
        venv = getattr(self.dirs, "venv", None)
        path = os.environ.get("PATH", os.defpath)
        own = {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin{os.pathsep}{path}"} if venv else {}
        return {**own, **self.make_env(), **(self.config.get("env") or {}), **(env or {})}

    def resolve_argument(self, name: str, default: Any) -> Any:
        """Return the argument `name` of the suite, with its templates, or the default."""
        argv = self.config.get("argv")
        value = argv.get(name) if isinstance(argv, Mapping) else None
        return self.resolve_placeholder(value) if value else default

    def resolve_placeholder(self, placeholder: Any) -> str:
        """Return the template as it is. It is rendered where the words are placed."""
        return str(placeholder)

    async def message(self, *message_parts: Any) -> None:
        """Print a line."""
        print(*message_parts, flush=True)

    async def message_error(self, exc: BaseException) -> None:
        """Print an error to standard error."""
        print(f"{type(exc).__name__}: {exc}", file=sys.stderr, flush=True)

    async def send(self, **kwargs: Any) -> None:
        """Print the text of an event."""
        print(kwargs.get("data", ""), flush=True)

    async def execute(self, *args: Any, cwd: Any = None, env: Mapping[str, Any] | None = None, **_kwargs: Any) -> int:
        """Run a command in the environment. Return its exit code, 0. Raises commands.CommandFailed."""
        (code,) = await commands.CmdCommand(self, *args, cwd=cwd, env=dict(env or {})).execute(self.phase or "install")
        return code

    async def python(self, *args: Any, **kwargs: Any) -> int:
        """Run the environment's Python."""
        return await self.execute(f"{self.dirs.venv}/bin/python", *args, **kwargs)

    async def pip_install(self, *args: Any, build_isolation: bool = False, **_kwargs: Any) -> None:
        """Install packages into the environment, with the suite's `pip` args and constraints.

        By uv where the variable UV names it, or PATH has it. Else by the environment's pip.
        """
        require_effects("pip_install")
        pip = self.config.get("pip") or {}
        words = [*args, *(word for line in pip.get("args") or [] for word in line.split())]
        if self.constraints:
            self.constraints.parent.mkdir(parents=True, exist_ok=True)
            self.constraints.write_text("\n".join([*pip["constraints"], ""]))
            words += ["-c", self.constraints]
        python = f"{self.dirs.venv}/bin/python"
        uv = os.environ.get("UV") or shutil.which("uv")
        installer = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
        isolated = [] if build_isolation else ["--no-build-isolation"]
        strategy = ["--index-strategy", "unsafe-best-match"] if uv else []
        await self.execute(*installer, *isolated, *strategy, *words, cwd=os.getcwd())  # noqa: PTH109

    def conda_install(self, *args: Any, **kwargs: Any) -> None:
        """Raise RuntimeError: environments are not made by conda here."""
        raise RuntimeError(f"conda_install({', '.join(map(str, args))}): environments are made by uv. Use pip_install")

    async def checked_install(self) -> None:
        """Install."""
        await self.install()

    async def install(self) -> None:
        """Do nothing."""


class Package(BasePackage):
    """A benchmark with a program, a prepare script and requirements, in its own folder."""

    main_script: Any = "main.py"
    prepare_script: Any = "prepare.py"
    base_requirements: Any = "requirements.in"

    def requirements_map(self, variant: str | None = None) -> dict[XPath, XPath]:
        """Return each file of requirements with its lock for the variant."""
        variant = variant or self.config.get("install_variant")
        names = [self.base_requirements] if isinstance(self.base_requirements, str) else self.base_requirements
        files = [self.dirs.code / name for name in names or []]
        if variant == "unpinned":
            return {file: file for file in files}
        return {file: file.with_suffix(f".{variant}.txt" if variant else ".txt") for file in files}

    def requirements_files(self, variant: str | None = None) -> list[XPath]:
        """Return the locks."""
        return list(self.requirements_map(variant).values())

    def make_env(self) -> dict[str, Any]:
        """Return the folders, the config as JSON, and in prepare and run where caches lie."""
        env: dict[str, Any] = {f"MILABENCH_DIR_{name.upper()}": str(path) for name, path in self.config["dirs"].items()}
        env["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "{cpu_per_gpu}")
        env["MILABENCH_CONFIG"] = json.dumps(self.config)
        if self.phase in ("prepare", "run"):
            env |= {"XDG_CACHE_HOME": str(self.dirs.cache), "TORCH_HOME": str(self.dirs.cache)}
            env["HF_HOME"] = str(self.dirs.data)
        return env

    async def install(self) -> None:
        """Do nothing: the environment is made from the requirements before."""

    async def prepare(self) -> Any:
        """Run the command of `build_prepare_plan`, as it was planned."""
        planned = PLANNED.get()
        if planned is None:
            return await self.build_prepare_plan().execute("prepare")
        # The environment of the step is that of the command already.
        return await commands.run_words(planned, os.getcwd(), os.environ) if planned else 0  # noqa: PTH109

    async def run(self) -> Any:
        """Raise RuntimeError: runs are planned."""
        raise RuntimeError("run() is not called here: override build_run_plan")

    def build_prepare_plan(self) -> commands.Command:
        """Return the command that prepares: the prepare script with the arguments of the run, or none."""
        if self.prepare_script:
            script = self.dirs.code / self.prepare_script
            if script.exists():
                return commands.PackCommand(self, script, *self.argv, env=self.make_env(), cwd=script.parent)
        return commands.VoidCommand(self)

    def build_run_plan(self) -> commands.Command:
        """Return the command that runs: the main script under the runner."""
        main = self.dirs.code / self.main_script
        return commands.VoirCommand(commands.PackCommand(self, *self.argv, lazy=True), cwd=main.parent)
