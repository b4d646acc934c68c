"""Shapes of loop that real training code has. Each stamps its own steps: begin, end and items, by its own clock.

A step is as long as a nap, so that many programs fit on two processors.
"""

import itertools
import multiprocessing
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "programs"))

from own_clock import OwnClock

EPOCHS = 100_000  # more than any window needs: the runner ends the program
BATCH, NAP_S = 16, 0.003


def work(seconds=NAP_S):
    time.sleep(seconds)


def loader(count=40 * BATCH, batch=BATCH, **more):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    return DataLoader(TensorDataset(torch.zeros(count, 8), torch.zeros(count)), batch_size=batch, **more)


def stepping(batches, clock, seconds=NAP_S):
    """The plainest loop: work on each batch, stamp it."""
    for batch in batches:
        clock.begin()
        work(seconds)
        clock.end(len(batch[0]))


def epochs(one):
    clock = OwnClock()
    for _ in range(EPOCHS):
        one(clock)


# Loops that are left


def broken_after_work():
    data = loader()

    def one(clock):
        for i, (x, _) in enumerate(data):
            clock.begin()
            work()
            clock.end(len(x))
            if i == 24:
                break

    epochs(one)


def broken_before_work():
    """`if i == N: break` first: the last batch is fetched for nothing."""
    data = loader()

    def one(clock):
        for i, (x, _) in enumerate(data):
            if i == 24:
                break
            clock.begin()
            work()
            clock.end(len(x))

    epochs(one)


def islice():
    data = loader()
    epochs(lambda clock: stepping(itertools.islice(data, 25), clock))


def while_next():
    """`while True` with `next`, and a new iterator when the loader ends."""
    data, clock = loader(), OwnClock()
    batches = iter(data)
    while True:
        try:
            x, _ = next(batches)
        except StopIteration:
            batches = iter(data)
            x, _ = next(batches)
        clock.begin()
        work()
        clock.end(len(x))


def next_of_each_epoch():
    """So many calls of `next` each epoch, on an iterator that is dropped half way through the data."""
    data = loader()

    def one(clock):
        batches = iter(data)
        for _ in range(10):
            x, _ = next(batches)
            clock.begin()
            work()
            clock.end(len(x))

    epochs(one)


def next_of_a_new_iterator():
    """Each step asks a new iterator for its first batch."""
    data, clock = loader(shuffle=True), OwnClock()
    while True:
        x, _ = next(iter(data))
        clock.begin()
        work()
        clock.end(len(x))


def early_stop():
    """Trainings one after the other, each of which stops when it is good enough."""
    data = loader()

    def one(clock):
        for patience in range(3):
            for i, (x, _) in enumerate(data):
                clock.begin()
                work()
                clock.end(len(x))
                if i > 10 + patience:
                    return

    epochs(one)


def exceptions():
    """Exceptions that are caught in each epoch, and the loop begun again."""
    data = loader()

    def one(clock):
        try:
            for i, (x, _) in enumerate(data):
                clock.begin()
                work()
                clock.end(len(x))
                if i == 20:
                    _ = [][i]
        except IndexError:
            pass

    epochs(one)


# Several loops


def evaluation_in_a_child():
    """A forked child evaluates with a loader of its own while the parent trains."""
    data, clock = loader(), OwnClock()
    child = 0
    for _ in range(EPOCHS):
        stepping(data, clock)
        if child == 0:
            child = os.fork()
            if child == 0:
                evaluation = loader(20 * BATCH)
                for _ in range(100):
                    for _batch in evaluation:
                        work(0.002)
                os._exit(0)


def evaluation_in_a_spawned_child():
    """A spawned process evaluates with a loader of its own while the parent trains."""
    data, clock = loader(), OwnClock()
    multiprocessing.get_context("spawn").Process(target=evaluate, daemon=True).start()
    while True:
        stepping(data, clock)


def evaluate():
    for _ in range(100):
        validate(loader(20 * BATCH))


def training_in_an_executed_child():
    """Another program, which observes itself, beside the one that is measured; neither has a rank."""
    data, clock = loader(), OwnClock()
    program = "import benchmate, time\nfor _ in benchmate.observed(range(10**6), batch_size=16): time.sleep(0.001)"
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        try:
            while True:
                stepping(data, clock)
        finally:
            child.kill()


def two_processes():
    """Two forked processes train, each for itself, and neither has a rank."""
    data = loader()
    other = os.fork() == 0
    clock = OwnClock(f"stamps.{int(other)}.txt")
    for _ in range(EPOCHS if not other else 12):
        stepping(data, clock)
    os._exit(0)


