"""Commands in containers, for docker, podman, apptainer, enroot and pyxis: images, and the words of the engine around them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from urllib.parse import quote

from milabench.config.schema import BenchmarkConfig, SystemConfig
from milabench.devices.registry import vendor_of
from milabench.errors import ConfigError, Problem
from milabench.facts.model import Arch, Device
from milabench.plan.context import NodeBenchmark
from milabench.plan.launchers import SRUN_LINE, launcher_of
from milabench.plan.method import SRUN
from milabench.plan.model import Step

FETCHED = ".fetched"
"""Suffix of the mark next to an image that milabench fetched. An image without it belongs to the user."""
# Whole or not at all: what a download that was cut off left is never taken for an image.
_PULL_FILE = (
    'if [ -e "$1" ] && [ ! -e "$1{fetched}" ]; then echo "milabench did not fetch $1" >&2; exit 1; fi; '
    'mkdir -p "$(dirname "$1")" && {command} "$1.$$" "$2" && : > "$1{fetched}" && mv "$1.$$" "$1"'
)
_PULL = {"apptainer": "apptainer pull --force", "enroot": "enroot import --output"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The image that an engine needs on a node before a step can start in it.

    `file` is where apptainer or enroot keeps it on that node. Docker and podman have a store of their own. `source` is where
    it can be fetched from, empty for a file of the user's.
    """

    engine: str
    name: str
    file: str = ""
    source: str = ""

    @property
    def look(self) -> tuple[str, ...]:
        """The command that succeeds when the image is there."""
        return ("test", "-e", self.file) if self.file else (self.engine, "image", "inspect", self.name)

    @property
    def fetch(self) -> tuple[str, ...]:
        """The command that fetches it, also where an older image exists. Empty for a file of the user's."""
        if not self.source:
            return ()
        if self.file:
            pull = _PULL_FILE.format(command=_PULL[self.engine], fetched=FETCHED)
            return ("/bin/sh", "-c", pull, "pull", self.file, self.source)
        return (self.engine, "pull", "--quiet", self.source)

    @property
    def absence(self) -> str:
        """The message about a missing file of the user's."""
        return f"{self.file}: no such image"

    def to_json(self) -> dict[str, str]:
        """Return the image as `milabench plan install --json` prints it."""
        return {"engine": self.engine, "image": self.name}


def image_of(engine: str, name: str, cache: str) -> Image:
    """Return the image `name` of a suite. An image that apptainer or enroot has to fetch is kept as a file in `cache`."""
    if engine in ("docker", "podman"):
        return Image(engine=engine, name=name, source=name)
    ending = "sif" if engine == "apptainer" else "sqsh"
    if "://" not in name and (name.startswith(("/", "./", "../")) or name.endswith(f".{ending}")):
        return Image(engine="srun" if engine == "pyxis" else engine, name=name, file=name)
    # docker:// is where the same name leads with docker and podman.
    source = name if "://" in name else f"docker://{name if engine == 'apptainer' else _with_registry(name)}"
    file = f"{cache}/images/{quote(source, safe='')}.{ending}"
    # pyxis starts what enroot has imported.
    return Image(engine="enroot" if engine == "pyxis" else engine, name=name, file=file, source=source)


def _with_registry(name: str) -> str:
    """Return the name of an image as enroot has it: `#` after its registry, by which that is told from a folder."""
    registry, slash, rest = name.partition("/")
    is_registry = slash and ("." in registry or ":" in registry or registry == "localhost")
    return f"{registry}#{rest}" if is_registry else name


def in_one_line(image: Image, *, refetch: bool) -> str:
    """Return the line for a shell that fetches an image that is missing, or any with `refetch`. It fails without an image."""
    look = f"{shlex.join(image.look)} >/dev/null 2>&1"
    fetch = shlex.join(image.fetch) if image.fetch else f"{{ echo {shlex.quote(image.absence)} >&2; exit 1; }}"
    return f"{fetch} || {look}" if refetch and image.fetch else f"{look} || {fetch}"


