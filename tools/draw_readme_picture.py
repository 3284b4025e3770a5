"""Draw the picture of the README: python tools/draw_readme_picture.py."""

from pathlib import Path

import torch

from helpers import NoisyPair, Picture, UniformFactor, descend_with_gradient, plots, rosenbrock

TARGET = Path(__file__).resolve().parent.parent / "notebooks" / "pictures" / "adam.png"


def picture() -> Picture:
    """Return the picture of lesson 00."""
    noisy = NoisyPair(rosenbrock.value, rosenbrock.gradient, UniformFactor(0.5), seed=0)
    x = torch.tensor([0.1, 0.1], dtype=torch.float64)
    adam = torch.optim.Adam([x], lr=0.1)
    path = descend_with_gradient(adam, noisy.gradient, steps=200, value=rosenbrock.value, label="Adam")
    return plots.trajectories(path, title="Adam on a noisy function, with our own gradient")


if __name__ == "__main__":
    TARGET.write_bytes(picture().png())
