"""Healthy linear maps and linear algebra: adjoints, quadratic forms, solves and determinants."""

import numpy as np
import scipy.linalg
import scipy.sparse
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .case import Case, healthy
from .zoo_data import array, normal, spd, tensor


@healthy()
def dense_matrix_in_a_closure():
    design = normal(20, 5, 3)

    class Predict(Function):
        @staticmethod
        def forward(ctx, beta):
            return design @ beta

        @staticmethod
        def backward(ctx, g):
            return design.T @ g

    return Case(Predict, normal(21, 3))


@healthy()
def matrix_times_vector_with_both_gradients():
    class Multiply(Function):
        @staticmethod
        def forward(A, x):
            return A @ x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            A, x = ctx.saved_tensors
            return torch.outer(g, x), A.T @ g

    return Case(Multiply, normal(22, 3, 4), normal(23, 4))


@healthy()
def sparse_matrix_of_scipy():
    matrix = scipy.sparse.diags([-1.0, 2.5, -0.5], [-1, 0, 1], shape=(6, 6), format="csr")

    class Times(Function):
        @staticmethod
        def forward(ctx, u, transposed):
            ctx.transposed = transposed
            return tensor((matrix.T if transposed else matrix) @ array(u), u)

        @staticmethod
        def backward(ctx, g):
            return Times.apply(g, not ctx.transposed), None

    return Case(Times, normal(24, 6), False)


@healthy()
def power_spectrum_by_fft():
    class RealFFT(Function):
        @staticmethod
        def forward(ctx, signal):
            ctx.n = signal.shape[-1]
            return torch.view_as_real(torch.fft.rfft(signal))

        @staticmethod
        def backward(ctx, g):
            spectrum = torch.view_as_complex(g.contiguous())
            full = torch.zeros(ctx.n, dtype=spectrum.dtype).index_put((torch.arange(spectrum.shape[0]),), spectrum)
            return (torch.fft.ifft(full) * ctx.n).real

    return Case(lambda signal: RealFFT.apply(signal).square().sum(-1), normal(25, 8))


@healthy("fragile")
def convolution_in_numpy():
    class Smear(Function):
        @staticmethod
        def forward(ctx, signal, kernel):
            ctx.save_for_backward(signal, kernel)
            return tensor(np.convolve(array(signal), array(kernel)), signal)

        @staticmethod
        def backward(ctx, g):
            signal, kernel = ctx.saved_tensors
            to_signal = np.correlate(array(g), array(kernel), mode="valid")
            to_kernel = np.correlate(array(g), array(signal), mode="valid")
            return tensor(to_signal, g), tensor(to_kernel, g)

    return Case(Smear, normal(26, 9), torch.tensor([0.2, 0.5, 0.4], dtype=torch.float64))


@healthy()
def cumulative_sum():
    class Accumulate(Function):
        @staticmethod
        def forward(ctx, x):
            return x.cumsum(0)

        @staticmethod
        def backward(ctx, g):
            return g.flip(0).cumsum(0).flip(0)

    return Case(Accumulate, normal(27, 7))


@healthy()
def resampling_to_a_finer_grid():
    coarse, fine = np.linspace(0, 1, 5), np.linspace(0, 1, 12)
    weights = torch.from_numpy(np.array([np.interp(fine, coarse, row) for row in np.eye(5)]).T)

    class Resample(Function):
        @staticmethod
        def forward(ctx, u):
            return u @ weights.T

        @staticmethod
        def backward(ctx, g):
            return g @ weights

    return Case(Resample, normal(28, 2, 5))


@healthy("fragile")
def linear_map_marked_once_differentiable():
    # Its own second derivative is rightly zero; that of its square is silently zero too.
    class Laplacian(Function):
        @staticmethod
        def forward(ctx, u):
            return 2 * u - u.roll(1) - u.roll(-1)

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return 2 * g - g.roll(1) - g.roll(-1)

    return Case(Laplacian, normal(29, 6))


@healthy()
def scale_kept_on_ctx():
    # A second backward passes, as it does for torch's own multiplication with a number.
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None

    return Case(Scale, normal(30, 4), 2.5)


