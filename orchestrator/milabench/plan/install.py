"""What `milabench install` is going to do: environments to build, sources to fetch, and what is left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milabench.bench.api import Git, Source
from milabench.plan.image import Image
from milabench.plan.model import SCHEMA, SkippedBench, digest
from milabench.plan.venvs import VenvRequest, VenvSpec, plan_venvs


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """Everything an install makes ready, each thing once, in the order of the suite."""

    venvs: tuple[VenvSpec, ...]
    sources: tuple[Source, ...]
    images: tuple[Image, ...] = ()
    skipped: tuple[SkippedBench, ...] = ()

    @property
    def hash(self) -> str:
        """sha256 over what is made ready."""
        images = [[image.to_json() for image in self.images]] if self.images else []
        return digest([[venv.digest for venv in self.venvs], [source_json(source) for source in self.sources], *images])

    def to_json(self) -> dict[str, Any]:
        """Return the plan as `milabench plan install --json` prints it."""
        return {
            "schema": SCHEMA,
            "hash": self.hash,
            "phase": "install",
            "venvs": [venv.to_json() for venv in self.venvs],
            "sources": [source_json(source) for source in self.sources],
            "images": [image.to_json() for image in self.images],
            "skipped": [skip.to_json() for skip in self.skipped],
        }


def plan_install(
    requests: Sequence[VenvRequest],
    sources: Mapping[str, Source | None],
    *,
    benchmate: str,
    python: str,
    platform: str,
    selected: Collection[str] | None = None,
    images: Sequence[Image] = (),
    skipped: Sequence[SkippedBench] = (),
) -> InstallPlan:
    """Return the plan for the selected benchmarks (None: all); `sources` maps every benchmark to where its program comes from.

    `images` are those of their containers, each as often as it is named.

    The other arguments, and ConfigError, are those of `plan_venvs`.
    """
    wanted = {bench: source for bench, source in sources.items() if selected is None or bench in selected}
    return InstallPlan(
        venvs=plan_venvs(requests, benchmate=benchmate, python=python, platform=platform, selected=selected),
        sources=tuple(dict.fromkeys(source for source in wanted.values() if source is not None)),
        images=tuple(dict.fromkeys(images)),
        skipped=tuple(skipped),
    )


def source_json(source: Source) -> dict[str, str]:
    """Return a source in words; `folder` is where it lies under base/code."""
    if isinstance(source, Git):
        return {"git": source.url, "rev": source.rev, "folder": source.folder}
    origin = {"pypi": source.project, "version": source.version, "file": source.file, "sha256": source.sha256}
    return {**origin, "folder": source.folder}
