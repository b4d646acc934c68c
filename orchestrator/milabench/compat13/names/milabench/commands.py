"""Commands of milabench 1.3 as descriptions: which words, folder and environment each placement of a benchmark has.

The control plane's own work has no words here: ssh, containers, `env -C`, the script that activates an
environment. The place of voir is the word @runner.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .effects import require_effects
from .fs import XPath
from .merge import merge
from .system import DockerConfig, option
from .utils import select_nodes

# A Package, which is defined upon these classes.
Pack = Any
Options = dict[str, Any]
Self = TypeVar("Self", bound="Command")

RUNNER = "@runner"
PORT = 29400


class CommandFailed(RuntimeError):
    """A command of an install or a prepare that ended with another exit code than 0."""


def clone_with(config: Mapping[str, Any], changes: Mapping[str, Any]) -> Any:
    """Return a copy of the configuration with the changes."""
    return merge(copy.deepcopy(config), changes)


def node_address(node: Mapping[str, Any]) -> Any:
    """Return the address by which other nodes reach this node."""
    return node.get("ip") or node.get("hostname") or node.get("name")


class Command:
    """A command of a pack, or around another command (`exec`). Options of the outer command win."""

    def __init__(self, pack_or_exec: Command | Pack | None, **kwargs: Any) -> None:
        if isinstance(pack_or_exec, str | Path | list | tuple | dict):
            raise TypeError(f"{type(self).__name__}: expected a pack or a command, got {pack_or_exec!r}")
        self.exec: Command | None = pack_or_exec if isinstance(pack_or_exec, Command) else None
        self._pack: Pack = None if self.exec else pack_or_exec
        self.remote = False
        self._kwargs = kwargs

    @property
    def pack(self) -> Pack:
        """The pack of the innermost command."""
        return self._pack if self._pack is not None or self.exec is None else self.exec.pack

    @property
    def options(self) -> Options:
        """How it is started: cwd, env, use_stdout, setsid."""
        return {**(self.exec.options if self.exec else {}), **self._kwargs}

    def kwargs(self) -> Options:
        """Return the options."""
        return self.options

    def set_run_options(self: Self, **kwargs: Any) -> Self:
        """Add options and return the command itself."""
        self._kwargs.update(kwargs)
        return self

    def use_stdout(self: Self) -> Self:
        """Have records read from standard output."""
        return self.set_run_options(use_stdout=True)

    def _set_pack(self, pack: Pack) -> bool:
        if self._pack is not None:
            self._pack = pack
            return True
        return self.exec is not None and self.exec._set_pack(pack)

    def copy(self: Self, pack: Pack) -> Self:
        """Return the same command for another pack."""
        other = copy.deepcopy(self)
        other._set_pack(pack)
        return other

    def packs(self) -> Iterator[Pack]:
        """Yield the pack of each process."""
        yield self.pack

    def argv(self, **kwargs: Any) -> list[Any]:
        """Return the words of the whole command."""
        raise NotImplementedError(f"{type(self).__name__}.argv")

    def commands(self) -> Iterator[tuple[Pack, list[Any], Options]]:
        """Yield (pack, words, options) of each process."""
        yield self.pack, self.argv(), self.options

    async def execute(self, phase: str = "run", **kwargs: Any) -> list[int]:
        """Start all processes at the same time and wait for them: in `install` and `prepare` only.

        Return their exit codes. Raises CommandFailed when any is not 0.
        """
        del phase
        require_effects(f"{type(self).__name__}.execute")
        processes = [_execute(pack, words, {**options, **kwargs}) for pack, words, options in self.commands()]
        return list(await asyncio.gather(*processes))

    def __repr__(self) -> str:
        inner = repr(self.exec) if self.exec else "pack"
        return f"{type(self).__name__}({inner})"


async def _execute(pack: Pack, words: Sequence[Any], options: Options) -> int:
    argv = program_words(pack, words)
    if argv[0] == RUNNER:
        argv[0] = f"{pack.dirs.venv}/bin/python"
    env = {**os.environ, **pack.full_env(options.get("env") or {})}
    cwd = options.get("cwd") or pack.working_directory
    return await run_words(argv, cwd, {str(name): str(value) for name, value in env.items() if value is not None})


async def run_words(argv: Sequence[str], cwd: Any, env: Mapping[str, str]) -> int:
    """Run a command and wait for it. Return 0. Raises CommandFailed for any other exit code."""
    process = await asyncio.create_subprocess_exec(*argv, cwd=cwd, env=env, stdin=asyncio.subprocess.DEVNULL)
    code = await process.wait()
    if code:
        raise CommandFailed(f"{' '.join(argv[:3])} ... ended with exit code {code}")
    return code


def program_words(pack: Pack, words: Sequence[Any]) -> list[str]:
    """Return the words as text. A program that is no executable file is started by the environment's Python."""
    argv = [str(word) for word in words]
    program = Path(argv[0]) if argv else Path()
    is_script = program.suffix == ".py" and program.is_file() and not os.access(program, os.X_OK)
    return [f"{pack.dirs.venv}/bin/python", *argv] if is_script or argv[:1] == ["-m"] else argv


