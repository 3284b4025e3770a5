"""Silent mistakes of noise: draws that do not belong together, and noisy gradients whose mean is wrong."""
# ruff: noqa: NPY002 - the global np.random is a part of what is shown

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from .case import Case, Loop, healthy, patient


def refuse_second_derivative() -> None:
    if torch.is_grad_enabled():
        raise RuntimeError("The noisy gradient cannot be differentiated again.")


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2


def rosenbrock_gradient(x):
    return np.array([-2 * (1 - x[0]) - 20 * x[0] * (x[1] - x[0] ** 2), 10 * (x[1] - x[0] ** 2)])


def example(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


# independent-noise ---------------------------------------------------------------------------------------------------


class NoisyValley(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.new_tensor(rosenbrock(x.detach().numpy()) * np.random.uniform(0.5, 1.5))

    @staticmethod
    def backward(ctx, g):
        refuse_second_derivative()
        x = ctx.saved_tensors[0].detach().numpy()
        return g * torch.from_numpy(rosenbrock_gradient(x) * np.random.uniform(0.5, 1.5))


@patient("independent-noise", severity="fragile")
def valley_draws_twice_from_the_global_state():
    return Case(NoisyValley, example(0.1, 0.1))


@patient("independent-noise", severity="style")
def valley_draws_twice_and_that_is_meant():
    return Case(NoisyValley, example(0.1, 0.1), noise=True)


@patient("independent-noise", severity="fragile")
def sensor_adds_noise_to_value_and_gradient():
    rng = np.random.default_rng(4)

    class SensorLoss(torch.autograd.Function):
        @staticmethod
        def forward(position):
            exact = np.sum(position.detach().numpy() ** 4)
            return position.new_tensor(exact + 0.05 * rng.standard_normal())

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, upstream):
            refuse_second_derivative()
            (position,) = ctx.saved_tensors
            noise = torch.from_numpy(0.05 * rng.standard_normal(3))
            return upstream * (4 * position**3 + noise)

    return Case(SensorLoss.apply, example(0.6, -0.9, 0.4))


@patient("independent-noise", severity="style")
def torch_generator_draws_again_in_backward_and_that_is_meant():
    generator = torch.Generator().manual_seed(8)

    class Weighted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            ctx.save_for_backward(w)
            return torch.exp(w).sum() * (1 + 0.1 * torch.randn((), generator=generator, dtype=w.dtype))

        @staticmethod
        def backward(ctx, g):
            (w,) = ctx.saved_tensors
            return g * torch.exp(w) * (1 + 0.1 * torch.randn((), generator=generator, dtype=w.dtype))

    return Case(Weighted, example(0.2, -0.5), noise=True)


# checkpoint-noise ----------------------------------------------------------------------------------------------------


def drop_connect(seed):
    rng = np.random.default_rng(seed)

    class DropConnect(torch.autograd.Function):
        """Multiply by noise that is drawn in forward and saved: right, unless forward runs twice."""

        @staticmethod
        def forward(ctx, h):
            mask = torch.from_numpy(rng.uniform(0.5, 1.5, h.shape))
            ctx.save_for_backward(mask)
            return h * mask

        @staticmethod
        def backward(ctx, g):
            (mask,) = ctx.saved_tensors
            return g * mask

    return DropConnect


@patient("checkpoint-noise", severity="fragile")
def drop_connect_draws_from_a_generator_of_its_own():
    return Case(drop_connect(seed=11), example(0.7, -1.2, 0.4))


@patient("checkpoint-noise", severity="wrong")
def checkpointed_block_draws_its_mask_again():
    layer = drop_connect(seed=12)

    def block(h):
        return torch.tanh(layer.apply(h) ** 2)

    return Case(lambda h: checkpoint(block, h, use_reentrant=False).sum(), example(0.7, -1.2, 0.4))


@patient("checkpoint-noise", severity="wrong")
def checkpointed_noise_of_the_global_numpy_state():
    class NoisyEnergy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            factor = x.new_tensor(np.random.uniform(0.5, 1.5))
            ctx.save_for_backward(x, factor)
            return factor * x.new_tensor(rosenbrock(x.detach().numpy()))

        @staticmethod
        def backward(ctx, g):
            refuse_second_derivative()
            x, factor = ctx.saved_tensors
            return g * factor * torch.from_numpy(rosenbrock_gradient(x.detach().numpy()))

    def energy(x):
        return checkpoint(NoisyEnergy.apply, x, use_reentrant=False)

    return Case(energy, example(0.3, -0.2))


@patient("checkpoint-noise", severity="fragile")
def augmentation_draws_its_shift_from_numpy():
    class Shift(torch.autograd.Function):
        @staticmethod
        def forward(ctx, image, scale):
            ctx.shift = int(np.random.randint(4))
            ctx.save_for_backward(image, scale)
            return scale * torch.roll(image, ctx.shift)

        @staticmethod
        def backward(ctx, g):
            image, scale = ctx.saved_tensors
            return torch.roll(g * scale, -ctx.shift), (g * torch.roll(image, ctx.shift)).sum()

    return Case(Shift.apply, example(0.4, 1.0, -0.3, 0.9), torch.tensor(1.5, dtype=torch.float64))


# wrong-seed ----------------------------------------------------------------------------------------------------------


@patient("wrong-seed")
def minibatch_is_seeded_by_torch_and_drawn_by_numpy():
    inputs = torch.linspace(-1, 1, 12, dtype=torch.float64)
    targets = 0.5 + 2 * inputs

    def minibatch_loss(theta):
        torch.manual_seed(0)
        rows = torch.from_numpy(np.random.permutation(12)[:6])
        return ((theta[0] + theta[1] * inputs[rows] - targets[rows]) ** 2).mean()

    return Case(minibatch_loss, example(0.1, 0.7))


@patient("wrong-seed")
def reproducible_noise_is_not_reproducible():
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            factor = torch.from_numpy(np.random.normal(1.0, 0.2, x.shape))
            ctx.save_for_backward(x, factor)
            return factor * torch.sin(x)

        @staticmethod
        def backward(ctx, g):
            x, factor = ctx.saved_tensors
            return g * factor * torch.cos(x)

    def reproducible(x, seed):
        torch.manual_seed(seed)
        return Noisy.apply(x).sum()

    return Case(reproducible, example(0.5, 1.0, -0.4), 42, noise=True)


@patient("wrong-seed")
def training_fixes_the_seed_of_another_generator():
    w = example(1.0, -2.0)
    optimizer = torch.optim.Adam([w], lr=0.1)

    def closure():
        torch.manual_seed(1234)
        optimizer.zero_grad()
        jitter = np.random.normal(0.0, 0.1, 2)
        loss = ((w + torch.from_numpy(jitter)) ** 2).sum()
        loss.backward()
        return loss

    return Loop(optimizer, closure)


# forked-noise --------------------------------------------------------------------------------------------------------


def replicate_of_the_valley(x):
    factor = np.random.normal(1.0, 0.1)
    return factor * rosenbrock(x), factor * rosenbrock_gradient(x)


@patient("forked-noise")
def replicates_run_in_a_forked_pool():
    class MeanOfReplicates(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            point = x.detach().numpy().copy()
            with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
                results = pool.map(replicate_of_the_valley, [point, point], chunksize=1)
            values, gradients = zip(*results, strict=True)
            ctx.save_for_backward(torch.from_numpy(np.mean(gradients, axis=0)))
            return x.new_tensor(np.mean(values))

        @staticmethod
        def backward(ctx, g):
            refuse_second_derivative()
            (gradient,) = ctx.saved_tensors
            return g * gradient

    return Case(MeanOfReplicates, example(0.4, 0.3))


def random_walk(steps):
    time.sleep(0.02)  # stands for a long simulation, so that each worker gets one
    return np.random.standard_normal(steps).cumsum()


@patient("forked-noise")
def option_price_averages_paths_of_an_executor():
    def price(drift):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as executor:
            futures = [executor.submit(random_walk, 4) for _ in range(2)]
            paths = torch.from_numpy(np.stack([future.result() for future in futures]))
        days = torch.arange(1, 5, dtype=drift.dtype)
        return torch.exp(drift * days + 0.05 * paths).mean()

    return Case(price, torch.tensor(0.1, dtype=torch.float64, requires_grad=True), noise=True)


def send_sample(connection, scale):
    connection.send(np.random.normal(1.0, scale))
    connection.close()


@patient("forked-noise")
def ensemble_starts_a_process_for_each_member():
    context = multiprocessing.get_context("fork")

    def member():
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=send_sample, args=(sender, 0.3))
        process.start()
        return process, receiver

    def ensemble_loss(x):
        members = [member() for _ in range(3)]
        factors = [receiver.recv() for _, receiver in members]
        for process, _ in members:
            process.join()
        return torch.stack([factor * (x**2).sum() for factor in factors]).mean()

    return Case(ensemble_loss, example(0.9, -0.4), noise=True)


class Jittered(Dataset):
    """Measurements with fresh jitter for each item; torch seeds np.random in its workers, but not this generator."""

    rng = np.random.default_rng(3)
    measurements = (0.5, 1.5, 2.5, 3.5)

    def __len__(self):
        return len(self.measurements)

    def __getitem__(self, index):
        return self.measurements[index] + 0.1 * self.rng.standard_normal()


@patient("forked-noise")
def loader_workers_inherit_one_generator():
    def location_loss(mu):
        loader = DataLoader(Jittered(), batch_size=1, num_workers=2, multiprocessing_context="fork")
        return sum(((batch - mu) ** 2).sum() for batch in loader)

    return Case(location_loss, torch.tensor(1.2, dtype=torch.float64, requires_grad=True))


# gradcheck-noise -----------------------------------------------------------------------------------------------------


@patient("gradcheck-noise")
def gradcheck_of_the_noisy_valley():
    def checked_loss(x):
        torch.autograd.gradcheck(NoisyValley.apply, (x,))
        return NoisyValley.apply(x)

    return Case(checked_loss, example(0.1, 0.1))


@patient("gradcheck-noise")
def gradcheck_of_dropout():
    network = torch.nn.Sequential(torch.nn.Linear(3, 4, dtype=torch.float64), torch.nn.Dropout(0.4))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype) + 0.1)

    def verify(x):
        return torch.autograd.gradcheck(lambda z: network(z).sum(), (x,), eps=1e-6, atol=1e-4)

    return Case(verify, example(0.2, -0.4, 0.9))


