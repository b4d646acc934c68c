"""Samples of each product, forward and backward, that e3nn's benchmark script times; the product is checked once before."""

from __future__ import annotations

from benchmate import fail, probes

TOLERANCE = 1e-3
CHECKED = 16


def instrument_e3nn(ov):
    # The timed statement begins with `next(inputs)`, over an iterator that the script makes beforehand.
    probes.iterable(ov, "__main__.iter", units="samples/s", batch_size=lambda pair: pair[0].shape[0], when=bool)
    # The script compiles the product as the last thing before that.
    probes.patch(ov, "__main__.compile", lambda compile_product: lambda product: compile_product(checked(product)))


def checked(product):
    """The same product, after a test of what it is for: rotating its arguments rotates its result."""
    import torch
    from e3nn import o3

    device = next(product.parameters()).device
    first, second = (irreps.randn(CHECKED, -1, device=device) for irreps in (product.irreps_in1, product.irreps_in2))
    rotation = o3.rand_matrix().to(device)
    rotate = {
        name: getattr(product, name).D_from_matrix(rotation.cpu()).to(device).T
        for name in ("irreps_in1", "irreps_in2", "irreps_out")
    }
    with torch.no_grad():
        rotated_after = product(first, second) @ rotate["irreps_out"]
        rotated_before = product(first @ rotate["irreps_in1"], second @ rotate["irreps_in2"])
        error = ((rotated_after - rotated_before).abs().max() / rotated_after.abs().max()).item()
    if not error <= TOLERANCE:
        fail(
            "invalid", f"the tensor product is not equivariant: error {error:.1e} of its scale (at most {TOLERANCE:g})"
        )
    return product