class SingleCmdCommand(Command):
    """A process: the words of the wrapper, then of the wrapped command."""

    def _argv(self, **_kwargs: Any) -> list[Any]:
        return []

    def argv(self, **kwargs: Any) -> list[Any]:
        """Return the words of the whole command."""
        return [*self._argv(**kwargs), *(self.exec.argv(**kwargs) if self.exec else [])]


class CmdCommand(SingleCmdCommand):
    """The words as they are given."""

    def __init__(self, pack: Pack, *cmd_argv: Any, **kwargs: Any) -> None:
        if isinstance(pack, Command):
            raise TypeError(f"{type(self).__name__} takes a pack, no command")
        super().__init__(pack, **kwargs)
        self.cmd_argv = cmd_argv

    def _argv(self, **_kwargs: Any) -> list[Any]:
        return [*self.cmd_argv]


class PackCommand(CmdCommand):
    """A program of the pack: the first word if that is a file or a folder of the pack, else its main script.

    A folder is started as a module. `lazy` reads the pack's argv when the words are asked for.
    """

    def __init__(self, pack: Pack, *script_argv: Any, lazy: bool = False, **kwargs: Any) -> None:
        script = script_argv[0] if script_argv and _names_program(pack, script_argv[0]) else None
        super().__init__(pack, *script_argv[script is not None :], **kwargs)
        self.script = script
        self.lazy = lazy

    def command_arguments(self, **kwargs: Any) -> list[Any]:
        """Return the words after the program."""
        return list(self.pack.argv) if self.lazy else super()._argv(**kwargs)

    def _argv(self, **kwargs: Any) -> list[Any]:
        script = self.script or self.pack.main_script
        path = XPath(self.pack.dirs.code) / script
        return [*(["-m", script] if path.is_dir() else [path]), *self.command_arguments(**kwargs)]


def _names_program(pack: Pack, word: Any) -> bool:
    """Return whether a first word is a program: an absolute path, or a path below the code that is no word of the suite."""
    if not isinstance(word, str | Path) or not str(word):
        return False
    if Path(word).is_absolute():
        return Path(word).exists()
    return (Path(pack.dirs.code) / word).exists() and [word] != list(pack.argv)[:1]


class VoidCommand(CmdCommand):
    """Nothing."""

    def __init__(self, pack: Pack, *argv: Any, **kwargs: Any) -> None:
        super().__init__(pack, "true", *argv, **kwargs)


class SimpleCommand(SingleCmdCommand):
    """The pack's argv is the command."""

    def __init__(self, pack_or_exec: Command | Pack, *args: Any, **options: Any) -> None:
        super().__init__(pack_or_exec, **options)
        self.args = args

    def argv(self, **_kwargs: Any) -> list[Any]:
        """Return the words of the whole command."""
        return [*self.pack.argv, *self.args]


class WrapperCommand(SingleCmdCommand):
    """Words before another command's."""

    def __init__(self, executor: Command, *wrapper_argv: Any, **kwargs: Any) -> None:
        super().__init__(executor, **kwargs)
        self.wrapper_argv: Sequence[Any] = wrapper_argv

    def _argv(self, **_kwargs: Any) -> list[Any]:
        return [*self.wrapper_argv]


class WorkingDir(WrapperCommand):
    """Start in the pack's working directory, on every node."""

    def __init__(self, cmd: Command, **kwargs: Any) -> None:
        super().__init__(cmd, **{"cwd": cmd.pack.working_directory, **kwargs})


class ActivatorCommand(SingleCmdCommand):
    """Have the environment active, as all steps have it. No words."""

    def __init__(self, pack: Command | Pack, **kwargs: Any) -> None:
        super().__init__(pack, **kwargs)


