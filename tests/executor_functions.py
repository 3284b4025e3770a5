"""Functions and solvers that worker processes import: small, slow, sick. No torch here."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

A = np.array([[2.0, 1.0, 0.0], [0.5, 3.0, 1.0], [0.0, 0.2, 4.0]])  # not symmetric


def quartic(x):
    return np.sum(x**4)


def quartic_gradient(x):
    return 4 * x**3


def quartic_hvp(x, t):
    return 12 * x**2 * t


def quartic_pair(x):
    return quartic(x), quartic_gradient(x)


def slow(x):
    time.sleep(0.05)
    return np.sum(x**2)


def slow_gradient(x):
    return 2 * x


def cube(x):
    return A @ x**3


def cube_vjp(x, g):
    return 3 * x**2 * (A.T @ g)


def cube_jvp(x, t):
    return A @ (3 * x**2 * t)


def cube_hvp(x, g, t):
    return 6 * x * t * (A.T @ g)


def cube_jacobian(x):
    return A * (3 * x**2)


def pid(x):
    return float(os.getpid()) + 0 * x.sum()


def pid_gradient(x):
    return np.full_like(x, os.getpid())


class Cubic:
    """y = A x³, with the state that its adjoint needs."""

    signature = "(n)->(n)"

    def forward(self, x):
        return A @ x**3, {"slope": 3 * x**2, "x": x}

    def adjoint(self, state, g):
        return state["slope"] * (A.T @ g)

    def tangent(self, state, t):
        return A @ (state["slope"] * t)

    def hvp(self, state, g, t):
        return 6 * state["x"] * t * (A.T @ g)


class Locked(Cubic):
    """Its state cannot be pickled, as a factorisation of SuperLU cannot."""

    def forward(self, x):
        y, state = super().forward(x)
        return y, state | {"factorisation": threading.Lock()}


class Remembering:
    """Its adjoint reads what the latest solve left on the object, and no state."""

    signature = "(n)->(n)"

    def __init__(self):
        self.slope = None

    def forward(self, x):
        self.slope = 3 * x**2
        time.sleep(0.002)  # long enough for another thread to come between
        return A @ x**3, None

    def adjoint(self, state, g):
        return self.slope * (A.T @ g)


_latest = {}


def forgetful_cube(x):
    _latest["slope"] = 3 * x**2
    time.sleep(0.002)
    return A @ x**3


def forgetful_vjp(x, g):
    return _latest["slope"] * (A.T @ g)


def fails_at_negative(x):
    if x[0] < 0:
        raise np.linalg.LinAlgError(f"x[0] = {x[0]:g} is negative")
    return np.sum(x**2)


def gradient_fails_at_negative(x):
    if x[0] < 0:
        raise np.linalg.LinAlgError(f"x[0] = {x[0]:g} is negative")
    return 2 * x


def dies_at_negative(x):
    if x[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return np.sum(x**2)


def dies_once(x, marker):
    """Kill the worker the first time."""
    if x[0] < 0 and not Path(marker).exists():
        Path(marker).write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return np.sum(x**2)


def dies_once_gradient(x, marker):
    return 2 * x


def leaves_at_negative(x):
    if x[0] < 0:
        sys.exit("that is enough")
    return np.sum(x**2)


def hangs_at_negative(x):
    if x[0] < 0:
        time.sleep(3)
    return np.sum(x**2)


def writes_into_its_argument(x):
    x *= 2
    return np.sum(x)


class Awkward(Exception):
    """An error that cannot be unpickled."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def raises_awkwardly(x):
    raise Awkward("one", "two")


def returns_a_generator(x):
    return (each for each in x)


def loads_torch(x):
    return float("torch" in sys.modules) + 0 * x.sum()


def quartic_with_aux(x):
    return quartic(x), {"norm": float(np.sqrt(x @ x)), "at": x}


def sum_of_cubes(x):
    return np.sum(x**3)


def sum_of_cubes_vjp(x, g):
    return 3 * x**2 * g


def sum_of_cubes_jvp(x, t):
    return 3 * x**2 @ t


def cube_of_one(x):
    return x**3


def slope_of_one(x):
    return 3 * x**2


def curvature_of_one(x, t):
    return 6 * x * t


def pulled_back_at_one(x, g):
    return 3 * x**2 * g


class SumOfCubes:
    """A solver whose output is one number, so the g's of a Jacobian are numbers too."""

    signature = "(n)->()"

    def forward(self, x):
        return np.sum(x**3), x

    def adjoint(self, x, g):
        return 3 * x**2 * g

    def tangent(self, x, t):
        return 3 * x**2 @ t

    def hvp(self, x, g, t):
        return 6 * x * t * g


def mixed(a, b, power, *, scale=1.0):
    """Two inputs, two outputs, and arguments that are no tensors."""
    return scale * np.sum(a**power) * b, np.array([a[0] * b[0], a[1]])


