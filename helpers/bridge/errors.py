"""What the bridge raises on its own account."""


class MissingDerivative(RuntimeError):
    """A derivative was asked for that the function was not given. The message names the missing piece and the cure."""


class WrongDerivative(ValueError):
    """A derivative does not agree with finite differences of what it is said to be the derivative of."""
