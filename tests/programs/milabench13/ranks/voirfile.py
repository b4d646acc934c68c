from dataclasses import dataclass

from voir import configurable

from benchmate.monitor import voirfile_monitor


@dataclass
class Config:
    """voir configuration"""

    dash: bool = False
    interval: str = "1s"
    skip: int = 5
    stop: int = 20
    gpu_poll: float = 1


@configurable
def instrument_main(ov, options: Config):
    yield ov.phases.init

    voirfile_monitor(ov, options)
