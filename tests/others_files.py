"""Random sequences of commands in a home that is full of a user's own files, which must all be there afterwards, unchanged.

`python -m tests.others_files FIRST COUNT` runs the sequences of so many seeds and prints a line for each file that changed.
Commands run in forks of this process, which has imported everything; a command that is killed ends its fork. A strike comes at
one of a command's own file operations: it is killed, or finds a full disk from there on. Environments are made only with all
examples.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import pkgutil
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import milabench.cli
import milabench.workflow
from milabench.capsule.contents import CapsuleManifest, Content, entry_of, write_capsule
from milabench.capsule.install import PLATFORM
from milabench.execute.inventory import benchmate_digest
from milabench.plan.prepare import data_lock, data_mark
from milabench.version import __version__
from tests.examples import ALL
from tests.process.cli.installable import BENCHMATE, installable
from tests.recorded_run import Recorded, rates, record

COMMANDS = 20
SUITES = ("fetched", "clash")  # of the second the program has the name of a folder of the user's
OPERATIONS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "shutil.rmtree"}
SUITE = {
    "profile": "quick",
    "tiny": {"command": ["true"], "plan": {"method": "njobs", "n": 1}},
    "own": {"definition": "own", "install_variant": "unpinned"},
    "fetched": {"definition": {"git": "@REPOSITORY@", "branch": "main"}, "install_variant": "unpinned"},
}
BENCHMARK = {
    "benchfile.py": 'from milabench import Benchmark\nbenchmark = Benchmark(script="main.py", voirfile=None)\n',
    "main.py": "print(1)\n",
    "requirements.in": "",
    "prepare.py": """
import os, pathlib, benchmate
data = pathlib.Path(os.environ["MILABENCH_DIR_DATA"])
for name in ("own", "imagenet"):
    benchmate.prepare_folder(data / name, {"seed": 1}, lambda folder: (folder / "made").write_text("made"))
""",
}
# Of a user's own, in a base with our folders' names.
OWN = (
    *(
        "code/thesis/main.py",
        "code/.hidden/notes",
        "code/clash-main/precious.txt",
        "code/.thesis.lock",
        "data/imagenet/train.tar",
    ),
    *(
        "data/own/mine.bin",
        "data/.cache/x",
        "data/file",
        "runs/notes.txt",
        "runs/mine/numbers.csv",
        "venv/mine/bin/python",
    ),
    *(
        "venv/.store/mine/lib.so",
        "venv/.store/mine-0123456789abcdef/lib.so",
        "cache/images/own.sif",
        "cache/wheels/numpy/a.whl",
    ),
    *(
        "cache/wheels/.own.building/a",
        "cache/capsules/mine/suite.yaml",
        "cache/capsules/0123456789abcdef/data",
        "cache/x",
    ),
    *(".removed/keep", ".removed-old/keep", "thesis.tex", "config/own.yaml", "benchmarks/own/main.py"),
)
HOME = (".bashrc", ".ssh/authorized_keys", "Documents/thesis.tex", "mounted/train.tar", "results.json", "report.html")


def fill(home: Path, repository: Path) -> None:
    """Write a home with a base in it that holds a user's files among ours."""
    base = home / "work"
    for name in (*HOME, *(f"work/{name}" for name in OWN)):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"mine: {name}")
    (base / "runs" / "empty").mkdir()
    (base / "code" / "link").symlink_to(home / "Documents")
    (base / "venv" / "dangling").symlink_to("/nowhere/venv")
    (base / "data" / "linked").symlink_to(home / "Documents")
    (home / "suite").mkdir()
    for name in SUITES:
        suite = json.dumps(SUITE).replace("@REPOSITORY@", str(repository.with_name(name)))
        (home / "suite" / f"{name}.yaml").write_text(suite)
    shutil.copytree(repository, home / "suite" / "own", ignore=shutil.ignore_patterns(".git"))


def add_ours(home: Path) -> None:
    """Write what earlier commands have left in the base: runs, an environment, a program and data that nobody uses."""
    base = home / "work"
    record(base, Recorded(events=rates(1.0, 1.1, 1.2)))
    store = base / "venv" / ".store" / "torch-ffffffffffffffff"
    store.mkdir()
    (store / ".complete").write_text(json.dumps({"group": "torch", "digest": "f" * 64}))
    (base / "code" / "gone-1").mkdir()
    (base / "code" / ".gone-1.complete").write_text(json.dumps({"folder": "gone-1"}))
    data_mark(base / "data", "gone").parent.mkdir()
    for name in ("gone", "lost"):
        (base / "data" / name / "inner").mkdir(parents=True)
        data_mark(base / "data", name).touch()
        data_lock(base / "data", name).touch()
    (base / "suites.json").write_text('{"schema": 1, "suites": []}')


