"""Import: a published config.json or a GGUF file, understood layer by layer, and taken into the plan.

Nothing of a config is shown as Markdown: its words go through plain text and tables only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from kvplan import charts
from kvplan.errors import InputError, KvplanError, NotADecoderError, UnsupportedConfigError, shorten
from kvplan.explain import count_layers, layer_strip, layer_words
from kvplan.importer import import_config
from kvplan.importer.estimate import TEXT_KEYS
from kvplan.importer.gguf import import_gguf_beginnings
from kvplan.importer.harmless import why_harmless
from kvplan.importer.headers import Beginning, Index
from kvplan.importer.measure import START_LIMIT_SECONDS, TIME_LIMIT_SECONDS
from kvplan.importer.safetensors import explain_difference
from kvplan.library import file_text, save, why_nothing_is_saved
from kvplan.model import ROLES, Layer, Model
from kvplan.names import clean_name, preset_id
from kvplan.ui import figures, words
from kvplan.ui.fields import AS_TRAINED, FIELDS
from kvplan.ui.form import offer_file
from kvplan.ui.import_fields import (
    ESTIMATE,
    Asked,
    ask_file,
    ask_gguf,
    ask_hub,
    ask_text,
    beside,
    complaint,
    start_over,
)
from kvplan.ui.library import OWN, keep_model, own_id
from kvplan.ui.scenario import held
from kvplan.units import counted, format_exact_bytes, format_params

PASTED, FILE, GGUF, HUB = "pasted text", "config.json", "a GGUF file", "a hub id"
MAX_SEGMENTS = 400
"""Runs of layers that the strip draws; beyond, the table alone shows them."""

MAX_ROWS = 12
"""Rows of the table of layers that stand on the page without scrolling in it."""

SAID = "import_said"
DTYPES = ("bfloat16", "float16", "float32")
LENGTHS = (4_096, 131_072)
CHOOSES_THE_CLASS = frozenset({"architectures", "model_type"})

WAIT = (
    "No rule counts this config. It is measured with the installed transformers, in a process of its own, one at a "
    f"time: at most {TIME_LIMIT_SECONDS} s, after at most {START_LIMIT_SECONDS} s to start it."
)


# ------------------------------------------------------------------------------------------------------------ reading


def read(asked: Asked, dtype: str | None) -> Model | None:
    """The model, exact where it can be; after a refusal an estimate where that is asked for, else None.

    Raises ConfigError where the config is broken.
    """
    try:
        return exact(asked, dtype)
    except NotADecoderError as refusal:
        words.show_error(refusal, "Not a decoder")
        return None
    except UnsupportedConfigError as refusal:
        words.show_error(refusal, "No exact figure for this config")
        if not st.checkbox("Treat it as an estimate", key=ESTIMATE, persist_state="session"):
            st.text("An estimate counts something near it, says what that is, and stays marked wherever it is used.")
            return None
        with st.spinner(WAIT, show_time=True):
            return read_config(asked, dtype, measure="auto", estimate=True)


def exact(asked: Asked, dtype: str | None) -> Model:
    """By the rules, which take milliseconds; where they step aside, measured, while the page says so."""
    try:
        return read_config(asked, dtype, measure="never")
    except UnsupportedConfigError:
        with st.spinner(WAIT, show_time=True):
            return read_config(asked, dtype, measure="auto")


def read_config(asked: Asked, dtype: str | None, **way: Any) -> Model:
    return import_config(
        asked.config, asked.companion, asked.stored, name="Imported", dtype=dtype, source=asked.source, **way
    )


def how_counted(model: Model) -> str:
    """How the figures of a config came about, in words."""
    if model.is_estimate:
        return "an estimate"
    measured = (note.partition(":")[0] for note in model.notes if note.startswith("measured with transformers"))
    return next(measured, "counted by the rules")


def ask_dtype(model: Model) -> str | None:
    """The dtype of the published weights; asked for only where the config states none."""
    if model.dtype is not None:
        return None
    return st.selectbox(
        "Weight dtype, which the config does not state", DTYPES, None, key="import_dtype", persist_state="session",
        width=320, placeholder="not known",
    )  # fmt: skip


def suggested_name(asked: Asked) -> str:
    """The first name in the config or of the file that can stand on a page."""
    config = asked.config
    paths = [config.get(key) for key in ("_name_or_path", "name_or_path")]
    named = [path.rstrip("/").rpartition("/")[2] for path in paths if isinstance(path, str)]
    stem = asked.file.rpartition(".")[0]
    for name in (asked.name, *named, "" if stem == "config" else stem, config.get("model_type")):
        try:
            return clean_name(name)
        except InputError:
            continue
    return "Imported model"


def ask_name(suggested: str) -> str | None:
    """How the model is to be called; None where that cannot be a name, which is said below the field."""
    given = st.text_input(
        "Name", key="import_name", max_chars=80, width=320, placeholder=suggested, persist_state="session"
    )
    with complaint("Not possible"):
        return clean_name((given or "").strip() or suggested, "model name")
    return None


# ------------------------------------------------------------------------------------------------------------ showing


def show_model(model: Model, how: str, index: Index | None = None) -> None:
    """What was understood: the numbers, what can be done with it, the layers in order, and every note."""
    kv = held(FIELDS["kv"])
    st.subheader(f"Understood: {how}", divider="orange" if model.is_estimate else "green", anchor=False)
    if model.is_estimate:
        words.show_warnings([f"Every figure of {model.name} is an estimate.", *model.notes[:1]])
    words.show_numbers(headline_numbers(model, kv))
    offer_uses(model)
    compared = () if index is None else show_stored(model, index)
    show_layers(model, kv)
    left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("Figures", anchor=False)
        words.show_facts([("how it was read", how), *facts(model, kv)], ("what", "value"), "Figures", "import_facts")
    with right:
        st.subheader("Weights", anchor=False)
        show_weights(model)
        show_beside(model)
    notes = model.notes[1:] if model.is_estimate else model.notes
    show_notes([note for note in notes if note not in compared])


def show_stored(model: Model, index: Index) -> Sequence[str]:
    """The bytes that are counted beside those that the checkpoint stores, and what makes the difference: the notes
    that stand here."""
    difference = explain_difference(model, index)
    explained = difference.unexplained_bytes == 0
    verdict = "every byte is explained" if explained else "not every byte is explained"
    st.subheader(f"Stored tensors: {verdict}", divider="green" if explained else "orange", anchor=False)
    for sentence in difference.sentences:
        st.text(sentence)
    return difference.sentences


def show_beside(model: Model) -> None:
    """What the checkpoint stores and no engine loads to generate: it is in no figure above."""
    if model.beside:
        st.caption("Stored beside them and not counted")
        for part in model.beside:
            st.text(part.sentence)


def headline_numbers(model: Model, kv: str) -> list[words.Number]:
    sure = "an estimate" if model.is_estimate else "exact"
    return [
        words.Number(f"Parameters, {sure}", format_params(model.num_params), f"{model.num_params:,}"),
        words.Number("Active for a token", format_params(model.num_active_params), f"{model.num_active_params:,}"),
        words.Number("Weights as published", weights_words(model), "With all that their storage format adds."),
        words.Number(
            f"Cache a token, {kv}",
            or_reason(lambda: per_token(model, kv)),
            "One more token of one sequence, windows full.",
        ),
    ]


def weights_words(model: Model) -> str:
    return "not known" if model.why_no_weight_bytes else words.size(model.weight_bytes())


def or_reason(read_words: Callable[[], str]) -> str:
    """What `read_words` says, or why it cannot: the sidebar's dtype may not hold this cache."""
    try:
        return read_words()
    except KvplanError as error:
        return str(error)


