"""What the recipes of images would do in a container, done in a folder: their commands, with `/opt/milabench` elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from milabench.images.recipe import FOLDER

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
INSTRUCTIONS = [
    "COMMENT",
    "FROM",
    "LABEL",
    "LABEL",
    "LABEL",
    "LABEL",
    "COPY",
    "RUN",
    "ENV",
    "WORKDIR",
    "ENTRYPOINT",
    "CMD",
]


def ran(*argv: str | Path, cwd: Path, environ: Mapping[str, str] | None = None) -> str:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(list(map(str, argv)), cwd=cwd, env=environ, text=True, check=False, **pipes)
    assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}"
    return done.stdout


def milabench(*argv: str | Path, cwd: Path) -> str:
    return ran(sys.executable, "-m", "milabench", *argv, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("wheel")
    ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", into, cwd=ROOT)
    [made] = into.iterdir()
    return made


@pytest.fixture
def image(wheel: Path, tmp_path: Path) -> Path:
    """What stands for the folder of milabench in an image, with the wheel that the recipe copies into it."""
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / wheel.name).write_bytes(wheel.read_bytes())
    return folder


@pytest.fixture
def inside(image: Path, tmp_path: Path) -> dict[str, str]:
    """The variables of a container: nothing of ours, and a home that is empty."""
    kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "SSL_", "http", "LANG"))}
    (tmp_path / "home").mkdir()
    python = tmp_path / "bin"
    python.mkdir()
    (python / "python3").symlink_to(os.path.realpath(sys.executable))
    path = f"{image}/environment/bin:{python}:/usr/bin:/bin"
    locks = {"MILABENCH_LOCK_DIR": str(tmp_path / "locks")}
    config = {"PIP_CONFIG_FILE": os.environ.get("PIP_CONFIG_FILE", str(Path.home() / ".config/pip/pip.conf"))}
    return {**kept, **config, **locks, "HOME": str(tmp_path / "home"), "PATH": path}


def test_the_commands_of_the_containerfile_make_a_control_plane(
    wheel: Path, image: Path, inside: dict[str, str], tmp_path: Path
) -> None:
    recipe = tmp_path / "Containerfile"
    milabench("image", "oci", "--wheel", wheel, "-o", recipe, cwd=tmp_path)
    with recipe.open("rb+") as file:
        parsed = DockerfileParser(fileobj=file)
        steps, base, labels = parsed.structure, parsed.baseimage, parsed.labels
    assert [step["instruction"] for step in steps] == INSTRUCTIONS
    assert labels["org.opencontainers.image.base.name"] == base
    assert steps[6]["value"] == f"{wheel.name} {FOLDER}/"
    # As an image builder runs it: RUN in its shell form is an argument of /bin/sh.
    ran("/bin/sh", "-c", steps[7]["value"].replace(FOLDER, str(image)), cwd=Path("/"), environ=inside)
    assert ran("milabench", "--version", cwd=tmp_path, environ=inside).startswith("milabench ")
    listed = ran("milabench", "list", "--config", "quickstart", cwd=tmp_path, environ=inside)
    assert "digits" in listed
    assert sorted(path.name for path in image.iterdir()) == ["environment", wheel.name]


def sections(text: str) -> dict[str, str]:
    """Return the sections of a definition, as apptainer divides it: a line that begins with % and a word begins one."""
    head, *rest = re.split(r"^%(\w+)\n", text, flags=re.M)
    return {"": head, **dict(zip(rest[::2], rest[1::2], strict=True))}


@pytest.mark.long
def test_the_commands_of_a_definition_make_an_environment_that_measures(
    wheel: Path, image: Path, inside: dict[str, str], tmp_path: Path
) -> None:
    recipe = tmp_path / "template.def"
    milabench("new", "mine", cwd=tmp_path)
    suite = tmp_path / "benchmarks" / "mine" / "suite.yaml"
    words = ("image", "apptainer", "--wheel", wheel, "--config", suite, "--arch", "cpu")
    milabench(*words, "-o", recipe, cwd=tmp_path)
    parts = sections(recipe.read_text())
    assert list(parts) == ["", "labels", "files", "post", "environment", "test", "runscript"]
    keys = [line.partition(":")[0] for line in parts[""].splitlines() if line and not line.startswith("#")]
    assert keys == ["Bootstrap", "From"]
    assert "{{" not in recipe.read_text()  # what apptainer would replace
    assert parts["files"].split() == [wheel.name, f"{FOLDER}/{wheel.name}"]
    here = {name: text.replace(FOLDER, str(image)) for name, text in parts.items()}
    ran("/bin/sh", "-ex", "-c", here["post"], cwd=Path("/"), environ=inside)
    ran("/bin/sh", "-c", here["test"], cwd=Path("/"), environ=inside)
    base = {**inside, "MILABENCH_BASE": str(tmp_path / "base"), "MILABENCH_CONFIG": str(suite), "MILABENCH_WAIT": "1"}
    for verb in ("install", "prepare", "run"):
        script = f"{here['environment']}\n{here['runscript']}"
        output = ran("/bin/sh", "-c", script, "runscript", verb, cwd=tmp_path, environ=base)
        assert verb != "install" or f"{image}/environment has everything" in output
    assert "1 of 1 step passed" in output


def test_a_wheel_that_was_changed_is_not_installed(
    wheel: Path, image: Path, inside: dict[str, str], tmp_path: Path
) -> None:
    recipe = milabench("image", "oci", "--wheel", wheel, cwd=tmp_path)
    command = recipe.partition("\nRUN ")[2].partition("\nENV ")[0].replace("\\\n", " ").replace(FOLDER, str(image))
    with (image / wheel.name).open("ab") as file:
        file.write(b"x")
    done = subprocess.run(["/bin/sh", "-c", command], env=inside, capture_output=True, text=True, check=False)
    assert (done.returncode != 0, "FAILED" in done.stdout) == (True, True)
    assert not (image / "environment").exists()
