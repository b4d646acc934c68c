"""Check that JAX finds a device and can compile for it; the script makes its data itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def main() -> None:
    total = jax.jit(jnp.sum)(jnp.ones(8)).item()
    if total != 8:
        raise SystemExit(f"error: flax: the sum of eight ones is {total} on {jax.devices()[0]}")
    print(f"jax {jax.__version__} on {jax.devices()[0]}")


if __name__ == "__main__":
    main()