def pause_with_a_loop():
    """A declared validation over an observed loader, with gradients on."""
    data, held_out = loader(), loader(30 * BATCH)

    def one(clock):
        stepping(data, clock)
        clock.begin()
        validate(held_out)
        clock.end(None)

    epochs(one)


def validate(held_out):
    for _ in held_out:
        work(0.001)


def validation_in_a_step():
    """A validation with gradients on inside the training loop, every 100th step."""
    data, held_out = loader(150 * BATCH), loader(10 * BATCH)

    def one(clock):
        for i, (x, _) in enumerate(data):
            clock.begin()
            work()
            clock.end(len(x))
            if i % 100 == 99:
                validate(held_out)

    epochs(one)


def nested():
    """Chunks from one loader, batches of each from another."""
    chunks, batches = loader(20 * BATCH), loader(4 * BATCH)

    def one(clock):
        for _chunk in chunks:
            work(0.001)
            stepping(batches, clock)

    epochs(one)


def two_in_step():
    """`zip` of a labelled and an unlabelled loader, as FixMatch has it."""
    labelled, unlabelled = loader(), loader(40 * 4 * BATCH, 4 * BATCH)

    def one(clock):
        for (x, _), (u, _) in zip(labelled, unlabelled, strict=True):
            clock.begin()
            work()
            clock.end(len(x) + len(u))

    epochs(one)


def two_in_turn():
    """Two loaders, an epoch of each in turn."""
    first, second = loader(), loader(20 * 2 * BATCH, 2 * BATCH)

    def one(clock):
        stepping(first, clock)
        stepping(second, clock, 2 * NAP_S)

    epochs(one)


def instances_in_a_process():
    """Two threads that train each their own model with the same loader class."""
    clock = OwnClock()
    lock = threading.Lock()

    def train():
        data = loader()
        for _ in range(EPOCHS):
            for x, _ in data:
                work()
                with lock:
                    clock.end(len(x))

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    train()


# Steps without a loop


class Optimizers:
    """Two optimizers of one model each."""

    def __init__(self):
        import torch

        self.made = [torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1) for _ in range(2)]
        for optimizer in self.made:
            for group in optimizer.param_groups:
                group["params"][0].grad = group["params"][0].detach().clone()


def gan():
    first, second = Optimizers().made
    clock = OwnClock()
    while True:
        clock.begin()
        work()
        first.step()
        work()
        try:
            second.step()
        finally:
            clock.end(BATCH)


def accumulation():
    optimizer, clock = Optimizers().made[0], OwnClock()
    for i, _ in enumerate(itertools.cycle(loader())):
        if i % 4 == 0:
            clock.begin()
        work()
        if i % 4 == 3:
            try:
                optimizer.step()
            finally:
                clock.end(4 * BATCH)


def optimizer_made_again():
    """A training that begins again with a new optimizer, as after a checkpoint."""
    clock = OwnClock()
    while True:
        optimizer = Optimizers().made[0]
        for _ in range(50):
            clock.begin()
            work()
            try:
                optimizer.step()
            finally:
                clock.end(BATCH)


def halves():
    """A step that is done in two halves by itself, as after an out-of-memory."""
    clock = OwnClock()
    while True:
        clock.begin()
        try:
            halved(range(2 * BATCH))
        finally:
            clock.end(2 * BATCH)


def halved(batch):
    if len(batch) > BATCH:
        halved(batch[:BATCH])
        halved(batch[BATCH:])
    else:
        work()


def loader_and_optimizer():
    """Both the loader and the optimizer are observed, for one task."""
    optimizer, clock = Optimizers().made[0], OwnClock()
    for x, _ in itertools.chain.from_iterable(itertools.repeat(loader())):
        clock.begin()
        work()
        optimizer.step()
        clock.end(len(x))


# Batches


def larger_batches():
    """Batches of 16, of 32 from step 700 on."""
    clock = OwnClock()
    stepping(itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader())), 700), clock)
    while True:
        stepping(loader(400 * 2 * BATCH, 2 * BATCH), clock, 1.5 * NAP_S)


def short_last_batch():
    data = loader(10 * BATCH + 7)
    epochs(lambda clock: stepping(data, clock))


def detection():
    """Images as they are, in a tuple of tuples."""
    import torch
    from torch.utils.data import DataLoader

    images = [(torch.zeros(3, 16, 16), {"labels": torch.zeros(i % 3 + 1)}) for i in range(40 * 8 + 3)]
    data = DataLoader(images, batch_size=8, collate_fn=lambda rows: tuple(zip(*rows, strict=True)))
    epochs(lambda clock: stepping(data, clock))


