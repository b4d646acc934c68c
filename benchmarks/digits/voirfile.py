"""Images of every training step, the loss, and the accuracy of the test that follows."""

from __future__ import annotations

import functools

from voir.phase import StopProgram

from benchmate import metric, probes


def instrument_digits(ov):
    yield ov.phases.load_script
    probes.loader(ov, "//make_loader() as loader", units="images/s")
    probes.criterion(ov, "//make_criterion() as criterion")
    probes.patch(ov, "__main__.train", ending_early)
    probes.result(
        ov, "__main__.evaluate", lambda share: metric("accuracy", share, units="fraction", direction="higher")
    )


def ending_early(train):
    """The end of the measured window ends the training, not the program: what was learned is still tested."""

    @functools.wraps(train)
    def until_stopped(*args, **kwargs):
        try:
            train(*args, **kwargs)
        except StopProgram:
            print("enough was measured: training ends here")

    return until_stopped
