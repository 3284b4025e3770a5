"""`differentiable`: the short form, for a function whose derivatives need nothing but its arguments."""

from concurrent.futures import Executor
from typing import Any, Literal

from numpy.typing import DTypeLike

from ..noise import Draws, Factor, NoisyPair
from .draws import Seed
from .function_op import Function, FunctionOp
from .solver_op import SolverOp, is_solver


def differentiable(
    fun: Function | None = None,
    *,
    grad: Function | None = None,
    vjp: Function | None = None,
    jac: Function | None = None,
    value_and_grad: Function | None = None,
    jvp: Function | None = None,
    hvp: Function | None = None,
    aux: bool = False,
    batch: Literal["loop", "vectorized"] | None = None,
    signature: str | None = None,
    compute_dtype: DTypeLike | None = None,
    finite: Literal["raise"] | None = None,
    check: Literal["first"] | None = None,
    noise: Factor | None = None,
    rng: Seed | None = None,
    draws: Draws = "evaluation",
    out_shape: Any = None,
    name: str | None = None,
    executor: Executor | None = None,
    state: Literal["travel", "recompute"] = "travel",
    timeout: float | None = None,
) -> Any:
    r"""Make an operation of torch from a NumPy function and its derivative.

    The result takes tensors, and behaves as torch's own operations do: ``backward``, ``torch.func``, forward mode,
    ``vmap``, checkpoints, ``torch.compile``. dtype and device follow the input. A solver whose adjoint needs what the
    solve has computed is given as an object, or written as an :class:`ExternalFunction`.

    Parameters
    ----------
    fun : callable
        NumPy code. Tensors in the call arrive as read-only arrays; other arguments arrive as they are (arrays as
        read-only copies). It returns a number or an array; with ``vjp`` or ``jac`` also a tuple, for several outputs.
        Or, without any derivative below, a *solver*: an object with the methods ``forward(x, ...) -> (y, state)`` and
        ``adjoint(state, g) -> gradient``, perhaps ``tangent`` and ``hvp``; :class:`ExternalFunction` says what each
        does. It knows nothing of torch, so a worker process can have it without torch.
    grad : callable, (x, ...) -> gradient
        For a ``fun`` that returns one number. It is called with the same arguments, and returns an array of the shape
        of x. For several tensors of real numbers it returns a tuple with one entry for each, in the order of the
        arguments: an array, or None for one that never needs a gradient. Give constants as arrays, not as tensors.
    vjp : callable, (x, ..., g) -> gradient
        For any output: the adjoint. ``g`` has the shape of the output (one ``g`` for each output), and the result is
        the transposed Jacobian times ``g``.
    jac : callable, (x, ...) -> Jacobian
        For small outputs: an array of shape ``output.shape + x.shape``; for several tensors, a tuple of them.
    value_and_grad : callable, (x, ...) -> (value, gradient)
        Instead of ``fun`` and ``grad``, where one computation gives both.
    jvp : callable, (x, ..., t) -> tangent, optional
        With ``vjp``: the Jacobian times ``t``. Forward mode and some second derivatives need it, unless the output is
        one number.
    hvp : callable, optional
        For second derivatives. With ``grad`` or ``value_and_grad``: ``hvp(x, ..., t)``, the Hessian times ``t``
        (SciPy's ``hessp``). With ``vjp`` or ``jac``: ``hvp(x, ..., g, t)``, the derivative of ``vjp`` along ``t``.
        For several tensors there is one ``t`` for each, as in ``hvp(a, b, g, t_a, t_b)``, and the result is a tuple.
    aux : bool
        ``fun`` returns ``(output, aux)``, and so does the operation. ``aux`` may be anything; it has no gradient.
    batch : {None, "loop", "vectorized"}
        Whether more axes than one sample has are a batch, and whether the functions are called once for each sample,
        or once with the whole batch.
    signature : str
        The axes of one sample, as NumPy writes them: ``"(n)->()"`` (the default for one tensor), ``"(n),(k)->(m)"``.
        A batch of several tensors needs it.
    compute_dtype : dtype
        What the functions get and give, such as ``"float64"``, whatever the dtype of the tensors.
    finite : {None, "raise"}
        Raise FloatingPointError for NaN or Inf in a value or a derivative.
    check : {None, "first"}
        Compare the derivatives with finite differences when the operation is used first; see ``verify``.
    noise : UniformFactor, GaussianFactor or the like
        Multiply the value and its derivatives by random factors with mean 1, one for each sample. ``fun`` and its
        derivatives are the noiseless ones. The draw of an evaluation is kept for all of its derivatives. Each takes one
        number from torch's global generator too, by which a checkpoint finds its draw again.
    rng : int, numpy.random.SeedSequence or numpy.random.Generator
        The seed of the noise.
    draws : {"evaluation", "independent", "step"}
        Value and derivatives of an evaluation share a draw; have one each; or share one with all evaluations until
        ``advance()``.
    out_shape : tuple, or callable from the shapes of the inputs to a tuple
        The shape of the output. Only ``torch.compile`` asks for it, of an operation that it meets uncalled.
    name : str
        The name in messages; the name of ``fun`` by default.
    executor : concurrent.futures.Executor
        Compute the samples of a batch at the same time: threads, :func:`helpers.process_pool`, loky's
        ``get_reusable_executor()``, Dask's ``client.get_executor()``, ``mpi4py.futures.MPIPoolExecutor``. It needs
        ``batch="loop"``. One map over the batch computes the values, and another one the derivatives, inside one
        backward; a function of one number and its gradient are computed in one task. Results do not depend on the
        number of workers. Processes import the functions, so these stand in a module, and globals of that module have
        the values of the import. ``traffic`` says what travelled.
    state : {"travel", "recompute"}
        Whether the state of a solver comes back from its worker and goes out again with the adjoint (then it must be
        picklable), or the adjoint's worker solves once more. Threads share it.
    timeout : float
        How many seconds to wait for the next sample to be done; without end by default.

    Returns
    -------
    ExternalFunction
        A callable. Besides the call it has ``verify(x)``, ``advance()`` and ``spawn(count)``. It can be pickled and
        copied if the functions can. Without ``fun`` and ``value_and_grad``, a decorator.

    Raises
    ------
    TypeError, ValueError
        If the derivatives do not go together. When it is used: if an argument or a result does not fit, with the
        reason; what the functions raise comes through unchanged, with a note.
    MissingDerivative
        When it is used: if a derivative is asked for that was not given.
    FailedSamples
        When it is used with an executor: if samples fail. It holds the error of each, and the results of the others.

    Examples
    --------
    A function of one vector, with its gradient:

    >>> import numpy as np, torch
    >>> rosen = differentiable(
    ...     lambda x: (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2,
    ...     grad=lambda x: np.array([-2 * (1 - x[0]) - 20 * x[0] * (x[1] - x[0] ** 2), 10 * (x[1] - x[0] ** 2)]),
    ... )
    >>> x = torch.tensor([0.1, 0.1], dtype=torch.float64, requires_grad=True)
    >>> rosen(x).backward()
    >>> x.grad
    tensor([-1.9800,  0.9000], dtype=torch.float64)

    A linear solve with its adjoint; two inputs, so the adjoint returns two gradients:

    >>> def solve(A, b):
    ...     return np.linalg.solve(A, b)
    >>> def adjoint(A, b, g):
    ...     w = np.linalg.solve(A.T, g)
    ...     return -np.outer(w, solve(A, b)), w
    >>> op = differentiable(solve, vjp=adjoint)
    >>> A = torch.tensor([[2.0, 1.0], [0.0, 4.0]], dtype=torch.float64, requires_grad=True)
    >>> b = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(op, (A, b))
    True

    As a decorator, with the Hessian-vector product:

    >>> @differentiable(grad=lambda x: 4 * x**3, hvp=lambda x, t: 12 * x**2 * t)
    ... def quartic(x):
    ...     return np.sum(x**4)
    >>> torch.func.hessian(quartic)(torch.tensor([1.0, 2.0], dtype=torch.float64))
    tensor([[12.,  0.],
            [ 0., 48.]], dtype=torch.float64)
    """
    given = {"grad": grad, "vjp": vjp, "jac": jac, "value_and_grad": value_and_grad, "jvp": jvp, "hvp": hvp}
    derivatives = {role: function for role, function in given.items() if function is not None}
    options = {
        "aux": aux,
        "batch": batch,
        "signature": signature,
        "compute_dtype": compute_dtype,
        "finite": finite,
        "check": check,
        "noise": noise,
        "rng": rng,
        "draws": draws,
        "out_shape": out_shape,
        "name": name,
        "executor": executor,
        "state": state,
        "timeout": timeout,
    }
    if fun is not None and not derivatives and is_solver(fun):
        return SolverOp(fun, options)
    _check_functions(fun, derivatives)
    if fun is None and value_and_grad is None:
        return lambda function: differentiable(function, **derivatives, **options)  # type: ignore[arg-type]
    return FunctionOp(fun, derivatives, options)


def _check_functions(fun: Function | None, derivatives: dict[str, Function]) -> None:
    main = [role for role in ("grad", "vjp", "jac", "value_and_grad") if role in derivatives]
    if not main:
        raise TypeError("differentiable needs the derivative: grad=, vjp=, jac= or value_and_grad=.")
    if len(main) > 1:
        raise TypeError(f"differentiable takes one of grad, vjp, jac and value_and_grad; got {' and '.join(main)}.")
    if main == ["value_and_grad"] and fun is not None:
        raise TypeError("value_and_grad= gives the value too: leave out the first argument, or give grad= instead.")
    if "jvp" in derivatives and main != ["vjp"]:
        raise TypeError(f"jvp= goes with vjp=; with {main[0]}= the bridge has all that it needs.")
    for role, function in {"fun": fun, **derivatives}.items():
        if function is not None and not callable(function):
            raise TypeError(f"{role} must be a function; got {type(function).__name__}. Pass f itself, not f(x).")
        if isinstance(getattr(function, "__self__", None), NoisyPair):
            raise TypeError(
                f"{role} belongs to a NoisyPair, whose draws cannot be repeated in a second backward. Give the "
                "noiseless functions, and noise=UniformFactor(0.5), rng=0, draws=... to differentiable."
            )
