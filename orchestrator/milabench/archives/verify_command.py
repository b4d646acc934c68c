"""`milabench verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench import seams
from milabench.cli.options import file_option, json_option
from milabench.errors import DONE, RecordError, UsageError
from milabench.shown import counted

if TYPE_CHECKING:
    from milabench.archives.verification import Verification


@click.command("verify", epilog="Exit codes: 0 unaltered, 6 altered. With --offer also 7 FAIL and 8 INCONCLUSIVE.")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("tender", required=False, metavar="[TENDER]", type=click.Path(path_type=Path))
@click.option(
    "--offer",
    "is_offer",
    is_flag=True,
    envvar=(),
    help="It is an offer: compare it also with its TENDER (procurement.yaml), as `milabench offer verify` does.",
)
@file_option(
    "--allowed-signers", metavar="FILE", help="Require a signature by a key of this file (format of ssh-keygen)."
)
@json_option
def command(bundle: Path, tender: Path | None, is_offer: bool, allowed_signers: Path | None, as_json: bool) -> int:
    """Recompute all hashes and numbers in a bundle."""
    if is_offer or tender is not None:
        return _verify_offer(bundle, tender, allowed_signers, is_offer=is_offer, as_json=as_json)
    from milabench.archives.verification import verify_bundle

    verified = verify_bundle(bundle, allowed_signers)
    click.echo(json.dumps(verified.to_json(str(bundle)), indent=1) if as_json else verification_text(bundle, verified))
    return RecordError.exit_code if verified.wrong else DONE


def _verify_offer(
    bundle: Path, tender: Path | None, allowed_signers: Path | None, *, is_offer: bool, as_json: bool
) -> int:
    from milabench.cli.formats import Destination

    if tender is None:
        raise UsageError(f"--offer: name the tender that it answers too: milabench verify --offer {bundle} TENDER")
    if not is_offer:
        raise UsageError(f"{tender}: a tender is compared with an offer. Add --offer, or leave out the tender")
    destination = Destination(form=None, as_json=as_json, output=None)
    code: int = seams.handler("verify --offer")(bundle, tender, allowed_signers, destination)
    return code


def verification_text(bundle: Path, verified: Verification) -> str:
    """Return the verdict, then each thing that was altered."""
    manifest = verified.manifest
    lines = [f"{bundle}: {verified.verdict or 'unaltered'}", *(f"  {wrong}" for wrong in verified.wrong)]
    if not verified.wrong:
        lines.append(
            f"  {counted(len(manifest.files), 'file')} and {counted(verified.numbers, 'number')}"
            f" of {counted(len(manifest.runs), 'run')} are as they were"
        )
    lines.append(f"  chain {manifest.chain}")
    if verified.signer:
        trust = "" if verified.is_trusted else ". Check with --allowed-signers whether that is someone you know"
        lines.append(f"  signed: {verified.signer}{trust}")
    elif not verified.is_signed:
        lines.append("  not signed: the chain proves integrity only if you got it from a place that you trust")
    lines += [f"  note: {note}" for note in manifest.notes]
    return "\n".join(lines)
