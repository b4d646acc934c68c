"""A benchmark that is installed into an environment of its own, without a network: its packages are tiny wheels."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

from milabench.execute.inventory import benchmate_digest
from milabench.execute.venv_build import benchmate_requirements
from tests.commands import ROOT
from tests.process.install.places import recorded, wheel

BENCHMATE = ROOT / "benchmate"
MAIN = """\
import pathlib, time
import benchmate
here = pathlib.Path(__file__).parent.with_name("flags")
(here / "up").touch()
while not (here / "go").exists():
    time.sleep(0.02)
for _ in benchmate.observed(range(40), units="items/s", batch_size=2):
    time.sleep(0.002)
"""
PREPARE = """\
import pathlib, time
here = pathlib.Path(__file__).parent.with_name("flags")
with (here / "prepared").open("a") as times:
    times.write("once\\n")
while not (here / "go").exists():
    time.sleep(0.02)
"""
SUITE = """\
profile: quick
timed: {definition: timed, install_group: timed, install_variant: unpinned, max_duration: 120, weight: 1.0, tags: [t],
        voir: {options: {skip: 2}}}
"""


def installable(folder: Path, base: str | Path) -> tuple[tuple[str, ...], dict[str, str], Path]:
    """The options that name such a suite, the variables with which it can be installed, a folder.

    `prepare.py` and `main.py` of its benchmark wait until that folder has a file `go`; `main.py` first makes `up` there.
    """
    wheels, bench, flags = folder / "wheels", folder / "timed", folder / "flags"
    for made in (wheels, bench, flags):
        made.mkdir(exist_ok=True)
    for need in benchmate_requirements(BENCHMATE):
        name, _, version = need.replace(">=", "==").partition("==")
        wheel(wheels, name, version)
    for name, text in {
        "benchfile.py": 'from milabench import Benchmark\nbenchmark = Benchmark(script="main.py", voirfile=None)\n',
        "main.py": MAIN,
        "prepare.py": PREPARE,
        "requirements.in": "",
    }.items():
        (bench / name).write_text(text)
    (folder / "suite.yaml").write_text(SUITE)
    kept = Path(base, "cache", "wheels", f"benchmate-{benchmate_digest(BENCHMATE)[:16]}")
    if not kept.exists():
        kept.mkdir(parents=True)
        instruments(kept)
    variables = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "UV_CACHE_DIR": str(folder / "uv-cache"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return ("--config", str(folder / "suite.yaml")), variables, flags


def instruments(folder: Path) -> None:
    """Write the wheel that a build of benchmate makes; a build needs its backend from an index."""
    info = "benchmate-0.1.0.dist-info"
    source = BENCHMATE / "src"
    members = {
        file.relative_to(source).as_posix(): file.read_text()
        for file in sorted(source.rglob("*"))
        if file.is_file() and file.suffix in (".py", ".typed") and "__pycache__" not in file.parts
    }
    needs = "".join(f"Requires-Dist: {need}\n" for need in benchmate_requirements(BENCHMATE))
    members[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: benchmate\nVersion: 0.1.0\n{needs}"
    members[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{name},{recorded(text)}\n" for name, text in members.items()) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / "benchmate-0.1.0-py3-none-any.whl", "w") as packed:
        for name, text in {**members, f"{info}/RECORD": record}.items():
            packed.writestr(name, text)


REPORT = """\
import pathlib, sys
import benchmate, tool
(pathlib.Path(__file__).parent / "saw").write_text(f"{sys.prefix} {tool.__version__}")
for _ in benchmate.observed(range(8), units="items/s", batch_size=2):
    pass
"""
SHARING = """\
profile: quick
{name}: {{definition: {name}, install_group: shared, install_variant: unpinned, max_duration: 120, weight: 1.0}}
"""


@dataclass(frozen=True)
class Pair:
    """Two suites, `a` and `b`, that share the name of an environment, but not the version of a package in it."""

    folder: Path
    base: Path

    def config(self, name: str) -> tuple[str, str]:
        """The options that name a suite."""
        return ("--config", str(self.folder / f"{name}.yaml"))

    def saw(self, name: str) -> tuple[str, str]:
        """The environment in which the benchmark of a suite ran last, and the version of the package there."""
        prefix, _, version = (self.folder / name / "saw").read_text().rpartition(" ")
        return prefix, version


def sharing(folder: Path, base: str | Path) -> tuple[Pair, dict[str, str]]:
    """Such suites, `a` with version 1 and `b` with version 2, and the variables with which they can be installed."""
    _, variables, _ = installable(folder, base)
    for name, version in (("a", "1"), ("b", "2")):
        wheel(folder / "wheels", "tool", version)
        own = folder / name
        own.mkdir()
        (own / "benchfile.py").write_text((folder / "timed" / "benchfile.py").read_text())
        (own / "main.py").write_text(REPORT)
        (own / "prepare.py").write_text("")
        (own / "requirements.in").write_text(f"tool=={version}\n")
        (folder / f"{name}.yaml").write_text(SHARING.format(name=name))
    return Pair(folder=folder, base=Path(base)), variables
