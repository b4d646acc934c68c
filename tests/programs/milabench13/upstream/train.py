"""A program in a repository of its own."""

import torch


def batches():
    return list(torch.randn(50, 16, 256))


def main():
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = batches()
    for _ in range(100_000):
        for inputs in loader:
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
