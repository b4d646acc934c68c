"""What is observed of it: the loader and the loss."""

from benchmate import probes


def instrument_main(ov):
    probes.loader(ov, "//make_loader() as loader", units="items/s", batch_size=8)
    probes.loss(ov, "//train > loss")
