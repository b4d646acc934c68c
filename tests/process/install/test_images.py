"""Images of containers: what an engine has stays, what it lacks is fetched, what cannot be is one line. A script stands in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from milabench.errors import EnvironmentFailed
from milabench.execute.activities import Activities
from milabench.execute.images import fetch_images, load_image, missing_images, save_image
from milabench.plan.container import Image, image_of, in_one_line

ENGINE = """#!/bin/sh
echo "$@" >> calls
case "$1 $2" in
    "image inspect") test -e "has-$3";;
    "save --output") test "$4" != absent || { echo "Error: no such image" >&2; exit 125; }; echo "$4" > "$3";;
    "load --input") read -r name < "$3"; : > "has-$name";;
    "pull --quiet") test "$3" != absent || { echo trying; echo "Error: no such registry"; exit 125; } >&2; : > "has-$3";;
esac
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine on PATH, alone in its folder; the file that holds what it was told to do."""
    client = tmp_path / "podman"
    client.write_text(ENGINE)
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "calls"


def wanted(name: str) -> Image:
    return image_of("podman", name, "/cache")


def test_an_image_is_fetched_once(calls: Path) -> None:
    said: list[str] = []
    assert missing_images([wanted("i")]) == ["image i (podman)"]
    assert [fetch_images([wanted("i")], refetch=False, activities=Activities(said.append)) for _ in range(2)] == [1, 0]
    assert missing_images([wanted("i")]) == []
    assert calls.read_text().count("pull") == 1
    assert said == ["i: fetching with podman"]


def test_every_image_that_cannot_be_fetched_is_a_line_with_the_engines_last(calls: Path) -> None:
    with pytest.raises(EnvironmentFailed) as failed:
        fetch_images(
            [wanted("absent"), image_of("apptainer", "/no/i.sif", "/cache")], refetch=False, activities=Activities()
        )
    first, second = str(failed.value).split("\nerror: ")
    assert first.startswith("image absent: podman cannot fetch it: no such registry. ")
    assert second.startswith(("image /no/i.sif: apptainer is not on PATH", "/no/i.sif: no such image"))
    assert calls.exists()


def test_an_image_that_was_loaded_by_hand_stays_when_it_cannot_be_fetched_anew(calls: Path) -> None:
    (calls.parent / "has-absent").touch()
    said: list[str] = []
    assert fetch_images([wanted("absent")], refetch=True, activities=Activities(said.append)) == 0
    assert "kept as it is" in said[-1]


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize(("name", "code"), [("i", 0), ("absent", 1)])
def test_the_line_for_another_machines_shell_does_the_same(calls: Path, name: str, code: int, anew: bool) -> None:
    line = in_one_line(wanted(name), refetch=anew)
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == bool(code)
    assert ("no such registry" in done.stderr) == bool(code)
    assert "pull" in calls.read_text()


def test_an_image_goes_through_a_file_to_where_there_is_no_registry(calls: Path) -> None:
    saved = save_image(wanted("i"), calls.parent / "i.tar")
    assert missing_images([wanted("i")]) == ["image i (podman)"]
    load_image(wanted("i"), saved)
    assert missing_images([wanted("i")]) == []
    assert not saved.exists()
    with pytest.raises(EnvironmentFailed, match=r"image absent: podman save: Error: no such image"):
        save_image(wanted("absent"), calls.parent / "absent.tar")


def test_an_image_of_apptainer_is_its_file(tmp_path: Path) -> None:
    image = image_of("apptainer", "i", str(tmp_path / "cache"))
    file = tmp_path / "0.sif"
    file.write_text("image")
    load_image(image, file)
    assert Path(image.file).read_text() == "image"
