"""A config that neither rules nor measurement count, taken as something near it: only where the user asks for that.

Every guess is a config that can be counted, made from the one that cannot, with the sentence that says what was left
out. The first that can be counted is used; the model is then an estimate, and says so wherever it appears.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvplan.errors import ConfigError, KvplanError, NotADecoderError, shorten
from kvplan.importer.decoder import CONTEXT_KEYS, HEAD_KEYS, HIDDEN_KEYS, LAYER_KEYS
from kvplan.importer.families import families
from kvplan.importer.view import ConfigView

Guess = tuple[Mapping[str, Any], str]
"""A config, and what is not exact about it."""

TEXT_KEYS = ("text_config", "llm_config", "language_config", "llm_cfg", "thinker_config")
"""Where wrappers keep the object of their text model."""

_QUANTIZATION = ("quantization_config", "quantization", "compression_config")
_LLAMA_NAMES = {
    "hidden_size": HIDDEN_KEYS,
    "num_hidden_layers": LAYER_KEYS,
    "num_attention_heads": HEAD_KEYS,
    "intermediate_size": ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "d_ff"),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
}
_LLAMA_OPTIONAL = {
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim", "kv_channels"),
    "max_position_embeddings": CONTEXT_KEYS,
    "tie_word_embeddings": ("tie_word_embeddings",),
    "torch_dtype": ("torch_dtype", "dtype"),
}


def require_decoder(data: Mapping[str, Any]) -> None:
    """Raise NotADecoderError where `data` says itself that it is an encoder or an encoder-decoder."""
    classes = data.get("architectures")
    named = [str(name) for name in classes] if isinstance(classes, list) else []
    if data.get("is_encoder_decoder") is True or any(name.endswith("MaskedLM") for name in named):
        kind = shorten(repr(data.get("model_type")))
        raise NotADecoderError(
            f"config.json: {kind} is an encoder or an encoder-decoder, which keeps no cache as a decoder does: not "
            "even an estimate of it would mean anything; decoder language models are read"
        )


def guesses(data: Mapping[str, Any]) -> Iterator[Guess]:
    """What to count in place of `data`, nearest first."""
    plain = _without_quantization(data)
    if plain != data:
        yield plain, "its weights are counted as if they were not quantized"
    known = _read_keys_only(data, plain)
    if known is not None:
        yield known
    like_llama = _llama_layout(plain)
    if like_llama is not None:
        yield like_llama


def _without_quantization(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_quantization(value) if isinstance(value, Mapping) else value
        for key, value in data.items()
        if key not in _QUANTIZATION
    }


def _read_keys_only(data: Mapping[str, Any], plain: Mapping[str, Any]) -> Guess | None:
    """`data` without the keys that its family's rule does not read; `plain` is `data` without its quantization."""
    family = families().get(str(data.get("model_type")))
    if family is None:
        return None
    view = ConfigView(plain, defaults=family.defaults)
    try:
        family.rule(view)
    except KvplanError:
        return None
    unread = [path for path in view.unread() if path not in ("torch_dtype", "dtype")]  # read by the caller
    if not unread:
        return None
    left = copy.deepcopy(dict(data))
    for path in unread:
        _remove(left, path.replace(" ", ".").split("."))
    return left, f"{shorten(', '.join(unread), 200)} may change memory and are not counted"


def _remove(data: dict[str, Any], path: Sequence[str]) -> None:
    *outer, name = path
    for key in outer:
        inner = data.get(key)
        if not isinstance(inner, dict):
            return
        data = inner
    data.pop(name, None)


def _llama_layout(data: Mapping[str, Any]) -> Guess | None:
    """The sizes of `data`, or of its text model, as if the model were a Llama; None where one of them is not stated."""
    inner = next((data[key] for key in TEXT_KEYS if isinstance(data.get(key), Mapping)), data)
    sizes = {name: _first(inner, keys) for name, keys in _LLAMA_NAMES.items()}
    if any(value is None for value in sizes.values()):
        return None
    more = {name: found for name, keys in _LLAMA_OPTIONAL.items() if (found := _first(inner, keys)) is not None}
    reason = (
        "it is counted as a Llama layout: full attention in every layer, gated MLPs, no experts, no state, no "
        "quantization, and nothing but text"
    )
    return {"model_type": "llama", **sizes, **more}, reason


def _first(data: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((data[key] for key in keys if data.get(key) is not None), None)


def estimate_notes(reason: str, refusal: ConfigError, notes: Sequence[str]) -> tuple[str, ...]:
    """Notes that say first that this is an estimate, what is not exact, and why there is no exact figure."""
    return (f"an estimate: {reason}", f"no exact figure: {refusal}", *(f"in this estimate, {note}" for note in notes))
