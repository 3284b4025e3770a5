"""The shape of an output before it is computed: a compiler wants to know it."""

from collections.abc import Sequence
from typing import Any

from .batches import Signature

Shape = tuple[int, ...]


class OutputShapes:
    """What is known of the shapes of one sample's outputs.

    Parameters
    ----------
    label : str
        The name of the op.
    out_shape : tuple, list of tuples, callable from the shapes of the inputs to these, or None
        What the user says.
    signature : Signature or None
        Another way to say it.
    default : list of tuples or None
        What is true if nobody says anything else.
    """

    def __init__(self, label: str, out_shape: Any, signature: Signature | None, default: list[Shape] | None) -> None:
        self.label, self.out_shape, self.signature, self.default = label, out_shape, signature, default
        self.seen: dict[tuple[Shape, ...], list[Shape] | None] = {}
        self.single = not isinstance(out_shape, list) and (signature is None or len(signature.outputs) == 1)

    def remember(self, inputs: Sequence[Shape], outputs: list[Shape], single: bool) -> None:
        """Keep what a call has shown. If other arguments change the shape, nothing is known."""
        key = tuple(inputs)
        self.seen[key] = outputs if self.seen.get(key, outputs) == outputs else None
        self.single = single

    def check(self, inputs: Sequence[Shape], outputs: list[Shape]) -> None:
        """Refuse outputs that are not as the signature says.

        Raises
        ------
        ValueError
        """
        wanted = self._of_signature(inputs)
        if wanted is not None and wanted != outputs and self.signature is not None:
            raise ValueError(
                f"{self.label}: signature {self.signature.text!r} asks for outputs of shape {wanted}, and the function "
                f"returned {outputs}."
            )

    def of(self, inputs: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the outputs for shapes of the inputs.

        Raises
        ------
        ValueError
            If nobody knows.
        """
        if self.out_shape is not None:
            found = self.out_shape(*inputs) if callable(self.out_shape) else self.out_shape
            return [tuple(each) for each in found] if isinstance(found, list) else [tuple(found)]
        known = self._of_signature(inputs) or self.default
        known = known or self.seen.get(tuple(tuple(int(size) for size in shape) for shape in inputs))
        if known is None:
            raise ValueError(
                f"{self.label}: a compiler asks for the shape of the output before the function is called. Call "
                f"{self.label} once before you compile it, or give out_shape=."
            )
        return known

    def _of_signature(self, inputs: Sequence[Shape]) -> list[Shape] | None:
        if self.signature is None:
            return None
        for names, shape in zip(self.signature.inputs, inputs, strict=False):
            if len(names) != len(shape):
                raise ValueError(
                    f"{self.label}: signature {self.signature.text!r} is that of one sample, and an input has shape "
                    f'{tuple(shape)}. For many samples at once add batch="loop" (or "vectorized").'
                )
        sizes = {
            name: size
            for names, shape in zip(self.signature.inputs, inputs, strict=True)
            for name, size in zip(names, shape, strict=True)
        }
        if not all(name in sizes for names in self.signature.outputs for name in names):
            return None
        return [tuple(sizes[name] for name in names) for names in self.signature.outputs]