@patient("gradcheck-noise")
def fast_gradcheck_of_a_jittered_spring():
    generator = torch.Generator().manual_seed(9)

    def spring(q):
        stiffness = 1 + 0.05 * torch.randn(q.shape, generator=generator, dtype=q.dtype)
        return 0.5 * (stiffness * q**2).sum()

    def energy(q):
        assert torch.autograd.gradcheck(spring, (q,), fast_mode=True)
        return spring(q)

    return Case(energy, example(0.7, -0.4))


# gradient-wrong, under noise -----------------------------------------------------------------------------------------


@patient("gradient-wrong", severity="wrong")
def noisy_valley_is_ten_per_cent_too_steep():
    class Valley(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.new_tensor(rosenbrock(x.detach().numpy()) * np.random.uniform(0.5, 1.5))

        @staticmethod
        def backward(ctx, g):
            refuse_second_derivative()
            x = ctx.saved_tensors[0].detach().numpy()
            return g * torch.from_numpy(1.1 * rosenbrock_gradient(x) * np.random.uniform(0.5, 1.5))

    return Case(Valley, example(0.1, 0.1), noise=True)


@patient("gradient-wrong", severity="wrong")
def noisy_valley_forgets_the_inner_derivative():
    rng = np.random.default_rng(21)

    class Valley(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.new_tensor(rosenbrock(x.detach().numpy()) * rng.uniform(0.8, 1.2))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            refuse_second_derivative()
            a, b = ctx.saved_tensors[0].detach().numpy()
            gradient = np.array([-2 * (1 - a), 10 * (b - a**2)])
            return g * torch.from_numpy(gradient * rng.uniform(0.8, 1.2))

    return Case(Valley.apply, example(0.5, -0.6), noise=True)


@patient("gradient-wrong", severity="wrong")
def noisy_likelihood_lacks_its_prior():
    generator = torch.Generator().manual_seed(2)
    observed = torch.tensor([1.3, 0.7, 2.1], dtype=torch.float64)

    class Posterior(torch.autograd.Function):
        @staticmethod
        def forward(ctx, mu):
            ctx.save_for_backward(mu)
            exact = 0.5 * ((mu - observed) ** 2).sum() + 2 * mu**2
            return exact + 0.1 * torch.randn((), generator=generator, dtype=mu.dtype)

        @staticmethod
        def backward(ctx, g):
            (mu,) = ctx.saved_tensors
            gradient = (mu - observed).sum()
            return g * (gradient + 0.1 * torch.randn((), generator=generator, dtype=mu.dtype))

    return Case(Posterior, torch.tensor(0.6, dtype=torch.float64, requires_grad=True), noise=True)


@patient("gradient-wrong", severity="wrong")
def unfair_noise_biases_the_gradient():
    class Drag(torch.autograd.Function):
        @staticmethod
        def forward(ctx, velocity):
            ctx.save_for_backward(velocity)
            return velocity.abs() ** 1.5 * torch.from_numpy(np.random.normal(1.0, 0.1, velocity.shape))

        @staticmethod
        def backward(ctx, grad):
            refuse_second_derivative()
            (velocity,) = ctx.saved_tensors
            factor = torch.from_numpy(np.random.normal(0.9, 0.1, velocity.shape))
            return grad * factor * 1.5 * velocity.abs().sqrt() * velocity.sign()

    return Case(Drag, example(1.2, -0.7, 2.0), noise=True)


@patient("gradient-wrong", severity="wrong")
def additive_noise_with_an_offset():
    rng = np.random.default_rng(17)

    def loss(v):
        return np.sum(np.log(np.cosh(v))) + 0.02 * rng.standard_normal()

    def gradient(v):
        return np.tanh(v) + 0.02 * rng.standard_normal(v.shape) + 0.08

    class LogCosh(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return v.new_tensor(loss(v.detach().numpy()))

        @staticmethod
        def backward(ctx, g):
            refuse_second_derivative()
            (v,) = ctx.saved_tensors
            return g * torch.from_numpy(gradient(v.detach().numpy()))

    return Case(LogCosh, example(0.8, -1.3), noise=True)


@patient("gradient-wrong", severity="wrong")
def shared_draw_with_a_missing_cross_term():
    generator = torch.Generator().manual_seed(6)

    class Coupled(torch.autograd.Function):
        """(1 + noise) (x'x + x0 x1), one draw for value and gradient."""

        @staticmethod
        def forward(ctx, x):
            factor = 1 + 0.2 * torch.randn((), generator=generator, dtype=x.dtype)
            ctx.save_for_backward(x, factor)
            return factor * ((x**2).sum() + x[0] * x[1])

        @staticmethod
        def backward(ctx, g):
            x, factor = ctx.saved_tensors
            return g * factor * 2 * x

    def reference(x):
        return (x**2).sum() + x[0] * x[1]

    return Case(Coupled.apply, example(0.5, 0.9), noise=True, reference=reference)


# healthy under noise -------------------------------------------------------------------------------------------------


@healthy()
def fair_noise_of_the_global_torch_state():
    class Fair(torch.autograd.Function):
        """Saves its one draw; checkpoint restores torch's own state, so a second forward draws the same."""

        @staticmethod
        def forward(ctx, x):
            factor = 1 + 0.1 * torch.randn(x.shape, dtype=x.dtype)
            ctx.save_for_backward(x, factor)
            return factor * x**2

        @staticmethod
        def backward(ctx, g):
            x, factor = ctx.saved_tensors
            return g * factor * 2 * x

    return Case(Fair, example(0.5, -1.1, 0.8), noise=True)


@healthy()
def fair_independent_noise_that_is_meant():
    return Case(NoisyValley.apply, example(0.6, -0.3), noise=True)


@healthy(severity="fragile")
def fair_shared_draw_of_a_generator():
    return Case(drop_connect(seed=13).apply, example(0.7, -1.2, 0.4), noise=True)
