"""A small convolutional network learns scikit-learn's handwritten digits: 1797 real images of 8 x 8."""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRAINING_IMAGES = 1437  # the first four fifths; the last fifth is the test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument(
        "--width", type=int, default=32, help="channels of the first layer; the second has twice as many"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images, labels = digits()
    loader = make_loader(images[:TRAINING_IMAGES], labels[:TRAINING_IMAGES], args.batch_size, device)
    model = make_model(args.width).to(device)
    criterion = make_criterion()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    train(model, loader, criterion, optimizer, args.epochs)
    accuracy = evaluate(model, images[TRAINING_IMAGES:], labels[TRAINING_IMAGES:], device)
    print(f"test accuracy: {accuracy:.4f}")


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images (1797, 1, 8, 8) scaled to 0..1 and their labels 0..9."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    return images, torch.tensor(data.target)


def make_loader(images: torch.Tensor, labels: torch.Tensor, batch_size: int, device: torch.device) -> DataLoader:
    # A smaller last batch would make the device compile or choose kernels for a second shape.
    return DataLoader(
        TensorDataset(images, labels),
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        pin_memory=device.type == "cuda",
    )


def make_model(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * width * 16, 10),
    )


def make_criterion() -> nn.Module:
    return nn.CrossEntropyLoss()


def train(
    model: nn.Module, loader: DataLoader, criterion: nn.Module, optimizer: torch.optim.Optimizer, epochs: int
) -> None:
    device = next(model.parameters()).device
    model.train()
    for _ in range(epochs):
        for batch in loader:
            images, labels = (tensor.to(device, non_blocking=True) for tensor in batch)
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.inference_mode()
def evaluate(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, device: torch.device) -> float:
    """The share of images that the model names rightly."""
    model.eval()
    return (model(images.to(device)).argmax(1).cpu() == labels).float().mean().item()


if __name__ == "__main__":
    main()
