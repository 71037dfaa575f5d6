"""What a quantization does to the weight groups of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kvplan.dtypes import StorageFormat, adds_up, part_of
from kvplan.errors import UnsupportedConfigError
from kvplan.importer.decoder import Parts
from kvplan.importer.quantized.modules import Matrix, ModuleList, matrices
from kvplan.importer.quantized.names import Names
from kvplan.importer.view import ConfigView
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
        # Layers and formats stand for themselves as numbers and names: their fields take long to compare.
        unlike = {id(layer): layer for layer in layers}
        known = {at: matrices(layer.weights, self.names) for at, layer in unlike.items()}
        made: dict[tuple[int, tuple[str, ...]], Layer] = {}
        found = []
        for index, layer in enumerate(layers):
            mine = known[id(layer)]
            formats = [self.choose(matrix, index) for matrix in mine]
            key = id(layer), tuple(storage.name if storage else "" for storage in formats)
            if key not in made:
                made[key] = replace(layer, weights=_with_formats(layer.weights, mine, formats))
            found.append(made[key])
        if self.left_out is not None:
            self.left_out.require_known([known[id(layer)] for layer in layers])
        return tuple(found)

    def _outer(self, weights: tuple[WeightGroup, ...]) -> tuple[WeightGroup, ...]:
        known = matrices(weights, self.names)
        return _with_formats(weights, known, [self.choose(matrix, None) for matrix in known])


def _with_formats(
    weights: tuple[WeightGroup, ...], known: Sequence[Matrix], formats: Sequence[StorageFormat | None]
) -> tuple[WeightGroup, ...]:
    stored = {
        matrix.position: _stored(matrix, storage) for matrix, storage in zip(known, formats, strict=True) if storage
    }
    return tuple(group for at, whole in enumerate(weights) for group in stored.get(at, (whole,)))


def _stored(matrix: Matrix, storage: StorageFormat) -> tuple[WeightGroup, ...]:
    """The group in `storage`; numbers that a fused matrix holds once are counted with its first part."""
    group, part = matrix.group, part_of(storage)
    if matrix.fused and not adds_up(storage, group.rows, group.columns):
        raise UnsupportedConfigError(
            f"config.json quantization_config: the bytes of {matrix.names[0]}, which holds several groups, do not add "
            f"up in {storage.name}"
        )
    if matrix.fused == "pair" and part is not storage:
        half = replace(group, count=group.count // 2, active=group.active and group.active // 2, storage=storage)
        return half, replace(half, storage=part)
    return (replace(group, storage=part if matrix.fused == "part" else storage),)


def by_role(storage: StorageFormat, applies: Callable[[WeightGroup], bool]) -> Scheme:
    """One format for the matrices that `applies` picks, whatever they are called."""
    return Scheme(storage.name, lambda matrix, _layer: storage if applies(matrix.group) else None)


def all_projections_but(left_out: ModuleList, storage: StorageFormat, names: Names) -> Scheme:
    """One format for every projection inside the layers that the list does not leave out."""

    def choose(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        is_projection = ROLES[matrix.group.role].quantized
        return storage if is_projection and not left_out.leaves_out(matrix, layer) else None

    return Scheme(storage.name, choose, names, left_out)


def all_linear_but(left_out: ModuleList, storage: StorageFormat, names: Names, *never: str) -> Scheme:
    """One format for every linear layer that the list does not leave out, and whose role is not among `never`: where
    the list does not name the head or a router, their storage is not known. An embedding is no linear layer."""

    def format_of(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        return None if matrix.group.role in never or left_out.leaves_out(matrix, layer) else storage

    return Scheme(storage.name, linear_choice(left_out.config, format_of, names, "lm_head"), names, left_out)


def linear_choice(config: ConfigView, format_of: Choice, names: Names, *unexpected: str) -> Choice:
    """`format_of` for the linear layers; refuses where that is a format for a router or an `unexpected` role."""

    def choose(matrix: Matrix, layer: int | None) -> StorageFormat | None:
        role = matrix.group.role
        if role == "embedding" or (role == "router" and role not in names):
            return None
        storage = format_of(matrix, layer)
        if storage is not None and role in ("router", *unexpected):
            raise config.unsupported(f"the {ROLES[role].label} is not left out, as it is everywhere known")
        return storage

    return choose
