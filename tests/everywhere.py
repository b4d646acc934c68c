"""Runs the tests in fresh clones of this checkout: as several users, in several places, on several Pythons, beside load.

    python tests/everywhere.py                        # every row; see --list
    python tests/everywhere.py --only private,py3.14  # these rows
    python tests/everywhere.py --only user --tests "-n 2 tests/unit/config"
    python tests/everywhere.py --only root --times 20 --load 8

Each row has a clone of the commit that is checked out, an environment made there, an empty HOME and only the variables that a
new login has, with those by which this machine reaches packages. Of the tests that take turns a row runs a third, the next row
the next third (tests/turns.py); `--all` runs all of them in each row. Root runs each row in a mount namespace of its own: the
ordinary user and the programs that are hidden exist, or do not, in there only. Ends with 1 when a row failed, and with 2 when
none ran.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- everywhere -->\n", "<!-- /everywhere -->\n"
HEADINGS = (
    "row",
    "user",
    "folder",
    "shell",
    "without",
    "Python",
    "load",
    "tests",
    "passed",
    "skipped",
    "failed",
    "seconds",
    "on",
)
TESTS = HEADINGS.index("tests")

# The programs whose absence hides a package; Debian's names.
PACKAGES = {
    "openssh-server": ("sshd",),
    "slurm": ("slurmctld", "slurmd", "slurmdbd", "sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo", "sacct"),
    "openmpi-bin": ("mpirun", "mpiexec", "orterun"),
}
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
LOGIN = ("milabench-tester", 54321)
"""The ordinary user that root becomes: a name and a number, which exist in the row's mount namespace only."""

