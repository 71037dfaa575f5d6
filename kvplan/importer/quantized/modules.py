"""Which matrices of a checkpoint are which weight groups, and the lists that leave modules out.

Names are written without what stands before the layers (`model.`, `language_model.`), since tools write it
differently for one and the same checkpoint: `layers.3.self_attn.q_proj`, `lm_head`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Literal, NamedTuple

from kvplan.errors import shorten
from kvplan.importer.quantized.names import Names
from kvplan.importer.view import ConfigView
from kvplan.model import ROLES, WeightGroup

_BEFORE_LAYERS = (
    "model",
    "language_model",
    "thinker",
    "transformer",
    "backbone",
    "gpt_neox",
    "text_model",
    "llm",
    "decoder",
    "encoder",
)
_PREFIX = re.compile(rf"(?:(?:{'|'.join(_BEFORE_LAYERS)})\.)+")
_PREFIXES = ("", "model.", "language_model.model.", "model.language_model.")

Fused = Literal["", "first", "part", "pair"]


class Matrix(NamedTuple):
    """A weight group with its names in the checkpoint.

    position  where it stands among the weights of its layer, or of the model
    names     of its modules, without layer; () where they are not known
    fused     first: the first rows of a module that other groups end; part: further rows of one; pair: two of its
              matrices are one module; "": each is a module of its own
    """

    position: int
    group: WeightGroup
    names: tuple[str, ...]
    fused: Fused = ""


_ROLES = frozenset({role for role, known in ROLES.items() if known.quantized} | {"embedding", "lm_head", "router"})


def matrices(groups: Iterable[WeightGroup], names: Names) -> list[Matrix]:
    """The groups that a format could apply to, each with its names."""
    found = [(at, group) for at, group in enumerate(groups) if _is_matrix(group)]
    held, seen = Counter(group.role for _, group in found), Counter[str]()
    shared = {name for known in names.values() for mine in known for name in mine if name.startswith("+")}
    made = []
    for at, group in found:
        known = names.get(group.role, ())
        mine = known[seen[group.role]] if held[group.role] == len(known) else ()
        seen[group.role] += 1
        made.append(Matrix(at, group, tuple(name.lstrip("+=") for name in mine), _fused(mine, shared)))
    return made


def _fused(mine: Sequence[str], shared: set[str]) -> Fused:
    if any(name.startswith("+") for name in mine):
        return "part"
    if any(name.startswith("=") for name in mine):
        return "pair"
    return "first" if any(f"+{name}" in shared for name in mine) else ""


def _is_matrix(group: WeightGroup) -> bool:
    return group.columns > 1 and not group.pinned and group.tower == "text" and group.role in _ROLES


# -------------------------------------------------------------------------------------------------------- lists


MAX_STEPS = 150_000
"""Comparisons of one list with the names of a model: a list of ten patterns takes 40,000 of them with 100 layers."""
MAX_ENTRIES = 10_000


class ModuleList:
    """The modules that a config leaves out.

    config   where the list stands, for messages
    entries  as bare names or patterns
    holds    whether a full name is among them
    cost     comparisons that `holds` makes for a name
    """

    def __init__(self, config: ConfigView, entries: Sequence[str], holds: Callable[[str], bool], cost: int = 1):
        self.config = config
        self.entries = entries
        self.holds = holds
        self._cost, self._steps_left = cost, MAX_STEPS

    def leaves_out(self, matrix: Matrix, layer: int | None) -> bool:
        """Whether `matrix` of layer `layer` (None: outside the layers) keeps its width.

        Raises UnsupportedConfigError where its names are not known, or are only partly in the list.
        """
        if not matrix.names:
            label = ROLES[matrix.group.role].label
            raise self.config.unsupported(f"the names of the modules with the {label} are not known for this family")
        self._steps_left -= self._cost * len(matrix.names)
        if self._steps_left < 0:
            raise self.config.unsupported("the list of modules is too long for a model of so many layers")
        inside = "" if layer is None else f"layers.{layer}."
        verdicts = {self.holds(inside + name) for name in matrix.names}
        if len(verdicts) > 1:
            raise self.config.unsupported(f"of {' and '.join(matrix.names)} only some are left out")
        return verdicts.pop()

    def require_known(self, layers: Sequence[Sequence[Matrix]]) -> None:
        """Refuse an entry for one of the `layers` that names none of its matrices: they may have other names here."""
        for entry in self.entries:
            at = _IN_LAYER.match(entry)
            if at is None or int(at[1]) >= len(layers) or _NO_PROJECTION.search(entry):
                continue
            stem = at[2].removesuffix("*").removesuffix(".")
            if not any(name.startswith(stem) for matrix in layers[int(at[1])] for name in matrix.names):
                raise self.config.unsupported(f"{shorten(entry)} is the name of no matrix that is known of this family")


_IN_LAYER = re.compile(r"layers\.(\d+)\.?(.*)")
_NO_PROJECTION = re.compile(r"norm|\.(?:gate|router|shared_expert_gate|conv1d)(?:$|[.*])|[*?\[].")
"""Entries that need no matrix: norms, routers, and patterns with more in them than an open end."""


_TOWER = re.compile(r"vision|visual|vit\b|audio|tower|mm_projector|multi_modal")


def require_tower(config: ConfigView, outer: ConfigView, entries: Iterable[str]) -> None:
    """Refuse a model with a tower whose list of exceptions names nothing of it: it would be quantized too."""
    towers = [key for key in ("vision_config", "audio_config", "visual") if isinstance(outer.data.get(key), Mapping)]
    if towers and not any(_TOWER.search(entry) for entry in islice(entries, MAX_ENTRIES)):
        raise config.unsupported(f"whether the tower of {towers[0]} is quantized is not stated")


def bare_name(name: str) -> str:
    """A module's name, or a pattern, without what stands before the layers, which some families call otherwise."""
    bare = _PREFIX.sub("", name, count=1) if name.startswith(_STARTS) else name
    return f"layers.{bare.partition('.')[2]}" if bare.startswith(_OTHER_LAYERS) else bare


