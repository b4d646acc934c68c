"""voir's Overseer as we use it: phases and instruments are voir's, errors fail the step, records go to our sink."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Any

from benchmate import probes
from benchmate.errors import BenchmateError, ProbeError
from benchmate.lazy_imports import deferred_imports
from benchmate.program_loader import Program
from benchmate.session import Session

# Half of voir's start-up, and most voirfiles ask for none of it.
with deferred_imports("ptera", "omegaconf", "yaml", "varname", "varname.utils", "pdb"):
    from voir.overseer import LogStream, Overseer
    from voir.phase import StopProgram

__all__ = ["InstrumentFailed", "ProgramOverseer", "StopProgram"]


class InstrumentFailed(BaseException):
    """An instrument failed before the program began: running it would measure nothing."""


class ProgramOverseer(Overseer):  # type: ignore[misc]
    """Runs a program under instruments."""

    def __init__(self, instruments: list[Any], session: Session, config: Mapping[str, Any]) -> None:
        super().__init__(instruments)
        self._session = session
        self._blocks = config
        self._logger = None
        self.log = LogStream()
        self.log >> self._forward
        self.program: Program | None = None
        add_from_model = self.argparser.add_from_model
        self.argparser.add_from_model = lambda dest, model, **more: add_from_model(
            dest, self._preset(dest, model), **more
        )

    def probe(self, selector: Any, **options: Any) -> Any:
        """voir's own probe, with hazards refused, overridden objects let go, and the duty to fire."""
        frame = sys._getframe(1)
        if not isinstance(selector, str):
            return super().probe(selector, **options)
        if "//" in selector and self.phases.load_script.pending:
            raise ProbeError(f"probe {selector!r}: the script is not loaded yet; `yield ov.phases.load_script` first")
        from benchmate.selectors import make_probe

        expected = probes.book().add(probes.Probe(f"probe {selector!r}", required=options.pop("required", True)))
        stream = make_probe(
            selector,
            on_fire=lambda: setattr(expected, "fired", True),
            on_error=expected.failed,
            env={**vars(sys.modules["__main__"]), **frame.f_globals, **frame.f_locals},
            **options,
        )
        return self.require(_Activation(stream))

    def run_command(self, argv: list[str], paths: tuple[str, ...]) -> None:
        """Run what the command line names; returns also when it was stopped early, passes on what the program raised."""
        self._paths = paths
        self(argv)
        # Back here after an early stop: what was raised holds every frame of the program, and with them its loaders' workers.
        for phase in self.phases:
            if phase.exception is not None:
                phase.exception.__traceback__ = None
        if self.program is not None:
            self.program.traceback = None

    # What voir calls

    def _run(self, argv: list[str]) -> None:
        self.given.where("$event") >> self.log
        with self.run_phase(self.phases.init):
            pass
        with self.run_phase(self.phases.parse_args):
            self.options = self.argparser.parse_args(argv)
            del self.argparser
        self._give_up_on_failure()
        with self.run_phase(self.phases.load_script):
            self.program = self._program()
            self.program.load()
        probes.book().apply()
        self._give_up_on_failure()
        with self.run_phase(self.phases.run_script):
            self.program.run()

    def _program(self) -> Program:
        options = self.options
        if options.SCRIPT is not None:
            return Program(script=options.SCRIPT, module=None, arguments=options.ARGV, paths=self._paths)
        if not options.MODULE:
            raise BenchmateError("expected a script, or -m and a module")
        return Program(script=None, module=options.MODULE[0], arguments=options.MODULE[1:], paths=self._paths)

    def _give_up_on_failure(self) -> None:
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
        """The program raised; recorded by the caller, which knows the program's own traceback."""

    def _forward(self, data: Mapping[str, Any]) -> None:
        if self._session.is_forked_child:
            return
        if "$event" in data:
            self._session.record(str(data["$event"]), data.get("$data") or {})
        else:
            self._session.record("data", data)

    def _preset(self, dest: str, model: Any) -> Any:
        """A configurable instrument's options, with the defaults that the suite gives for its block; other keys are left."""
        import dataclasses

        block = self._blocks.get(dest)
        if not isinstance(block, Mapping) or not isinstance(model, type) or not dataclasses.is_dataclass(model):
            return model
        known = {field.name for field in dataclasses.fields(model)}
        given = {name: value for name, value in block.items() if name in known}
        if given:
            self.argparser.merge_base_config({dest: given})
        return model


class _Activation:
    """Activates a probe for as long as the script runs."""

    def __init__(self, stream: Any) -> None:
        self.stream = self.__state__ = stream

    def __call__(self, ov: Any) -> Any:
        yield ov.phases.load_script(priority=0)
        with self.stream:
            yield ov.phases.run_script(priority=0)
