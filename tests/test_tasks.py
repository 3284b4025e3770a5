"""What a worker does with an order, whatever the user's functions do."""

import pickle
import threading

import executor_functions as functions
import numpy as np
import pytest

from helpers.tasks import Order, Parcel, SolveAgain, WorkerTraceback, perform

X = np.array([1.0, -2.0, 3.0])
G = np.array([1.0, 0.5, -1.0])
SOLVER = functions.Cubic()
ROLES = {"forward": SOLVER.forward, "adjoint": SOLVER.adjoint}
WANTED = 3 * X**2 * (functions.A.T @ G)


def performed(roles, *calls, **options):
    return pickle.loads(perform(pickle.dumps(roles), pickle.dumps(Order(calls, **options))))


def test_a_state_travels_as_a_parcel():
    ((y, state),) = performed(ROLES, ("forward", (X,), {}), state="travel").results
    assert np.array_equal(y, functions.A @ X**3)
    assert isinstance(state, Parcel)
    (found,) = performed(ROLES, ("adjoint", (state, G), {}), state="travel").results
    assert np.array_equal(found, WANTED)


def test_a_state_that_does_not_travel_is_solved_for_again():
    ((y, state),) = performed(ROLES, ("forward", (X,), {}), state="recompute").results
    assert state is None
    assert np.array_equal(y, functions.A @ X**3)
    (found,) = performed(ROLES, ("adjoint", (SolveAgain((X,), {}), G), {}), state="recompute").results
    assert np.array_equal(found, WANTED)


def test_calls_of_one_order_are_made_on_the_same_objects():
    solver = functions.Remembering()
    roles = {"forward": solver.forward, "adjoint": solver.adjoint}
    reply = performed(roles, ("forward", (X,), {}), ("adjoint", (None, G), {}))
    assert np.array_equal(reply.results[1], WANTED)
    assert solver.slope is None


@pytest.mark.parametrize(
    ("roles", "remembers"),
    [
        ({"forward": functions.forgetful_cube, "vjp": functions.forgetful_vjp}, True),
        ({"forward": functions.cube, "vjp": functions.cube_vjp}, False),
        ({"forward": functions.Remembering().forward}, False),
    ],
    ids=["a global", "nothing", "no derivative reads it"],
)
def test_it_looks_if_a_solve_leaves_something_behind(roles, remembers):
    functions._latest.clear()
    assert performed(roles, ("forward", (X,), {}), look=True).remembers is remembers
    assert performed(roles, ("forward", (X,), {})).remembers is False


def test_both_methods_of_one_object_are_looked_at_together():
    solver = functions.Remembering()
    roles = {"forward": solver.forward, "adjoint": solver.adjoint}
    assert performed(roles, ("forward", (X,), {}), look=True).remembers


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (functions.raises_awkwardly, "Awkward: one and two"),
        (functions.leaves_at_negative, "SystemExit"),
        (functions.aux_is_a_lock, "cannot be sent back"),
        (functions.returns_a_generator, "cannot be sent back"),
        (functions.raises_no_text, "NoText"),
        (functions.raises_what_turns_into_text, "TurnsIntoText"),
    ],
    ids=["cannot be unpickled", "exit", "a lock", "a generator", "no text", "turns into text"],
)
def test_it_answers_whatever_happens(function, said):
    failure = performed({"forward": function}, ("forward", (-abs(X),), {})).failure
    assert failure.role == "forward"
    assert isinstance(failure.rebuilt(), Exception)
    assert said in failure.traceback + repr(failure.rebuilt())
    if "sent back" not in said:
        assert f"in {function.__name__}" in failure.traceback


def test_an_error_keeps_its_type_and_says_where_it_happened():
    failure = performed({"forward": functions.fails_at_negative}, ("forward", (-X,), {})).failure
    assert type(failure.rebuilt()) is np.linalg.LinAlgError
    assert "in fails_at_negative" in failure.traceback
    assert issubclass(WorkerTraceback, Exception)


def test_an_order_that_cannot_be_opened_is_a_failure_too():
    for functions_, order in ((b"no pickle", b""), (pickle.dumps(ROLES), b"no pickle")):
        reply = pickle.loads(perform(functions_, order))
        assert reply.failure is not None
        assert reply.results == ()


def test_arguments_are_read_only_and_named_ones_too():
    failure = performed({"forward": functions.writes_into_its_argument}, ("forward", (X,), {})).failure
    assert "read-only" in str(failure.rebuilt())
    failure = performed({"forward": functions.writes_into_its_argument}, ("forward", (), {"x": X})).failure
    assert "read-only" in str(failure.rebuilt())


def test_settings_of_numpy_travel():
    with np.errstate(over="raise"):
        order = Order((("forward", (np.full(3, 1e200),), {}),))
    failure = pickle.loads(perform(pickle.dumps({"forward": functions.quartic}), pickle.dumps(order))).failure
    assert type(failure.rebuilt()) is FloatingPointError


def test_orders_that_must_be_alone_are():
    roles = {"forward": functions.forgetful_cube, "vjp": functions.reads_the_latest_slowly}
    found = {}

    def work(index):
        x = X + index
        calls = (("forward", (x,), {}), ("vjp", (x, G), {}))
        reply = performed(roles, *calls, alone=True)
        found[index] = np.array_equal(reply.results[1], 3 * x**2 * (functions.A.T @ G))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(8), True)


def test_the_time_is_that_of_the_work():
    assert performed({"forward": functions.slow}, ("forward", (X,), {})).seconds >= 0.05
