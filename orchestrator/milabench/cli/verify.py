"""`milabench verify`: whether a bundle is what it was when it was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.errors import RecordError

if TYPE_CHECKING:
    from milabench.bundle.verify import Verification


@click.command("verify", help="Recompute every hash and number of a bundle. Exit codes: 0 unaltered, 6 altered.")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--allowed-signers",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Require a signature by one of these (the format of ssh-keygen).",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
def command(bundle: Path, allowed_signers: Path | None, as_json: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.bundle.verify import verify_bundle
    from milabench.workflow.results import recompute_summary

    found = verify_bundle(bundle, recompute_summary, allowed_signers)
    click.echo(json.dumps(found.to_json(str(bundle)), indent=1) if as_json else verification_lines(bundle, found))
    return RecordError.exit_code if found.wrong else 0


def verification_lines(bundle: Path, found: Verification) -> str:
    """The verdict first, then each thing that was altered."""
    lines = [f"{bundle}: {'ALTERED' if found.wrong else 'unaltered'}"]
    lines += [f"  {one}" for one in found.wrong]
    if not found.wrong:
        lines.append(
            f"  {len(found.manifest.files)} files and {found.numbers} numbers of {len(found.manifest.runs)} runs are as they were"
        )
    lines.append(f"  chain {found.manifest.chain}")
    if found.signer:
        trust = "" if found.is_trusted else "; --allowed-signers says whether that is someone you know"
        lines.append(f"  signed: {found.signer}{trust}")
    elif not found.is_signed:
        lines.append("  not signed: its chain is worth what the place is worth where you have it from")
    lines += [f"  note: {note}" for note in found.manifest.notes]
    return "\n".join(lines)
