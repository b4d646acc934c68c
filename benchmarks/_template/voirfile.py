"""What is measured in @NAME@: each batch that `batches` gives is a step, and `loss_of` returns the loss."""

from benchmate import observe_loss, probes


def instrument_main(ov):
    """Observe the loop over `batches()` of the script, and the loss."""
    yield ov.phases.load_script
    probes.iterable(ov, "__main__.batches", units="samples/s", batch_size=len)
    probes.result(ov, "__main__.loss_of", observe_loss)