# What the agent adds to every process of ours; inside, it is how a sweep finds what a dead orchestrator left.
_MARKERS = ("MILABENCH_RUN_MARKER", "MILABENCH_STEP")
# Of the user's own environment, which docker and podman keep out: the token that programs look for by themselves.
_INHERITED = ("HF_TOKEN",)
# The PATH of the image is not known here; these are the folders of CUDA's images, then those that all have.
_PATH = (
    *("/usr/local/nvidia/bin", "/usr/local/cuda/bin", "/opt/rocm/bin"),
    *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The container of a command: `args` are further options of the engine, `mounts` as the suite wrote them."""

    engine: str
    image: str
    args: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()


def container_of(config: BenchmarkConfig, system: SystemConfig) -> Container | None:
    """Return the container of a benchmark's steps: its own, else the system's. Raises ConfigError without an image."""
    own, common = config.container, system.container
    engine = own.engine or common.engine
    image = own.image or config.docker_image or common.image or system.docker_image
    if engine == "none" or (image is None and engine is None):
        return None
    if image is None or image.startswith("-"):
        what, hint = "a container without an image", "add image: NAME, or docker_image: NAME"
        if image is not None:
            what, hint = f"'{image}' is no image: it begins as an option does", "correct image"
        origin, path = (config.origin, config.name) if own.engine is not None else (system.origin, "system")
        raise ConfigError(Problem(origin.where("container.engine"), f"{path}.container", what, hint))
    return Container(
        engine=engine or "docker",
        image=image,
        args=own.args if own.args is not None else common.args or (),
        mounts=own.mounts if own.mounts is not None else common.mounts or (),
    )


def containerized(step: Step, bench: NodeBenchmark, devices: Sequence[Device] = ()) -> Step:
    """Return the step in the container that suite or system name, with all our folders inside. Unchanged without a container.

    Where the server is a separate command, the image contains only this program, not the benchmark. A server that
    runs already has an image of its own, if any.
    `devices` are those that the step sees. Raises ConfigError for a container without an image.
    """
    context = bench.context
    container = container_of(bench.config, context.system)
    server = bench.config.server
    if container is None or (
        server is not None and (server.command or server.url) and step.config.get("role") != "server"
    ):
        return step
    if launcher_of(bench.config) == SRUN:
        what = "srun starts ranks on nodes that lack the folders mounted into a container"
        raise bench.config.error("plan.launcher", what, "use torchrun or ranks with a container")
    dirs = bench.dirs
    folders = [dirs.base, dirs.venv, dirs.code, dirs.data, dirs.cache, dirs.extra, bench.folder, bench.modules]
    folders += [context.current_env] if context.current_env is not None else []
    if trace := step.config.get("serve", {}).get("trace"):
        folders.append(str(PurePath(trace).parent))
    return containerize(step, container, context.facts.arch, devices, folders, dirs.cache)


def containerize(
    step: Step, container: Container, arch: Arch, devices: Sequence[Device], folders: Iterable[str], cache: str
) -> Step:
    """Return the step with its command in a container of its own, which the engine ends too.

    `folders` are seen inside under the same paths. Of `devices` (all that the node has for it) no others are seen. Values
    of variables stand in no command line: the engine takes them from its own environment, by name. `cache` is where
    images that are files are kept.
    """
    env = dict(step.env)
    mounts = (*outermost([*folders, step.cwd]), *container.mounts)
    if container.engine == "apptainer":
        words = _apptainer(container, step, arch, mounts, cache)
        if step.venv:
            env["APPTAINERENV_PREPEND_PATH"] = f"{step.venv}/bin"
        return replace(step, argv=words, env=env, container=container.image)
    vendor = vendor_of(arch)
    if container.engine in ("enroot", "pyxis"):
        # Their containers have all devices of the node; those of the step are chosen as outside.
        env.update(vendor.enroot_environment)
        names = sorted({*env, *_MARKERS, *_INHERITED} - {"PATH"})
        engine_words = _enroot if container.engine == "enroot" else _pyxis
        words = engine_words(container, step, names, mounts, image_of(container.engine, container.image, cache).file)
        return replace(step, argv=words, env=env, container=container.image)
    env.update(vendor.container_environment(env, len(devices)))
    ids = [str(device.details.get("visible_as") or device.uuid) for device in devices]
    names = sorted({*env, *_MARKERS, *_INHERITED} - {"PATH"})
    ours = [
        # Ranks find each other at the addresses of their nodes; port mappings would also cost throughput.
        "--network=host",
        # Loader workers hand batches over in /dev/shm, of which a container has 64 MiB by default.
        "--ipc=host",
        # Else root would own what is written into the mounted folders.
        "--user=@user",
        *(["--userns=@userns"] if container.engine == "podman" else []),
        # Who is polite gets TERM through the client; by the time that the engine is asked, the grace is over.
        "--stop-timeout=0",
        # An image comes with `milabench install`: fetched within the step's time, it would be measured.
        "--pull=never",
        # An entry point of the image would be started with our command as its arguments.
        "--entrypoint=",
    ]
    words = (
        *(container.engine, "run", "--rm", "--init", "--name=@container", "--label=milabench.marker=@marker"),
        *(word for word in ours if not _is_given(word, container.args)),
        *(vendor.container_options(container.engine, ids) if ids else ()),
        *(f"--volume={_pair(mount)}" for mount in mounts),
        "--volume=@folder",
        f"--workdir={step.cwd}",
        f"--env=PATH={_path(step)}",
        *(f"--env={name}" for name in names),
        # Last, where the engine lets a later option win.
        *container.args,
        container.image,
        *step.argv,
    )
    end = (container.engine, "rm", "--force", "@container")
    return replace(step, argv=words, env=env, container=container.image, end_argv=end)


def _apptainer(container: Container, step: Step, arch: Arch, mounts: Sequence[str], cache: str) -> tuple[str, ...]:
    """Return the words around a command. Apptainer has no daemon: programs are its children, with its environment."""
    return (
        *("apptainer", "exec", *vendor_of(arch).apptainer_options),
        *(f"--bind={_pair(mount)}" for mount in mounts),
        "--bind=@folder",
        f"--pwd={step.cwd}",
        *container.args,
        image_of(container.engine, container.image, cache).file,
        *step.argv,
    )


def _enroot(
    container: Container, step: Step, names: Sequence[str], mounts: Sequence[str], file: str
) -> tuple[str, ...]:
    """Return the words around a command: enroot has no daemon, no network and no users of its own, and no option for a folder."""
    return (
        *("enroot", "start"),
        *(f"--mount={_fstab(mount)}" for mount in mounts),
        "--mount=@folder",
        f"--env=PATH={_path(step)}",
        *(f"--env={name}" for name in names),
        *container.args,
        file,
        *("/bin/sh", "-c", 'cd "$0" && exec "$@"', step.cwd),
        *step.argv,
    )


def _pyxis(container: Container, step: Step, names: Sequence[str], mounts: Sequence[str], file: str) -> tuple[str, ...]:
    """Return the words around a command: a step of the job that we are in, on the same node, which pyxis puts into a container.

    Our variables win over the image's. For PATH, the image's own would win.
    """
    return (
        *("/bin/sh", "-c", SRUN_LINE, "srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={step.node}"),
        *("--mem=0", "--cpu-bind=none", "--mpi=none", "--quiet"),
        f"--container-image={file}",
        f"--container-mounts={','.join((*map(_pair, mounts), '@folder'))}",
        f"--container-workdir={step.cwd}",
        "--no-container-mount-home",
        "--no-container-entrypoint",
        f"--container-env={','.join(names)}",
        *container.args,
        *("/usr/bin/env", f"PATH={_path(step)}"),
        *step.argv,
    )


def _fstab(mount: str) -> str:
    """Return a mount as enroot has it, whose third part is a kind of file system."""
    source, inside, *more = _pair(mount).split(":")
    return ":".join((source, inside, *(("none", f"x-create=auto,rbind,{','.join(more)}") if more else ())))


def _path(step: Step) -> str:
    return ":".join((f"{step.venv}/bin", *_PATH) if step.venv else _PATH)


def _is_given(word: str, args: Sequence[str]) -> bool:
    """Return whether the suite's own options include any of ours: twice is an error for some, for others the later wins."""
    name = word.partition("=")[0]
    return any(given.partition("=")[0] == name for given in args)


def _pair(mount: str) -> str:
    return mount if ":" in mount else f"{mount}:{mount}"


def outermost(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that are in no other of them, in their order, without relative ones."""
    known = dict.fromkeys(PurePath(folder) for folder in folders if folder.startswith("/"))
    return tuple(str(folder) for folder in known if not any(outer in folder.parents for outer in known))


def names_in(step: Step, attempt: int) -> dict[str, str]:
    """Return the values that a step's container needs in addition to the run's: they tell its name from an earlier attempt's."""
    return {"attempt": str(attempt)} if step.end_argv and attempt > 1 else {}
