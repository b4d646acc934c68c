"""Installing from a capsule: all of it or nothing, in one line; and what becomes of a run of its suite."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench.capsule.contents import CapsuleManifest, Content, PackedImage, entry_of, write_capsule
from milabench.capsule.install import PLATFORM
from milabench.execute.inventory import benchmate_digest
from milabench.execute.venv_build import benchmate_requirements
from milabench.report.registry import FORMATS
from milabench.version import __version__
from tests.commands import ROOT, Said
from tests.process.install.places import wheel
from tests.processes import CEILING_S, started, until

from .docker import fake_docker
from .installable import BENCHMATE, installable, instruments
from .test_bad_places import disk

WORDS = "import os, pathlib\nassert pathlib.Path(os.environ['MILABENCH_DIR_DATA'], 'tiny', 'words').read_text() == 'packed'\n"
FILES = {
    "benchfile.py": 'from milabench import Benchmark\nbenchmark = Benchmark(script="main.py", voirfile=None)\n',
    "main.py": f"{WORDS}import benchmate, time\n"
    "for _ in benchmate.observed(range(40), units='items/s', batch_size=2):\n    time.sleep(0.002)\n",
    "prepare.py": WORDS,
    "requirements.in": "",
}
SUITE = """\
profile: quick
tiny: {definition: benchmarks/tiny, install_variant: unpinned, max_duration: 120, voir: {options: {skip: 2}}}
"""


@pytest.fixture
def contents(tmp_path: Path) -> tuple[Content, ...]:
    """What such a capsule holds: a suite, its data, tiny wheels, the instruments."""
    made, wheels = tmp_path / "made", tmp_path / "made" / "wheels"
    wheels.mkdir(parents=True)
    for need in benchmate_requirements(BENCHMATE):
        name, _, version = need.replace(">=", "==").partition("==")
        wheel(wheels, name, version)
    instruments(made)
    files = {f"suite/benchmarks/tiny/{name}": text.encode() for name, text in FILES.items()}
    files |= {"suite/suite.yaml": SUITE.encode(), "data/tiny/words": b"packed"}
    files |= {f"wheels/{path.name}": path.read_bytes() for path in wheels.iterdir()}
    files |= {f"benchmate/{path.name}": path.read_bytes() for path in made.glob("*.whl")}
    return tuple(Content(path=path, content=files[path]) for path in sorted(files))


def manifest_of(contents: tuple[Content, ...]) -> CapsuleManifest:
    return CapsuleManifest(
        version=__version__,
        suite="suite/suite.yaml",
        benchmarks=("tiny",),
        platform=PLATFORM,
        glibc="",
        benchmate=benchmate_digest(BENCHMATE),
        files=tuple(map(entry_of, contents)),
    )


@pytest.fixture
def packed(tmp_path: Path, contents: tuple[Content, ...]) -> Path:
    """A capsule that can be installed here."""
    path = tmp_path / "a capsule, with spaces"
    write_capsule(path, manifest_of(contents), contents)
    return path


@pytest.fixture
def with_image(tmp_path: Path, contents: tuple[Content, ...]) -> Path:
    """A capsule whose benchmark runs in the image of a container."""
    path = tmp_path / "with-image"
    suite = SUITE.replace("}}}", "}}, container: {engine: docker, image: mine}}").encode()
    parts = [replace(part, content=suite) if part.path == "suite/suite.yaml" else part for part in contents]
    both = tuple(sorted((*parts, Content(path="images/0.tar", content=b"an image")), key=lambda part: part.path))
    image = PackedImage(engine="docker", image="mine", path="images/0.tar")
    write_capsule(path, replace(manifest_of(both), images=(image,)), both)
    return path


def only_error(said: Said, code: int) -> str:
    assert said.code == code, said
    (line,) = said.err.splitlines()
    return line


def left(base: Path) -> list[str]:
    """What a command has left below a base, but its lock."""
    return sorted(
        path.relative_to(base).as_posix()
        for path in base.rglob("*")
        if path.is_file() and path.name != ".milabench.lock"
    )


@pytest.mark.e2e
def test_a_suite_is_installed_prepared_and_run_and_every_report_names_its_capsule(
    milabench: Callable[..., Said], environ: dict[str, str], packed: Path, contents: tuple[Content, ...]
) -> None:
    said = milabench("install", "--from", str(packed))
    assert said.code == 0, said.err
    words = shlex.split(said.err.split("next: `")[1].split("`")[0])
    said = milabench("prepare")
    assert said.code == 0
    assert "suite.yaml, the last used in " in said.err
    assert milabench(*words[1:], "--display", "none").code == 0
    digest = f"sha256:{manifest_of(contents).digest}"
    for options in ((), ("--full",), *(("--format", name) for name in FORMATS)):
        assert digest in milabench("report", *options).out, options
    assert json.loads(milabench("report", "--json").out)["capsule"] == digest

    again = milabench("install", "--from", str(packed))
    assert again.code == 0
    assert "nothing to do" in again.err

    # What was placed and is gone comes back, from the file.
    (words,) = Path(environ["MILABENCH_BASE"], "cache", "capsules").glob("*/data/tiny/words")
    words.unlink()
    words.parent.rename(words.parent.with_name("elsewhere"))
    assert milabench("install", "--from", str(packed)).code == 0
    assert words.read_text() == "packed"

    assert milabench("prepare").code == 0
    (suite,) = Path(environ["MILABENCH_BASE"], "cache", "capsules").glob("*/suite/suite.yaml")
    suite.write_text(suite.read_text() + "\n")
    said = milabench("run", "--display", "none")
    assert said.code == 6
    assert "suite.yaml: was changed since it was unpacked from a capsule" in said.err.splitlines()[-1]


@pytest.mark.e2e
def test_two_installations_of_one_capsule_at_once_share_what_the_first_has_made(
    environ: dict[str, str], packed: Path
) -> None:
    argv = [sys.executable, "-m", "milabench", "install", "--from", str(packed)]
    pipes: dict[str, Any] = {
        "env": environ,
        "cwd": ROOT,
        "stdin": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    with started(argv, **pipes) as first, started(argv, **pipes) as second:
        said = [process.communicate(timeout=CEILING_S)[1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert sum("unpacking" in text for text in said) == 1
    assert len([path for path in Path(environ["MILABENCH_BASE"], "venv", ".store").iterdir() if path.is_dir()]) == 1


@pytest.mark.e2e
def test_an_image_that_is_gone_comes_back_from_the_file(
    milabench: Callable[..., Said], environ: dict[str, str], with_image: Path, tmp_path: Path
) -> None:
    docker = fake_docker(tmp_path, environ)
    (docker / "go").touch()
    for _ in range(3):
        said = milabench("install", "--from", str(with_image))
        assert said.code == 0, said.err
        assert (docker / "mine").read_text() == "an image"
        (docker / "mine").unlink()
    (home,) = Path(environ["MILABENCH_BASE"], "cache", "capsules").iterdir()
    assert not (home / "images" / "images").exists()


@contextmanager
def next_to_hold(base: Path) -> Iterator[ThreadPoolExecutor]:
    """Wait in the kernel for the lock of a base: who holds it now cannot take it again before we have had it."""
    with ThreadPoolExecutor() as pool, (base / ".milabench.lock").open("r+") as lock:
        pool.submit(fcntl.flock, lock, fcntl.LOCK_EX)
        until(lambda: f"-> FLOCK  ADVISORY  WRITE {os.getpid()} " in Path("/proc/locks").read_text(), "to wait")
        yield pool
        pool.shutdown()


@pytest.mark.slow
def test_what_was_placed_is_in_use_before_another_command_can_have_the_base(
    milabench: Callable[..., Said], environ: dict[str, str], with_image: Path, tmp_path: Path
) -> None:
    docker, base = fake_docker(tmp_path, environ), Path(environ["MILABENCH_BASE"])
    base.mkdir()
    (base / "suites.json").write_text('{"schema": 1, "suites": []}')
    argv = [sys.executable, "-m", "milabench", "install", "--from", str(with_image)]
    with started(argv, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        until((docker / "begun").exists, "the image to be loaded")
        with next_to_hold(base) as waiting:
            (docker / "go").touch()
            waiting.shutdown()
            items = json.loads(milabench("gc", "--json").out)["items"]
        said = process.communicate(timeout=CEILING_S)[1]
    assert process.returncode == 0, said
    (capsule,) = (item for item in items if "/cache/capsules/" in item["path"])
    assert capsule["kept"].startswith("the suite ")
    assert [item["path"] for item in items if item["kept"] is None] == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"platform": "linux-vax"}, f"is for linux-vax, and this machine is {PLATFORM}"),
        ({"glibc": "99.1"}, "needs glibc 99.1 or newer, and this machine has "),
        (
            {"benchmate": "1" * 64, "version": "0.0.1"},
            "is of milabench 0.0.1, with other instruments than this milabench",
        ),
    ],
)
def test_a_capsule_for_another_machine_or_milabench_is_one_line_and_nothing_is_installed(
    milabench: Callable[..., Said],
    environ: dict[str, str],
    tmp_path: Path,
    contents: tuple[Content, ...],
    changes: dict[str, str],
    says: str,
) -> None:
    path = tmp_path / "foreign"
    write_capsule(path, replace(manifest_of(contents), **changes), contents)  # type: ignore[arg-type]
    line = only_error(milabench("install", "--from", str(path)), 4)
    assert line.startswith(f"error: {path}: {says}")
    assert not Path(environ["MILABENCH_BASE"]).exists()


def test_half_a_capsule_and_an_altered_one_are_one_line_and_nothing_is_installed(
    milabench: Callable[..., Said], environ: dict[str, str], packed: Path
) -> None:
    base = Path(environ["MILABENCH_BASE"])
    whole = packed.read_bytes()
    packed.write_bytes(whole[: len(whole) // 2])
    assert "is truncated: " in only_error(milabench("install", "--from", str(packed)), 6)
    assert "is truncated: " in only_error(milabench("capsule", "verify", str(packed)), 6)
    assert not base.exists()
    packed.write_bytes(whole.replace(b"max_duration: 120", b"max_duration: 121"))
    said = milabench("install", "--from", str(packed))
    assert said.code == 6
    assert said.err.splitlines()[-1].startswith(f"error: {packed}: was altered: suite/suite.yaml differs")
    assert "was altered: " in only_error(milabench("capsule", "verify", str(packed)), 6)
    assert left(base) == []


def test_the_wrong_file_is_one_line(milabench: Callable[..., Said], tmp_path: Path) -> None:
    for path, code in ((ROOT / "README.md", 6), (tmp_path / "none", 6), (Path("/dev/zero"), 6), (ROOT, 2)):
        for verb in (("capsule", "show"), ("install", "--from")):
            said = milabench(*verb, str(path))
            assert said.code in (code, 6), (verb, said)
            assert said.err.splitlines()[-1].startswith("error: ")


def test_options_that_contradict_a_capsule_are_refused(milabench: Callable[..., Said], packed: Path) -> None:
    for more in (("--config", "quickstart"), ("--update",), ("--use-current-env",)):
        assert more[0] in only_error(milabench("install", "--from", str(packed), *more), 2)


def test_a_system_of_other_machines_is_refused_before_anything_is_unpacked(
    milabench: Callable[..., Said], environ: dict[str, str], packed: Path, tmp_path: Path
) -> None:
    system = tmp_path / "system.yaml"
    system.write_text("system:\n  nodes:\n  - {name: far, ip: 192.0.2.1, main: true}\n")
    options = ("--system", str(system), "--override", "tiny.max_duration=60")
    line = only_error(milabench("install", "--from", str(packed), *options), 2)
    assert line.startswith("error: --from installs on this machine only")
    assert not Path(environ["MILABENCH_BASE"]).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_a_disk_that_is_too_small_is_one_line_and_what_was_unpacked_is_removed(
    milabench: Callable[..., Said], packed: Path, tmp_path: Path
) -> None:
    base = tmp_path / "small"
    with disk(base, "256k"):
        said = milabench("install", "--from", str(packed), "--base", str(base))
        assert said.code == 4
        assert "are needed here, and " in said.err.splitlines()[-1]
        assert left(base) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_installation_leaves_nothing_half_unpacked(
    environ: dict[str, str], tmp_path: Path, contents: tuple[Content, ...], number: int
) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(2 * 2**30)
    path = tmp_path / "capsule"
    parts = (*contents, Content(path="wheels/zeros", content=big))
    # Its content is not what its manifest says, which is found at its end only.
    manifest = replace(
        manifest_of(contents),
        files=(*map(entry_of, contents), replace(entry_of(Content(path="wheels/zeros")), size=2 * 2**30)),
    )
    with path.open("wb") as file:
        file.write(manifest.own.header + manifest.content + manifest.own.padding)
        for entry, content in zip(manifest.files, parts, strict=True):
            file.write(entry.header)
            if isinstance(content.content, bytes):
                file.write(content.content + entry.padding)
        file.truncate(manifest.size)
    argv = [sys.executable, "-m", "milabench", "install", "--from", str(path)]
    home = Path(
        environ["MILABENCH_BASE"], "cache", "capsules", f".{manifest.digest[:16]}.unpacking", manifest.digest[:16]
    )
    with started(argv, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        until((home / "wheels" / "zeros").exists, "the large file")
        process.send_signal(number)
        said = process.communicate(timeout=CEILING_S)[1]
    assert process.returncode == 130, said
    assert left(Path(environ["MILABENCH_BASE"])) == []


def changed(contents: tuple[Content, ...], path: str, content: bytes) -> tuple[Content, ...]:
    """The contents, one of them replaced or added."""
    others = [part for part in contents if part.path != path]
    return tuple(sorted((*others, Content(path=path, content=content)), key=lambda part: part.path))


def test_a_suite_that_moves_folders_is_found_and_moves_none(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path, contents: tuple[Content, ...]
) -> None:
    home = tmp_path / "somebody"
    home.mkdir()
    (home / ".bashrc").write_text("mine")
    suite = f"{SUITE}system: {{dirs: {{data: '{home}', code: '{home}'}}}}\n".encode()
    parts = changed(changed(contents, "suite/suite.yaml", suite), "data/.bashrc", b"theirs")
    path = tmp_path / "evil"
    write_capsule(path, manifest_of(parts), parts)
    verified = only_error(milabench("capsule", "verify", str(path)), 6)
    assert verified == f"error: {path}: suite/suite.yaml: moves folders (system.dirs), which a capsule may not: refused"
    assert milabench("install", "--from", str(path)).code == 0
    assert [(file.name, file.read_text()) for file in home.iterdir()] == [(".bashrc", "mine")]
    assert milabench("capsule", "show", str(path)).out.splitlines()[-1].startswith("  It is code that will run: ")


@pytest.mark.parametrize("name", ["sitecustomize.pyc", "sitecustomize.py", "benchmate/x.pth"])
def test_instruments_with_more_than_theirs_are_found_and_reach_no_other_suite(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path, contents: tuple[Content, ...], name: str
) -> None:
    (wheel_of,) = (part for part in contents if part.path.startswith("benchmate/"))
    assert isinstance(wheel_of.content, bytes)
    file = io.BytesIO(wheel_of.content)
    with zipfile.ZipFile(file, "a") as packed:
        packed.writestr(name, b"evil")
    parts = changed(contents, wheel_of.path, file.getvalue())
    path = tmp_path / "evil"
    write_capsule(path, manifest_of(parts), parts)
    assert f"holds '{name}', no part of the instruments" in only_error(milabench("capsule", "verify", str(path)), 6)
    assert milabench("install", "--from", str(path)).code == 4
    base = Path(environ["MILABENCH_BASE"])
    assert not (base / "cache" / "wheels").exists()
    assert [file.name for file in base.glob("venv/.store/*/lib/python*/site-packages/sitecustomize*")] == []


@pytest.mark.slow
def test_what_only_a_capsule_vouches_for_serves_no_other_suite(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path, contents: tuple[Content, ...]
) -> None:
    """A lock without hashes: the same text, and so the same digest, stands for packages of another origin."""
    _, variables, _ = installable(tmp_path, environ["MILABENCH_BASE"])
    environ |= variables
    requirement = FILES | {"requirements.in": "tool==1\n"}
    for folder, more in ((tmp_path / "theirs", {"evil.py": "evil = 1\n"}), (tmp_path / "wheels", {})):
        folder.mkdir(exist_ok=True)
        wheel(folder, "tool", "1", more=more)
    evil = next((tmp_path / "theirs").glob("*.whl"))
    parts = changed(contents, f"wheels/{evil.name}", evil.read_bytes())
    parts = changed(parts, "suite/benchmarks/tiny/requirements.in", requirement["requirements.in"].encode())
    path = tmp_path / "evil"
    write_capsule(path, manifest_of(parts), parts)
    own = tmp_path / "own"
    own.mkdir()
    for name, text in requirement.items():
        (own / name).write_text(text)
    (tmp_path / "own.yaml").write_text(SUITE.replace("benchmarks/tiny", "own"))

    assert milabench("install", "--from", str(path)).code == 0
    (environment,) = (each for each in Path(environ["MILABENCH_BASE"], "venv", ".store").iterdir() if each.is_dir())
    assert list(environment.rglob("evil.py"))
    said = milabench("install", "--config", str(tmp_path / "own.yaml"))
    assert said.code == 0, said.err
    assert [each for each in environment.parent.iterdir() if each.is_dir()] == [environment]
    assert not list(environment.rglob("evil.py"))
    assert "nothing to do" in milabench("install", "--from", str(path)).err  # with what is there now
