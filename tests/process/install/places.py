"""Tiny packages, made here, so that installing them needs no network and no time."""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from milabench.execute.activities import Activities
from milabench.execute.install_session import Installed, InstallOptions
from milabench.execute.inventory import benchmate_digest
from milabench.execute.venv import install_venvs
from milabench.plan.context import Dirs, dirs_under
from milabench.plan.requirements import RequirementFile
from milabench.plan.venvs import VenvRequest, VenvSpec, plan_venvs

# A build backend that needs nothing, so that building needs no network either.
BACKEND = """
import base64, hashlib, pathlib, zipfile
METADATA = "Metadata-Version: 2.1\\nName: benchmate\\nVersion: 0.1\\nRequires-Dist: voir\\n"
WHEEL = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
def build_wheel(into, config_settings=None, metadata_directory=None):
    name = "benchmate-0.1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(into) / name, "w") as wheel:
        wheel.writestr("benchmate/__init__.py", pathlib.Path("src/benchmate/__init__.py").read_text())
        info = "benchmate-0.1.dist-info"
        wheel.writestr(f"{info}/METADATA", METADATA)
        wheel.writestr(f"{info}/WHEEL", WHEEL)
        digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read("benchmate/__init__.py")).digest()).decode().rstrip("=")
        size = wheel.getinfo("benchmate/__init__.py").file_size
        wheel.writestr(f"{info}/RECORD", f"benchmate/__init__.py,sha256={digest},{size}\\n")
    return name
"""


def recorded(text: str) -> str:
    """Digest and size of a file, as a wheel's RECORD lists them."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    return f"sha256={digest},{len(text.encode())}"


def wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    needs: tuple[str, ...] = (),
    content: str = "",
    info: str = "",
    more: Mapping[str, str] | None = None,
) -> str:
    """Write a wheel with one module and `more` files by their paths; its sha256."""
    module = name.replace("-", "_")
    home = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{info}" + "".join(
        f"Requires-Dist: {n}\n" for n in needs
    )
    members = {
        f"{module}/__init__.py": content or f"__version__ = {version!r}\n",
        **(more or {}),
        f"{home}/METADATA": metadata,
        f"{home}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{member},{recorded(text)}\n" for member, text in members.items()) + f"{home}/RECORD,,\n"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for member, text in {**members, f"{home}/RECORD": record}.items():
            packed.writestr(zipfile.ZipInfo(member, (2020, 1, 1, 0, 0, 0)), text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder of wheels, the user's environment, a base folder, and the instruments' project."""

    base: Path
    wheels: Path
    benchmate: Path
    environ: Mapping[str, str]
    said: list[str] = field(default_factory=list)

    def lock(self, *pins: str) -> str:
        """A hashed lock of `name==version` pins, and of what benchmate needs."""
        lines = []
        for pin in (*pins, "voir==1"):
            name, _, version = pin.partition("==")
            file = self.wheels / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
            lines.append(f"{pin} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n")
        return "".join(lines)

    def spec(
        self,
        text: str,
        *,
        group: str = "g",
        variant: str = "cpu",
        constraints: str = "",
        python: str = "",
        pip: Mapping[str, str] | None = None,
        required: tuple[str, ...] | None = (),
    ) -> VenvSpec:
        """The environment of one benchmark with this requirement file, of which it imports the `required` packages."""
        request = VenvRequest(
            bench="b",
            group=group,
            variant=variant,
            requirements=(RequirementFile(name=f"b/requirements.{variant}.txt", text=text),),
            constraints=RequirementFile(name="constraints.txt", text=constraints) if constraints else None,
            pip={"find-links": str(self.wheels), "no-index": "true"} if pip is None else pip,
            required=required,
        )
        running = f"{sys.version_info.major}.{sys.version_info.minor}"
        digest = benchmate_digest(self.benchmate)
        return plan_venvs([request], benchmate=digest, python=running, platform="linux-x86_64")[0]

    @property
    def dirs(self) -> Dirs:
        """The folders below the base."""
        return dirs_under(str(self.base), {})

    def options(self, **changes: object) -> InstallOptions:
        """How to install: with uv, and none of the machine's own pip settings."""
        given = {"benchmate": str(self.benchmate), "environ": self.environ, "pip": {}, "jobs": 2, **changes}
        return InstallOptions(**given)  # type: ignore[arg-type]

    def install(self, *specs: VenvSpec, **changes: object) -> tuple[Installed, ...]:
        """Install, and keep what was reported."""
        return install_venvs(specs, self.dirs, self.options(**changes), Activities(self.said.append))


@dataclass(frozen=True, kw_only=True)
class Index:
    """A package index on the loopback."""

    url: str
    stop: Callable[[], None]
