"""Trains an autoencoder with Lightning's Trainer."""

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class LitAutoEncoder(L.LightningModule):
    def __init__(self, hidden=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 16))
        self.decoder = nn.Sequential(nn.Linear(16, hidden), nn.ReLU(), nn.Linear(hidden, 784))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = F.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        self.log("val_loss", F.mse_loss(self.decoder(self.encoder(x)), x))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    torch.manual_seed(0)
    dataset = TensorDataset(torch.rand(12000, 784))
    train, val = random_split(dataset, [10000, 2000])
    trainer = L.Trainer(max_epochs=200, accelerator="auto", logger=False, enable_checkpointing=False)
    trainer.fit(LitAutoEncoder(), DataLoader(train, batch_size=64, shuffle=True), DataLoader(val, batch_size=256))


if __name__ == "__main__":
    main()
