"""`milabench verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import file_option, json_option
from milabench.errors import DONE, RecordError
from milabench.shown import counted

if TYPE_CHECKING:
    from milabench.bundle.verify import Verification


@click.command("verify")
@click.argument("bundle", type=click.Path(path_type=Path))
@file_option(
    "--allowed-signers", metavar="FILE", help="Require a signature by one of these (the format of ssh-keygen)."
)
@json_option
def command(bundle: Path, allowed_signers: Path | None, as_json: bool) -> int:
    """Recompute every hash and number of a bundle. Exit codes: 0 unaltered, 6 altered."""
    from milabench.bundle.verify import verify_bundle
    from milabench.workflow.summaries import recompute_summary

    verified = verify_bundle(bundle, recompute_summary, allowed_signers)
    click.echo(json.dumps(verified.to_json(str(bundle)), indent=1) if as_json else verification_text(bundle, verified))
    return RecordError.exit_code if verified.wrong else DONE


def verification_text(bundle: Path, verified: Verification) -> str:
    """Return the verdict, then each thing that was altered."""
    manifest = verified.manifest
    lines = [f"{bundle}: {'ALTERED' if verified.wrong else 'unaltered'}", *(f"  {wrong}" for wrong in verified.wrong)]
    if not verified.wrong:
        lines.append(
            f"  {counted(len(manifest.files), 'file')} and {counted(verified.numbers, 'number')}"
            f" of {counted(len(manifest.runs), 'run')} are as they were"
        )
    lines.append(f"  chain {manifest.chain}")
    if verified.signer:
        trust = "" if verified.is_trusted else "; --allowed-signers says whether that is someone you know"
        lines.append(f"  signed: {verified.signer}{trust}")
    elif not verified.is_signed:
        lines.append("  not signed: the chain proves integrity only if you got it from a place that you trust")
    lines += [f"  note: {note}" for note in manifest.notes]
    return "\n".join(lines)
