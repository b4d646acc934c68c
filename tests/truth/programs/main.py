"""Small trainings, one for each way in which people write a loop; each stamps its steps with its own clock."""

import os
import time

from own_clock import OwnClock

EPOCHS = 100_000  # more than any window needs: the runner ends the program
BATCH, WIDTH = 32, 256


def network():
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))


def samples(count):
    import torch
    from torch.utils.data import TensorDataset

    draw = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(count, WIDTH, generator=draw), torch.randn(count, 1, generator=draw))


def train(loader, after_epoch=lambda model: None, wrap=lambda model, optimizer, loader: (model, optimizer, loader)):
    """The plainest loop there is; what else a program does comes with the arguments."""
    import torch

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    model, optimizer, loader = wrap(model, optimizer, loader)
    clock = OwnClock()
    for _ in range(EPOCHS):
        clock.begin()
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            clock.end(len(inputs))
            clock.begin()
        clock.begin()
        if after_epoch(model) is not None:
            clock.end(None)


def torch_loop():
    from torch.utils.data import DataLoader

    # The last batch of an epoch is smaller than the others.
    train(DataLoader(samples(40 * BATCH + 7), batch_size=BATCH, shuffle=True))


def loader_workers():
    """Two processes that are started anew at each epoch, as a DataLoader's are by default."""
    from torch.utils.data import DataLoader

    train(DataLoader(samples(40 * BATCH), batch_size=BATCH, shuffle=True, num_workers=2))


def iterable_dataset():
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Stream(IterableDataset):
        """Samples as they come, some of them later than others; each worker has its half."""

        def __iter__(self):
            worker = get_worker_info()
            for index in range(worker.id, 60 * BATCH, worker.num_workers):
                yield rows[index % len(rows)]

    rows = samples(512)
    train(DataLoader(Stream(), batch_size=BATCH, num_workers=2, persistent_workers=True))


