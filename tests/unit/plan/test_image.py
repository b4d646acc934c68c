"""Images of containers: the commands that look for one and fetch it, for each engine."""

from __future__ import annotations

import pytest

from milabench.plan.container import image_of, in_one_line


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_an_engine_with_a_store_is_asked_and_pulls(engine: str) -> None:
    image = image_of(engine, "r/i:1", "/cache")
    assert image.look == (engine, "image", "inspect", "r/i:1")
    assert image.fetch == (engine, "pull", "--quiet", "r/i:1")


@pytest.mark.parametrize(("name", "source"), [("r/i:1", "docker://r/i:1"), ("oras://r/i:1", "oras://r/i:1")])
def test_what_apptainer_fetches_is_one_file_for_each_source(name: str, source: str) -> None:
    image = image_of("apptainer", name, "/cache")
    assert image.file.startswith("/cache/images/")
    assert image.look == ("test", "-e", image.file)
    assert image.fetch[-2:] == (image.file, source)
    assert image_of("apptainer", source, "/cache").file == image.file


@pytest.mark.parametrize("name", ["/images/i.sif", "./i", "i.sif"])
def test_a_file_of_the_users_is_never_fetched(name: str) -> None:
    image = image_of("apptainer", name, "/cache")
    assert (image.file, image.fetch) == (name, ())
    assert "no such image" in in_one_line(image, refetch=True)


def test_names_are_words_also_in_a_line_for_a_shell() -> None:
    image = image_of("docker", "r/i;rm -rf ~", "/cache")
    assert "'r/i;rm -rf ~'" in in_one_line(image, refetch=False)


def test_what_is_there_is_fetched_again_when_asked() -> None:
    image = image_of("podman", "r/i:1", "/cache")
    assert in_one_line(image, refetch=True).startswith("podman pull --quiet r/i:1 || podman image inspect")
    assert in_one_line(image, refetch=False).endswith("|| podman pull --quiet r/i:1")