def packed():
    """Texts of unlike lengths in one row, which says nothing of how many there are."""
    import torch
    from torch.utils.data import DataLoader

    texts = [torch.zeros(3 + i % 5) for i in range(40 * 8 + 3)]
    data = DataLoader(texts, batch_size=8, collate_fn=lambda rows: {"packed": torch.cat(rows), "count": len(rows)})

    def one(clock):
        for batch in data:
            clock.begin()
            work()
            clock.end(batch["count"])

    epochs(one)


def images_without_a_loader():
    """A list of images from a generator: three channels or six images?"""
    import torch

    def generate():
        while True:
            yield [torch.zeros(3, 16, 16) for _ in range(6)]

    clock = OwnClock()
    for batch in listed(generate()):
        clock.begin()
        work()
        clock.end(len(batch))


def listed(batches):
    return batches


# Sources


def generator():
    clock = OwnClock()
    stepping(batches_of_lists(), clock)


def batches_of_lists():
    while True:
        yield [[0.0] * BATCH]


def infinite():
    """A loader that never ends, made of one that does."""

    def cycle(data):
        while True:
            yield from data

    stepping(cycle(loader()), OwnClock())


def prefetch_thread():
    """A thread reads ahead; the loader is looped over there."""
    ready = queue.Queue(maxsize=4)

    def read():
        for _ in range(EPOCHS):
            for batch in data:
                ready.put(batch)

    data = loader()
    threading.Thread(target=read, daemon=True).start()
    stepping(iter(ready.get, None), OwnClock())


def workers():
    data = loader(num_workers=2, persistent_workers=True)
    epochs(lambda clock: stepping(data, clock))


def resumed():
    """The first epoch begins in the middle, as after a checkpoint: the batches before are passed over."""
    data, clock = loader(200 * BATCH), OwnClock()
    for epoch in range(EPOCHS):
        for i, (x, _) in enumerate(data):
            if epoch == 0 and i < 60:
                continue
            clock.begin()
            work()
            clock.end(len(x))


# Frameworks


def lightning(**limits):
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch):
            work()
            return self.layer(batch[0]).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.001)

    class Stamps(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            clock.end(len(batch[0]))
            clock.begin()

    clock = OwnClock()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    Trainer(accelerator="cpu", max_epochs=EPOCHS, callbacks=[Stamps()], **quiet, **limits).fit(Module(), loader())


def lightning_limited():
    lightning(limit_train_batches=25)


lightning_by_loader = lightning_limited


def trainer(loader_of=None):
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, x, labels=None):
            work()
            return {"loss": self.layer(x).mean()}

    class Stamps(TrainerCallback):
        def on_step_end(self, *_args, **_more):
            clock.end(BATCH)
            clock.begin()

    clock = OwnClock()
    arguments = TrainingArguments(
        output_dir="trained",
        per_device_train_batch_size=BATCH,
        max_steps=EPOCHS,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
    )
    rows = [{"x": torch.zeros(8), "labels": torch.zeros(1)} for _ in range(40 * BATCH)]
    Trainer(model=Model(), args=arguments, train_dataset=rows, callbacks=[Stamps()]).train()


trainer_by_loader = trainer


def accelerate():
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    layer = torch.nn.Linear(8, 1)
    model, optimizer, data = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.001), loader())

    def one(clock):
        for x, _ in data:
            clock.begin()
            accelerator.backward(model(x).mean())
            work()
            optimizer.step()
            clock.end(len(x))

    epochs(one)


def keras():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy

    class Stamps(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            work()
            clock.end(BATCH)
            clock.begin()

    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    clock = OwnClock()
    rows = numpy.zeros((40 * BATCH, 8), "float32")
    model.fit(rows, rows[:, 0], batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[Stamps()])


def jax():
    """Steps that are only queued: the program itself waits for none of them."""
    import jax
    from jax import numpy as jnp

    @jax.jit
    def step(weights, batch):
        return weights + 1e-6 * jnp.tanh(weights @ weights) * batch.sum()

    weights = jnp.ones((384, 384))
    clock = OwnClock()
    for batch in jax_batches():
        weights = step(weights, batch)
        clock.end(len(batch))
        clock.begin()


def jax_batches():
    import numpy

    while True:
        yield numpy.zeros((BATCH, 8), "float32")


if __name__ == "__main__":
    globals()[os.environ["MILABENCH_NAME"]]()
