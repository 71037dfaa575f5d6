"""One exception tree, so that a caller can catch exactly as much as it means to.

KvplanError
├── InputError          a value that a person gave: a number, a name, an axis, a flag
│   └── UnknownNameError    a name that is not in a list; carries the nearest names
├── DtypeError          a storage format that cannot hold the row or matrix asked of it
├── ParallelError       tensor or pipeline parallelism that does not divide the model
├── ConfigError         a config.json that is broken, or says something that cannot be
│   └── UnsupportedConfigError  a sound config that no rule can count exactly
│       └── NotADecoderError        an encoder or encoder-decoder, of which an estimate would mean nothing either
├── LabError            the lab cannot run here: a package or a checkpoint that it needs is missing
├── PresetError         a preset file that is broken, or of a schema that is not known
└── LinkError           a shared link that cannot be read

Every message is one sentence for a person: where, what was found, what would be accepted.
"""

from __future__ import annotations

from collections.abc import Iterable


class KvplanError(Exception):
    """The base of every error that kvplan raises on purpose."""


class InputError(KvplanError):
    """A value that a person gave is not acceptable."""


class UnknownNameError(InputError):
    """A name is not among the known ones; `nearest` holds what was probably meant."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names = list(known)
        self.nearest = nearest_names(name, names)
        if self.nearest:
            hint = f"; did you mean {' or '.join(self.nearest)}?"
        else:
            hint = f"; there is {shorten(', '.join(names), 200)}" if names else "; there is none yet"
        super().__init__(f"no {kind} is called {shorten(name)!r}{hint}")


class DtypeError(KvplanError):
    """A storage format cannot hold this row or matrix."""


class ParallelError(KvplanError):
    """The model does not divide over this many GPUs."""


class ConfigError(KvplanError):
    """A config.json is broken or contradicts itself."""


class UnsupportedConfigError(ConfigError):
    """A config is sound, but no rule counts it exactly, so it is refused."""


class NotADecoderError(UnsupportedConfigError):
    """A config describes an encoder or an encoder-decoder, which keeps no cache as a decoder does."""


class PresetError(KvplanError):
    """A preset file is broken or of an unknown schema."""


class LabError(KvplanError):
    """The lab cannot run: a package or a checkpoint that it needs is missing."""


class LinkError(KvplanError):
    """A shared link cannot be read."""


def nearest_names(name: object, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Up to `count` known names that resemble `name`, most alike first."""
    import difflib  # here and not above: only a refusal needs it, and an import of kvplan stays light

    return tuple(difflib.get_close_matches(shorten(name, 80).lower(), list(known), n=count, cutoff=0.5))


def shorten(value: object, limit: int = 60) -> str:
    """`value` as text for a message, cut so that a hostile value cannot flood it, without what cannot be printed."""
    try:
        text = str(value)
    except ValueError:  # Python writes no int of over 4,300 digits
        text = "a number of thousands of digits"
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut if cut.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in cut)


def quoted(value: object, limit: int = 60) -> str:
    """`value` as Python writes it, for a message, cut like `shorten`."""
    try:
        return shorten(repr(value), limit)
    except ValueError:
        return "a number of thousands of digits"
