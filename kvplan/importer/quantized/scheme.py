"""What a quantization does to the weight groups of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kvplan.dtypes import StorageFormat
from kvplan.errors import UnsupportedConfigError
from kvplan.importer.decoder import Parts
from kvplan.importer.quantized.modules import MODULE_NAMES, Matrix, ModuleList, Names, matrices
from kvplan.model import ROLES, Layer, WeightGroup

Choice = Callable[[Matrix, int | None], StorageFormat | None]
"""A matrix and its layer (None: outside the layers) -> its format; None: the model's own width."""


class Stored(NamedTuple):
    """The parts of a model with their storage; `unknown` says why that is not known, or is ""."""

    parts: Parts
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Scheme:
    """The storage of a checkpoint.

    label     the format in words
    choose    the format of each matrix
    names     the names of the family's modules, where `choose` asks for them
    left_out  the list that `choose` asks
    unknown   why the storage is not known, or ""
    """

    label: str
    choose: Choice = lambda _matrix, _layer: None
    names: Names = field(default_factory=dict)
    left_out: ModuleList | None = None
    unknown: str = ""

    def apply(self, parts: Parts) -> Stored:
        """`parts` with the storage of every matrix; as they are where that turns out not to be known."""
        if self.unknown:
            return Stored(parts, self.unknown)
        try:
            return Stored(replace(parts, layers=self._layers(parts.layers), weights=self._outer(parts.weights)))
        except UnsupportedConfigError as reason:
            return Stored(parts, str(reason))

    def _layers(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """Layers that were equal and are stored alike stay one object, which keeps sums fast."""
        known = {layer: matrices(layer.weights, self.names) for layer in dict.fromkeys(layers)}
        made: dict[tuple[Layer, tuple[StorageFormat | None, ...]], Layer] = {}
        found = []
        for index, layer in enumerate(layers):
            formats = tuple(self.choose(matrix, index) for matrix in known[layer])
            if (layer, formats) not in made:
                weights = _with_formats(layer.weights, known[layer], formats)
                made[layer, formats] = replace(layer, weights=weights)
            found.append(made[layer, formats])
        if self.left_out is not None:
            self.left_out.require_known([known[layer] for layer in layers])
        return tuple(found)

    def _outer(self, weights: tuple[WeightGroup, ...]) -> tuple[WeightGroup, ...]:
        known = matrices(weights, self.names)
        return _with_formats(weights, known, [self.choose(matrix, None) for matrix in known])


def _with_formats(
    weights: tuple[WeightGroup, ...], known: Sequence[Matrix], formats: Sequence[StorageFormat | None]
) -> tuple[WeightGroup, ...]:
    stored = {matrix.position: storage for matrix, storage in zip(known, formats, strict=True) if storage}
    return tuple(replace(group, storage=stored[at]) if at in stored else group for at, group in enumerate(weights))


def by_role(storage: StorageFormat, applies: Callable[[WeightGroup], bool]) -> Scheme:
    """One format for the matrices that `applies` picks, whatever they are called."""
    return Scheme(storage.name, lambda matrix, _layer: storage if applies(matrix.group) else None)


def all_projections_but(left_out: ModuleList, storage: StorageFormat, model_type: str) -> Scheme:
    """One format for every projection inside the layers that the list does not leave out."""

    def choose(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        is_projection = ROLES[matrix.group.role].quantized
        return _for(matrix, storage, left_out) if is_projection and not left_out.leaves_out(matrix, layer) else None

    return Scheme(storage.name, choose, MODULE_NAMES.get(model_type, {}), left_out)


def all_linear_but(left_out: ModuleList, storage: StorageFormat, model_type: str) -> Scheme:
    """One format for every linear layer that the list does not leave out: where it does not name the head or a
    router, their storage is not known. An embedding is no linear layer."""
    names = MODULE_NAMES.get(model_type, {})

    def choose(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        role = matrix.group.role
        if role == "embedding" or (role == "router" and role not in names) or left_out.leaves_out(matrix, layer):
            return None
        if not ROLES[role].quantized:
            raise left_out.config.unsupported(f"the {ROLES[role].label} is not left out, as it is everywhere known")
        return _for(matrix, storage, left_out)

    return Scheme(storage.name, choose, names, left_out)


def _for(matrix: Matrix, storage: StorageFormat, left_out: ModuleList) -> StorageFormat:
    """`storage`, unless it has numbers that a matrix holds once, and `matrix` is only a part of one."""
    rows, columns = matrix.group.rows, matrix.group.columns
    if matrix.is_part and storage.matrix_bytes(2 * rows, columns) != 2 * storage.matrix_bytes(rows, columns):
        raise left_out.config.unsupported(
            f"the bytes of {matrix.names[0]}, which holds two groups, do not add up in {storage.name}"
        )
    return storage
