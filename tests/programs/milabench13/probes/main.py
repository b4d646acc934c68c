#!/usr/bin/env python
"""A training on images from files, which knows nothing of its instruments."""

import argparse
import os
import pathlib

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, folder):
        self.files = sorted(pathlib.Path(folder).glob("*/*.JPEG"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, number):
        pixels = numpy.array(Image.open(self.files[number]).resize((32, 32)), dtype=numpy.float32)
        return torch.from_numpy(pixels.reshape(-1) / 255), int(self.files[number].parent.name) % 10


def image_loader(args):
    return DataLoader(
        Images(os.path.join(os.environ["MILABENCH_DIR_DATA"], "FakeImageNet", "train")), args.batch_size, shuffle=True
    )


def train_epoch(model, criterion, optimizer, loader):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    model = torch.nn.Linear(3 * 32 * 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = image_loader(args)
    for _ in range(100_000):
        train_epoch(model, torch.nn.CrossEntropyLoss(), optimizer, loader)


if __name__ == "__main__":
    main()
