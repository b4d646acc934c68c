"""`milabench image`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.options import file_option, suite_options, terminal_session
from milabench.workflow.options import SuiteOptions

_WHEEL = file_option("--wheel", required=True, help="The wheel of this milabench, which the image installs.")
_BASE = click.option(
    "--from", "image", metavar="IMAGE", help="Image to start from. Default: Python's own, of the lock's version."
)
_OUTPUT = file_option("-o", "--output", help="Write to a file instead of the terminal.")


@click.group("image")
def command() -> None:
    """Write the recipe of a container image, without building it."""


@command.command("oci", short_help="Write the Containerfile of an image")
@_WHEEL
@_BASE
@_OUTPUT
def oci(wheel: Path, image: str | None, output: Path | None) -> None:
    """Write the Containerfile of an image with the control plane, for docker, podman and buildah."""
    from milabench.images.image_recipes import oci_recipe

    _write(oci_recipe(wheel, image, terminal_session()), output)


@command.command("apptainer", short_help="Write the Apptainer definition of an image")
@suite_options()
@_WHEEL
@_BASE
@_OUTPUT
def apptainer(options: SuiteOptions, wheel: Path, image: str | None, output: Path | None) -> None:
    """Write the Apptainer definition of an image with the environment of the selected benchmarks."""
    from milabench.images.image_recipes import apptainer_recipe

    _write(apptainer_recipe(options, wheel, image, terminal_session()), output)


def _write(text: str, output: Path | None) -> None:
    from milabench.cli.formats import Destination

    Destination(form=None, as_json=False, output=output).write(text)