def capsule(path: Path, supplies: Path) -> None:
    """Write a capsule that can be installed: a suite, its data, tiny wheels, the instruments."""
    suite = {"own": SUITE["own"], "profile": "quick"}
    files = {"suite/suite.yaml": json.dumps(suite).encode(), "data/imagenet/train.tar": b"theirs"}
    files |= {f"suite/own/{name}": text.encode() for name, text in BENCHMARK.items()}
    files |= {f"wheels/{wheel.name}": wheel.read_bytes() for wheel in (supplies / "wheels").iterdir()}
    files |= {f"benchmate/{wheel.name}": wheel.read_bytes() for wheel in (supplies / "base").rglob("benchmate-*.whl")}
    contents = tuple(Content(path=name, content=files[name]) for name in sorted(files))
    manifest = CapsuleManifest(
        version=__version__,
        suite="suite/suite.yaml",
        benchmarks=("own",),
        platform=PLATFORM,
        glibc="",
        benchmate=benchmate_digest(BENCHMATE),
        files=tuple(map(entry_of, contents)),
    )
    write_capsule(path, manifest, contents)


def forged(path: Path) -> None:
    """Write a capsule whose programs' marker leads to the base itself."""
    contents = (
        Content(path="code/....complete", content=b"{}"),
        Content(path="suite/suite.yaml", content=b"tiny: {command: [true]}\nsystem: {dirs: {data: /}}\n"),
    )
    about = {"version": "0", "platform": "linux-x86_64", "glibc": "", "benchmate": "0" * 64}
    files = tuple(map(entry_of, contents))
    manifest = CapsuleManifest(suite="suite/suite.yaml", benchmarks=("tiny",), files=files, **about)
    content = b"".join(
        entry.header + bytes(each.content) + entry.padding
        for entry, each in zip(manifest.files, contents, strict=True)
        if isinstance(each.content, bytes)
    )
    path.write_bytes(manifest.own.header + manifest.content + manifest.own.padding + content + bytes(1024))


def state(path: Path) -> object:
    """Return the kind and the content of a file, folder or link, which is not followed; None for nothing."""
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
        return kind, path.read_bytes() if kind == stat.S_IFREG else path.readlink() if kind == stat.S_IFLNK else None
    except OSError:
        return None


def command(chance: random.Random, home: Path, supplies: Path) -> list[str]:
    """Draw a command line."""
    suite = ["--config", str(home / "suite" / f"{chance.choice(SUITES)}.yaml")]
    name = next((path.name for path in (home / "work" / "runs").glob("quick.*")), "latest")
    records = f"work/runs/{name}/{chance.choice(('manifest.json', 'journal.jsonl', 'summary.json'))}"
    places = ["out.html", "new.json", records, "work/runs/mine", "work"]
    frequent = [
        ["gc"],
        ["gc", "--remove", "--keep", "0"],
        ["gc", "--remove", "--forget", suite[1]],
        ["gc", "processes"],
        ["report", name, "--format", "html", "-o", chance.choice(places)],
        ["report", name, "--save-reference", chance.choice(places)],
        ["bundle", name, "-o", chance.choice(("bundle.zip", records, "work"))],
        ["db", "add", name],
        ["db", "query", "select * from runs"],
        ["install", "--from", f"{supplies}/evil.capsule"],
        ["capsule", "verify", f"{supplies}/evil.capsule"],
        ["init", chance.choice(("work", "fresh"))],
        ["new", "own", "--into", chance.choice(("work/code", "work/benchmarks", "fresh"))],
        ["driver", "--task-name", "t", "--result", chance.choice(("results.json", "work"))],
    ]
    slower = [
        ["install", "--use-current-env", *chance.choice(([], ["--force"])), *suite],
        ["prepare", "--use-current-env", "--select", "own", *suite],
        ["run", "--use-current-env", "--select", "tiny", "--display", "none", *suite],
    ]
    slowest = [
        ["install", "--from", f"{supplies}/good.capsule"],
        ["install", "--select", "own", *chance.choice(([], ["--force"])), *suite],
        ["prepare", "--select", "own", "--display", "none"],
    ]
    (kind,) = chance.choices((frequent, slower, slowest), (94, 4, 2 if ALL else 0))
    return chance.choice(kind)