def mixed_vjp(a, b, power, g, h, *, scale=1.0):
    to_a = scale * power * a ** (power - 1) * (g @ b)
    to_a[0] += h[0] * b[0]
    to_a[1] += h[1]
    to_b = scale * np.sum(a**power) * g
    to_b[0] += h[0] * a[0]
    return to_a, to_b


def only_first(a, b):
    return np.sum(a**2) + b[0]


def gradient_of_the_first(a, b):
    return 2 * a, None


def weighted(x, weights, name, nothing):
    return np.sum(weights["w"] * x**2) + len(name) + (nothing is None)


def weighted_gradient(x, weights, name, nothing):
    return 2 * weights["w"] * x


def names_its_dtype(x):
    return float(x.dtype.itemsize) + 0 * np.sum(x)


def zeros(x, *args):
    return np.zeros_like(x)


def _note(folder, what):
    with open(Path(folder) / f"{what}-{os.getpid()}-{threading.get_ident()}", "a") as file:
        file.write(".")


def counting(x, folder):
    """Note in a file that it was called: a file for each thread, so nothing is lost."""
    _note(folder, "value")
    return np.sum(x**2)


def counting_gradient(x, folder):
    _note(folder, "gradient")
    return 2 * x


def gradient_is_not_written(x):
    raise NotImplementedError("nobody has asked for a gradient")


_buffer = np.zeros(3)


def writes_into_a_buffer(x):
    _buffer[:] = 3 * x**2
    time.sleep(0.001)
    return A @ x**3


def reads_the_buffer(x, g):
    return _buffer * (A.T @ g)


def reads_the_latest_slowly(x, g):
    time.sleep(0.004)
    return _latest["slope"] * (A.T @ g)


def disturbs(x):
    """Change what ``forgetful_vjp`` reads, though no derivative of its own reads it."""
    _latest["slope"] = np.full_like(x, np.nan)
    time.sleep(0.001)
    return np.sum(x)


def ones(x, *args):
    return np.ones_like(x)


def naps(x):
    time.sleep(float(x[0]))
    return np.sum(x**2)


class NoText(Exception):
    """An error that cannot be printed."""

    def __str__(self):
        raise RuntimeError("no text for you")


class TurnsIntoText(Exception):
    """An error whose pickle is no error."""

    def __reduce__(self):
        return str, ("I was an error",)


def _built_only_at_home(home, kind):
    if os.getpid() != home:
        raise RuntimeError("this can only be rebuilt in the process that made it")
    return kind()


class StaysInItsProcess(Exception):
    """An error that its own process can rebuild, and no other."""

    def __reduce__(self):
        return _built_only_at_home, (os.getpid(), type(self))


class KeptAtHome:
    """An object that its own process can rebuild, and no other."""

    def __reduce__(self):
        return _built_only_at_home, (os.getpid(), type(self))


def raises_no_text(x):
    if x[0] < 0:
        raise NoText
    return np.sum(x**2)


def raises_what_turns_into_text(x):
    if x[0] < 0:
        raise TurnsIntoText
    return np.sum(x**2)


def raises_what_stays(x):
    if x[0] < 0:
        raise StaysInItsProcess
    return np.sum(x**2)


def raises_awkwardly_at_negative(x):
    if x[0] < 0:
        raise Awkward("one", "two")
    return np.sum(x**2)


def aux_is_a_lock(x):
    return np.sum(x**2), threading.Lock() if x[0] < 0 else 1


def aux_stays_at_home(x):
    return np.sum(x**2), KeptAtHome() if x[0] < 0 else 1


class Holds:
    """Its bound methods carry a lock."""

    def __init__(self):
        self.lock = threading.Lock()

    def value(self, x):
        return np.sum(x**2)


class FailsAdjointAtNegative(Cubic):
    def adjoint(self, state, g):
        if state["x"][0] < 0:
            raise np.linalg.LinAlgError(f"no adjoint at {state['x'][0]:g}")
        return super().adjoint(state, g)


class StateStaysAtHome(Cubic):
    """Its state is pickled without an error, and cannot be opened elsewhere."""

    def forward(self, x):
        y, state = super().forward(x)
        return y, state | {"more": KeptAtHome()}


class WithAux(Cubic):
    """Cubic, with a number besides."""

    def forward(self, x):
        y, state = super().forward(x)
        return y, state, float(x[0])


class TwoInputs:
    """y = A x * b: two tensors in, and the state keeps both."""

    signature = "(n),(n)->(n)"
    name = "product"

    def forward(self, x, b, times=1.0):
        return times * (A @ x) * b, (x, b, times)

    def adjoint(self, state, g):
        x, b, times = state
        return A.T @ (times * g * b), times * g * (A @ x)


def how_this_worker_is(x):
    """Return what is set up in this process: its threads, torch, the handler of Ctrl-C."""
    big = np.ones((400, 400)) @ np.ones((400, 400))
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "torch": "torch" in sys.modules,
        "ignores": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "variables": [os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")],
        "pid": os.getpid(),
        "big": float(big[0, 0]),
    }
