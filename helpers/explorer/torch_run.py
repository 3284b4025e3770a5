"""The same run in torch: the lesson's own Function, and an optimiser from ``torch.optim``."""

import numpy as np
import torch

from .. import rosenbrock
from ..descent import Trajectory, descend
from ..noise import NoisyPair, UniformFactor
from .simulation import Array, Settings


class UniformTerm:
    """Noise that is added: a slope from U(-width, width) for each entry of the gradient."""

    def __init__(self, width: float) -> None:
        self.width = width

    def slope(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return slopes of the given shape, that of the points."""
        return rng.uniform(-self.width, self.width, shape)


class NoisyRosenbrock(torch.autograd.Function):
    """The Function of lesson 06: NumPy code forward, a gradient of our own backward, and noise in both."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor, noisy: NoisyPair) -> torch.Tensor:
        """Return the noisy value."""
        ctx.save_for_backward(x)
        ctx.noisy = noisy  # type: ignore[attr-defined]
        return x.new_tensor(noisy.value(x.detach().numpy()))

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad_output: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return grad_output times the noisy gradient."""
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        gradient = ctx.noisy.gradient(x.detach().numpy())  # type: ignore[attr-defined]
        return grad_output * torch.from_numpy(gradient), None


def optimizer_of(settings: Settings, name: str, x: torch.Tensor) -> torch.optim.Optimizer:
    """Return torch's optimiser of that name, with torch's own defaults but for what the sliders set."""
    lr, betas = settings.lr, (float(settings.beta1), float(settings.beta2))
    match name:
        case "SGD":
            return torch.optim.SGD([x], lr=lr)
        case "momentum":
            return torch.optim.SGD([x], lr=lr, momentum=0.9)
        case "RMSprop":
            return torch.optim.RMSprop([x], lr=lr)
        case "Adam":
            return torch.optim.Adam([x], lr=lr, betas=betas)
    return torch.optim.AdamW([x], lr=lr, betas=betas)


def run_in_torch(settings: Settings, optimizer: str | None = None) -> Trajectory:
    """Return the trajectory of the same run in torch.

    Examples
    --------
    >>> run_in_torch(Settings(steps=1, noise=0.0)).end.round(3).tolist()
    [0.2, 0.0]
    """
    name = optimizer or settings.optimizer
    noise = UniformFactor(settings.noise) if settings.kind == "factor" else UniformTerm(settings.noise)
    noisy = NoisyPair(
        rosenbrock.value,
        rosenbrock.gradient,
        noise,
        settings.seed,
        "independent" if settings.draws == "independent" else "evaluation",
    )
    x = torch.tensor(settings.start, dtype=torch.float64, requires_grad=True)
    optimiser = optimizer_of(settings, name, x)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss: torch.Tensor = NoisyRosenbrock.apply(x, noisy)  # type: ignore[no-untyped-call]
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with np.errstate(all="ignore"):  # NaN and Inf in the answer say it
        return descend(optimiser, closure, settings.steps, value=rosenbrock.value, label=f"{name} in torch")