_LOOK_S = 5.0
UV_PYTHONS = Path.home() / ".local" / "share" / "uv" / "python"
FOR_PACKAGES = re.compile(r"(PIP|UV)_.*|.*_proxy|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE", re.IGNORECASE)
COUNTED = re.compile(r"(\d+) (passed|skipped|failed|errors?)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Who runs the tests, where and how. `python` is a version; without one it is that of this program.

    `load` is how many other processes keep processors busy meanwhile.
    """

    name: str
    user: Literal["root", "ordinary"] = "root"
    folder: Literal["plain", "private", "spaced", "read-only"] = "plain"
    shell: Literal["terminal", "background"] = "terminal"
    without: tuple[str, ...] = ()
    python: str = ""
    load: int = 0


LOAD = 4
"""Busy processes, so that with the tests' own the load average is about 8."""
ROWS = (
    Row(name="root"),
    Row(name="private", folder="private"),
    Row(name="spaced", folder="spaced"),
    Row(name="background", shell="background"),
    Row(name="user", user="ordinary"),
    Row(name="user-private", user="ordinary", folder="private"),
    Row(name="user-spaced", user="ordinary", folder="spaced"),
    Row(name="user-read-only", user="ordinary", folder="read-only"),
    Row(name="user-background", user="ordinary", shell="background"),
    Row(name="no-sshd", without=("openssh-server",)),
    Row(name="no-slurm", without=("slurm",)),
    Row(name="no-mpi", without=("openmpi-bin",)),
    Row(name="bare", user="ordinary", without=tuple(PACKAGES)),
    *(Row(name=f"py{version}", python=version) for version in ("3.11", "3.12", "3.13", "3.14")),
    Row(name="busy", load=LOAD),
    Row(name="user-busy", user="ordinary", load=LOAD),
    Row(name="background-busy", shell="background", load=LOAD),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a row: the numbers of tests, and the names of those that failed. `load` is the mean load average."""

    code: int
    seconds: float
    load: float
    counts: dict[str, int]
    failed: tuple[str, ...]


def user_of(row: Row) -> tuple[str, int]:
    """The name and the number of the user that a row has."""
    if os.geteuid() != 0 or row.user == "root":
        return os.environ.get("USER") or os.environ.get("LOGNAME") or "root", os.geteuid()
    return LOGIN


def inside(row: Row, scratch: Path) -> list[str]:
    """The words before a command that make it run as a row's user, with the row's programs hidden."""
    if os.geteuid() != 0:
        return []
    lines = []
    name, number = user_of(row)
    if row.user == "ordinary":
        entries = {
            "passwd": f"{name}:x:{number}:{number}::{scratch / 'home'}:/bin/sh\n",
            "group": f"{name}:x:{number}:\n",
        }
        for file, entry in entries.items():
            (scratch / file).write_text(Path("/etc", file).read_text() + entry)
            (scratch / file).chmod(0o644)
            lines.append(f"mount --bind {shlex.quote(str(scratch / file))} /etc/{file}")
    for program in (program for package in row.without for program in PACKAGES[package]):
        for found in programs(program):
            lines.append(f"mount --bind /dev/null {shlex.quote(found)}")
    become = f"setpriv --reuid={number} --regid={number} --clear-groups --" if number else ""
    return ["unshare", "--mount", "sh", "-c", "; ".join(["set -e", *lines, f'exec {become} "$@"']), "sh"]


def programs(name: str) -> list[str]:
    """The files that a program's name leads to, in any folder of PATH and where only administrators look."""
    folders = dict.fromkeys(f"{os.environ.get('PATH', '')}:{SBIN}".split(":"))
    return list(
        dict.fromkeys(os.path.realpath(found) for folder in folders if (found := shutil.which(name, path=folder)))
    )


def python_of(row: Row, more: Sequence[str]) -> tuple[str, str]:
    """A Python of the row's version that its user can make environments with, "" when there is none; and its version."""
    version = row.python or ".".join(map(str, sys.version_info[:2]))
    known = ["" if row.python else os.path.realpath(sys.executable), *more, *programs(f"python{version}")]
    for folder in (Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions"), UV_PYTHONS):
        known += map(str, sorted(folder.glob(f"*{version}[.-]*/bin/python{version}")))
    probe = "import platform, venv, ensurepip; print(platform.python_version())"
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        # From a shell, as make does it: setpriv itself may be allowed more.
        before = [*inside(row, Path(scratch)), "sh", "-c", '"$0" -c "$1"']
        for candidate in filter(None, known):
            done = subprocess.run([*before, candidate, probe], capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout.startswith(f"{version}."):
                return candidate, done.stdout.strip()
    return "", version


def variables(row: Row, home: Path) -> dict[str, str]:
    """The environment of a new login, with what this machine needs to reach packages."""
    name = user_of(row)[0]
    kept = {key: value for key, value in os.environ.items() if key == "PATH" or FOR_PACKAGES.fullmatch(key)}
    return {
        **kept,
        "HOME": str(home),
        "USER": name,
        "LOGNAME": name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "xterm",
    }


def clone(row: Row, scratch: Path) -> Path:
    """A clone of the commit that is checked out, in the row's kind of folder, with an empty home next to it."""
    scratch.chmod(0o755)
    parent = scratch / ("a folder with spaces" if row.folder == "spaced" else "folder")
    for folder in (parent, scratch / "home"):
        folder.mkdir()
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, parent / "milabench"], check=True)
    if (number := user_of(row)[1]) != os.geteuid():
        subprocess.run(["chown", "-R", f"{number}:{number}", parent, scratch / "home"], check=True)
    if row.folder == "private":
        parent.chmod(0o700)
    if row.folder == "read-only":
        os.chown(parent, os.geteuid(), -1)
        parent.chmod(0o555)
    return parent / "milabench"


def in_terminal(argv: Sequence[str], cwd: Path, env: dict[str, str], log: Path) -> int:
    """Run a command as one that is typed: in a session with a terminal. Return its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execvpe(argv[0], argv, env)
    with log.open("wb") as file, contextlib.suppress(OSError):  # a terminal whose programs have ended cannot be read
        while said := os.read(terminal, 1 << 16):
            file.write(said)
            file.flush()
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_background(argv: Sequence[str], cwd: Path, env: dict[str, str], log: Path) -> int:
    """Run a command as a script does in the background: without a terminal, SIGINT and SIGQUIT ignored."""
    with log.open("wb") as file:
        words = ["sh", "-c", '"$@" & wait "$!"', "sh", *argv]
        options = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
        return subprocess.run(words, cwd=cwd, env=env, start_new_session=True, check=False, **options).returncode


def run(row: Row, python: str, tests: str, target: str, log: Path, keep: bool) -> Result:
    """Run a row's tests, those of the `target` of make where `tests` is empty; what they say goes to `log`."""
    scratch = Path(tempfile.mkdtemp(prefix="mb-everywhere-"))
    began = time.monotonic()
    try:
        checkout = clone(row, scratch)
        make = f"make PYTHON={shlex.quote(python)}"
        script = f"{make} .venv/.dev && .venv/bin/python -m pytest {tests}" if tests else f"{make} {target}"
        start = in_terminal if row.shell == "terminal" else in_background
        argv = [*inside(row, scratch), "sh", "-c", script]
        with load(row.load) as averages:
            code = start(argv, checkout, variables(row, scratch / "home"), log)
    finally:
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)
    text = re.sub(r"\x1b\[[\d;]*m", "", log.read_text(errors="replace"))
    counts: dict[str, int] = {}
    for line in re.findall(r"^.*\d+ \w+.* in [\d.]+s.*$", text, re.MULTILINE):
        for number, word in COUNTED.findall(line):
            counts[word.rstrip("s") if word.startswith("error") else word] = counts.get(word, 0) + int(number)
    failed = dict.fromkeys(re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE))
    seconds = time.monotonic() - began
    return Result(code=code, seconds=seconds, load=fmean(averages), counts=counts, failed=tuple(failed))


