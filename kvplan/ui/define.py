"""Define your own: a model or a GPU from its sizes, checked as it is typed, used at once, kept as a preset file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from kvplan.define import Experts, Latent, Recurrent, define_model
from kvplan.errors import InputError, KvplanError
from kvplan.library import GPU as GPU_KIND
from kvplan.library import MODEL as MODEL_KIND
from kvplan.library import NODE as NODE_KIND
from kvplan.library import kind_of, read_preset, scenario_of
from kvplan.model import Model
from kvplan.presets import dump_toml, model_to_table
from kvplan.sizes import STATE_SIZES, kept_parts, sizes_of, varying
from kvplan.ui import words
from kvplan.ui.address import take_scenario
from kvplan.ui.define_gpu import ask_gpu, use_gpu
from kvplan.ui.fields import AS_TRAINED
from kvplan.ui.form import Size, follow_address, keep_address, offer_file, own_key, say_beside, start_from
from kvplan.ui.library import find_gpu, find_model, keep_model, model_ids, model_labels, own_id
from kvplan.ui.starting import differences, nearest_presets
from kvplan.units import format_bytes_a_token, format_params
from kvplan.variant import variant, with_num_params

MODEL, GPU, FILE = "a model", "a GPU", "a preset file"


SHAPE = (
    Size("num_layers", "Layers", 26),
    Size("hidden_size", "Hidden size", 3072),
    Size("num_attention_heads", "Query heads", 24),
    Size("num_kv_heads", "KV heads", 8, "As many as query heads for MHA, 1 for MQA."),
    Size("head_dim", "Head dimension", None, "Empty: hidden size divided by query heads."),
    Size("context_limit", "Context limit", None, "The longest context that the model is made for."),
)
SIZES = (
    Size("intermediate_size", "MLP width", 8192),
    Size("vocab_size", "Vocabulary", 128256),
)
WINDOW = (
    Size("window", "Window", None, "Tokens that a window layer keeps. Empty: full attention everywhere."),
    Size("full_attention_every", "Full attention every n-th layer", None, "Empty: no layer has full attention."),
)
EXPERTS = (
    Size("num_experts", "Experts in each layer"),
    Size("num_experts_per_token", "Experts that a token reads"),
    Size("expert_intermediate_size", "Width of one expert"),
    Size("num_shared_experts", "Shared experts", None, "Each as wide as one expert; every token reads them."),
    Size("num_dense_layers", "Dense layers first", None, "First layers with an MLP instead, as DeepSeek has them."),
    Size(
        "experts_every",
        "Experts in every n-th layer",
        None,
        "The layers between have an MLP, as Llama 4 and Jamba have them. Empty: in every layer after the dense ones.",
    ),
)
LATENT = (
    Size("kv_lora_rank", "KV latent rank", None, "Multi-head latent attention, as DeepSeek has it."),
    Size("qk_rope_head_dim", "Rope width"),
    Size("qk_nope_head_dim", "Query and key width without rope"),
    Size("v_head_dim", "Value width"),
    Size("q_lora_rank", "Query latent rank", None, "Empty: queries are projected directly."),
)
STATE = (
    Size("state_heads", "State heads", None, "Heads of a Mamba-2 state, or value heads of a gated delta rule."),
    Size("state_head_dim", "State head dimension", None, "Values of one head."),
    Size("state_size", "State size", None, "For each value of a head; the key width of a gated delta rule."),
    Size("state_groups", "State groups", None, "Groups of heads that share inputs; key heads of a gated delta rule."),
    Size("conv_width", "Convolution width", None, "Inputs that the convolution before the state sees."),
    Size(
        "attention_every",
        "Attention every n-th layer",
        None,
        "4 for three recurrent layers and one of attention. Empty: none has attention, or the preset's own order.",
    ),
)
ALL_SIZES = (*SHAPE, *SIZES, *WINDOW, *EXPERTS, *LATENT, *STATE)
FIRST_NAME = "My 3B"
OPTIONAL = frozenset({"q_lora_rank", "num_shared_experts", "num_dense_layers", "experts_every", "attention_every"})
MIXTURE, SLIDING, LATENTS, RECURRENT = (
    "Mixture of experts", "Sliding window", "Latent attention", "Recurrent layers: Mamba-2, linear attention",
)  # fmt: skip
FOLDS = {MIXTURE: EXPERTS, SLIDING: WINDOW, LATENTS: LATENT, RECURRENT: STATE}
FOLDED = {size.name: title for title, sizes in FOLDS.items() for size in sizes}
"""The part of the form under which a field is found, for those that may be out of sight."""

BILLIONS = "Parameters in billions"
FIRST_BILLIONS = 3.2

BY_SIZES, BY_COUNT = "MLP width and vocabulary", "parameters in billions"

START = "start"
LABELS = {**{size.name: size.label for size in ALL_SIZES}, "num_params": BILLIONS}
"""Labels of the fields by their keyword, for messages."""


# ------------------------------------------------------------------------------------------------- from a preset


def take_preset() -> None:
    """Fill the form from the chosen preset; what it does not have becomes empty. Without one: as at first."""
    name = st.session_state[START]
    model = None if name is None else find_model(name)
    values = {size.name: size.first for size in ALL_SIZES} if model is None else sizes_of(model)
    st.session_state[own_key("tied")] = bool(values.get("tied_embeddings"))
    st.session_state[own_key("name")] = FIRST_NAME if model is None else f"My {model.name}"[:60]
    st.session_state[own_key("how")] = BY_SIZES
    for size in ALL_SIZES:
        st.session_state[own_key(size.name)] = values.get(size.name)


def started_from() -> Model | None:
    """The preset that the form was filled from."""
    name = st.session_state.get(START)
    return None if name is None else find_model(name)


# ---------------------------------------------------------------------------------------------------------- model


IN_A_ROW = 3
"""Fields side by side; more of them cut large numbers off."""


def ask_sizes(sizes: tuple[Size, ...]) -> dict[str, Any]:
    """Number widgets side by side, and below each an empty place for what is wrong with it."""
    slots, columns = {}, min(IN_A_ROW, len(sizes))
    for first in range(0, len(sizes), columns):
        for size, place in zip(sizes[first : first + columns], st.columns(columns), strict=False):
            with place:
                _ask_size(size)
                slots[size.name] = st.empty()
    return slots


def _ask_size(size: Size) -> None:
    """The field of a size. Its first value is put in by hand, since a field with a default cannot be emptied."""
    key = own_key(size.name)
    if key not in st.session_state:
        st.session_state[key] = size.first
    st.number_input(
        size.label, 0 if size.name in OPTIONAL else 1, 2**31, None, key=key, help=size.help,
        persist_state="session", placeholder="none",
    )  # fmt: skip


def ask_model() -> None:
    start_from(START, model_ids(), model_labels(), take_preset)
    base = started_from()
    if base is not None:
        _say_kept(base)
    st.text_input("Name", FIRST_NAME, key=own_key("name"), max_chars=80, persist_state="session")
    slots = {"model name": st.empty()}
    slots |= ask_sizes(SHAPE)
    how = st.segmented_control(
        "Weights from", [BY_SIZES, BY_COUNT], default=BY_SIZES, key=own_key("how"), required=True,
        persist_state="session",
    )  # fmt: skip
    slots |= _ask_count() if how == BY_COUNT else _ask_weights()
    slots |= ask_folded(SLIDING, WINDOW)
    slots |= ask_folded(LATENTS, LATENT)
    slots |= ask_folded(RECURRENT, STATE)
    finish_model(slots, base)


def _ask_count() -> dict[str, Any]:
    key = own_key("billions")
    if key not in st.session_state:  # put in by hand, as the sizes are, so that the field can be emptied
        st.session_state[key] = FIRST_BILLIONS
    st.number_input(
        BILLIONS, 0.001, 100_000.0, None, step=0.1, format="%.3f", key=key, persist_state="session",
        placeholder="none", help="When only the count is known. The weights are then an estimate.",
    )  # fmt: skip
    slots = {"num_params": st.empty()}
    _offer_shapes(st.session_state[own_key("billions")])
    return slots


def _ask_weights() -> dict[str, Any]:
    slots = ask_sizes(SIZES)
    st.checkbox("Embedding and output head are one tensor", key=own_key("tied"), persist_state="session")
    return {**slots, **ask_folded(MIXTURE, EXPERTS)}


def _say_kept(base: Model) -> None:
    """What of the preset has no field here and is carried over."""
    kept = kept_parts(base)
    if kept:
        st.text(f"Kept as in the preset, since no field here names it: {'; '.join(kept)}.")


def _offer_shapes(count: float | None) -> None:
    """Layers and heads of published models near a number of billions: the cache follows from them alone."""
    near = nearest_presets(billions(count)) if count else ()
    if not near:
        return
    sizes = sorted(int(model.cache_bytes_per_token()) for model in near)
    st.selectbox(
        "Layers and heads of a model of about that size", [model.id for model in near], None, key="own_like",
        placeholder="as given above", on_change=take_shape, format_func=model_labels(),
    )  # fmt: skip
    st.caption(
        "The cache follows from layers, KV heads and head dimension, and the number of parameters does not tell them: "
        f"these models keep from {words.size(sizes[0])} to {words.size(sizes[-1])} a token in bf16."
    )


def take_shape() -> None:
    """Fill in the layers and heads of the chosen model, and nothing else."""
    name, st.session_state["own_like"] = st.session_state["own_like"], None
    if name is not None:
        values = sizes_of(find_model(name))
        for size in SHAPE:
            st.session_state[own_key(size.name)] = values.get(size.name)


def ask_folded(title: str, sizes: tuple[Size, ...]) -> dict[str, Any]:
    """Sizes that most models do not have, in sight where one of them is given."""
    with st.expander(title, expanded=any(st.session_state.get(own_key(size.name)) for size in sizes)):
        return ask_sizes(sizes)


def finish_model(slots: Mapping[str, Any], base: Model | None) -> None:
    try:
        model = wanted_model(st.session_state, base)
        numbers = headline(model)
    except KvplanError as error:
        say_beside(slots, error, LABELS, FOLDED)
        return
    if base is not None:
        _say_varying(slots, base)
    show_defined(model, numbers, base)


def _say_varying(slots: Mapping[str, Any], base: Model) -> None:
    """Below an empty field, that the layers of the preset differ and are kept so."""
    for name, values in varying(base).items():
        if name in slots and st.session_state.get(own_key(name)) is None:
            listed = ", ".join(f"{value:,}" for value in values)
            slots[name].caption(f"Its layers have {listed}. Empty: kept so; a number is for all of them.")


def wanted_model(state: Any, base: Model | None) -> Model:
    """The model of the form. Raises KvplanError with the field at fault."""
    by_count = state.get(own_key("how")) == BY_COUNT
    shown = (*SHAPE, *WINDOW, *LATENT, *STATE, *(() if by_count else (*SIZES, *EXPERTS)))
    given = {size.name: state.get(own_key(size.name)) for size in shown}
    name = state[own_key("name")]
    if base is None:
        return define_model(name=name, **wanted_sizes(given, state))
    if by_count:
        return with_num_params(variant(base, given, name), billions(state[own_key("billions")]))
    return variant(base, {**given, "tied_embeddings": bool(state.get(own_key("tied")))}, name)


def wanted_sizes(given: Mapping[str, Any], state: Any) -> dict[str, Any]:
    """Arguments of `define_model`. Raises InputError where a part of the form is half filled in."""
    for size in SHAPE[:3]:
        if given[size.name] is None:
            raise InputError(f"{size.name} is missing; give a whole number from 1 up")
    plain = {size.name: given[size.name] for size in (*SHAPE, *WINDOW, *SIZES) if size.name in given}
    if state.get(own_key("how")) == BY_COUNT:
        return {**plain, "num_params": billions(state[own_key("billions")]), **_mixers(given)}
    tied = bool(state.get(own_key("tied")))
    return {**plain, "tied_embeddings": tied, "experts": _experts(given), **_mixers(given)}


def _mixers(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"latent": _latent(given), "recurrent": _recurrent(given)}


def billions(value: float | None) -> int:
    """A number of parameters from billions with three decimals."""
    if value is None:
        raise InputError("num_params is missing; give the parameters in billions, such as 3.2")
    return round(value * 1000) * 10**6


def _experts(given: Mapping[str, Any]) -> Experts | None:
    if not any(given[size.name] for size in EXPERTS):
        return None
    _require(EXPERTS, given, "a mixture of experts")
    return Experts(
        given["num_experts"],
        given["num_experts_per_token"],
        given["expert_intermediate_size"],
        given["num_shared_experts"] or 0,
        given["num_dense_layers"] or 0,
        given["experts_every"] or 1,
    )


def _latent(given: Mapping[str, Any]) -> Latent | None:
    if not any(given[size.name] for size in LATENT):
        return None
    _require(LATENT, given, "latent attention")
    ranks: dict[str, Any] = {size.name: given[size.name] or None for size in LATENT}
    return Latent(**ranks)


def _recurrent(given: Mapping[str, Any]) -> Recurrent | None:
    if not any(given[size.name] for size in STATE):
        return None
    _require(STATE, given, "a recurrent layer")
    sizes = {field: given[name] for name, field in STATE_SIZES.items()}
    return Recurrent(**sizes, attention_every=given["attention_every"] or None)


def _require(sizes: tuple[Size, ...], given: Mapping[str, Any], what: str) -> None:
    for size in sizes:
        if size.name not in OPTIONAL and not given[size.name]:
            raise InputError(f"{size.name} is missing; {what} needs it, or none of the fields here")


# ---------------------------------------------------------------------------------------------------------- answer


def headline(model: Model) -> list[words.Number]:
    """What the sizes add up to. Raises KvplanError where a matrix cannot be stored as the preset stores it."""
    kind, guess = ("an estimate", ", an estimate") if model.is_estimate else ("exact", "")
    stored = "bf16" if model.why_no_weight_bytes else None
    label = "bf16" if stored or all(group.storage is None for group, _ in model.all_groups) else "as published"
    weights, curve = model.weight_bytes(stored), model.cache_curve()
    per_token = curve.bytes_per_token
    state = (
        [_size_number("State of a sequence", curve.fixed_bytes, "Whatever its length.")] if curve.fixed_bytes else []
    )
    return [
        words.Number(f"Parameters, {kind}", format_params(model.num_params), f"{model.num_params:,}"),
        words.Number(
            f"Active for a token{guess}", format_params(model.num_active_params), f"{model.num_active_params:,}"
        ),
        _size_number(f"Weights, {_dtype_word(model, label)}{guess}", weights, ""),
        words.Number(
            "Cache a token, bf16", words.size(round(per_token)), f"One sequence: {format_bytes_a_token(per_token)}."
        ),
        *state,
    ]


def _dtype_word(model: Model, label: str) -> str:
    return model.dtype.name if label == "bf16" and model.dtype is not None else label


def _size_number(label: str, count: int, more: str) -> words.Number:
    return words.Number(label, words.size(count), f"{words.exact_size(count)} {more}".strip())


def show_defined(model: Model, numbers: list[words.Number], base: Model | None) -> None:
    """What the sizes add up to, beside the preset that they came from, and what can be done with it."""
    st.subheader("What that makes", anchor=False)
    words.show_numbers(numbers)
    if base is not None:
        _compare(base, model)
    for note in model.notes:
        st.text(note)
    with st.container(horizontal=True):
        words.plan_button("Plan with this model", "use_model", use_model, model)
        offer_file("Download as a preset file", dump_toml(model_to_table(model)), own_id(model.name), "get_model")


def _compare(base: Model, model: Model) -> None:
    if base == model:
        st.text(f"Every number is that of {base.name}: change a field and this says what changes.")
    rows = differences(base, model)
    if rows:
        words.show_facts(rows, ("what differs", "the preset", "this model"), "own_differences")


def use_model(model: Model) -> None:
    st.session_state["model"] = keep_model(model)
    st.session_state["heads"] = AS_TRAINED


# ----------------------------------------------------------------------------------------------------------- file


def ask_file() -> None:
    uploaded = st.file_uploader("A preset file of a model, a GPU, a node or a scenario", "toml", key="own_file")
    if uploaded is None:
        return
    try:
        thing = read_preset(uploaded.getvalue(), uploaded.name)
        use, argument = way_to_use(thing)
    except KvplanError as error:
        words.show_error(error, "This file cannot be loaded")
        return
    st.text(f"{thing.name}: read without a fault.")
    words.plan_button("Plan with it", "use_file", use, argument)


def way_to_use(thing: Any) -> tuple[Callable[[Any], None], Any]:
    """The callback that takes a preset into the plan, and its argument. Raises KvplanError."""
    kind = kind_of(thing)
    if kind is NODE_KIND:
        find_gpu(thing.gpu)  # refused here and not on the way to the plan
        return use_node, thing
    if kind is MODEL_KIND:
        return use_model, thing
    return (use_gpu, thing) if kind is GPU_KIND else (take_scenario, scenario_of(thing, find_model, find_gpu))


def use_node(node: Any) -> None:
    st.session_state.update({"gpu": node.gpu, "tp": str(node.num_gpus), "pp": 1, "dp": 1})


st.header("Define your own", anchor=False)
follow_address("define", (MODEL, GPU, FILE))
what = st.segmented_control(
    "Define or load", [MODEL, GPU, FILE], default=MODEL, key="define", required=True, persist_state="session"
)
keep_address("define", usual=MODEL)
{GPU: ask_gpu, FILE: ask_file}.get(what or MODEL, ask_model)()
