"""The routes that torch has to derivatives: each takes a function and its inputs, and returns numbers."""

import torch
from bridge_patients import backward, cotangents, every, fresh, gradient, outputs, pull_back, scalar, stacked, tangents
from torch import autograd, func
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

ROUTES = {}


def route(function):
    ROUTES[function.__name__] = function
    return function


@route
def first_order(f, xs):
    return [
        backward(f, xs),
        gradient(f, xs)(*xs),
        func.grad_and_value(scalar(f), every(xs))(*xs),
        pull_back(f, xs),
        func.jvp(f, xs, tangents(xs)),
        func.jacrev(f, every(xs))(*xs),
        func.jacfwd(f, every(xs))(*xs),
        func.jacrev(f, len(xs) - 1, chunk_size=1)(*xs),
    ]


@route
def second_order(f, xs):
    all_, number = every(xs), scalar(f)
    return [
        func.hessian(number, all_)(*xs),
        func.jacrev(func.jacrev(f, all_), all_)(*xs),
        func.jacfwd(func.jacfwd(f, all_), all_)(*xs),
        func.jacrev(func.jacfwd(f, all_), all_)(*xs),
        func.jacfwd(func.jacrev(f, all_), all_)(*xs),
    ]


@route
def directional_second_order(f, xs):
    ts = tangents(xs)
    return [
        func.jvp(gradient(f, xs), xs, ts),
        func.jvp(lambda *xs: func.jvp(f, xs, ts), xs, ts),
        func.grad(scalar(lambda *xs: func.jvp(f, xs, ts)[1]), every(xs))(*xs),
        func.grad(scalar(lambda *xs: pull_back(f, xs)[1]), every(xs))(*xs),
        func.vjp(gradient(f, xs), *xs)[1](ts),
    ]


@route
def along_cotangents_and_tangents(f, xs):
    y, pull = func.vjp(f, *xs)
    back = (lambda *gs: pull(gs)) if isinstance(y, tuple) else (lambda g: pull(g))
    forth = lambda *ts: func.jvp(f, xs, ts)[1]  # noqa: E731
    return [
        func.jacrev(lambda g: back(g, *cotangents(y)[1:]))(cotangents(y)[0]),
        func.jacfwd(lambda g: back(g, *cotangents(y)[1:]))(cotangents(y)[0]),
        func.jacrev(forth, every(xs))(*tangents(xs)),
        func.jacfwd(forth, every(xs))(*tangents(xs)),
    ]


@route
def vmap_of_first_order(f, xs):
    many = stacked(xs)
    shared = (0,) + (None,) * (len(xs) - 1)
    at_the_end = tuple(x.movedim(0, -1) for x in many)
    twice = tuple(torch.stack([x, x + 0.1]) for x in many)
    return [
        func.vmap(f)(*many),
        func.vmap(f, in_dims=shared)(many[0], *xs[1:]),
        func.vmap(f, in_dims=-1, out_dims=-1)(*at_the_end),
        func.vmap(func.vmap(f))(*twice),
        func.vmap(gradient(f, xs))(*many),
        func.vmap(func.jacrev(f, every(xs)), in_dims=shared)(many[0], *xs[1:]),
        func.vmap(func.jacfwd(f, every(xs)))(*many),
        func.vmap(lambda *ts: func.jvp(f, xs, ts))(*stacked(tangents(xs))),
        func.vmap(f, chunk_size=2)(*many),
    ]


@route
def vmap_of_second_order(f, xs):
    many, all_ = stacked(xs), every(xs)
    together = func.vmap(f)
    return [
        func.vmap(func.hessian(scalar(f), all_))(*many),
        func.vmap(func.jacfwd(func.jacfwd(f, all_), all_))(*many),
        func.hessian(scalar(together), all_)(*many),
        func.jacrev(func.jacfwd(together))(*many),
    ]


@route
def autograd_functional(f, xs):
    api, number, ts = autograd.functional, scalar(f), tangents(xs)
    y = f(*xs)
    forward = {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}
    return [
        api.jacobian(f, xs),
        api.jacobian(f, xs, vectorize=True),
        api.jacobian(f, xs, vectorize=True, strategy="forward-mode"),
        api.hessian(number, xs),
        api.hessian(number, xs, vectorize=True),
        api.hessian(number, xs, **forward),
        api.vhp(number, xs, ts),
        api.jvp(f, xs, ts),
        api.vjp(f, xs, cotangents(y) if isinstance(y, tuple) else cotangents(y)[0]),
    ]


@route
def hvp_by_two_backwards(f, xs):
    return autograd.functional.hvp(scalar(f), xs, tangents(xs))


@route
def gradient_penalty(f, xs):
    xs = fresh(xs)
    loss = scalar(f)(*xs)
    gradients = autograd.grad(loss, xs, create_graph=True)
    (loss + sum((g**2).sum() for g in gradients)).backward()
    return [x.grad for x in xs]


@route
def create_graph_chain(f, xs):
    xs = fresh(xs)
    first = autograd.grad(scalar(f)(*xs), xs, create_graph=True)
    along = sum((g * t).sum() for g, t in zip(first, tangents(xs), strict=True))
    second = autograd.grad(along, xs, retain_graph=True)
    return [first, second, autograd.grad(along, xs)]


@route
def batched_gradients(f, xs):
    xs = fresh(xs)
    y = outputs(f(*xs))[0]
    rows = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)
    first = autograd.grad(y, xs, rows, is_grads_batched=True, create_graph=True, allow_unused=True)
    second = autograd.grad(sum((each**2).sum() for each in first), xs)
    return [first, second]


@route
def dual_numbers(f, xs):
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(xs, tangents(xs), strict=True)]
        forward = [forward_ad.unpack_dual(y) for y in outputs(f(*duals))]
        at = [forward_ad.make_dual(x, t) for x, t in zip(fresh(xs), tangents(xs), strict=True)]
        over_reverse = [forward_ad.unpack_dual(g) for g in autograd.grad(scalar(f)(*at), at)]
    return [forward, over_reverse]


def direct(f):
    return lambda *xs: f


def recorded_programs(f, xs, record=make_fx):
    """Take ``record=direct`` for the numbers without a recording."""
    elsewhere = tuple(x + 0.1 for x in xs)
    y, push = func.linearize(f, *xs)
    return [
        y,
        push(*tangents(xs)),
        record(f)(*xs)(*elsewhere),
        record(gradient(f, xs))(*xs)(*elsewhere),
        record(func.hessian(scalar(f)))(*xs)(*elsewhere),
        record(func.vmap(f))(*stacked(xs))(*stacked(elsewhere)),
    ]


@route
def checkpoints(f, xs):
    found = []
    for reentrant in (True, False):
        recomputed = lambda *xs: checkpoint(f, *xs, use_reentrant=reentrant)  # noqa: E731, B023
        found.append(backward(recomputed, xs))
    leaf = fresh(xs)
    (g, *_) = autograd.grad(scalar(recomputed)(*leaf), leaf, create_graph=True)
    (g**2).sum().backward()
    return [found, leaf[0].grad]
