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


def main(folder: Path, wheels: Path) -> int:
    """Make the environment anew, in a second or two."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    version = sys.version_info[:2]
    count = 0
    for wheel in sorted(wheels.glob("*.whl")):
        if fits(wheel.name, version):
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