def perform(commands: Sequence[tuple[list[str], str, int]], home: Path) -> int:
    """Run commands in a fork, up to one that is killed; return how many have ended.

    Each has its strike and the number of the operation at which it comes: `kill`, `full` or nothing.
    """
    ended, said = os.pipe()
    pid = os.fork()
    if pid:
        os.close(said)
        with os.fdopen(ended, "rb") as reader:
            count = len(reader.read())
        os.waitpid(pid, 0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        return min(len(commands), count + 1)
    try:
        os.setpgid(0, 0)
        os.chdir(home)
        os.environ.update({"HOME": str(home), "MILABENCH_BASE": str(home / "work"), "XDG_CACHE_HOME": f"{home}/.cache"})
        quiet = os.open(os.environ.get("OTHERS_FILES_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for descriptor in (1, 2):
            os.dup2(quiet, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        now, when, count = "", 0, 0

        def hook(event: str, values: tuple[object, ...]) -> None:
            nonlocal count
            if not now or event not in OPERATIONS or not isinstance(values[0], str | Path):
                return
            if not str(Path(home, values[0])).startswith(str(home)):
                return
            if event == "open" and not int(str(values[2])) & (os.O_WRONLY | os.O_RDWR):
                return
            count += 1
            if now == "kill" and count == when:
                os.kill(os.getpid(), signal.SIGKILL)
            if now == "full" and count >= when and event in ("open", "os.mkdir", "os.symlink"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), values[0])

        sys.addaudithook(hook)
        for argv, strike, at in commands:
            sys.argv = ["milabench", *argv]
            print("$", *argv, strike and f"# {strike} at {at}", flush=True)
            now, when, count = strike, at, 0
            with contextlib.suppress(SystemExit):
                milabench.cli.main()
            now = ""
            os.write(said, b".")
    finally:
        os._exit(0)


@contextlib.contextmanager
def mounted(source: Path, target: Path) -> Iterator[None]:
    """Mount a folder of the user's inside of ours, where that can be done."""
    words = ["mount", "--bind", str(source), str(target)]
    is_mounted = os.geteuid() == 0 and subprocess.run(words, capture_output=True, check=False).returncode == 0
    try:
        yield
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(target)], check=False)


def sequence(seed: int, supplies: Path) -> list[str]:
    """Run one sequence; return what became of the user's files."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="milabench-others-", ignore_cleanup_errors=True) as name:
        home = Path(name, "home")
        fill(home, supplies / "fetched")
        before = {path: state(path) for path in home.rglob("*")}
        add_ours(home)
        shutil.copytree(supplies / "base" / "cache" / "wheels", home / "work" / "cache" / "wheels", dirs_exist_ok=True)
        done: list[str] = []
        with mounted(home / "mounted", home / "work" / "data" / "gone" / "inner"):
            while len(done) < COMMANDS:
                drawn: list[tuple[list[str], str, int]] = []
                while len(done) + len(drawn) < COMMANDS and "kill" not in (each[1] for each in drawn):
                    strike = chance.choice(("", "", "kill", "full"))
                    drawn.append(
                        (command(chance, home, supplies), strike, chance.choice((1, 2, 3, 5, 8, 13, 21, 34, 60)))
                    )
                count = perform(drawn, home)
                done += [
                    " ".join(argv) + (f" # {strike} at {at}" if strike else "") for argv, strike, at in drawn[:count]
                ]
                if changed := [path for path, was in before.items() if state(path) != was]:
                    return [f"seed {seed}: {path} changed: {'; '.join(done)}" for path in changed]
    return []


def supply(supplies: Path) -> None:
    """Write what all sequences use: a repository, two capsules, tiny wheels of what an environment needs."""
    repository = supplies / "fetched"
    repository.mkdir()
    for file, text in BENCHMARK.items():
        (repository / file).write_text(text)
    repository.with_name("clash").symlink_to(repository)
    for words in ("init -q -b main", "add .", "-c user.name=a -c user.email=a@b commit -q -m a"):
        subprocess.run(["git", *words.split()], cwd=repository, check=True)
    os.environ.update(installable(supplies, supplies / "base")[1])
    capsule(supplies / "good.capsule", supplies)
    forged(supplies / "evil.capsule")


def main() -> None:
    """Run the sequences; print what changed."""
    first, count = map(int, sys.argv[1:])
    for package in (milabench.cli, milabench.workflow):  # once, not in each fork
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    problems = 0
    with tempfile.TemporaryDirectory(prefix="milabench-others-") as name:
        supply(Path(name))
        gc.collect()
        gc.freeze()  # else each fork copies what its first collection touches
        for seed in range(first, first + count):
            lines = sequence(seed, Path(name))
            problems += len(lines)
            print("".join(f"{line}\n" for line in lines), end="", flush=True)
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"{count} sequences, {used:.1f} s of processors", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
