"""A config as a rule reads it: every read is checked and recorded, so that nothing is passed over in silence.

When a rule is done, `finish` refuses the import if any key is left that no rule read and that is not known to
be harmless: an unread key could change memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvplan.dtypes import StorageFormat
from kvplan.errors import ConfigError, InputError, UnsupportedConfigError, quoted
from kvplan.importer.harmless import why_harmless
from kvplan.units import whole_number

MAX_SIZE = 2**31
"""No size in a config (hidden, vocabulary, heads ...) is larger; beyond it a number is not to be believed."""


class _Required:
    """Marks an argument without default."""


REQUIRED: Final = _Required()


class ConfigView:
    """A JSON object with recorded, checked reads.

    data      the object
    where     "config.json", or "config.json text_config" for an inner one
    defaults  the class's own defaults, used where a key is absent or null, and noted
    dtype     the width of the model's tensors, as the config or the caller says, or None; inner objects share it
    stored    the names of the tensors that the checkpoint stores, where its index is at hand
    """

    def __init__(self, data: Mapping[str, Any], where: str = "config.json", defaults: Mapping[str, Any] | None = None):
        self.data = data
        self.where = where
        self.dtype: StorageFormat | None = None
        self.stored: frozenset[str] = frozenset()
        self.defaults: dict[str, Any] = dict(defaults or {})
        self._read: set[str] = set()
        self._children: dict[str, ConfigView] = {}
        self._notes: list[str] = []

    # ------------------------------------------------------------------------------------------------- reading

    def _find(self, names: Sequence[str], default: Any) -> Any:
        """The value under the first of `names` that is there and not null; all of them count as read."""
        self._read.update(names)
        given = [(name, self.data[name]) for name in names if self.data.get(name) is not None]
        if given:
            for name, value in given[1:]:
                if value != given[0][1]:
                    raise self.error(f"{given[0][0]} is {quoted(given[0][1])} but {name} is {quoted(value)}")
            return given[0][1]
        for name in names:
            if self.defaults.get(name) is not None:
                self._note_default(name)
                return self.defaults[name]
        if default is REQUIRED:
            raise self.error(f"lacks {' or '.join(names)}")
        return default

    def _note_default(self, name: str) -> None:
        self.note(f"{name} is not in the config; the class default {quoted(self.defaults[name])} is used")

    def integer(self, *names: str, default: Any = REQUIRED, low: int = 1, high: int = MAX_SIZE) -> Any:
        """A whole number from `low` to `high`; `default` (an int or None) where absent."""
        value = self._find(names, default)
        return value if value is default else self._whole(value, names[0], low, high)

    def _whole(self, value: Any, name: str, low: int, high: int) -> int:
        try:
            return whole_number(value, name, low, high)
        except InputError as error:
            raise self.error(str(error)) from None

    def number(self, *names: str, default: Any = REQUIRED) -> Any:
        """A number from -MAX_SIZE to MAX_SIZE: a ratio of sizes is no larger than they are."""
        value = self._find(names, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.error(f"{names[0]} is {quoted(value)}; a number is needed")
        if abs(value) > MAX_SIZE:
            raise self.error(f"{names[0]} is {quoted(value)}; it must be at most {MAX_SIZE:,}")
        return value

    def flag(self, *names: str, default: Any = REQUIRED) -> Any:
        """true or false."""
        return self._typed(bool, "true or false", names, default)

    def text(self, *names: str, default: Any = REQUIRED, choices: Sequence[str] = ()) -> Any:
        """Text, one of `choices` where given."""
        value = self._typed(str, "text", names, default)
        if choices and value not in choices and value is not default:
            raise self.error(f"{names[0]} is {quoted(value)}; known: {', '.join(choices)}")
        return value

    def integers(self, *names: str, default: Any = REQUIRED, low: int = 0) -> Any:
        """A list of whole numbers."""
        value = self._typed(list, "a list of whole numbers", names, default)
        if value is default:
            return value
        return [self._whole(item, f"{names[0]}[{index}]", low, MAX_SIZE) for index, item in enumerate(value)]

    def texts(self, *names: str, default: Any = REQUIRED, choices: Sequence[str] = ()) -> Any:
        """A list of texts, each one of `choices` where given."""
        value = self._typed(list, "a list of texts", names, default)
        if value is default:
            return value
        for index, item in enumerate(value):
            if not isinstance(item, str) or (choices and item not in choices):
                known = f"; known: {', '.join(choices)}" if choices else "; text is needed"
                raise self.error(f"{names[0]}[{index}] is {quoted(item)}{known}")
        return value

    def count_of(self, name: str, default: int) -> int:
        """How many entries the list `name` has, whatever they are; `default` where it is absent."""
        value = self._typed(list, "a list", (name,), None)
        return default if value is None else len(value)

    def mapping(self, *names: str, default: Any = REQUIRED) -> Any:
        """A JSON object as it stands, read by the caller."""
        return self._typed(dict, "an object", names, default)

    def _typed(self, kind: type, words: str, names: Sequence[str], default: Any) -> Any:
        value = self._find(names, default)
        if value is not default and not isinstance(value, kind):
            raise self.error(f"{names[0]} is {quoted(value)}; {words} is needed")
        return value

    def has(self, name: str) -> bool:
        """Whether `name` is there and not null; does not count as a read."""
        return self.data.get(name) is not None

    def child(self, name: str, defaults: Mapping[str, Any] | None = None) -> ConfigView:
        """The inner object `name`, whose own reads are checked by this view's `finish`."""
        if name not in self._children:
            value = self.mapping(name)
            self._children[name] = ConfigView(value, f"{self.where} {name}", defaults)
            self._children[name].dtype = self.dtype
        return self._children[name]

    def child_or_defaults(self, name: str, defaults: Mapping[str, Any]) -> ConfigView:
        """The inner object `name`; where it is absent, its class builds it from `defaults`, which is noted."""
        if not self.has(name):
            self._read.add(name)
            self.note(f"{name} is not in the config; the class builds it from its defaults")
            self._children[name] = ConfigView({}, f"{self.where} {name}", defaults)
            self._children[name].dtype = self.dtype
        return self.child(name, defaults)

    def decide(self, name: str, value: Any) -> None:
        """Read `name` as `value` from here on, whatever the object says: the object around it decides."""
        self.data = {**self.data, name: value}

    def children(self, name: str) -> list[ConfigView]:
        """The inner objects of the list `name`, each checked like a `child`."""
        for index, value in enumerate(self._typed(list, "a list of objects", (name,), REQUIRED)):
            if not isinstance(value, dict):
                raise self.error(f"{name}[{index}] is {quoted(value)}; an object is needed")
            key = f"{name}[{index}]"
            self._children.setdefault(key, ConfigView(value, f"{self.where} {key}"))
        return [child for key, child in self._children.items() if key.startswith(f"{name}[")]

    def require(self, name: str, expected: Any, reason: str) -> None:
        """Refuse unless `name` is absent, null or `expected`: any other value changes memory in a way no rule knows."""
        self._read.add(name)
        value = self.data.get(name, expected)
        if value is not None and value != expected:
            raise self.unsupported(f"{name} is {quoted(value)}: {reason}")

    def dismiss(self, name: str, reason: str) -> None:
        """Pass over `name` where it is there, and say why."""
        if name in self.data and name not in self._read:
            self._read.add(name)
            self.note(f"{name} is not counted: {reason}")

    def pass_over(self, reason: str, *names: str) -> None:
        """Pass over `names` without a note: for `reason`, which is for whoever reads the rule, they have no weights."""
        self._read.update(names)

    def take_all(self, reason: str) -> None:
        """Pass over the whole object (a tower that no rule knows), and say why."""
        self._read.update(self.data)
        self.note(f"{self.where} is not counted: {reason}")

    # ------------------------------------------------------------------------------------------------- talking

    def note(self, sentence: str) -> None:
        """A sentence that the user should read."""
        if sentence not in self._notes:
            self._notes.append(sentence)

    def error(self, text: str) -> ConfigError:
        return ConfigError(f"{self.where}: {text}")

    def unsupported(self, text: str) -> UnsupportedConfigError:
        return UnsupportedConfigError(f"{self.where}: {text}")

    def finish(self) -> tuple[str, ...]:
        """The notes of this view and its children; refuses keys that nobody read and that could change memory."""
        unread = self.unread()
        if unread:
            raise UnsupportedConfigError(
                f"{self.where}: no rule reads {', '.join(unread[:8])}{' ...' if len(unread) > 8 else ''}, "
                "which may change memory"
            )
        return self.notes

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of this view and its children so far."""
        return tuple(note for view in self._all_views() for note in view._notes)

    def unread(self) -> list[str]:
        """Keys of this view and its children that nobody read and that could change memory, with their paths."""
        return [name for view in self._all_views() for name in view._unread()]

    def _all_views(self) -> Iterator[ConfigView]:
        yield self
        for child in self._children.values():
            yield from child._all_views()

    def _unread(self) -> list[str]:
        prefix = self.where.partition(" ")[2]
        return [
            f"{prefix}.{name}" if prefix else name
            for name, value in self.data.items()
            if name not in self._read and value is not None and why_harmless(name, value) is None
        ]
