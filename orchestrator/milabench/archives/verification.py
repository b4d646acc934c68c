"""Verification of a bundle: its files against their hashes, its numbers against its records."""

from __future__ import annotations

import json
import shlex
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from milabench import seams
from milabench.analysis.json_codec import picked
from milabench.archives import archive, bundle
from milabench.archives.signing import UNKNOWN_KEY, signer_of
from milabench.errors import RecordError
from milabench.events.run_files import MANIFEST
from milabench.events.rundir import open_run
from milabench.events.values import finite_number, mappings_in
from milabench.events.wire import parse_object
from milabench.workflow.summaries import recompute_summary

# Another machine's arithmetic may differ in the last bits, and what should be zero in all of them.
_FAR = 1e-9
_ZERO = 1e-12
_SHOWN = 8  # differing numbers that are listed; one changed record changes many


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result: `wrong` is empty when nothing was altered, and signed by whom it has to be.

    `is_trusted`: `signer` is an allowed signer. `distrust` is the part of `wrong` that is no alteration.
    """

    manifest: bundle.Manifest
    wrong: tuple[str, ...]
    numbers: int
    is_signed: bool = False
    signer: str = ""
    is_trusted: bool = False
    distrust: str = ""

    @property
    def verdict(self) -> Literal["ALTERED", "UNTRUSTED", ""]:
        """The problem: the archive was altered, or it was signed by none of the allowed signers."""
        if not self.wrong:
            return ""
        return "UNTRUSTED" if self.wrong == (self.distrust,) else "ALTERED"

    def to_json(self, path: str) -> dict[str, Any]:
        """Return the value of `verify --json`."""
        return {
            "schema": 1,
            "bundle": path,
            "unaltered": not self.wrong,
            **picked(self, "wrong", runs="manifest.runs"),
            "files": len(self.manifest.files),
            **picked(self, "numbers", chain="manifest.chain", signed="is_signed"),
            "signer": self.signer or None,
            **picked(self, trusted="is_trusted", notes="manifest.notes"),
        }


def verify_bundle(path: Path, allowed: Path | None = None) -> Verification:
    """Recompute a bundle's hashes and numbers. See Verification. Raises RecordError when it cannot be read as a bundle."""
    with archive.open_checked(path) as file:
        names = archive.files(file)
        listed, manifest, wrong = _compared(file, names, path)
        signer, is_trusted, distrust = _signer(file, names, listed, allowed, wrong)
        numbers = sum(_recompute(file, run, names, wrong) for run in manifest.runs)
    return Verification(
        manifest=manifest,
        wrong=tuple(wrong),
        numbers=numbers,
        is_signed=bundle.SIGNATURE in names,
        signer=signer,
        is_trusted=is_trusted,
        distrust=distrust,
    )


def bundled_run(path: Path) -> tuple[str, Mapping[str, object], Mapping[str, object]]:
    """Return name, summary and manifest of the only run in a bundle whose files match their hashes. Raises RecordError."""
    with archive.open_checked(path) as file:
        names = archive.files(file)
        _, manifest, wrong = _compared(file, names, path)
        require_unaltered(path, wrong)
        if len(manifest.runs) != 1:
            raise RecordError(
                f"{path}: holds {len(manifest.runs)} runs, expected a single run. Make a bundle of that run alone"
            )
        run = manifest.runs[0]
        members = (f"{bundle.COMPUTED}/{run}/{bundle.SUMMARY}", f"{bundle.RECORDS}/{run}/{MANIFEST}")
        if missing := [name for name in members if name not in names]:
            raise RecordError(f"{path}: has no {missing[0]}")
        try:
            summary, recorded = (parse_object(archive.read_member(file, name)) for name in members)
        except ValueError as error:
            raise RecordError(f"{path}: {error}") from None
    return run, summary, recorded


def require_unaltered(path: Path, wrong: Sequence[str], verb: str = "verify") -> None:
    """Raise RecordError, with the command that shows everything, where something is wrong with an archive."""
    if wrong:
        show = f"milabench {verb} {shlex.quote(str(path))}"
        raise RecordError(f"{path}: was modified: {wrong[0]}. `{show}` shows everything")


def _compared(file: zipfile.ZipFile, names: list[str], path: Path) -> tuple[bytes, bundle.Manifest, list[str]]:
    """Return the manifest of a bundle, as it is written and as a value, and where its files are not as it lists them."""
    if bundle.NAME not in names:
        raise RecordError(f"{path}: not a bundle: it has no {bundle.NAME}. Create it with `milabench bundle`")
    listed = archive.read_member(file, bundle.NAME)
    manifest, wrong = bundle.from_bytes(listed, str(path))
    wrong += bundle.compare_files(manifest, dict(_present(file, names, wrong)))
    return listed, manifest, wrong


