"""Voirfiles, and voir's Overseer adapted: phases and instruments are voir's, but errors fail the step, and records go to the
session's sink.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import traceback
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmate.errors import BenchmateError, ProbeError
from benchmate.given_records import record_given
from benchmate.lazy_imports import deferred_imports
from benchmate.patching import apply_waiting
from benchmate.probe_registry import Probe, expect
from benchmate.program_loader import Program
from benchmate.session import Session
from benchmate.voir_types import Instrument, InstrumentHost

if TYPE_CHECKING:
    from benchmate.probes.ptera_streams import Stream

# Half of voir's start-up, and most voirfiles need none of them.
with deferred_imports("ptera", "omegaconf", "yaml", "varname", "varname.utils", "pdb"):
    import voir.instruments
    from voir.overseer import LogStream, Overseer
    from voir.phase import StopProgram

__all__ = ["InstrumentFailed", "ProgramOverseer", "StopProgram", "load_instruments"]

VOIRFILE_MODULE = "__voir__"


class InstrumentFailed(BaseException):
    """An instrument failed before the program began: running it would measure nothing."""


class ProgramOverseer(Overseer):  # type: ignore[misc]  # voir has no types
    """Runs a program under instruments."""

    def __init__(self, instruments: Iterable[Instrument], session: Session, option_blocks: Mapping[str, Any]) -> None:
        super().__init__(list(instruments))
        self._session = session
        self._option_blocks = option_blocks
        self._taken: dict[int, object] = {}
        """Rates of other threads that are recorded already, by their id; kept, so that no other object has that."""
        self._logger = None
        self.log = LogStream()
        self.log >> self._forward
        self.program: Program | None = None
        add_from_model = self.argparser.add_from_model
        self.argparser.add_from_model = lambda dest, model, **more: add_from_model(
            dest, self._with_suite_defaults(dest, model), **more
        )

    def probe(self, selector: object, **options: Any) -> object:
        """Place voir's own probe, but refuse hazards, release overridden objects, and fail the step when it never fires."""
        # A selector may name what only its author's function knows.
        frame = sys._getframe(1)
        if not isinstance(selector, str):
            return super().probe(selector, **options)
        if "//" in selector and self.phases.load_script.pending:
            raise ProbeError(f"probe {selector!r}: the script is not loaded yet; `yield ov.phases.load_script` first")
        # Imported late, like ptera itself: most voirfiles have no selector.
        from benchmate.probes.ptera_streams import open_stream

        probe = expect(Probe(f"probe {selector!r}", required=options.pop("required", True)))
        env = {**vars(sys.modules["__main__"]), **frame.f_globals, **frame.f_locals}
        return self.require(_Activation(open_stream(selector, probe, env=env, **options)))

    def run_command(self, argv: list[str], paths: Sequence[str]) -> None:
        """Run what the command line names; return also when it was stopped early, pass on what the program raised."""
        self._paths = paths
        self(argv)
        # Here after an early stop too: what was raised holds every frame of the program, and with them its loaders' workers.
        for phase in self.phases:
            if phase.exception is not None:
                phase.exception.__traceback__ = None
        if self.program is not None:
            self.program.traceback = None

    def queue(self, **data: Any) -> None:
        """Take a rate that another thread gives at once, and leave what is given to the main thread, as voir does."""
        if "rate" in data:
            self._taken[id(data["rate"])] = data["rate"]
            self._session.program_rate(data)
        super().queue(**data)

    # Called by voir

    def _run(self, argv: list[str]) -> None:
        self.given.where("$event") >> self.log
        if not self.handlers:
            self.given >> self._record_without_instrument
        with self.run_phase(self.phases.init):
            pass
        with self.run_phase(self.phases.parse_args):
            self.options = self.argparser.parse_args(argv)
            del self.argparser
        self._abort_on_failure()
        with self.run_phase(self.phases.load_script):
            self.program = self._find_program()
            self.program.load()
        apply_waiting()
        self._abort_on_failure()
        with self.run_phase(self.phases.run_script):
            self.program.run()

    def _find_program(self) -> Program:
        options = self.options
        if options.SCRIPT is not None:
            return Program(script=options.SCRIPT, module=None, arguments=options.ARGV, paths=self._paths)
        if not options.MODULE:
            raise BenchmateError("expected a script, or -m and a module")
        return Program(script=None, module=options.MODULE[0], arguments=options.MODULE[1:], paths=self._paths)

    def _abort_on_failure(self) -> None:
        if self._session.failures:
            raise InstrumentFailed

    def _on_instrument_error(self, error: BaseException) -> None:
        if self._session.is_forked_child:
            return
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self._session.error(error, trace)
        name = "" if isinstance(error, BenchmateError) else f"instrument: {type(error).__name__}: "
        self._session.fail("probe", f"{name}{error}")
        if not isinstance(error, BenchmateError):
            print(trace, end="", file=sys.stderr)
        print(f"benchmate: an instrument failed: {name}{error}", file=sys.stderr)

    def _on_stop(self, value: object = None) -> None:
        # Raised in the main thread from another one, StopProgram comes without a value.
        super()._on_stop(value)

    def _on_error(self, error: BaseException) -> None:
        """Do nothing: the caller records what the program raised, because it knows the program's own traceback."""

    def _forward(self, data: Mapping[str, Any]) -> None:
        if self._session.is_forked_child:
            return
        if data.get("$event") == "stop":
            self._end_on_request()
        elif "$event" in data:
            self._session.record(str(data["$event"]), data.get("$data") or {})
        elif "rate" not in data:
            self._session.record("data", data)
        elif self._taken.pop(id(data["rate"]), None) is None:
            record_given(self._session, data)

    def _record_without_instrument(self, data: Mapping[str, Any]) -> None:
        """Record the rates and losses that a program gives, where there is no voirfile to say what is recorded."""
        if "rate" in data or "loss" in data:
            self.log({key: data[key] for key in ("task", "rate", "units", "loss", "time") if key in data})

    def _end_on_request(self) -> None:
        """End the program because an instrument says so, unless it is measured: then the measuring profile decides."""
        if self._session.is_measuring:
            self._session.message("early_stop: left to the measuring profile, which has not all it wants", once=True)
        elif self.phases.run_script.pending:
            self._session.stop("an instrument's stop")

    def _with_suite_defaults(self, dest: str, model: object) -> object:
        """Return a configurable instrument's options with the defaults that the suite gives for its block."""
        block = self._option_blocks.get(dest)
        if not isinstance(block, Mapping) or not isinstance(model, type) or not dataclasses.is_dataclass(model):
            return model
        known = {field.name for field in dataclasses.fields(model)}
        defaults = {name: value for name, value in block.items() if name in known}
        if defaults:
            self.argparser.merge_base_config({dest: defaults})
        return model