def per_token(model: Model, kv: str) -> str:
    """Cache bytes of one more token of one sequence, in words."""
    size = model.cache_bytes_per_token(kv)
    return words.size(size) if isinstance(size, int) else f"{float(size):,.2f} B"


def cache_words(model: Model, tokens: int, kv: str) -> tuple[str, str]:
    """(what, exact bytes) of the cache of one sequence."""
    return f"cache of {counted(tokens, 'token')}, {kv}", or_reason(
        lambda: format_exact_bytes(model.cache_bytes(tokens, 1, kv))
    )


def facts(model: Model, kv: str) -> list[tuple[str, str]]:
    """(what, value) of the whole model."""
    limit = model.context_limit
    return [
        ("model type", shorten(model.model_type)),
        *((f"parameters, {tower}", f"{count:,}") for tower, count in model.params_by_tower.items()),
        ("active for a token", f"{model.num_active_params:,}"),
        *(cache_words(model, tokens, kv) for tokens in LENGTHS),
        ("context limit", "not stated" if limit is None else f"{counted(limit, 'token')}"),
        ("layers", f"{model.num_layers:,}"),
        *((f"layers, {label}", f"{count:,}") for label, count in kinds_of_layer(model).items()),
        ("query heads", words.query_heads(model)),
        ("KV heads", words.kv_heads(model)),
        ("hidden size", f"{model.hidden_size:,}"),
        ("vocabulary", "none" if model.vocab_size is None else f"{model.vocab_size:,}"),
        ("dtype", "not stated" if model.dtype is None else model.dtype.name),
        ("embedding and head", "one tensor" if model.tied_embeddings else "two tensors"),
    ]


