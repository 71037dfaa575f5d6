"""Define your own: a model or a GPU from its sizes, checked as it is typed, used at once, kept as a preset file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import streamlit as st

from kvplan.define import Experts, Latent, define_model
from kvplan.errors import InputError, KvplanError
from kvplan.hardware import Gpu, define_gpu
from kvplan.library import GPU as GPU_KIND
from kvplan.library import MODEL as MODEL_KIND
from kvplan.library import kind_of, read_preset, scenario_of
from kvplan.model import Model
from kvplan.presets import dump_toml, gpu_to_table, model_to_table
from kvplan.ui import words
from kvplan.ui.address import take_scenario
from kvplan.ui.fields import AS_TRAINED
from kvplan.ui.library import find_gpu, find_model, keep_gpu, keep_model, model_ids, model_labels, own_id
from kvplan.ui.page_address import read_address, write_address
from kvplan.ui.starting import left_out, nearest_presets, starting_values, without_place
from kvplan.units import format_params, parse_bytes

MODEL, GPU, FILE = "a model", "a GPU", "a preset file"


class Size(NamedTuple):
    """One number of a model: its keyword of `define_model`, its label, its first value."""

    name: str
    label: str
    first: int | None = None
    help: str | None = None


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
    Size("num_shared_experts", "Shared experts"),
    Size("num_dense_layers", "Dense layers first", None, "First layers with an MLP instead, as DeepSeek has them."),
)
LATENT = (
    Size("kv_lora_rank", "KV latent rank", None, "Multi-head latent attention, as DeepSeek has it."),
    Size("qk_rope_head_dim", "Rope width"),
    Size("qk_nope_head_dim", "Query and key width without rope"),
    Size("v_head_dim", "Value width"),
    Size("q_lora_rank", "Query latent rank", None, "Empty: queries are projected directly."),
)
ALL_SIZES = (*SHAPE, *SIZES, *WINDOW, *EXPERTS, *LATENT)
OPTIONAL = frozenset({"q_lora_rank", "num_shared_experts", "num_dense_layers"})
MIXTURE, SLIDING, LATENTS = "Mixture of experts", "Sliding window", "Latent attention"
FOLDED = {
    size.name: title for title, sizes in ((MIXTURE, EXPERTS), (SLIDING, WINDOW), (LATENTS, LATENT)) for size in sizes
}
"""The part of the form under which a field is found, for those that may be out of sight."""

BILLIONS = "Parameters in billions"

BY_SIZES, BY_COUNT = "MLP width and vocabulary", "parameters in billions"


def _key(name: str) -> str:
    return f"own_{name}"


# ------------------------------------------------------------------------------------------------- from a preset


def take_preset() -> None:
    """Fill the form from the chosen preset; what it does not have becomes empty."""
    name = st.session_state["own_start"]
    if name is None:
        return
    model = find_model(name)
    values = starting_values(model)
    st.session_state[_key("tied")] = values["tied_embeddings"]
    st.session_state[_key("name")] = f"My {model.name}"[:60]
    st.session_state[_key("how")] = BY_SIZES
    for size in ALL_SIZES:
        st.session_state[_key(size.name)] = values.get(size.name)


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
    st.number_input(
        size.label, 0 if size.name in OPTIONAL else 1, 2**31, size.first, key=_key(size.name), help=size.help,
        persist_state="session", placeholder="none",
    )  # fmt: skip


def ask_model() -> None:
    st.selectbox(
        "Start from", model_ids(), None, key="own_start", placeholder="nothing", on_change=take_preset,
        persist_state="session", format_func=model_labels(),
    )  # fmt: skip
    _say_without_place()
    st.text_input("Name", "My 3B", key=_key("name"), max_chars=80, persist_state="session")
    slots = {"model name": st.empty()}
    slots |= ask_sizes(SHAPE)
    how = st.segmented_control(
        "Weights from", [BY_SIZES, BY_COUNT], default=BY_SIZES, key=_key("how"), required=True,
        persist_state="session",
    )  # fmt: skip
    if how == BY_COUNT:
        st.number_input(
            BILLIONS, 0.001, 100_000.0, 3.2, step=0.1, format="%.3f", key=_key("billions"),
            persist_state="session", help="When only the count is known. The weights are then an estimate.",
        )  # fmt: skip
        slots["num_params"] = st.empty()
        _offer_shapes(st.session_state[_key("billions")])
    else:
        slots |= ask_sizes(SIZES)
        st.checkbox("Embedding and output head are one tensor", key=_key("tied"), persist_state="session")
        slots |= ask_folded(MIXTURE, EXPERTS)
    slots |= ask_folded(SLIDING, WINDOW)
    slots |= ask_folded(LATENTS, LATENT)
    finish_model(slots)


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
        values = starting_values(find_model(name))
        for size in SHAPE:
            st.session_state[_key(size.name)] = values.get(size.name)


def ask_folded(title: str, sizes: tuple[Size, ...]) -> dict[str, Any]:
    """Sizes that most models do not have, in sight where one of them is given."""
    with st.expander(title, expanded=any(st.session_state.get(_key(size.name)) for size in sizes)):
        return ask_sizes(sizes)


def finish_model(slots: Mapping[str, Any]) -> None:
    try:
        model = define_model(**wanted_model(st.session_state))
    except InputError as error:
        say_beside(slots, error)
        return
    show_defined(model)


def wanted_model(state: Any) -> dict[str, Any]:
    """Arguments of `define_model` from the form. Raises InputError where a part of it is half filled in."""
    given = {size.name: state.get(_key(size.name)) for size in ALL_SIZES}
    by_count = state.get(_key("how")) == BY_COUNT
    plain = (*SHAPE, *WINDOW, *(() if by_count else SIZES))
    wanted = {"name": state[_key("name")], **{size.name: given[size.name] for size in plain}}
    for size in SHAPE[:3]:
        if given[size.name] is None:
            raise InputError(f"{size.name} is missing; give a whole number from 1 up")
    if by_count:
        wanted["num_params"] = billions(state[_key("billions")])
    else:
        wanted["tied_embeddings"] = bool(state.get(_key("tied")))
        wanted["experts"] = _experts(given)
    return {**wanted, "latent": _latent(given)}


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
    )


def _latent(given: Mapping[str, Any]) -> Latent | None:
    if not any(given[size.name] for size in LATENT):
        return None
    _require(LATENT, given, "latent attention")
    return Latent(
        given["kv_lora_rank"],
        given["qk_rope_head_dim"],
        given["qk_nope_head_dim"],
        given["v_head_dim"],
        given["q_lora_rank"] or None,
    )


def _require(sizes: tuple[Size, ...], given: Mapping[str, Any], what: str) -> None:
    for size in sizes:
        if size.name not in OPTIONAL and not given[size.name]:
            raise InputError(f"{size.name} is missing; {what} needs it, or none of the fields here")


def say_beside(slots: Mapping[str, Any], error: KvplanError) -> None:
    """An error below the field that it names first, else below the form."""
    message = str(error)
    named = [name for name in slots if name in message]
    if not named:
        words.show_error(error, "Not complete", LABELS)
        return
    first = min(named, key=lambda name: (message.index(name), -len(name)))
    with slots[first].container():
        words.show_error(error, "Not possible", LABELS)
    under = f", under {FOLDED[first]}" if first in FOLDED else ""
    st.caption(f"Nothing can be planned before this is right: {LABELS.get(first, 'Name')}{under}.")


def _say_without_place() -> None:
    """What of the preset that the form was filled from has no field here."""
    start = st.session_state.get("own_start")
    missing = without_place(find_model(start)) if start is not None else ""
    if missing:
        st.warning("The form has no place for every layer of this preset", icon=":material/warning:")
        st.text(f"Left out: {missing}.")


def show_defined(model: Model) -> None:
    """What the sizes add up to, beside the preset that they came from, and what can be done with it."""
    st.subheader("What that makes", anchor=False)
    kind, guess = ("an estimate", ", an estimate") if model.is_estimate else ("exact", "")
    per_token = int(model.cache_bytes_per_token())
    words.show_numbers(
        [
            words.Number(f"Parameters, {kind}", format_params(model.num_params), f"{model.num_params:,}"),
            words.Number("Active for a token", format_params(model.num_active_params), f"{model.num_active_params:,}"),
            words.Number(
                f"Weights, bf16{guess}", words.size(model.weight_bytes()), words.exact_size(model.weight_bytes())
            ),
            words.Number("Cache a token, bf16", words.size(per_token), f"One sequence: {words.exact_size(per_token)}."),
        ]
    )
    for note in model.notes:
        st.text(note)
    _compare_with_start(model)
    with st.container(horizontal=True):
        words.plan_button("Plan with this model", "use_model", use_model, model)
        offer_file("Download as a preset file", dump_toml(model_to_table(model)), own_id(model.name), "get_model")


def _compare_with_start(model: Model) -> None:
    start = st.session_state.get("own_start")
    if start is None:
        return
    preset = find_model(start)
    if preset.num_params == model.num_params and preset.cache_bytes_per_token() == model.cache_bytes_per_token():
        st.text(f"Parameters and cache equal those of {preset.name}.")
        return
    st.text(
        f"{preset.name} itself has {preset.num_params:,} parameters, this one {model.num_params:,}: "
        "a form cannot hold all that a preset can."
    )
    for sentence in left_out(preset, model):
        st.caption(sentence)


def use_model(model: Model) -> None:
    st.session_state["model"] = keep_model(model)
    st.session_state["heads"] = AS_TRAINED


def offer_file(label: str, text: str, name: str, key: str) -> None:
    st.download_button(label, text, f"{name}.toml", "text/plain", key=key, on_click="ignore")


# ------------------------------------------------------------------------------------------------------------ GPU

GPU_TEXTS = (
    Size("usable_bytes", "Usable memory", None, "What a program can allocate, such as 15.6GiB."),
    Size("label_bytes", "Label", None, "The number on the box, such as 16GiB; empty where there is none."),
    Size("bandwidth", "Bandwidth a second", None, "Such as 320GB; without it no decode floor is shown."),
)

LABELS = {
    **{size.name: size.label for size in (*ALL_SIZES, *GPU_TEXTS)},
    "num_params": BILLIONS,
    "node_gpus": "GPUs a node",
    "rent_usd_per_hour": "Rent",
}
"""Labels of the fields by their keyword, for messages."""


def ask_gpu() -> None:
    st.text_input("Name", "My GPU", key="own_gpu_name", max_chars=80, persist_state="session")
    slots = {"GPU name": st.empty()}
    for size, first, place in zip(GPU_TEXTS, ("15.6GiB", "16GiB", "320GB"), st.columns(3), strict=True):
        with place:
            st.text_input(size.label, first, key=_key(size.name), help=size.help, max_chars=30, persist_state="session")
            slots[size.name] = st.empty()
    left, right = st.columns(2)
    with left:
        st.number_input("GPUs a node", 1, 4096, None, key="own_node", persist_state="session", placeholder="unknown")
    with right:
        st.number_input(
            "Rent, US dollars an hour", 0.01, 10_000.0, None, key="own_rent", persist_state="session",
            placeholder="unknown",
        )  # fmt: skip
    try:
        gpu = wanted_gpu()
    except InputError as error:
        say_beside(slots, error)
        return
    st.text(f"{gpu.name}: {words.exact_size(gpu.usable_bytes)} usable.")
    with st.container(horizontal=True):
        words.plan_button("Plan with this GPU", "use_gpu", use_gpu, gpu)
        offer_file("Download as a preset file", dump_toml(gpu_to_table(gpu)), own_id(gpu.name), "get_gpu")


def wanted_gpu() -> Gpu:
    """The GPU of the form. Raises InputError."""
    sizes = {size.name: st.session_state[_key(size.name)] for size in GPU_TEXTS}
    given = {name: parse_bytes(text, name) if text.strip() else None for name, text in sizes.items()}
    if given["usable_bytes"] is None:
        raise InputError("usable_bytes is missing; give what a program can allocate, such as 15.6GiB")
    return define_gpu(
        name=st.session_state["own_gpu_name"],
        usable_bytes=given["usable_bytes"],
        label_bytes=given["label_bytes"],
        bandwidth=given["bandwidth"],
        node_gpus=st.session_state["own_node"],
        rent_usd_per_hour=st.session_state["own_rent"],
    )


def use_gpu(gpu: Gpu) -> None:
    st.session_state["gpu"] = keep_gpu(gpu)


# ----------------------------------------------------------------------------------------------------------- file


def ask_file() -> None:
    uploaded = st.file_uploader("A preset file of a model, a GPU or a scenario", "toml", key="own_file")
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
    if kind is MODEL_KIND:
        return use_model, thing
    return (use_gpu, thing) if kind is GPU_KIND else (take_scenario, scenario_of(thing, find_model, find_gpu))


if st.session_state.pop("own_start_now", False):  # the Library page sent a model here
    take_preset()
st.header("Define your own", anchor=False)
read_address("define", (MODEL, GPU, FILE))
what = st.segmented_control(
    "Define or load", [MODEL, GPU, FILE], default=MODEL, key="define", required=True, persist_state="session"
)
write_address("define", what, usual=MODEL)
{GPU: ask_gpu, FILE: ask_file}.get(what or MODEL, ask_model)()
