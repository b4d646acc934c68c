"""The operations of every product of the headline precision, and one metric for each precision tried."""

from __future__ import annotations

from benchmate import fail, message, metric, probes

RESOLUTION = 1e-3  # items are recorded to a thousandth
LARGEST_ERROR = 1e-3


def instrument_flops(ov):
    yield ov.phases.load_script
    probes.iterable(ov, "__main__.products", units="Tflop/s", batch_size=tera)
    probes.result(ov, "__main__.measure", report)
    probes.result(ov, "__main__.unavailable", lambda reason: reason and message(f"not measured: {reason}"))


def tera(flop):
    """The operations of a product in 1e12; whole thousandths where the size is a multiple of 1000."""
    items = flop / 1e12
    recorded = round(items / RESOLUTION) * RESOLUTION
    if abs(recorded - items) > LARGEST_ERROR * items:
        fail(
            "invalid",
            f"{items:.6f} Tflop cannot be recorded in thousandths: take a --size that is a multiple of 1000",
        )
    return items


def report(trial):
    metric(
        "tflops",
        trial.tflops,
        units=trial.units,
        direction="higher",
        case=trial.precision,
        params={"n": trial.size},
        products=trial.products,
        seconds=trial.seconds,
        clock=trial.clock,
    )
