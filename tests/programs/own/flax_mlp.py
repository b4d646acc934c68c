"""Trains a network of Flax with optax, in the style of its first example: a compiled step in a loop over batches."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

EPOCHS = 400
BATCH_SIZE = 64


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(784, 256, rngs=rngs)
        self.out = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.hidden(x)))


def load_data():
    rng = np.random.default_rng(0)
    images = rng.random((6400, 784), dtype=np.float32)
    return images, rng.integers(0, 10, 6400)


def main():
    images, labels = load_data()
    model = MLP(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)

    def loss_fn(model, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    @nnx.jit
    def train_step(model, optimizer, x, y):
        loss, grads = nnx.value_and_grad(loss_fn)(model, x, y)
        optimizer.update(model, grads)
        return loss

    for epoch in range(EPOCHS):
        order = np.random.permutation(len(images))
        for start in range(0, len(images) - BATCH_SIZE + 1, BATCH_SIZE):
            index = order[start : start + BATCH_SIZE]
            loss = train_step(model, optimizer, jnp.asarray(images[index]), jnp.asarray(labels[index]))
        print(f"epoch {epoch}, loss {loss:.4f}, {jax.default_backend()}")


if __name__ == "__main__":
    main()
