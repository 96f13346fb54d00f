"""Layers of a stack of models: forwards and backwards for many rows at once, by torch's operators without autograd.

Samples of all rows lie one after another, [num_rows · batch, …]. A layer calls the operators that torch's own layer
calls for one model, so that bits agree. Products of linear layers are batched, or done row by row where `each` says so;
exact operators take all samples at once. Convolutions, and functions whose vector code rounds otherwise than its scalar
rest, go row by row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.nn import functional as F

from airprune.models.layout import Part

Tensor = torch.Tensor
LINE_BYTES = 64
aten = torch.ops.aten


class Stretch(NamedTuple):
    """Consecutive rows of a stack.

    Attributes:
      each: whether products are done row by row.
      alike: whether all have the weights of the stack's last row, so that one copy of them stays in the caches.
      trained: names of the tensors that they train; None for all that have gradients.
    """

    first: int
    stop: int
    each: bool
    alike: bool = False
    trained: frozenset[str] | None = None

    @property
    def rows(self) -> slice:
        return slice(self.first, self.stop)

    def trains(self, place: Place | None) -> bool:
        if place is None or place.gradients is None:
            return False
        return self.trained is None or place.part.name in self.trained

    def shares(self, samples: Tensor) -> tuple[Tensor, ...]:
        """The samples of each row."""
        return samples.chunk(self.stop - self.first)


class Place(NamedTuple):
    """A parameter of all rows: views into the stack's states and gradients; no gradient if it is frozen."""

    part: Part
    states: Tensor
    gradients: Tensor | None

    @classmethod
    def of(cls, part: Part, states: Tensor, gradients: Tensor) -> Place:
        return cls(part, states, gradients if part.start < gradients.shape[1] else None)

    def stacked(self, flat: Tensor) -> Tensor:
        return flat[:, self.part.start : self.part.stop].view(len(flat), *self.part.shape)

    def row(self, flat: Tensor, number: int) -> Tensor:
        view: Tensor = self.part.view(flat[number])
        return view

    def values(self, row: int, stretch: Stretch) -> Tensor:
        """Returns the values of a row of a stretch."""
        return self.row(self.states, -1 if stretch.alike else row)


class Layer(ABC):
    """One layer; keeps what its backward pass needs of its last forward pass."""

    @abstractmethod
    def forward(self, x: Tensor, stretch: Stretch) -> Tensor: ...

    @abstractmethod
    def backward(self, gradient: Tensor, stretch: Stretch, *, goes_on: bool) -> Tensor:
        """Leaves the gradients of the layer's parameters; returns that of its input if it goes on."""

    def is_trained(self, stretch: Stretch) -> bool:
        """True if it has parameters that these rows train."""
        return False

    @property
    def number(self) -> int:
        """Number of the layer in the model; -1 if it has no parameters."""
        return -1


