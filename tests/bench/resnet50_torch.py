"""Training step of ResNet-50 in PyTorch, eager, for `bench_budget.py`: BATCH STEPS THREADS.

The stride is on the 3x3 convolutions, as in configs/resnet50_imagenet.yaml; SGD with momentum on
synthetic images. Prints the seconds of the fastest step and the peak resident bytes as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import torch
from torch import nn


class Unit(nn.Module):
    """Bottleneck: 1x1, 3x3 and 1x1 convolutions with a shortcut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.branch = nn.Sequential(
            *normalized(before, width, 1, 1),
            nn.ReLU(inplace=True),
            *normalized(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *normalized(width, after, 1, 1),
        )
        plain = before == after and stride == 1
        self.around = (
            nn.Identity() if plain else nn.Sequential(*normalized(before, after, 1, stride))
        )
        self.limit = nn.ReLU(inplace=True)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Return the rectified sum of branch and shortcut."""
        return self.limit(self.branch(data) + self.around(data))


def normalized(before: int, after: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    """A convolution and its batch norm."""
    product = nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)
    return product, nn.BatchNorm2d(after)


def resnet50() -> nn.Module:
    """Return the complete network."""
    layers: list[nn.Module] = [*normalized(3, 64, 7, 2), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for width, units, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for unit in range(units):
            layers.append(Unit(before, width, stride if unit == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


def main() -> None:
    """Train and print."""
    batch, steps, threads = map(int, sys.argv[1:])
    torch.set_num_threads(threads)
    network = resnet50()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, 0.9, weight_decay=1e-4)
    data, label = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    seconds = []
    for _ in range(steps + 1):
        started = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(data), label).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": min(seconds[1:]), "resident": resident}))


if __name__ == "__main__":
    main()