class DockerRunCommand(WrapperCommand):
    """Run in a container: a fact about the process, no words. Without an image there is no container."""

    def __init__(self, executor: Command, config: DockerConfig, *docker_argv: Any, **kwargs: Any) -> None:
        super().__init__(executor, **kwargs)
        self.config = config
        self.extra_args = docker_argv

    @property
    def options(self) -> Options:
        """The command's options, with the container."""
        if self.config.image is None:
            return super().options
        args = [*map(str, self.config.args), *map(str, self.extra_args)]
        container = {"executable": self.config.executable, "image": self.config.image, "args": args}
        return {**super().options, "container": container}


class SSHCommand(WrapperCommand):
    """Run on the node with this address: a fact about the process, no words."""

    def __init__(
        self,
        executor: Command,
        host: str,
        *_ssh_argv: Any,
        user: str | None = None,
        key: str | None = None,
        port: int = 22,
        **kwargs: Any,
    ) -> None:
        super().__init__(executor, **{"host": host, **kwargs})
        self.host = host
        self.user = user
        self.key = key
        self.port = port

    def is_local(self) -> bool:
        """Return False: it depends on the placement where a command runs."""
        return False


class VoirCommand(WrapperCommand):
    """Run under the runner that loads the voirfile: the word @runner."""

    def __init__(self, executor: Command, *voir_argv: Any, module: bool = False, **kwargs: Any) -> None:
        del module
        super().__init__(executor, RUNNER, **{"setsid": True, **kwargs})
        self.voir_argv = voir_argv

    def _argv(self, **kwargs: Any) -> list[Any]:
        return [*super()._argv(**kwargs), *self.voir_argv]


class TorchrunAllGPU(WrapperCommand):
    """Run once per device of the node, by torchrun, when there are several."""

    def __init__(self, executor: Command, *torchrun_argv: Any, module: bool = False, **kwargs: Any) -> None:
        self.binfolder = executor.pack.config["dirs"]["venv"]
        self.module = module
        super().__init__(executor, self.executable, *torchrun_argv, **kwargs)

    @property
    def executable(self) -> str:
        """The program that starts the ranks."""
        return f"{self.binfolder}/bin/benchrun"

    def get_cmd(self) -> Any:
        """Return the first word of the command that is wrapped."""
        return next(iter(self.exec.argv()), None) if self.exec else None

    def device_count(self) -> int:
        """Return the devices of the placement."""
        return len(self.pack.config.get("devices") or [])

    def should_wrap(self) -> bool:
        """Return whether ranks are needed."""
        return self.device_count() > 1

    def _argv(self, **kwargs: Any) -> list[Any]:
        if not self.should_wrap():
            return []
        is_per_device = _method(self.pack.config) == "per_gpu"
        words = [*super()._argv(**kwargs), *([] if is_per_device else ["--nproc-per-node=gpu"])]
        inner = str(self.get_cmd() or "")
        if inner in (RUNNER, "python", "voir"):
            # torchrun puts Python before what it starts; the runner has it already.
            return [*words, "--no-python", "--"]
        if self.module:
            return [*words, "-m"]
        is_module = bool(inner) and "/" not in inner and not (Path(self.pack.dirs.code) / inner).exists()
        return [*words, *(["-m"] if is_module else []), "--"]


TorchRunCommand = TorchrunAllGPU


def _method(config: Mapping[str, Any]) -> str:
    return str((config.get("plan") or {}).get("method", "")).replace("-", "_")


class AccelerateLaunchCommand(SingleCmdCommand):
    """Run on the devices of all nodes by accelerate. `rank` is the node's."""

    def __init__(self, pack: Command | Pack, rank: int, *accelerate_argv: Any, **kwargs: Any) -> None:
        super().__init__(pack, **kwargs)
        self.accelerate_argv = accelerate_argv
        self.rank = rank

    def _get_main_and_workers(self) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
        config = self.pack.config
        nodes = select_nodes(config["system"]["nodes"], config.get("num_machines", 1))
        return nodes[0], nodes[1:]

    def _argv(self, **_kwargs: Any) -> list[Any]:
        config = self.pack.config
        main, workers = self._get_main_and_workers()
        devices = len(config["devices"])
        if config.get("use_deepspeed", False):
            spread = ["--use_deepspeed", "--deepspeed_multinode_launcher=standard", "--zero_stage=2"]
        else:
            spread = ["--multi_gpu"] if devices > 1 else []
        return [
            f"{self.pack.dirs.venv}/bin/accelerate",
            "launch",
            "--mixed_precision=bf16",
            "--dynamo_backend=no",
            f"--machine_rank={self.rank}",
            f"--num_machines={len(workers) + 1}",
            *spread,
            f"--gradient_accumulation_steps={config.get('gradient_accumulation_steps', 1)}",
            f"--num_cpu_threads_per_process={self.pack.resolve_argument('--cpus_per_gpu', 4)}",
            f"--main_process_ip={node_address(main)}",
            f"--main_process_port={option('torchrun.port', int, PORT)}",
            f"--num_processes={devices * (len(workers) + 1)}",
            *self.accelerate_argv,
        ]


