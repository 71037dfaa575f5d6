"""The server of a plan: what it reserves, the pool that it finds, its command, and the lines that it prints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import streamlit as st

from kvplan import charts
from kvplan.dtypes import kv_dtype
from kvplan.engines import ENGINES
from kvplan.engines.budget import PoolBudget
from kvplan.engines.capacity import EngineCapacity
from kvplan.engines.commands import start_text
from kvplan.engines.launch import Launch
from kvplan.engines.lines import predicted_lines
from kvplan.engines.offload import most_slots
from kvplan.engines.overheads import Overhead
from kvplan.engines.reserved import HAS_POOL, HAS_SLOTS, Reserved
from kvplan.engines.support import cache_dtypes, why_no_cache
from kvplan.errors import KvplanError, shorten
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.serving import Serving, serve, server_suggestions
from kvplan.ui import figures, words
from kvplan.ui.address import BIND, ENGINE, take_scenario
from kvplan.ui.engine_overheads import known_overheads
from kvplan.ui.words import unit
from kvplan.units import counted, format_bytes, format_exact_bytes

if TYPE_CHECKING:
    import pandas as pd

MOST_OFFERED = 4
"""Cache dtypes that are offered where the plan's is not one of the engine's; its default is the first."""


def show_server(scenario: Scenario) -> None:
    """The whole view, for the engine that is chosen in it. Of what an engine cannot serve nothing is counted."""
    asked = ask_server()
    known = known_overheads(scenario, asked.engine)
    try:
        serving = serve(scenario, asked.engine, asked.version, known)
    except KvplanError as error:
        show_refusal(scenario, asked.engine, error, asked.version)
        return
    details = show_memory(serving)
    show_server_suggestions(serving, "engine")
    st.subheader("Start it with", anchor=False)
    show_start(serving.launch)
    details()


def show_refusal(scenario: Scenario, engine: str, error: KvplanError, version: str | None = None) -> None:
    """Why the engine cannot serve the plan, and the cache dtypes that it has as buttons."""
    words.show_error(error, f"{ENGINES[engine].label} cannot serve this plan, so nothing is counted for it")
    model = scenario.planned_model
    try:
        if not why_no_cache(engine, model, kv_dtype(scenario.kv_dtype), version):
            return
        has = [name for name in cache_dtypes(engine, model) if not why_no_cache(engine, model, kv_dtype(name), version)]
    except KvplanError:  # a version that is none: the refusal says so
        return
    with st.container(horizontal=True):
        for name in has[:MOST_OFFERED]:
            with contextlib.suppress(KvplanError):  # one that the model's layers cannot be kept in
                st.button(
                    f"Store the cache as {name}", key=f"cache_{engine}_{name}", on_click=take_scenario,
                    args=(scenario.with_changes(kv_dtype=name),),
                )  # fmt: skip


def show_start(launch: Launch) -> None:
    """The command or the call, and the lines that the engine will print, where it prints any."""
    text, _ = start_text(launch)
    st.code(text, language=None, wrap_lines=True)  # the colours of code are too light on white
    if lines := predicted_lines(launch):
        st.subheader("What it will print", anchor=False)
        _show_lines(launch, lines)


class Asked(NamedTuple):
    """The engine that is chosen, and its version where one is written."""

    engine: str
    version: str | None


def ask_server() -> Asked:
    """Which engine, and which version of it."""
    asked = st.query_params.get(ENGINE)
    if asked and asked not in ENGINES:  # an empty one says that none was chosen
        st.warning(
            "The engine of the address is not known, and the usual one stands instead.", icon=":material/warning:"
        )
        st.text(shorten(asked))
    with st.container(horizontal=True):
        # Ids and no labels: the address carries what the list shows, and a link writes the id.
        engine = st.selectbox("Engine", list(ENGINES), key=ENGINE, width=260, persist_state="session")
        version = ""
        if engine == "vllm":
            version = st.text_input(
                "vLLM version", key="engine_version", max_chars=40, width=160, bind=BIND, placeholder="newest known",
                help="As vLLM prints it, such as 0.11 or 0.20.1: what it reserves and prints has changed over time.",
            )  # fmt: skip
    return Asked(engine, (version or "").strip() or None)


# --------------------------------------------------------------------------------------------------------- memory


def show_memory(serving: Serving) -> Callable[[], None]:
    """The answer and its numbers; what is returned shows how the memory comes about, for further below."""
    launch, found, budget = serving.launch, serving.reserved, serving.reserved.budget
    if budget is None:
        _show_allocated(serving, plan(serving.scenario), "on each GPU")
        _show_notes(serving.notes)
        return lambda: None
    if launch.engine in HAS_SLOTS:
        alone = serving.scenario.with_changes(tensor_parallel=1, pipeline_parallel=1)
        _show_allocated(serving, plan(alone), "on all GPUs together")
    else:
        _show_paged(serving, budget)
    _show_notes(serving.notes)
    if serving.scenario.overhead_bytes is not None and not launch.known:
        st.text(
            "Note: the sidebar's overhead is one figure, of which most lies outside this engine's fraction: not used"
        )
    return lambda: _show_pool(found, budget)


def _show_paged(serving: Serving, budget: PoolBudget) -> None:
    launch, found, here = serving.launch, serving.reserved, plan(serving.scenario)
    sentence = _paged_sentence(launch, found.typical, budget)
    color = _color(found.typical.max_concurrency, launch.replica_requests)
    st.subheader(sentence, divider=color, anchor=False)
    words.show_numbers([*_two_numbers(here, launch, found, "on each GPU"), *_capacity_numbers(launch, found.typical)])
    _show_bars(_pool_sizes(here, found), "on each GPU")
    _show_notes(found.typical.notes)


def _show_pool(found: Reserved, budget: PoolBudget) -> None:
    st.subheader("Where the memory comes from", anchor=False)
    st.text(_pool_sentence(budget))
    words.show_table(_pool_table(found), "Pool, low to high", "pool")
    st.subheader("Overheads", anchor=False)
    words.show_facts(
        [*_overhead_rows(budget.overheads, "yes"), *_overhead_rows(budget.outside, "no")],
        ("what", "low", "typical", "high", "out of the pool"),
        "Overheads",
        "overheads",
    )
    for part in (*budget.overheads, *budget.outside):
        st.text(f"{part.label}: {part.source}")


def _color(held: float, wanted: int) -> str:
    """Green where all that is wanted is held, orange where some is, red where nothing is."""
    return "green" if held >= wanted else "orange" if held >= 1 else "red"


def _paged_sentence(launch: Launch, found: EngineCapacity, budget: PoolBudget) -> str:
    label, tokens = ENGINES[launch.engine].label, f"{counted(launch.context_length, 'token')}"
    if budget.shortfall_bytes:
        short = format_bytes(budget.shortfall_bytes, unit())
        return f"{label} does not start: weights and overhead are {short} more than it may take"
    if not found.admits_one:
        needed, pool = format_bytes(found.needed_bytes, unit()), format_bytes(found.pool_bytes, unit())
        divided = found.needed_bytes <= found.pool_bytes
        part = f", and a part of the pool of {pool} is too small for it" if divided else f" of a pool of {pool}"
        return f"{label} cannot hold one request of {tokens}: it needs {needed}{part}"
    room = f"{label} has room for {found.total_concurrency:,.2f} requests of {tokens}"
    if found.max_concurrency < launch.replica_requests:
        return f"{room} at once; of the {launch.batch_size:,} of the plan the others wait"
    return f"{room} at once; the plan asks for {launch.batch_size:,}"


def _show_allocated(serving: Serving, whole: MemoryPlan, where: str) -> None:
    """An engine that takes what its requests need: does it fit into what is left?"""
    launch, found = serving.launch, serving.reserved
    room = found.typical.pool_bytes
    st.subheader(_allocated_sentence(serving), divider="green" if serving.fits else "red", anchor=False)
    if serving.offload:
        st.text(serving.offload)
    longest = found.typical.longest_context
    slots = launch.engine in HAS_SLOTS
    each = "every slot" if slots else "one request alone"
    shown = [
        *_two_numbers(whole, launch, found, where),
        words.Number("Room", format_bytes(room, unit()), f"What weights and typical overhead leave, {where}."),
        words.Number("Longest request", words.tokens(longest), f"Tokens of {each} that this room holds."),
    ]
    if slots:
        help_text = "Requests at once of this context, each with a slot of its own, that this room holds."
        shown.append(words.Number("Most slots", f"{most_slots(launch, room):,}", help_text))
    words.show_numbers(shown)
    _show_bars({"resident": whole.cache_bytes, "reserved": found.bytes, "room": room}, where)
    _show_notes(found.typical.notes)


def _allocated_sentence(serving: Serving) -> str:
    launch, found = serving.launch, serving.reserved
    taken, room = (format_bytes(size, unit()) for size in (found.bytes, found.typical.pool_bytes))
    wanted = f"{words.counted(launch.replica_requests, 'request')} of {counted(launch.context_length, 'token')}"
    verdict = "fits into" if serving.fits else "does not fit into"
    return f"{ENGINES[launch.engine].label} takes {taken} for {wanted}: {verdict} the {room} that are left"


def _two_numbers(here: MemoryPlan, launch: Launch, found: Reserved, where: str) -> Iterable[words.Number]:
    """Resident and reserved: two numbers that answer two questions."""
    copies = launch.placement.data_parallel
    of_one = f" of one of {counted(copies, 'replica')}" if copies > 1 else ""
    wanted = f"{words.counted(launch.replica_requests, 'request')} of {counted(launch.context_length, 'token')}{of_one}"
    yield words.Number(
        "Resident",
        format_bytes(here.cache_bytes, unit()),
        f"Tensors that {wanted} hold, {where}: exactly {here.cache_bytes:,} B.",
    )
    yield words.Number(
        "Reserved",
        format_bytes(found.bytes, unit()),
        f"What the engine sets aside so that {wanted} are admitted, {where}: exactly {found.bytes:,} B.",
    )


def _capacity_numbers(launch: Launch, found: EngineCapacity) -> Iterable[words.Number]:
    yield words.Number("Tokens", f"{found.tokens:,}", "The cache size that the engine prints, typical.")
    yield words.Number(
        "Requests at once",
        f"{found.max_concurrency:,.2f}",
        f"Of {counted(launch.context_length, 'token')} each, typical.",
    )
    yield words.Number(
        "Longest request", words.tokens(found.longest_context), "Prompt and answer of one request alone, typical."
    )
    yield words.Number(
        "One block",
        words.size(found.bytes_per_block),
        f"{counted(found.block_size, 'token')}, all layers of one GPU.",
    )


def _pool_sizes(here: MemoryPlan, found: Reserved) -> dict[str, int]:
    return {
        "resident": here.cache_bytes,
        "reserved": found.bytes,
        "pool, low": found.low.pool_bytes,
        "pool, typical": found.typical.pool_bytes,
        "pool, high": found.high.pool_bytes,
    }


def _show_bars(sizes: dict[str, int], where: str) -> None:
    bars = charts.named_bars(
        list(sizes),
        [charts.scaled(size, unit()) for size in sizes.values()],
        [format_bytes(size, unit()) for size in sizes.values()],
        f"{unit()} {where}",
        [format_exact_bytes(size) for size in sizes.values()],
    )
    alt = f"Resident and reserved bytes beside what the engine has, {where}"
    figures.show_chart(bars, alt, "reserved", figures.STILL)


def _pool_sentence(budget: PoolBudget) -> str:
    sizes = (budget.visible_bytes, budget.requested_bytes, budget.weight_bytes)
    visible, requested, weights = (format_bytes(size, unit()) for size in sizes)
    return (
        f"Of {visible} that a program can use there the engine may take {requested}; weights take {weights}, "
        "and the overheads below leave the rest."
    )


def _pool_table(found: Reserved) -> pd.DataFrame:
    import pandas as pd

    pools = {"low": found.low, "typical": found.typical, "high": found.high}
    return pd.DataFrame(
        {
            "pool": list(pools),
            "bytes": [pool.pool_bytes for pool in pools.values()],
            "tokens": [pool.tokens for pool in pools.values()],
            "requests at once": [round(pool.max_concurrency, 2) for pool in pools.values()],
            "longest request": [pool.longest_context for pool in pools.values()],
        }
    )


def _overhead_rows(parts: Iterable[Overhead], inside: str) -> Iterable[tuple[str, ...]]:
    for part in parts:
        sizes = (format_bytes(size, unit()) for size in (part.low, part.typical, part.high))
        yield (part.label, *sizes, inside)


def _show_notes(notes: Iterable[str]) -> None:
    for note in notes:
        st.text(f"Note: {note}")


# ---------------------------------------------------------------------------------------- lines and smallest changes


def _show_lines(launch: Launch, lines: Sequence[str]) -> None:
    st.code("\n".join(lines), language=None, wrap_lines=True)
    if launch.engine in HAS_POOL:
        st.caption(
            "The pool is an estimate until a log says what the overheads are; what the engine makes of a pool of known "
            "size is exact."
        )


def show_server_suggestions(serving: Serving, key: str) -> None:
    """The smallest single changes with which the engine holds every request at once; nothing where it does.

    key  tells the buttons of one page from those of another
    """
    if serving.fits:
        return
    label = ENGINES[serving.launch.engine].label
    st.subheader(f"What would make {label} hold it all at once", anchor=False)
    st.caption(f"By what {label} reserves, with typical overheads; each change alone.")
    found = server_suggestions(serving)
    for suggestion in found:
        with st.container(horizontal=True, vertical_alignment="center"):
            changed = suggestion.serving.scenario
            st.button("Apply", key=f"{key}_{suggestion.lever}", on_click=take_scenario, args=(changed,))
            st.text(suggestion.sentence_in(unit()))
    if not found:
        st.text("No single change is enough.")
