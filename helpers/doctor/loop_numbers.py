"""Losses and gradients of a loop compared, and directions in which its parameters may move."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Tensor = torch.Tensor


def is_even(losses: list[float]) -> bool:
    """Return whether three losses, at 0, h and -2h, are those of a function that is flat at 0."""
    middle, near, far = losses
    return abs((far - middle) - 4 * (near - middle)) <= 0.05 * abs(far - middle)


def same(one: list[Any], other: list[Any]) -> bool:
    """Return whether two lists of gradients are the same, up to rounding."""
    return all(
        (a is None) == (b is None) and (a is None or np.allclose(a, b, rtol=1e-4, atol=1e-12, equal_nan=True))
        for a, b in zip(one, other, strict=True)
    )


def parallel(got: Any, expected: Any, error: Any) -> bool:
    """Return whether the gradient is the right one times a factor between 0 and 1."""
    with np.errstate(all="ignore"):
        ratios = got / expected
    sure = np.abs(expected) > 20 * error
    used = ratios[sure & np.isfinite(ratios)]
    return bool(len(used) > 1 and np.ptp(used) < 0.05 * np.abs(used).max() and np.all((used > 0) & (used <= 1.02)))


def direction_of(gradient: Any, parameter: Tensor) -> Tensor:
    """Return the gradient's direction, of a size that fits the parameter's."""
    if gradient is None or not np.all(np.isfinite(gradient)) or not np.any(gradient):
        return torch.zeros_like(parameter)
    size = max(float(parameter.detach().abs().max()) if parameter.numel() else 0.0, 1e-2)
    direction: Tensor = torch.as_tensor(gradient / np.abs(gradient).max() * size).to(parameter.dtype)
    return direction.reshape(parameter.shape)


def random_direction(parameter: Tensor, rng: np.random.Generator) -> Tensor:
    """Return a random direction, of a size that fits the parameter's."""
    size = max(float(parameter.detach().abs().max()) if parameter.numel() else 0.0, 1e-2)
    return (
        torch.as_tensor(size * rng.standard_normal(tuple(parameter.shape))).to(parameter.dtype).reshape(parameter.shape)
    )