class ListCommand(Command):
    """Several commands at the same time."""

    def __init__(self, *executors: Command, **kwargs: Any) -> None:
        super().__init__(None, **kwargs)
        self._executors: Sequence[Command] = executors

    @property
    def executors(self) -> Sequence[Command]:
        """The commands."""
        return self._executors

    @property
    def pack(self) -> Pack:
        """The pack of the first command."""
        return self.executors[0].pack

    def packs(self) -> Iterator[Pack]:
        """Yield the pack of each process."""
        for executor in self.executors:
            yield from executor.packs()

    def commands(self) -> Iterator[tuple[Pack, list[Any], Options]]:
        """Yield (pack, words, options) of each process."""
        for executor in self.executors:
            for pack, words, options in executor.commands():
                yield pack, words, {**self._kwargs, **options}

    def set_run_options(self: Self, **kwargs: Any) -> Self:
        """Add options to all commands."""
        for executor in self._executors:  # type: ignore[attr-defined]
            executor.set_run_options(**kwargs)
        return self

    def _set_pack(self, pack: Pack) -> bool:
        for executor in self._executors:
            executor._set_pack(pack)
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(map(repr, self._executors))}])"


class SequenceCommand(ListCommand):
    """Several commands in sequence, in `install` and `prepare`."""

    async def execute(self, phase: str = "run", **kwargs: Any) -> list[int]:
        """Run each command when the previous command has succeeded."""
        return [code for executor in self.executors for code in await executor.execute(phase, **kwargs)]


class NJobs(ListCommand):
    """The same command `n` times, at the same time."""

    def __init__(
        self, executor: Command, n: int, gpus: Sequence[Mapping[str, Any]] | None = None, **kwargs: Any
    ) -> None:
        self.n = n
        self.gpus = list(gpus or [])
        given = {"devices": [gpu["device"] for gpu in self.gpus]} if self.gpus else {}
        config = executor.pack.config
        changes = [{"tag": [*config["tag"], str(job)], "job-number": job, **given} for job in range(n)]
        super().__init__(*(_with_config(executor, each) for each in changes), **kwargs)


class PerGPU(ListCommand):
    """The same command on each device, by default on the placement's devices."""

    def __init__(self, executor: Command, gpus: Sequence[Mapping[str, Any]] | None = None, **kwargs: Any) -> None:
        config = executor.pack.config
        self.devices: Sequence[Mapping[str, Any]] = [*(gpus or [])] or [
            {"device": device} for device in config.get("devices") or [0]
        ]
        changes = [_on_device(config, gpu) for gpu in self.devices]
        super().__init__(*(_with_config(executor, each) for each in changes), **kwargs)


def _on_device(config: Mapping[str, Any], gpu: Mapping[str, Any]) -> Options:
    device = gpu["device"]
    variable = gpu.get("selection_variable")
    selected = {"env": {variable: str(device)}} if variable else {}
    return {"tag": [*config["tag"], f"D{device}"], "device": device, "devices": [device], **selected}


def _with_config(executor: Command, changes: Mapping[str, Any]) -> Command:
    return executor.copy(executor.pack.copy(clone_with(executor.pack.config, changes)))


class ClientServer(ListCommand):
    """A server and its client at the same time. Only the client gives records."""

    def __init__(
        self, pack: Pack, client: Command, server: Command, different_nodes: bool = False, **kwargs: Any
    ) -> None:
        del pack, different_nodes
        self.client = client
        self.server = server
        super().__init__(client, server, **kwargs)

    @staticmethod
    def new_pack(pack: Pack, tag: str, has_logs: bool = True) -> Pack:
        """Return the pack with another tag."""
        tags = [*pack.config["tag"], tag, *([] if has_logs else ["nolog"])]
        return pack.copy(clone_with(pack.config, {"tag": tags}))

    @staticmethod
    def new_client_pack(pack: Pack, has_logs: bool = True) -> Pack:
        """Return the pack of the client."""
        return ClientServer.new_pack(pack, "client", has_logs)

    @staticmethod
    def new_server_pack(pack: Pack, has_logs: bool = True) -> Pack:
        """Return the pack of the server."""
        return ClientServer.new_pack(pack, "server", has_logs)


