"""Container images: check for them on this machine, fetch them here and on other nodes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from milabench.errors import EnvironmentFailed
from milabench.events.removal import move, remove
from milabench.execute.activities import Activities
from milabench.execute.remote_host import RemoteHost, helper_node, run_shell
from milabench.plan.container import Image, in_one_line
from milabench.shown import last_line


def missing_images(images: Iterable[Image]) -> list[str]:
    """Return a description of each image that is not on this machine, or whose engine is not."""
    missing = []
    for image in images:
        if shutil.which(image.engine) is None:
            missing.append(f"image {image.name} ({image.engine} is not on PATH)")
        elif not _succeeds(image.look):
            missing.append(f"image {image.name} ({image.engine})")
    return missing


def fetch_images(images: Iterable[Image], *, refetch: bool, activities: Activities) -> int:
    """Fetch missing images, or all with `refetch`. Return the number of images fetched.

    Raises EnvironmentFailed with a line for each image that is still missing. An image that exists and cannot be
    fetched again stays: it may have been loaded by hand.
    """
    failed, fetched = [], 0
    for image in images:
        if shutil.which(image.engine) is None:
            what = "is not on PATH. Install it, or choose another container.engine"
            failed.append(f"image {image.name}: {image.engine} {what}")
            continue
        is_there = _succeeds(image.look)
        if is_there and not (refetch and image.fetch):
            continue
        if not image.fetch:
            failed.append(image.absence)
            continue
        activities.report(f"{image.name}: fetching with {image.engine}")
        activities.now(image.name, f"fetching with {image.engine}")
        process = subprocess.run(image.fetch, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        activities.over(image.name)
        if process.returncode == 0:
            fetched += 1
        elif is_there:
            activities.report(f"{image.name}: kept as it is. {not_fetched(image, process.stderr)}")
        else:
            failed.append(not_fetched(image, process.stderr))
    if failed:
        raise EnvironmentFailed("\nerror: ".join(failed))
    return fetched


def save_image(image: Image, into: Path) -> Path:
    """Write an image of docker or podman to a file. Raises EnvironmentFailed."""
    _engine(image, "save", "--output", str(into))
    return into


def load_image(image: Image, file: Path) -> None:
    """Give the engine an image that `save_image` has written, or apptainer its file. Raises EnvironmentFailed."""
    if image.file:
        Path(image.file).parent.mkdir(parents=True, exist_ok=True)
        move(file, Path(image.file))
    else:
        _engine(image, "load", "--input", str(file), names_it=False)
        remove(file)


def _engine(image: Image, *words: str, names_it: bool = True) -> None:
    argv = (image.engine, *words, *((image.name,) if names_it else ()))
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError:
        raise EnvironmentFailed(f"image {image.name}: {image.engine} is not on PATH. Install it") from None
    if done.returncode != 0:
        why = last_line(done.stderr, "no error message")
        raise EnvironmentFailed(f"image {image.name}: {image.engine} {words[0]}: {why}")


async def fetch_on_host(machine: RemoteHost, images: Iterable[Image], *, refetch: bool) -> None:
    """Fetch the images on another machine. Raises EnvironmentFailed with a line for each that cannot be fetched."""
    failed = []
    async with helper_node(machine, "images") as node:
        for image in images:
            outcome = await run_shell(node, in_one_line(image, refetch=refetch), cwd="/")
            if outcome.name == "failed":
                failed.append(f"{machine.name}: {not_fetched(image, outcome.detail)}")
    if failed:
        raise EnvironmentFailed("\nerror: ".join(failed))


def not_fetched(image: Image, output: str) -> str:
    """Return the message for an image that cannot be fetched, on a line."""
    why = last_line(output, "no error message").removeprefix("Error: ")
    return f"image {image.name}: {image.engine} cannot fetch it: {why}. Correct container.image, or load the image yourself"


def _succeeds(command: tuple[str, ...]) -> bool:
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return process.returncode == 0
