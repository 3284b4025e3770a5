"""Example inputs for the zoo: seeded, float64, away from special points unless a case says so."""

import numpy as np
import torch


def normal(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def uniform(seed, *shape, low=0.0, high=1.0):
    unit = torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return low + (high - low) * unit


def spd(seed, n):
    """A symmetric positive definite matrix of moderate condition."""
    root = normal(seed, n, n)
    return root @ root.T / n + torch.eye(n, dtype=torch.float64)


def tracked(x):
    """The input that is differentiated, where others are data."""
    return x.requires_grad_()


def array(x):
    return x.detach().numpy()


def tensor(a, like):
    return torch.from_numpy(np.ascontiguousarray(a)).to(like.dtype)
