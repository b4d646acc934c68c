"""Train neuraloperator's FNO to solve Poisson's equation, by the package's own Trainer, optimizer and loss."""

from __future__ import annotations

import argparse

import torch
from neuralop import LpLoss, Trainer
from neuralop.data.datasets.tensor_dataset import TensorDataset
from neuralop.models import FNO
from neuralop.training import AdamW

ENDLESS = 10**9  # epochs: the runner ends the program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="what prepare.py wrote")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--modes", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()

    torch.manual_seed(1)
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    fields = torch.load(args.data)
    model = FNO(
        n_modes=(args.modes, args.modes),
        in_channels=1,
        out_channels=1,
        hidden_channels=args.hidden,
        n_layers=args.layers,
    )
    optimizer = AdamW(model.parameters(), lr=1e-3)
    trainer = Trainer(model=model, n_epochs=ENDLESS, device=device, eval_interval=ENDLESS + 1)
    trainer.train(
        train_loader=torch.utils.data.DataLoader(
            TensorDataset(fields["source"], fields["potential"]),
            batch_size=args.batch_size,
            shuffle=True,
            drop_last=True,
        ),
        test_loaders={},
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1),
        training_loss=LpLoss(d=2, reduction="sum"),
    )


if __name__ == "__main__":
    main()