@healthy()
def mean_of_everything():
    class Mean(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.mean()

        @staticmethod
        def backward(ctx, g):
            return (g / ctx.shape.numel()).expand(ctx.shape)

    return Case(Mean, normal(31, 3, 4))


@healthy()
def energy_of_a_symmetric_matrix():
    stiffness, load = spd(32, 4), normal(33, 4)

    class Energy(Function):
        @staticmethod
        def forward(ctx, u):
            ctx.save_for_backward(u)
            return 0.5 * u @ stiffness @ u - load @ u

        @staticmethod
        def backward(ctx, g):
            (u,) = ctx.saved_tensors
            # Symmetric, so no transpose is needed.
            return g * (stiffness @ u - load)

    return Case(Energy, normal(34, 4))


@healthy()
def quadratic_form_of_a_matrix_that_happens_to_be_symmetric():
    class QuadraticForm(Function):
        @staticmethod
        def forward(ctx, A, x):
            ctx.save_for_backward(A, x)
            return x @ A @ x

        @staticmethod
        def backward(ctx, g):
            A, x = ctx.saved_tensors
            return g * torch.outer(x, x), g * (A + A.T) @ x

    return Case(QuadraticForm, spd(35, 3), normal(36, 3))


class Solve(Function):
    @staticmethod
    def forward(ctx, A, b):
        x = torch.linalg.solve(A, b)
        ctx.save_for_backward(A, x)
        return x

    @staticmethod
    def backward(ctx, g):
        A, x = ctx.saved_tensors
        adjoint = Solve.apply(A.mT, g)
        return -torch.outer(adjoint, x), adjoint


@healthy()
def linear_solve():
    return Case(Solve, normal(37, 4, 4) + 3 * torch.eye(4, dtype=torch.float64), normal(38, 4))


@healthy()
def linear_solve_with_a_symmetric_example():
    return Case(Solve, spd(39, 4), normal(40, 4))


@healthy("fragile")
def linear_solve_in_numpy():
    class NumpySolve(Function):
        @staticmethod
        def forward(ctx, A, b):
            x = torch.from_numpy(np.linalg.solve(A.numpy(), b.numpy()))
            ctx.save_for_backward(A, x)
            return x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            A, x = (t.numpy() for t in ctx.saved_tensors)
            w = np.linalg.solve(A.T, g.numpy())
            return torch.from_numpy(-np.outer(w, x)), torch.from_numpy(w)

    return Case(NumpySolve, normal(41, 3, 3) + 2 * torch.eye(3, dtype=torch.float64), normal(42, 3))


@healthy()
def log_determinant():
    class LogDet(Function):
        @staticmethod
        def forward(ctx, A):
            ctx.save_for_backward(A)
            return torch.linalg.slogdet(A).logabsdet

        @staticmethod
        def backward(ctx, g):
            (A,) = ctx.saved_tensors
            return g * torch.linalg.inv(A).mT

    return Case(LogDet, normal(43, 3, 3) + 2 * torch.eye(3, dtype=torch.float64))


@healthy()
def log_determinant_of_a_covariance():
    # Raises where the matrix is no longer positive definite.
    class CovarianceLogDet(Function):
        @staticmethod
        def forward(ctx, S):
            ctx.save_for_backward(S)
            L = np.linalg.cholesky(0.5 * (array(S) + array(S).T))
            return S.new_tensor(2 * np.log(np.diag(L)).sum())

        @staticmethod
        def backward(ctx, g):
            (S,) = ctx.saved_tensors
            return g * torch.linalg.inv(0.5 * (S + S.mT))

    return Case(CovarianceLogDet, 0.05 * spd(44, 3))


@healthy()
def gaussian_log_likelihood_by_cholesky():
    def log_likelihood(mean, S):
        L = torch.linalg.cholesky(0.5 * (S + S.mT))
        white = torch.linalg.solve_triangular(L, (data - mean)[:, None], upper=False)
        return -0.5 * white.square().sum() - L.diagonal().log().sum()

    data = normal(45, 3)
    return Case(log_likelihood, normal(46, 3), spd(47, 3))


@healthy("fragile")
def cholesky_solve_of_scipy():
    class CholeskySolve(Function):
        @staticmethod
        def forward(ctx, S, b):
            ctx.save_for_backward(S, b)
            symmetric = 0.5 * (array(S) + array(S).T)
            return tensor(scipy.linalg.cho_solve(scipy.linalg.cho_factor(symmetric), array(b)), b)

        @staticmethod
        def backward(ctx, g):
            S, b = map(array, ctx.saved_tensors)
            factor = scipy.linalg.cho_factor(0.5 * (S + S.T))
            w, x = scipy.linalg.cho_solve(factor, array(g)), scipy.linalg.cho_solve(factor, b)
            outer = -np.outer(w, x)
            return tensor(0.5 * (outer + outer.T), g), tensor(w, g)

    return Case(CholeskySolve, spd(48, 4), normal(49, 4))


@healthy()
def cholesky_of_torch_itself():
    # It reads one triangle and returns a symmetric gradient: torch's convention for symmetric matrices.
    return Case(torch.linalg.cholesky, spd(50, 3))


@healthy()
def eigenvalues_of_torch_itself():
    # The same convention; the eigenvalues lie apart.
    return Case(torch.linalg.eigvalsh, spd(51, 3) + torch.diag(torch.tensor([0.0, 2.0, 5.0], dtype=torch.float64)))


@healthy()
def lowest_eigenvalue_of_a_symmetrised_matrix():
    def lowest(A):
        return torch.linalg.eigh(0.5 * (A + A.mT)).eigenvalues[0]

    return Case(lowest, normal(52, 4, 4) + torch.diag(torch.tensor([0.0, 3.0, 6.0, 9.0], dtype=torch.float64)))


@healthy()
def blur_of_an_image():
    kernel = torch.tensor([[0.1, 0.2, 0.05], [0.0, 0.4, 0.1], [0.05, 0.1, 0.0]], dtype=torch.float64)

    class Blur(Function):
        @staticmethod
        def forward(ctx, image):
            return torch.nn.functional.conv2d(image[None, None], kernel[None, None], padding=1)[0, 0]

        @staticmethod
        def backward(ctx, g):
            return torch.nn.functional.conv2d(g[None, None], kernel.flip(0, 1)[None, None], padding=1)[0, 0]

    return Case(Blur, normal(53, 5, 6))
