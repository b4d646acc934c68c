"""The environment of `make gpu`: what the current Python has, the wheels of a folder, and milabench from this checkout.

Nothing is fetched: wheels are unpacked, which needs neither pip nor a network. Standard library only.
"""

from __future__ import annotations

import re
import shutil
import site
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def fits(name: str, version: tuple[int, int]) -> bool:
    """Return whether a wheel of this name is for that version of Python, by its tags."""
    pythons, abis = name.removesuffix(".whl").split("-")[-3:-1]
    own = "{}{}".format(*version)
    for python in pythons.split("."):
        older = re.fullmatch(r"cp3(\d+)", python)
        if python in ("py3", f"py{own}", f"cp{own}") or (
            "abi3" in abis.split(".") and older and int(older[1]) <= version[1]
        ):
            return True
    return False


def unpack(wheel: Path, into: Path) -> None:
    """Unpack a wheel into a folder of packages; what its `.data` folder has for packages goes there, too."""
    with zipfile.ZipFile(wheel) as zipped:
        for member in zipped.infolist():
            moved = re.sub(r"^[^/]+\.data/(?:purelib|platlib)/", "", member.filename)
            path = (into / moved).resolve()
            if not path.is_relative_to(into.resolve()):
                raise SystemExit(f"error: {wheel.name}: {member.filename} would land outside")
            if not member.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(zipped.read(member))


def normal(name: str) -> str:
    """Return the name of a distribution as all spellings of it have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(wheel: Path) -> set[str]:
    """Return which distributions a wheel needs always: those that its metadata names without a condition."""
    with zipfile.ZipFile(wheel) as zipped:
        path = next(name for name in zipped.namelist() if name.endswith(".dist-info/METADATA"))
        head = zipped.read(path).decode("utf-8", "replace").partition("\n\n")[0]
    return {normal(name) for name in re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", head, re.MULTILINE)}


def usable(wheels: list[Path], there: set[str]) -> dict[Path, set[str]]:
    """Return the wheels, each with what it lacks beside the others and what is there: nothing where it can be used.

    A package that cannot be imported is worse than none: others look whether it is installed, and then import it.
    """
    lacking: dict[Path, set[str]] = {wheel: set() for wheel in wheels}
    while True:
        found = there | {normal(wheel.name.split("-")[0]) for wheel in wheels if not lacking[wheel]}
        now = {wheel: needs(wheel) - found for wheel in wheels}
        if now == lacking:
            return lacking
        lacking = now


def main(folder: Path, wheels: Path) -> int:
    """Make the environment anew, in a second or two."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    version = sys.version_info[:2]
    there = {normal(str(known.metadata["Name"])) for known in metadata.distributions()}
    count = 0
    for wheel, lacking in usable(
        [one for one in sorted(wheels.glob("*.whl")) if fits(one.name, version)], there
    ).items():
        if lacking:
            print(f"left out: {wheel.name.split('-')[0]}, which needs {', '.join(sorted(lacking))}")
        else:
            unpack(wheel, packages)
            count += 1
    # Packages of the wheels come before those of the current Python; this checkout is what is run.
    current = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    lines = [str(ROOT / "orchestrator"), str(ROOT / "benchmate" / "src")]
    lines += [f"import site; site.addsitedir({path!r})" for path in current]
    (packages / "gpu.pth").write_text("\n".join(lines) + "\n")
    print(f"{folder}: {count} wheels of {wheels}, and the packages of {sys.prefix}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