@contextlib.contextmanager
def load(processes: int) -> Iterator[list[float]]:
    """Keep so many processes busy meanwhile, and look at the load average of a minute all the time."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    averages, is_over = [os.getloadavg()[0]], threading.Event()

    def look() -> None:
        while not is_over.wait(_LOOK_S):
            averages.append(os.getloadavg()[0])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield averages
    finally:
        is_over.set()
        looking.join()
        for process in busy:
            process.kill()
            process.wait()


def cells(row: Row, python: str, tests: str, results: Sequence[Result]) -> tuple[str, ...]:
    """A line of the table. Its seconds are of the slowest time, its load is the mean load average."""
    passed, skipped, failed, errors = (
        sum(result.counts.get(word, 0) for result in results) for word in ("passed", "skipped", "failed", "error")
    )
    code = max((abs(result.code) for result in results), default=0)
    return (
        row.name,
        row.user,
        row.folder,
        row.shell,
        ", ".join(row.without) or "-",
        python,
        f"{fmean(result.load for result in results):.0f}",
        tests + (f", {len(results)} times" if len(results) > 1 else ""),
        f"{passed:,}",
        f"{skipped:,}",
        f"{failed + errors:,}" if failed + errors or not code else f"exit code {code}",
        f"{max(result.seconds for result in results):.0f}",
        datetime.datetime.now().astimezone().date().isoformat(),
    )


def write(lines: Sequence[tuple[str, ...]]) -> None:
    """Put lines into the table of the page; those of rows that did not run stay."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    shown = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in old.splitlines()[2:]]
    new = {(line[0], line[TESTS]): line for line in (*shown, *lines)}
    order = [row.name for row in ROWS]
    body = sorted(new.values(), key=lambda line: (order.index(line[0]), line[TESTS]))
    table = [HEADINGS, ("---",) * len(HEADINGS), *body]
    text = "".join(f"| {' | '.join(line)} |\n" for line in table)
    PAGE.write_text(f"{before}{BEGIN}{text}{END}{after}")


def main(words: list[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the rows")
    parser.add_argument("--only", default="", metavar="ROWS", help="names with commas between them")
    parser.add_argument("--tests", default="", metavar="ARGUMENTS", help="of pytest: run these instead of `make test`")
    parser.add_argument("--all", action="store_true", help="run all tests in each row, instead of a third in turn")
    parser.add_argument(
        "--python", action="append", default=[], metavar="PATH", help="a Python to try first for its version"
    )
    parser.add_argument("--times", type=int, default=1, metavar="N", help="run each row so many times")
    parser.add_argument("--load", type=int, metavar="N", help="keep so many processes busy meanwhile, in each row")
    parser.add_argument(
        "--logs", type=Path, default=Path("everywhere"), help="folder of the outputs (default: %(default)s)"
    )
    parser.add_argument("--keep", action="store_true", help="leave the clones")
    parser.add_argument("--write", action="store_true", help="put the rows that ran into the table of CONTRIBUTING.md")
    options = parser.parse_args(words)
    chosen = set(filter(None, options.only.split(",")))
    if unknown := chosen - {row.name for row in ROWS}:
        parser.error(f"--only: unknown row {', '.join(sorted(unknown))}; see --list")
    rows = [row for row in ROWS if not chosen or row.name in chosen]
    if options.load is not None:
        rows = [replace(row, load=options.load) for row in rows]
    if options.list:
        for row in rows:
            print(f"{row.name:16} {row.user:9} {row.folder:10} {row.shell:11} {row.python:5} {' '.join(row.without)}")
        return 0
    options.logs.mkdir(exist_ok=True)
    shown = f"`{options.tests}`" if options.tests else "all" if options.all else "a third"
    turns = itertools.count()
    lines, not_run, has_failed = list[tuple[str, ...]](), list[str](), False
    for row in rows:
        python, version = python_of(row, options.python)
        if os.geteuid() != 0 and (row.user == "root" or row.without):
            not_run.append(f"{row.name} (needs root)")
        elif not python:
            not_run.append(f"{row.name} (no Python {version} that {user_of(row)[0]} can make environments with)")
        else:
            results = []
            for number in range(1, options.times + 1):
                log = options.logs / f"{row.name}-{number}.log"
                print(f"== {row.name}: {python}; output in {log}", flush=True)
                target = f"test {'ALL=1' if options.all else f'TURN={next(turns)}'}"
                results.append(run(row, python, options.tests, target, log.resolve(), options.keep))
                print(*(f"FAILED {test}" for test in results[-1].failed), sep="\n", flush=True)
                has_failed |= results[-1].code != 0
            lines.append(cells(row, version, shown, results))
            print(" | ".join(lines[-1]), flush=True)
            if options.write:
                write(lines)
    if not_run:
        print(f"not run: {', '.join(not_run)}")
    return 1 if has_failed else 0 if lines else 2


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
