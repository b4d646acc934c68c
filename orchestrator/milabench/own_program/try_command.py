"""`milabench try`."""

from __future__ import annotations

import click

from milabench.cli.options import display_option, terminal_session, wait_option


@click.command("try", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="PROGRAM [ARGUMENT]...", envvar=())
@wait_option
@display_option
def command(words: tuple[str, ...], wait: bool, display: str) -> int:
    """Measure a program of your own for half a minute, as it is. Nothing is left behind.

    PROGRAM is a script (train.py), `python -m MODULE`, `torchrun train.py`, or any other command. milabench reads it to find
    the training loop. A program without a loop is timed as a whole.
    """
    from milabench.own_program.try_program import try_program

    code, lines = try_program(words, terminal_session(display), wait=wait)
    for line in lines:
        click.echo(line)
    return code