class Linear(Layer):
    def __init__(self, weight: Place, bias: Place | None) -> None:
        self._weight, self._bias = weight, bias
        self._weights, self._weight_gradients = _views(weight)
        self._biases: Tensor | None = None
        self._bias_gradients: Tensor | None = None
        if bias is not None:
            self._biases, self._bias_gradients = _views(bias)

    def is_trained(self, stretch: Stretch) -> bool:
        return stretch.trains(self._weight) or stretch.trains(self._bias)

    @property
    def number(self) -> int:
        return self._weight.part.layer

    def forward(self, x: Tensor, stretch: Stretch) -> Tensor:
        weights, num_rows = _of_stretch(self._weights, stretch).transpose(1, 2), stretch.stop - stretch.first
        num_samples, inputs = x.shape
        self._x = x = x.reshape(num_rows, num_samples // num_rows, inputs)
        biases = None if self._biases is None else _of_stretch(self._biases, stretch)
        if stretch.each and biases is None:
            outputs = torch.stack([torch.mm(x[row], weights[row]) for row in range(num_rows)])
        elif stretch.each and biases is not None:
            outputs = torch.stack([torch.addmm(biases[row], x[row], weights[row]) for row in range(num_rows)])
        elif biases is None:
            outputs = torch.bmm(x, weights)
        else:
            outputs = torch.baddbmm(biases.unsqueeze(1), x, weights)
        return outputs.view(num_samples, -1)

    def backward(self, gradient: Tensor, stretch: Stretch, *, goes_on: bool) -> Tensor:
        rows = stretch.rows
        num_rows, size = self._x.shape[:2]
        gradient = gradient.view(num_rows, size, -1)
        if self._weight_gradients is not None and stretch.trains(self._weight):
            place = self._weight_gradients[rows]
            if is_aligned(place) and not stretch.each:
                torch.bmm(gradient.transpose(1, 2), self._x, out=place)
            else:
                place.copy_(_products(gradient.transpose(1, 2), self._x, each=stretch.each))
        if self._bias_gradients is not None and stretch.trains(self._bias):
            torch.sum(gradient, 1, out=self._bias_gradients[rows])
        if not goes_on:
            return gradient
        weights = _of_stretch(self._weights, stretch)
        return _products(gradient, weights, each=stretch.each).view(num_rows * size, -1)


def _of_stretch(stacked: Tensor, stretch: Stretch) -> Tensor:
    """The values of its rows; the same memory for all if they are alike."""
    if stretch.alike:
        return stacked[-1:].expand(stretch.stop - stretch.first, *stacked.shape[1:])
    return stacked[stretch.rows]


def _products(left: Tensor, right: Tensor, *, each: bool) -> Tensor:
    if each:
        return torch.stack([torch.mm(left[row], right[row]) for row in range(len(left))])
    return torch.bmm(left, right)


def is_aligned(rows: Tensor) -> bool:
    """True if each begins at a cache line, as a fresh product does; some products round otherwise elsewhere."""
    return rows.data_ptr() % LINE_BYTES == 0 and rows.stride(0) * rows.element_size() % LINE_BYTES == 0


def _views(place: Place) -> tuple[Tensor, Tensor | None]:
    return place.stacked(place.states), None if place.gradients is None else place.stacked(place.gradients)


class Convolution(Layer):
    """Row by row: grouped convolutions are slower than that on a CPU, and round otherwise."""

    def __init__(self, layer: nn.Conv2d, weight: Place, bias: Place | None) -> None:
        assert not isinstance(layer.padding, str)
        self._settings = layer.stride, layer.padding, layer.dilation, layer.groups
        self._weight, self._bias = weight, bias

    def is_trained(self, stretch: Stretch) -> bool:
        return stretch.trains(self._weight) or stretch.trains(self._bias)

    @property
    def number(self) -> int:
        return self._weight.part.layer

    def forward(self, x: Tensor, stretch: Stretch) -> Tensor:
        self._x = stretch.shares(x.contiguous(memory_format=torch.channels_last))
        bias = self._bias
        return torch.cat(
            [
                torch.conv2d(
                    share,
                    self._weight.values(row, stretch),
                    None if bias is None else bias.values(row, stretch),
                    *self._settings,
                )
                for row, share in enumerate(self._x, stretch.first)
            ]
        )

    def backward(self, gradient: Tensor, stretch: Stretch, *, goes_on: bool) -> Tensor:
        weight, bias = self._weight, self._bias
        stride, padding, dilation, groups = self._settings
        trains = stretch.trains(weight), stretch.trains(bias)
        back = []
        for row, (x, share) in enumerate(zip(self._x, stretch.shares(gradient), strict=True), stretch.first):
            values = weight.values(row, stretch)
            found = aten.convolution_backward(
                share,
                x,
                values,
                None if bias is None else [len(values)],
                stride,
                padding,
                dilation,
                False,
                [0, 0],
                groups,
                [goes_on, *trains],
            )
            for place, part in ((weight, found[1]), (bias, found[2])):
                if place is not None and place.gradients is not None and stretch.trains(place):
                    place.row(place.gradients, row).copy_(part)
            back.append(found[0])
        return torch.cat(back) if goes_on else gradient


class Rectified(Layer):
    def forward(self, x: Tensor, stretch: Stretch) -> Tensor:
        self._y = torch.relu_(x)
        return self._y

    def backward(self, gradient: Tensor, stretch: Stretch, *, goes_on: bool) -> Tensor:
        found: Tensor = aten.threshold_backward(gradient, self._y, 0)
        return found


class Flattened(Layer):
    def forward(self, x: Tensor, stretch: Stretch) -> Tensor:
        self._shape = x.shape
        return x.flatten(1)

    def backward(self, gradient: Tensor, stretch: Stretch, *, goes_on: bool) -> Tensor:
        return gradient.reshape(self._shape)


class MaxPooled(Layer):
    def __init__(self, *settings: Any) -> None:
        self._settings = settings

    def forward(self, x: Tensor, stretch: Stretch) -> Tensor:
        self._x = x
        found: Tensor
        found, self._index = aten.max_pool2d_with_indices(x, *self._settings)
        return found

    def backward(self, gradient: Tensor, stretch: Stretch, *, goes_on: bool) -> Tensor:
        found: Tensor = aten.max_pool2d_with_indices_backward(gradient, self._x, *self._settings, self._index)
        return found


class Curved(Layer):
    """A function of single values, row by row.

    Args:
      derivative: of (gradient, output), or with `of_input` of (gradient, input).
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        derivative: Callable[[Tensor, Tensor], Tensor],
        *,
        of_input: bool = False,
    ) -> None:
        self._function, self._derivative, self._of_input = function, derivative, of_input

    def forward(self, x: Tensor, stretch: Stretch) -> Tensor:
        self._kept: Sequence[Tensor]
        inputs = stretch.shares(x)
        outputs = [self._function(share) for share in inputs]
        self._kept = inputs if self._of_input else outputs
        return torch.cat(outputs)

    def backward(self, gradient: Tensor, stretch: Stretch, *, goes_on: bool) -> Tensor:
        pairs = zip(stretch.shares(gradient), self._kept, strict=True)
        return torch.cat([self._derivative(share, kept) for share, kept in pairs])


_RELU = (F.relu, torch.relu, torch.relu_)
_CURVES: tuple[tuple[type[nn.Module], Callable[[], Curved]], ...] = (
    (nn.Tanh, lambda: Curved(torch.tanh, aten.tanh_backward)),
    (nn.Sigmoid, lambda: Curved(torch.sigmoid, aten.sigmoid_backward)),
    (nn.GELU, lambda: Curved(F.gelu, aten.gelu_backward, of_input=True)),
)


def layer_of(node: fx.Node, module: nn.Module, places: dict[str, Place]) -> tuple[Layer | None, list[str]] | None:
    """The layer that a node of a traced module stands for, and its parameters' names; None if there is none here.

    A layer that changes nothing is None itself.
    """
    if node.op == "call_module":
        return _of_module(str(node.target), module.get_submodule(str(node.target)), places)
    options: dict[Any, Any] = dict(enumerate(node.args)) | dict(node.kwargs)
    if node.target in _RELU or (node.op == "call_method" and node.target in ("relu", "relu_")):
        return Rectified(), []
    if node.target is torch.flatten or (node.op == "call_method" and node.target == "flatten"):
        goes_to_the_end = options.get("end_dim", options.get(2, -1)) == -1
        return (Flattened(), []) if goes_to_the_end and options.get("start_dim", options.get(1, 0)) == 1 else None
    if node.target in (F.max_pool2d, torch.max_pool2d):
        names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
        given = {names[key] if isinstance(key, int) else key: value for key, value in options.items()}
        return None if given.get("return_indices") else (_pooled(**given), [])
    return None


def _of_module(name: str, layer: nn.Module, places: dict[str, Place]) -> tuple[Layer | None, list[str]] | None:
    kind = type(layer)
    names = [f"{name}.{own}" for own, value in layer.named_parameters(recurse=False) if value is not None]
    if kind is nn.Linear or (kind is nn.Conv2d and isinstance(layer.padding, tuple) and layer.padding_mode == "zeros"):
        weight, bias = places.get(f"{name}.weight"), places.get(f"{name}.bias")
        if weight is None or (layer.bias is not None and bias is None):
            return None  # shared with another layer
        return (Linear(weight, bias) if kind is nn.Linear else Convolution(layer, weight, bias)), names  # type: ignore[arg-type]
    if kind is nn.Identity:
        return None, names
    if kind is nn.ReLU:
        return Rectified(), names
    if kind is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
        return Flattened(), names
    if kind is nn.MaxPool2d and not layer.return_indices:
        settings = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        return _pooled(**{setting: getattr(layer, setting) for setting in settings}), names
    if getattr(layer, "approximate", "none") != "none":
        return None
    return next(((curved(), names) for curve, curved in _CURVES if kind is curve), None)


def _pooled(
    kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, **_: Any
) -> MaxPooled:
    def both(value: Any) -> list[int]:
        return list(value) if isinstance(value, (list, tuple)) else [value, value]

    size = both(kernel_size)
    return MaxPooled(size, size if stride is None else both(stride), both(padding), both(dilation), ceil_mode)