def accumulation():
    """An optimizer's step after every fourth batch."""
    import torch
    from torch.utils.data import DataLoader

    model, loader = network(), DataLoader(samples(40 * BATCH), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    clock = OwnClock()
    for _ in range(EPOCHS):
        clock.begin()
        for number, (inputs, targets) in enumerate(loader, start=1):
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            if number % 4 == 0:
                try:
                    optimizer.step()
                finally:  # the runner may end the program at the end of a step, before the call returns
                    clock.end(4 * BATCH)
                optimizer.zero_grad()
                clock.begin()


def bench_observer():
    """milabench 1.3's observer in the program, asked for its loader at each epoch."""
    from torch.utils.data import DataLoader

    from benchmate.observer import BenchObserver

    class EachEpoch:
        def __init__(self, loader):
            self.loader, self.observer = loader, BenchObserver(earlystop=70)

        def __iter__(self):
            return iter(self.observer.iterate(self.loader))

    train(
        DataLoader(samples(40 * BATCH + 7), batch_size=BATCH, shuffle=True),
        wrap=lambda model, optimizer, loader: (model, optimizer, EachEpoch(loader)),
    )


def bench_observer_ranks():
    from benchmate.observer import BenchObserver

    two_ranks(BenchObserver(earlystop=70, raise_stop_program=True).loader)


def bench_observer_steps():
    """Steps that the program ends itself, of four batches each."""
    import torch
    from torch.utils.data import DataLoader

    from benchmate.observer import BenchObserver

    model, observer = network(), BenchObserver()
    loader = observer.loader(DataLoader(samples(40 * BATCH), batch_size=BATCH, shuffle=True), custom_step=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    clock = OwnClock()
    for _ in range(EPOCHS):
        for number, (inputs, targets) in enumerate(loader, start=1):
            observer.record_loss(torch.nn.functional.mse_loss(model(inputs), targets)).backward()
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
                try:
                    observer.step()
                finally:  # the runner ends the program at the end of a step
                    clock.end(4 * BATCH)
                    clock.begin()


def validate(model):
    """About a third of an epoch's time, outside of any observed loop."""
    import torch

    with torch.no_grad():
        return [model(inputs).sum() for inputs, _ in [samples(4096).tensors] * 4][-1]


def validation():
    from torch.utils.data import DataLoader

    train(DataLoader(samples(40 * BATCH), batch_size=BATCH), after_epoch=validate)


declared = validation


def trainer():
    """transformers' Trainer on a language model of two layers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    tokens = torch.randint(0, 128, (64, 32), generator=torch.Generator().manual_seed(0))
    clock = OwnClock()

    class Stamped(Trainer):
        def training_step(self, *arguments):
            try:
                return super().training_step(*arguments)
            finally:
                clock.end(8 * 32)
                clock.begin()

    arguments = TrainingArguments(
        output_dir="trained",
        per_device_train_batch_size=8,
        num_train_epochs=EPOCHS,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    Stamped(model=LlamaForCausalLM(config), args=arguments, train_dataset=rows).train()


def lightning():
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from torch.utils.data import DataLoader

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def training_step(self, batch):
            inputs, targets = batch
            return torch.nn.functional.mse_loss(self.network(inputs), targets)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.001)

    class Stamps(Callback):
        def on_train_epoch_start(self, *_args):
            clock.begin()

        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            clock.end(len(batch[0]))
            clock.begin()

    clock = OwnClock()
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    Trainer(accelerator="cpu", max_epochs=EPOCHS, callbacks=[Stamps()], **quiet).fit(
        Module(), DataLoader(samples(40 * BATCH), batch_size=BATCH, shuffle=True)
    )


def accelerated():
    """torch's loop with what accelerate makes of a model, an optimizer and a loader."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    train(
        DataLoader(samples(40 * BATCH), batch_size=BATCH, shuffle=True),
        wrap=lambda *parts: Accelerator(cpu=True).prepare(*parts),
    )


def jax_batches():
    import numpy

    draw = numpy.random.default_rng(0)
    batches = [draw.standard_normal((BATCH, WIDTH), dtype=numpy.float32) for _ in range(16)]
    for _ in range(EPOCHS):
        yield from batches


def jax():
    """Steps that are only queued: the program itself waits for none of them."""
    import jax
    from jax import numpy as jnp

    @jax.jit
    def step(weights, batch):
        loss = lambda w: jnp.mean((jnp.tanh(batch @ w[0]) @ w[1]) ** 2)  # noqa: E731
        return [w - 0.001 * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)]

    key = jax.random.key(0)
    weights = [jax.random.normal(key, (WIDTH, 2048)), jax.random.normal(key, (2048, WIDTH))]
    clock = OwnClock()
    for batch in jax_batches():
        weights = step(weights, batch)
        clock.end(len(batch))
        clock.begin()


def sklearn():
    """scikit-learn's multilayer perceptron, which shuffles and scores between its epochs."""
    import numpy
    from sklearn.neural_network import MLPClassifier

    class Stamped(MLPClassifier):
        def _backprop(self, inputs, *rest):
            result = super()._backprop(inputs, *rest)
            clock.end(len(inputs))
            clock.begin()
            return result

    draw = numpy.random.default_rng(0)
    inputs, targets = draw.standard_normal((40 * BATCH, WIDTH)), draw.integers(0, 2, 40 * BATCH)
    clock = OwnClock()
    Stamped((256,), batch_size=BATCH, max_iter=EPOCHS, n_iter_no_change=EPOCHS, early_stopping=True).fit(
        inputs, targets
    )


def two_ranks(wrap_loader=lambda loader: loader, before_forward=lambda *_: None):
    """Gradients exchanged by gloo; each rank has its own clock and its own half of the samples."""
    import torch.distributed
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader

    def wrap(model, optimizer, loader):
        model.register_forward_pre_hook(before_forward)
        return DistributedDataParallel(model), optimizer, wrap_loader(loader)

    torch.distributed.init_process_group("gloo")
    train(DataLoader(samples(40 * BATCH), batch_size=BATCH), wrap=wrap)
    torch.distributed.destroy_process_group()


def four_ranks():
    two_ranks()


def four_ranks_one_slow():
    """Each step of rank 2 takes 20 ms more, in which it does nothing."""
    two_ranks(before_forward=lambda *_: time.sleep(0.02 * (os.environ["RANK"] == "2")))


if __name__ == "__main__":
    globals()[os.environ["MILABENCH_NAME"]]()