def kinds_of_layer(model: Model) -> dict[str, int]:
    """How many layers there are of each kind."""
    counts: dict[str, int] = {}
    for cache, count in count_layers(model.layers):
        counts[cache.label] = counts.get(cache.label, 0) + count
    return counts


def show_layers(model: Model, kv: str) -> None:
    st.subheader("Layer by layer", anchor=False)
    strip = layer_strip(model)
    if len(strip) <= MAX_SEGMENTS:
        figures.show_chart(charts.layer_strip(strip), "The model's layers in order, by kind", "import_strip")
    rows = layer_rows(model, kv)
    table = pd.DataFrame(rows, columns=["layers", "kind", "each keeps of a sequence", "parameters of each"])
    words.leave_room()
    st.dataframe(
        table, hide_index=True, alt="Layers", key="import_layers", height="content" if len(rows) <= MAX_ROWS else 460,
        column_config={"parameters of each": st.column_config.NumberColumn(format="localized")},
    )  # fmt: skip


def layer_rows(model: Model, kv: str) -> list[tuple[str, str, str, int]]:
    """A row for each run of equal layers."""
    rows, first = [], 0
    for layer, count in model.layer_runs:
        rows.append(layer_row(layer, first, count, kv))
        first += count
    return rows


def layer_row(layer: Layer, first: int, count: int, kv: str) -> tuple[str, str, str, int]:
    """(layers, kind, what one of them keeps of a sequence, its parameters)."""
    span = str(first) if count == 1 else f"{first} to {first + count - 1}"
    keeps = or_reason(lambda: layer_words(layer.cache, kv))
    return span, layer.cache.label, keeps, sum(group.params for group in layer.weights)


def show_weights(model: Model) -> None:
    """Every role with its parameters and its bytes as published, or why those are not known."""
    if model.why_no_weight_bytes:
        st.text(model.why_no_weight_bytes)
    else:
        st.text(f"{format_exact_bytes(model.weight_bytes())} as published")
    words.leave_room()
    st.dataframe(
        weight_table(model), hide_index=True, alt="Weights by role", key="import_weights", height="content",
        column_config={name: st.column_config.NumberColumn(format="localized") for name in ("parameters", "bytes")},
    )  # fmt: skip


def weight_table(model: Model) -> pd.DataFrame:
    """A row for each role: its tensors are equal in kind, not in shape."""
    sizes = {} if model.why_no_weight_bytes else model.weight_bytes_by_role()
    params: dict[str, int] = {}
    for group, count in model.all_groups:
        params[group.role] = params.get(group.role, 0) + group.params * count
    rows = [(ROLES[role].label, count, *([sizes[role]] if sizes else [])) for role, count in params.items()]
    return pd.DataFrame(rows, columns=["role", "parameters", "bytes"][: 3 if sizes else 2])


NOTE_GROUPS = (
    ("Not counted", ("is not counted", "does not read", "are not counted")),
    ("Where the config is silent", ("class default", "builds it from its defaults", "does not state")),
)
"""Headings of notes, and the words that say which belong under them."""


def show_notes(notes: Sequence[str]) -> None:
    if not notes:
        return
    st.subheader("Notes", anchor=False)
    left = list(notes)
    for heading, signs in NOTE_GROUPS:
        found = [note for note in left if any(sign in note for sign in signs)]
        left = [note for note in left if note not in found]
        show_sentences(heading, found)
    show_sentences("How it was read", left)


def show_sentences(heading: str, sentences: list[str]) -> None:
    if sentences:
        st.caption(heading)
        for sentence in sentences:
            st.text(sentence)


