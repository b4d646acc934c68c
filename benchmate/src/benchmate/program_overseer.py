"""Runs a program under instruments, phase by phase, as voir's Overseer does, which is imported only on request."""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmate.errors import BenchmateError
from benchmate.patching import ImportWatcher, apply_waiting
from benchmate.phases import InstrumentHost, Phase, ProgramAborted, StopProgram
from benchmate.program_loader import Command, Program
from benchmate.session import Session
from benchmate.voirfile import load_instruments

if TYPE_CHECKING:
    from benchmate.voir_overseer import VoirOverseer

_OF_VOIR = ("giving", "ptera", "voir")
"""Packages that a program gives its data to, or a voirfile uses. The first is part of both others."""


class InstrumentFailed(BaseException):
    """An instrument failed before the program began: running it would measure nothing."""


class ProgramOverseer(InstrumentHost):
    """Runs a program under instruments, and is their `ov`.

    Streams of given and logged values, options and selectors belong to a `VoirOverseer`, which
    takes part once an instrument uses any of these, or voir or a package that it is built on is imported.
    """

    def __init__(self, session: Session, option_blocks: Mapping[str, Any]) -> None:
        super().__init__()
        self.status = "init"
        self.program: Program | None = None
        self._session = session
        self._option_blocks = option_blocks
        self._command: Command | None = None
        self._voir: VoirOverseer | None = None
        self._is_attaching = False
        self._imported: set[str] = set()
        """Packages of voir that are imported completely."""
        for name in _OF_VOIR:
            ImportWatcher(partial(self._on_import, name)).watch(name)
        if not sys.modules.keys().isdisjoint(_OF_VOIR):
            self._attach_voir()

    # For instruments

    def stop(self, value: object = None) -> None:
        """End the program early."""
        raise StopProgram(value)

    def abort(self, error: BaseException) -> None:
        """End the program with an error."""
        raise ProgramAborted(error)

    def __getattr__(self, name: str) -> Any:
        # All else is voir's; nobody asks that for what is private.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._attach_voir(), name)

    # For the runner

    def run_command(self, argv: Sequence[str], paths: Sequence[str], voirfile: str | None = None) -> None:
        """Run the target of the command line under the instruments of a voirfile.

        Return also after an early stop, pass on the program's exceptions.
        """
        try:
            self.status = "running"
            if voirfile is not None:
                self._require_all(voirfile)
            self._run(argv, paths)
        except StopProgram as stop:
            self._session.program_ended()
            self.status = "stopped"
            self._throw(stop)
        finally:
            self._finish()
        # Here after an early stop too: what was raised holds every frame of the program, and with them its loaders' workers.
        for phase in self.phases:
            if phase.exception is not None:
                phase.exception.__traceback__ = None
        if self.program is not None:
            self.program.traceback = None

    def _require_all(self, voirfile: str) -> None:
        try:
            instruments = load_instruments(voirfile)
        except Exception as error:
            self.instrument_failed(error, voirfile)
        else:
            self.require(*instruments)

    def _run(self, argv: Sequence[str], paths: Sequence[str]) -> None:
        with self._phase(self.phases.init):
            pass
        if self._voir is not None:
            self._voir.record_unattended()
        with self._phase(self.phases.parse_args):
            command = self._command = self._parse(argv)
        self._abort_on_failure()
        with self._phase(self.phases.load_script):
            self.program = Program(command, paths)
            self.program.load()
        apply_waiting()
        self._abort_on_failure()
        with self._phase(self.phases.run_script):
            try:
                self.program.run()
                self._session.wait_for_threads()
            finally:
                self._session.program_ended()

    def _parse(self, argv: Sequence[str]) -> Command:
        first, *rest = argv
        if self._voir is None and not first.startswith("-"):
            return Command(script=first, module=None, arguments=rest)
        if self._voir is None and first == "-m" and rest:
            return Command(script=None, module=rest[0], arguments=rest[1:])
        # Options of instruments: voir knows them, and refuses what it does not know.
        return self._attach_voir().parse(argv)

    def _finish(self) -> None:
        if self._voir is not None:
            self._voir.end_streams()
        with self._phase(self.phases.finalize):
            pass
        if self._voir is not None:
            self._voir.leave()

    @contextlib.contextmanager
    def _phase(self, phase: Phase) -> Iterator[None]:
        """Run a phase, and then the instruments that wait for its end."""
        if self._voir is not None:
            self._voir.log({"$event": "phase", "$data": {"name": phase.name}})
        elif not self._session.is_forked_child:
            self._session.record("phase", {"name": phase.name})
        error = None
        try:
            yield
        except BaseException as raised:
            error = raised
        self._end(phase, error)

    def _abort_on_failure(self) -> None:
        if self._session.failures:
            raise InstrumentFailed

    def instrument_failed(self, error: BaseException, where: str = "instrument") -> None:
        """Fail the step."""
        if self._session.is_forked_child:
            return
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self._session.error(error, trace)
        name = "" if isinstance(error, BenchmateError) else f"{where}: {type(error).__name__}: "
        self._session.fail("probe", f"{name}{error}")
        if not isinstance(error, BenchmateError):
            print(trace, end="", file=sys.stderr)
        print(f"benchmate: an instrument failed: {name}{error}", file=sys.stderr)

    # voir

    def _on_import(self, name: str) -> None:
        """Let voir take part, as soon as its running imports are complete."""
        self._imported.add(name)
        if self._is_attaching or not self._imported.issuperset(sys.modules.keys() & _OF_VOIR):
            return
        if threading.current_thread() is not threading.main_thread():
            # Its streams belong to the thread that opens them.
            self._session.message(
                f"{name} was first imported in a thread: the program's values are not recorded. Import it in the main thread",
                once=True,
            )
            return
        try:
            self._attach_voir()
        except ImportError as error:
            # A module of the program itself may have the name, and nothing is given by that.
            self._session.message(
                f"{name} was imported, but voir cannot be: {error}. The program's values are not recorded"
            )

    def _attach_voir(self) -> VoirOverseer:
        """Return voir's part, which from here on, and once the phases are that far, is as if it had been there from the start."""
        if self._voir is None:
            self._is_attaching = True
            from benchmate.voir_overseer import VoirOverseer

            self._voir = VoirOverseer(self, self._session, self._option_blocks)
            if self.phases.init.done:
                self._voir.record_unattended()
            if self._command is not None:
                self._voir.take_command(self._command)
        return self._voir