class _Activation:
    """Activates a probe for as long as the script runs."""

    def __init__(self, stream: Stream) -> None:
        self.stream = self.__state__ = stream

    def __call__(self, ov: InstrumentHost) -> Generator[object, object, None]:
        yield ov.phases.load_script(priority=0)
        with self.stream:
            yield ov.phases.run_script(priority=0)


def load_instruments(path: str) -> list[Instrument]:
    """Return the instruments of the voirfile at `path`: `__instruments__` (nested lists and mappings of them) where it is
    defined, else every global whose name starts with `instrument_`.

    The module stays in sys.modules, so that instances of classes that it defines can be pickled.
    """
    if not Path(path).is_file():
        raise BenchmateError(f"{path}: no such voirfile")
    # Threads that watch devices would disturb what is measured, and milabench watches them from outside.
    voir.instruments.gpu_monitor = voir.instruments.monitor_all = _watch_nothing
    spec = importlib.util.spec_from_file_location(VOIRFILE_MODULE, path)
    if spec is None or spec.loader is None:
        raise BenchmateError(f"{path}: a voirfile is a Python file")
    module = importlib.util.module_from_spec(spec)
    # Before it runs, as for every import: a data class asks sys.modules for its own module.
    sys.modules[VOIRFILE_MODULE] = module
    spec.loader.exec_module(module)
    if hasattr(module, "__instruments__"):
        return list(_flat(module.__instruments__))
    named = [value for name, value in vars(module).items() if name.startswith("instrument_")]
    return list(_flat(named))


def _watch_nothing(*args: object, **kwargs: object) -> Instrument:
    return lambda overseer: None


def _flat(value: object) -> Iterable[Instrument]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        yield cast("Instrument", value)  # voir reports what is not an instrument
        return
    for item in value:
        yield from _flat(item)
