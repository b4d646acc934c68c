"""Images of containers: which a suite needs, and the commands that look for one and fetch it, for each engine."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from urllib.parse import quote

# Whole or not at all: what a download that was cut off left is never taken for an image.
_PULL_FILE = 'mkdir -p "$(dirname "$1")" && apptainer pull --force "$1.$$" "$2" && mv "$1.$$" "$1"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What an engine needs on a node before a step can start in it.

    `file` is where apptainer keeps it on that node; docker and podman have a store of their own. `source` is where it can
    be fetched from, empty for a file of the user's.
    """

    engine: str
    name: str
    file: str = ""
    source: str = ""

    @property
    def look(self) -> tuple[str, ...]:
        """The command that succeeds when the image is there."""
        return ("test", "-e", self.file) if self.file else (self.engine, "image", "inspect", self.name)

    @property
    def fetch(self) -> tuple[str, ...]:
        """The command that fetches it, also where there is an older one; empty for a file of the user's."""
        if not self.source:
            return ()
        if self.file:
            return ("/bin/sh", "-c", _PULL_FILE, "pull", self.file, self.source)
        return (self.engine, "pull", "--quiet", self.source)

    @property
    def absence(self) -> str:
        """What to say of a file of the user's that is not there."""
        return f"{self.file}: no such image"

    def to_json(self) -> dict[str, str]:
        """Return the image as `milabench plan install --json` prints it."""
        return {"engine": self.engine, "image": self.name}


def image_of(engine: str, name: str, cache: str) -> Image:
    """Return the image `name` of a suite; what apptainer has to fetch is kept as a file in `cache`."""
    if engine != "apptainer":
        return Image(engine=engine, name=name, source=name)
    if "://" not in name and (name.startswith(("/", "./", "../")) or name.endswith(".sif")):
        return Image(engine=engine, name=name, file=name)
    # docker:// is where the same name leads with docker and podman.
    source = name if "://" in name else f"docker://{name}"
    return Image(engine=engine, name=name, file=f"{cache}/images/{quote(source, safe='')}.sif", source=source)


def in_one_line(image: Image, *, refetch: bool) -> str:
    """Return the line for a shell that fetches an image that is missing, or any with `refetch`; it fails without an image."""
    look = f"{shlex.join(image.look)} >/dev/null 2>&1"
    fetch = shlex.join(image.fetch) if image.fetch else f"{{ echo {shlex.quote(image.absence)} >&2; exit 1; }}"
    return f"{fetch} || {look}" if refetch and image.fetch else f"{look} || {fetch}"