def show_passed_over(config: Mapping[str, Any]) -> None:
    rows = passed_over(config)
    if rows:
        with st.expander(f"{words.counted(len(rows), 'key')} that change no byte"):
            words.show_facts(rows, ("key", "why"), "Keys that change no byte", "import_passed")


def passed_over(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(key, reason) of every key that cannot change memory, those of an inner text model included."""
    inner: Any = next((config[key] for key in TEXT_KEYS if isinstance(config.get(key), Mapping)), {})
    reasons = {
        shorten(key): why_harmless(key, value)
        for key, value in {**inner, **config}.items()
        if key not in CHOOSES_THE_CLASS
    }
    return [(key, reason) for key, reason in sorted(reasons.items()) if reason is not None]


# --------------------------------------------------------------------------------------------------------- what to do


def use_model(model: Model) -> None:
    """Take the model into the shared scenario. Runs before the page does."""
    st.session_state["model"] = keep_model(model)
    st.session_state["heads"] = AS_TRAINED


def offer_uses(model: Model) -> None:
    """Plan with it, download it, save it."""
    name = own_id(model.name)
    with st.container(horizontal=True):
        words.plan_button("Plan with this model", "use_import", use_model, model)
        with complaint("No preset file can hold this model"):
            text = file_text(replace(model, id=name))
            offer_file("Download as a preset file", text, name, "get_import")
            offer_save(model)
    for text in st.session_state.pop(SAID, ()):
        st.text(text)


def offer_save(model: Model) -> None:
    """A new preset in the server's library; nothing where this server keeps none."""
    if why_nothing_is_saved():
        return
    with st.popover("Save into the library"):
        given = st.text_input("Id in the library", own_id(model.name).removeprefix(OWN), key="save_import_id")
        try:
            named = replace(model, id=preset_id((given or "").strip()))
        except KvplanError as error:
            st.text(str(error))
            return
        st.text("Every visitor of this server will see it.")
        st.button("Save", type="primary", key="save_import", on_click=save_model, args=(named,))


def save_model(model: Model) -> None:
    """Save a model that is new to the library. Runs before the page does."""
    try:
        save(model)
    except KvplanError as error:
        st.session_state[SAID] = [f"Not saved: {error}"]
    else:
        st.session_state[SAID] = [f"{model.id} is saved in the library of this server."]


def show_import(asked: Asked) -> None:
    """The page below its fields. Raises ConfigError where the config is broken."""
    above = st.container(horizontal=True)
    model = read(asked, None)
    if model is None:
        return
    with above:
        name, dtype = ask_name(suggested_name(asked)), ask_dtype(model)
    if dtype is not None:
        model = read_config(asked, dtype, measure="auto", estimate=model.is_estimate)
    if name is not None:
        show_model(replace(model, name=name), how_counted(model), asked.stored)
        show_passed_over(asked.config)


@st.cache_resource(max_entries=8, show_spinner="Reading the header")
def read_gguf(files: Sequence[Beginning]) -> Model:
    """The model of a GGUF file, read once: it takes longer than the page. Raises ConfigError."""
    return import_gguf_beginnings(files)


def import_gguf() -> None:
    """The whole view of a GGUF file. Raises ConfigError."""
    files = ask_gguf()
    if not files:
        return
    with st.container(horizontal=True):
        slot = st.container(width=320)
        if len(files) == 1:
            file_bytes = st.number_input(
                "Bytes of the whole file", 1, 2**50, None, key="import_gguf_bytes", placeholder="not known", width=320,
                help="With it, every tensor is checked to lie inside the file.",
            )  # fmt: skip
            files = [files[0]._replace(file_bytes=file_bytes)]
    model = read_gguf(files)
    with slot:
        name = ask_name(model.name)
    if name is not None:
        show_model(replace(model, name=name, source="a GGUF header"), "read from the GGUF header")


ASK: dict[str, Callable[[], Asked | None]] = {
    PASTED: lambda: beside(ask_text()),
    FILE: lambda: beside(ask_file()),
    HUB: ask_hub,
}

st.header("Import", anchor=False)
source = st.segmented_control(
    "Read from", [PASTED, FILE, GGUF, HUB], default=PASTED, key="import_from", required=True, on_change=start_over,
    persist_state="session",
)  # fmt: skip
with complaint("This cannot be imported"):
    if source == GGUF:
        import_gguf()
    elif (request := ASK[source or PASTED]()) is not None:
        show_import(request)