def _present(file: zipfile.ZipFile, names: Iterable[str], wrong: list[str]) -> Iterable[tuple[str, tuple[int, str]]]:
    for name in names:
        try:
            yield name, archive.archived_digest(file, name)
        except RecordError as error:
            wrong.append(str(error))
            yield name, (-1, "")  # there, and not what it was


def _signer(
    file: zipfile.ZipFile, names: list[str], listed: bytes, allowed: Path | None, wrong: list[str]
) -> tuple[str, bool, str]:
    """Return who signed, whether that is an allowed signer, and why not. Notes problems."""
    if bundle.SIGNATURE not in names:
        distrust = "it is not signed" if allowed is not None else ""
        wrong += [distrust] if distrust else []
        return "", False, distrust
    is_good, detail = signer_of(listed, archive.read_member(file, bundle.SIGNATURE), allowed)
    if is_good:
        return detail, allowed is not None, ""
    if detail == UNKNOWN_KEY:
        # Whoever else signed it: that signature has to be good too, for the archive to be as it was made.
        is_good, other = signer_of(listed, archive.read_member(file, bundle.SIGNATURE), None)
        detail = detail if is_good else other
    distrust = detail if is_good else ""
    wrong.append(distrust or f"invalid signature: {detail}")
    return "", False, distrust


def _recompute(file: zipfile.ZipFile, run: str, names: list[str], wrong: list[str]) -> int:
    """Recompute the numbers of a run's summary from its records, note those that differ, and return their count."""
    stored, folder = f"{bundle.COMPUTED}/{run}/{bundle.SUMMARY}", f"{bundle.RECORDS}/{run}"
    if "/" in run or stored not in names or not archive.files(file, folder):
        wrong.append(f"{run}: its summary or its records are missing: no number can be recomputed")
        return 0
    try:
        stored_summary = parse_object(archive.read_member(file, stored))
        for feature in _features_of(stored_summary):
            seams.require(feature, f"verify {run}")
        with tempfile.TemporaryDirectory(prefix="milabench-verify-") as scratch:
            target = Path(scratch, run)
            archive.unpack_archive(file, folder, target)
            # Through JSON, as the stored one went: tuples are lists and keys are text on both sides.
            recomputed = json.loads(json.dumps(recompute_summary(open_run(target))))
    except (RecordError, ValueError) as error:
        wrong.append(f"{run}: cannot be recomputed: {error}")
        return 0
    counted: list[str] = []
    differ = [f"{run}: {difference}" for difference in summary_differences(stored_summary, recomputed, "", counted)]
    wrong += differ[:_SHOWN]
    if len(differ) > _SHOWN:
        wrong.append(f"{run}: {len(differ) - _SHOWN} more of its numbers differ")
    return len(counted)


def _features_of(summary: Mapping[str, object]) -> Iterable[str]:
    """Yield the features without which the numbers of a summary come out otherwise."""
    benches = mappings_in(summary.get("benchmarks"))
    if any(bench.get("serving") for bench in benches):
        yield "sweeps"
    if any(check.get("check") == "answers" for bench in benches for check in mappings_in(bench.get("validations"))):
        yield "answers"


def summary_differences(stored: object, recomputed: object, path: str, counted: list[str]) -> Iterable[str]:
    """Yield the differences of two summaries. Only stored keys count, since a later version may compute more.

    `counted` gets the path of every number that was compared.
    """
    if isinstance(stored, Mapping) and isinstance(recomputed, Mapping):
        for key, value in stored.items():
            below = f"{path}.{key}" if path else str(key)
            yield from summary_differences(value, recomputed.get(key), below, counted)
    elif isinstance(stored, list) and isinstance(recomputed, list) and len(stored) == len(recomputed):
        for index, (item, counterpart) in enumerate(zip(stored, recomputed, strict=True)):
            label = item.get("bench", index) if isinstance(item, Mapping) else index
            yield from summary_differences(item, counterpart, f"{path}[{label}]", counted)
    elif isinstance(stored, int | float) and not isinstance(stored, bool):
        counted.append(path)
        here, there = finite_number(stored), finite_number(recomputed)
        if here is None or there is None or abs(here - there) > max(_ZERO, _FAR * max(abs(here), abs(there))):
            yield f"{path}: recorded as {_short(stored)}, recomputed as {_short(recomputed)}"
    elif stored != recomputed:
        yield f"{path}: recorded as {_short(stored)}, recomputed as {_short(recomputed)}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