_STARTS = tuple(f"{word}." for word in _BEFORE_LAYERS)
_OTHER_LAYERS = ("h.", "blocks.")


def _checked(config: ConfigView, entries: Iterable[str]) -> list[str]:
    """The entries as bare names; refuses single experts, since a group holds them all, and endless lists."""
    found = [bare_name(entry) for entry in islice(entries, MAX_ENTRIES + 1)]
    if len(found) > MAX_ENTRIES or not all(found):
        raise config.unsupported(f"the list of modules has over {MAX_ENTRIES:,} entries, or an empty one")
    for entry in found:
        if re.search(r"experts\.\d", entry):
            raise config.unsupported(f"{shorten(entry)} names a single expert, and not all of them")
    return found


def glob_list(config: ConfigView, entries: Iterable[str]) -> ModuleList:
    """Shell patterns, as modelopt writes them; a name without `*` holds the modules inside it too."""
    found = _checked(config, entries)
    plain = frozenset(entry for entry in found if not _WILD.search(entry))
    open_ended = [entry[:-1] for entry in found if entry.endswith("*") and not _WILD.search(entry[:-1])]
    starts = _by_layer([*(f"{entry}." for entry in plain), *open_ended])
    others = [entry for entry in found if _WILD.search(entry[:-1])]
    return ModuleList(
        config,
        found,
        lambda name: (
            name in plain
            or name.startswith(starts.get(_layer_of(name), ()) + starts.get("", ()))
            or any(fnmatchcase(name, pattern) for pattern in others)
        ),
        1 + len(others) + len(starts.get("", ())) // 8,
    )


def _by_layer(starts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Beginnings of names by the layer that they are in, or "": a list may have thousands."""
    found: dict[str, list[str]] = {}
    for start in starts:
        found.setdefault(_layer_of(start), []).append(start)
    return {layer: tuple(mine) for layer, mine in found.items()}


def _layer_of(name: str) -> str:
    """`layers.3.` of a name in that layer, else ""."""
    inside = _LAYER.match(name)
    return inside[0] if inside else ""


_LAYER = re.compile(r"layers\.\d+\.")
_WILD = re.compile(r"[*?\[]")


def name_list(config: ConfigView, entries: Iterable[str]) -> ModuleList:
    """Whole names, and regular expressions after `re:`, as compressed-tensors writes them.

    Raises UnsupportedConfigError where an expression is none.
    """
    given = list(entries)
    if sum(entry.startswith("re:") for entry in given) > MAX_EXPRESSIONS:
        raise config.unsupported(f"the list holds over {MAX_EXPRESSIONS} expressions, too many to be followed")
    plain = frozenset(_checked(config, (entry for entry in given if not entry.startswith("re:"))))
    patterns = [_compiled(config, entry.removeprefix("re:")) for entry in given if entry.startswith("re:")]

    def holds(name: str) -> bool:
        verdicts = {_any_matches(patterns, prefix + name) for prefix in _PREFIXES}
        if len(verdicts) > 1:
            raise config.unsupported(f"whether the list holds {name} depends on what stands before it")
        return name in plain or verdicts.pop()

    return ModuleList(config, sorted(plain), holds, 1 + len(_PREFIXES) * len(patterns))


MAX_EXPRESSIONS = 500
_LAYERS_CALLED_OTHERWISE = re.compile(r"(?:^|[.*\\])(?:h|blocks)\\?\.")


def _compiled(config: ConfigView, text: str) -> re.Pattern[str]:
    if _LAYERS_CALLED_OTHERWISE.search(text):
        raise config.unsupported(f"{shorten(text)} has another name for the layers, and cannot be followed")
    if len(text) > 200 or re.search(r"[)\]}*+]\s*[*+{]", text):
        raise config.unsupported(f"the expression {shorten(text)} is too involved to be followed")
    try:
        return re.compile(text)
    except re.error as error:
        raise config.unsupported(f"{shorten(text)} is no regular expression: {error}") from None


def _any_matches(patterns: Iterable[re.Pattern[str]], name: str) -> bool:
    return any(pattern.match(name) for pattern in patterns)


def fragment_list(config: ConfigView, entries: Iterable[str]) -> ModuleList:
    """Fragments of names, as tools match them: anywhere in a name (AutoAWQ, older transformers), or only a beginning
    up to a dot, or the end (newer transformers). Refuses a name for which that makes a difference."""
    found = _checked(config, entries)
    by_layer = _by_layer(found)

    def holds(name: str) -> bool:
        mine = by_layer.get(_layer_of(name), ()) + by_layer.get("", ())
        inside = [entry for entry in mine if entry in name]
        if inside and not any(_bounded(name, entry) for entry in inside):
            raise config.unsupported(f"whether the list leaves out {name} depends on the tool that reads it")
        return bool(inside)

    return ModuleList(config, found, holds, 1 + 2 * max(map(len, by_layer.values()), default=0))


def _bounded(name: str, entry: str) -> bool:
    return name == entry or name.startswith(f"{entry.removesuffix('.')}.") or name.endswith(entry)
