from dataclasses import dataclass

import torchcompat.core as accelerator
from voir import configurable
from voir.phase import StopProgram

from benchmate.monitor import monitor_monogpu, voirfile_monitor
from benchmate.observer import BenchObserver


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
    ov.require(monitor_monogpu(poll_interval=options.gpu_poll))

    yield ov.phases.load_script

    observer = BenchObserver(
        accelerator.Event,
        earlystop=options.stop + options.skip,
        batch_size_fn=lambda batch: len(batch[0]),
        raise_stop_program=True,
    )
    ov.probe("//image_loader() as loader", overridable=True)["loader"].override(observer.loader)
    ov.probe("//train_epoch > criterion", overridable=True)["criterion"].override(observer.criterion)
    try:
        yield ov.phases.run_script
    except StopProgram:
        print("early stopped")
