from dataclasses import dataclass

from voir import configurable
from voir.phase import StopProgram

from benchmate.monitor import voirfile_monitor
from benchmate.observer import BenchObserver


@dataclass
class Config:
    """voir configuration"""

    dash: bool = False
    skip: int = 5
    stop: int = 20
    gpu_poll: float = 1


@configurable
def instrument_main(ov, options: Config):
    yield ov.phases.load_script

    voirfile_monitor(ov, options)
    observer = BenchObserver(earlystop=options.stop + options.skip, raise_stop_program=True)
    ov.probe("//batches() as loader", overridable=True)["loader"].override(observer.loader)
    try:
        yield ov.phases.run_script
    except StopProgram:
        print("early stopped")