class ForeachNode(ListCommand):
    """The command on each node of the benchmark, the main node first."""

    def __init__(self, executor: Command, use_docker: bool = True, **kwargs: Any) -> None:
        super().__init__(executor, **kwargs)
        self.executor = executor
        self.base_tags = executor.pack.config["tag"]
        self.use_docker = use_docker

    def make_new_node_pack(self, rank: int, node: Mapping[str, Any], base: Command) -> Pack:
        """Return the pack of a node."""
        tags = [*self.base_tags, node["name"], *(["nolog"] if rank else [])]
        return base.pack.copy(clone_with(base.pack.config, {"tag": tags}))

    def make_new_node_executor(self, rank: int, node: Mapping[str, Any], base: Command) -> Command:
        """Return the command of a node."""
        return base.copy(self.make_new_node_pack(rank, node, base))

    def single_node(self) -> Command:
        """Return the command where there is a single node."""
        return self.executor

    @property
    def executors(self) -> Sequence[Command]:
        """The command of each node, made when it is asked for."""
        config = self.executor.pack.config
        machines = config.get("num_machines", 1)
        self.nodes = select_nodes(config["system"]["nodes"], machines)
        if len(self.nodes) == 1 or machines == 1:
            return [self.single_node()]
        return [self._on_node(rank, node) for rank, node in enumerate(self.nodes)]

    def _on_node(self, rank: int, node: Mapping[str, Any]) -> Command:
        command = self.make_new_node_executor(rank, node, self.executor)
        if self.use_docker:
            command = DockerRunCommand(command, DockerConfig(**(self.pack.config["system"].get("docker") or {})))
        return SSHCommand(command, node_address(node), rank=rank, **(self._kwargs if rank == 0 else {}))

    @property
    def pack(self) -> Pack:
        """The pack of the command."""
        return self.executor.pack

    def set_run_options(self: Self, **kwargs: Any) -> Self:
        """Add options to the command of each node."""
        self.executor.set_run_options(**kwargs)  # type: ignore[attr-defined]
        return self

    def _set_pack(self, pack: Pack) -> bool:
        return self.executor._set_pack(pack)


class AccelerateAllNodes(ForeachNode):
    """The command by accelerate on all devices of all nodes. With a single device unchanged."""

    def single_node(self) -> Command:
        """Return the command where there is a single node."""
        if len(self.executor.pack.config.get("devices") or []) > 1:
            return AccelerateLaunchCommand(self.executor, rank=0, **self._kwargs)
        return self.executor

    def make_new_node_executor(self, rank: int, node: Mapping[str, Any], base: Command) -> Command:
        """Return the command of a node."""
        return AccelerateLaunchCommand(super().make_new_node_executor(rank, node, base), rank=rank, **self._kwargs)


class TorchrunAllNodes(ForeachNode):
    """The command by torchrun on all devices of all nodes."""

    def __init__(self, executor: Command, *args: Any, **kwargs: Any) -> None:
        super().__init__(self.make_base_executor(TorchrunAllGPU, executor, *args, **kwargs))

    @staticmethod
    def make_base_executor(wrapper: Any, executor: Command, *args: Any, **kwargs: Any) -> Any:
        """Return `wrapper(executor, ...)` with torchrun's words about the nodes. None where each device has its own process."""
        config = executor.pack.config
        nodes = select_nodes(config["system"]["nodes"], config.get("num_machines", 1))
        address = node_address(nodes[0])
        port = option("torchrun.port", int, PORT)
        words = (
            f"--nnodes={len(nodes)}",
            f"--rdzv-backend={option('torchrun.backend', str, 'static')}",
            f"--rdzv-endpoint={address}:{port}",
            f"--master-addr={address}",
            f"--master-port={port}",
            f"--local-ranks-filter={option('torchrun.local_ranks_filder', str, '0')}",
        )
        return wrapper(executor, *(() if _method(config) == "per_gpu" else words), *args, **kwargs)

    def make_new_node_executor(self, rank: int, node: Mapping[str, Any], base: Command) -> Command:
        """Return the command of a node, with the rank that the suite's order of nodes gives it."""
        executor: Any = super().make_new_node_executor(rank, node, base)
        own = (f"--node-rank={rank}", f"--local-addr={node_address(node)}", f"--rdzv-conf=rank={rank}")
        executor.wrapper_argv = [*executor.wrapper_argv, *own]
        return executor  # type: ignore[no-any-return]
