"""A call with more axes than one sample has: a batch over the leading ones."""

import re
from dataclasses import dataclass

import torch

Tensor = torch.Tensor
FORM = re.compile(r"\s*(\([^()]*\)(\s*,\s*\([^()]*\))*)\s*->\s*(\([^()]*\)(\s*,\s*\([^()]*\))*)\s*")


@dataclass(frozen=True)
class Signature:
    """What one sample is: the named axes of each input and output, as in ``"(n),(k)->()"``.

    It is the notation of NumPy's generalised ufuncs and of ``numpy.vectorize``.

    Raises
    ------
    ValueError
        If the text has another form.

    Examples
    --------
    >>> Signature.parse("(n),(m,n)->(m)").inputs
    (('n',), ('m', 'n'))
    """

    text: str
    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, text: str) -> "Signature":
        """Read the notation."""
        match = FORM.fullmatch(text)
        if not match:
            raise ValueError(f'signature must look like "(n)->()" or "(n),(k)->(m)"; got {text!r}.')
        return cls(text, _axes(match[1]), _axes(match[3]))


def _axes(text: str) -> tuple[tuple[str, ...], ...]:
    groups = re.findall(r"\(([^()]*)\)", text)
    return tuple(tuple(name.strip() for name in group.split(",") if name.strip()) for group in groups)


ONE_VECTOR = Signature.parse("(n)->()")


def to_batch(label: str, signature: Signature | None, tensors: tuple[Tensor, ...]) -> tuple[int, tuple[Tensor, ...]]:
    """Return how many leading axes a batch has, and the tensors stretched to all of them.

    torch itself stretches, so it also sums the gradient of what was stretched.

    Raises
    ------
    ValueError
        If there are several tensors and no signature, if a tensor has fewer axes than one sample, or if sizes differ.
    """
    if signature is None:
        if len(tensors) > 1:
            raise ValueError(
                f'{label}: with {len(tensors)} tensors a batch needs signature=, such as "(n),(k)->()": the axes of '
                "one sample of each tensor."
            )
        signature = ONE_VECTOR
    if len(signature.inputs) != len(tensors):
        raise ValueError(f"{label}: signature {signature.text!r} and {len(tensors)} tensors do not go together.")
    sizes: dict[str, int] = {}
    lead = []
    for tensor, names in zip(tensors, signature.inputs, strict=True):
        depth = tensor.ndim - len(names)
        if depth < 0:
            raise ValueError(
                f"{label}: signature {signature.text!r} asks for {len(names)} axes, and a tensor has shape "
                f"{tuple(tensor.shape)}."
            )
        for name, size in zip(names, tensor.shape[depth:], strict=True):
            if sizes.setdefault(name, size) != size:
                raise ValueError(f"{label}: axis {name!r} of {signature.text!r} is {sizes[name]} and {size} long.")
        lead.append(tensor.shape[:depth])
    try:
        shape = torch.broadcast_shapes(*lead)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ValueError(f"{label}: the leading axes {[tuple(each) for each in lead]} do not broadcast.") from error
    stretched = [
        tensor if tensor.shape[: tensor.ndim - len(names)] == shape else tensor.expand(*shape, *_core(tensor, names))
        for tensor, names in zip(tensors, signature.inputs, strict=True)
    ]
    return len(shape), tuple(stretched)


def _core(tensor: Tensor, names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(tensor.shape[tensor.ndim - len(names) :])
