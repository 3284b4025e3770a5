"""The catalogue of mistakes that a bridge can meet: its function, its true numbers, and what "right or loud" means.

The files test_bridge_*_mistakes, test_bridge_hidden, test_bridge_arrays and test_bridge_shared_state go through its
rows. A test bears the slug of its row; it states the true value from the catalogue and compares. What a bridge cannot
meet, since it happens outside of the function that is bridged:

================================= ====================================================================
row                               why
================================= ====================================================================
closure-* , stale-loss            what the optimiser's closure does with the loss; the bridge made the
                                  loss and sees no more of it
step-inside-closure               the same
step-of-a-loss                    the same
lbfgs-without-closure             the optimiser's own argument
nonleaf-parameter                 refused by the optimiser before the function is called
integer-parameter                 refused by torch before the function is called
no-grad-around                    no_grad asks for no graph, and torch's own operations obey as well
no-requires-grad                  the same for an x that wants no gradient; torch's error is kept
================================= ====================================================================
"""

import numpy as np
import torch
from bridge_forms import at, same

from helpers import ExternalFunction, differentiable, rosenbrock

VALUE = 0.8505
GRADIENT = torch.tensor([-1.98, 0.9], dtype=torch.float64)
HESSIAN = torch.tensor([[0.6, -2.0], [-2.0, 10.0]], dtype=torch.float64)
POINT, OTHER = (0.1, 0.1), (1.5, -2.0)
A = np.array([[1.0, 2.0], [3.0, 5.0]])


def without_hvp():
    return differentiable(rosenbrock.value, grad=rosenbrock.gradient)


def complete():
    return differentiable(rosenbrock.value, grad=rosenbrock.gradient, hvp=rosenbrock.hvp)


def gradient_of(op, x=None, *rest):
    x = at() if x is None else x
    op(x, *rest).backward()
    return x.grad


def same_or_refused(compute, truth):
    """Accept the true value, or an error that says where it happened; nothing else."""
    try:
        found = compute()
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        assert any(word in text for word in ("value", "Writes", "Keeps", "draw")), text
    else:
        same(found, truth)


class KeepsX(ExternalFunction):
    def forward(self, x):
        return rosenbrock.value(x), x

    def adjoint(self, x, g):
        return g * rosenbrock.gradient(x)
