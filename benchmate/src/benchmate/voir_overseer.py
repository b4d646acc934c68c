"""voir's Overseer as a part of ours: streams of given and logged values, options and selectors, with our phases and records."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from argparse import Namespace
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from benchmate.errors import BenchmateError, ProbeError
from benchmate.given_records import record_given
from benchmate.lazy_imports import deferred_imports
from benchmate.phases import InstrumentHost, ProgramAborted, StopProgram
from benchmate.probe_registry import Probe, expect
from benchmate.program_loader import Command
from benchmate.session import Session

# Half of voir's start-up, and most voirfiles need none of them.
with deferred_imports("ptera", "omegaconf", "yaml", "varname", "varname.utils", "pdb"):
    import voir.instruments
    import voir.phase
    from giving import given
    from voir.helpers import current_overseer
    from voir.overseer import LogStream, Overseer

# One class, whoever raises or catches it: what ended the program before voir was imported, too.
voir.phase.StopProgram = StopProgram
voir.phase.OverseerAbort = ProgramAborted


def _watch_nothing(*args: object, **kwargs: object) -> Any:
    return lambda overseer: None


# Threads that watch devices would disturb what is measured, and milabench watches them from outside.
voir.instruments.gpu_monitor = voir.instruments.monitor_all = _watch_nothing


class VoirOverseer(Overseer):  # type: ignore[misc]  # voir has no types
    """The parts of voir's Overseer beyond phases, for the instruments of `host`."""

    def __init__(self, host: InstrumentHost, session: Session, option_blocks: Mapping[str, Any]) -> None:
        super().__init__([])
        self._session = session
        self._option_blocks = option_blocks
        self._taken: dict[int, object] = {}
        """Rates of other threads that are recorded already, by their id. They are kept, so that no other object gets that id."""
        self.phases, self.handlers, self.require = host.phases, host.handlers, host.require
        self.log = LogStream()
        self.log >> self._forward
        self.given = given().__enter__()
        self.given.where("$event") >> self.log
        self._token = current_overseer.set(host)
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
            raise ProbeError(f"probe {selector!r}: the script is not loaded yet: `yield ov.phases.load_script` first")
        # Imported late, like ptera itself: most voirfiles have no selector.
        from benchmate.probes.ptera_streams import open_stream

        probe = expect(Probe(f"probe {selector!r}", required=options.pop("required", True)))
        env = {**vars(sys.modules["__main__"]), **frame.f_globals, **frame.f_locals}
        return self.require(_Activation(open_stream(selector, probe, env=env, **options)))

    def queue(self, **data: Any) -> None:
        """Take a rate that another thread gives at once, and leave other given values to the main thread, as voir does."""
        if "rate" in data:
            self._taken[id(data["rate"])] = data["rate"]
            self._session.program_rate(data)
        super().queue(**data)

    # For the overseer that it is a part of

    def parse(self, argv: Sequence[str]) -> Command:
        """Return the target of the command line, with the options of instruments read from it."""
        self.options = options = self.argparser.parse_args(argv)
        del self.argparser
        if options.SCRIPT is not None:
            return Command(options.SCRIPT, None, options.ARGV)
        if not options.MODULE:
            raise BenchmateError("expected a script, or -m and a module")
        return Command(None, options.MODULE[0], options.MODULE[1:])

    def take_command(self, command: Command) -> None:
        """Have the options of a command line that named no more than a program."""
        module = None if command.module is None else [command.module, *command.arguments]
        arguments = [] if module else list(command.arguments)
        self.options = Namespace(SCRIPT=command.script, ARGV=arguments, MODULE=module)
        del self.argparser

    def record_unattended(self) -> None:
        """Record the rates and losses that a program gives, where no instrument chooses the recorded values."""
        if not self.handlers:
            self.given >> self._record_rate_or_loss

    def end_streams(self) -> None:
        """Take the values from other threads, and end the streams."""
        self._dump_queue()
        try:
            self.given.__exit__(None, None, None)
        except ValueError:
            # The streams belong to the context that they were opened in.
            self._session.message(
                "voir was first imported in a task: values given outside the task are not recorded. Import it before"
            )

    def leave(self) -> None:
        """No longer be the current overseer."""
        with contextlib.suppress(ValueError):
            current_overseer.reset(self._token)

    # Streams

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

    def _record_rate_or_loss(self, data: Mapping[str, Any]) -> None:
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

    def __init__(self, stream: Any) -> None:
        self.stream = self.__state__ = stream

    def __call__(self, ov: InstrumentHost) -> Generator[object, object, None]:
        yield ov.phases.load_script(priority=0)
        with self.stream:
            yield ov.phases.run_script(priority=0)
