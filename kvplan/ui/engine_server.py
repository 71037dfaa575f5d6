"""The server of a plan: what it reserves, the pool that it finds, its command, and the lines that it prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pandas as pd
import streamlit as st

from kvplan import charts
from kvplan.engines import ENGINES
from kvplan.engines.budget import PoolBudget
from kvplan.engines.capacity import EngineCapacity
from kvplan.engines.commands import command
from kvplan.engines.launch import Launch
from kvplan.engines.lines import predicted_lines
from kvplan.engines.overheads import Overhead, measured
from kvplan.engines.reserved import HAS_POOL, HAS_SLOTS, Reserved, reserved_of
from kvplan.errors import KvplanError, shorten
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.suggest import launch_of, suggestions
from kvplan.ui import words
from kvplan.ui.address import BIND, ENGINE, take_scenario
from kvplan.ui.sidebar import unit
from kvplan.units import format_bytes, format_exact_bytes

Shown = TypeVar("Shown")

Rest = Callable[[], None] | None
"""What of a part is to be shown further below."""

LOG_OVERHEAD = "log_overhead"
"""Where the session keeps (total, parts) of the overhead that was taken from a log."""


def show_server(scenario: Scenario) -> None:
    """The whole view, for the engine that is chosen in it."""
    launch = ask_launch(scenario)
    label = ENGINES[launch.engine].label
    start = _part(f"{label} is not started so", lambda: command(launch))
    details = _part(f"{label} cannot hold this cache", lambda: _show_memory(scenario, launch))
    _show_suggestions(scenario.with_changes(engine=launch.engine))
    if start is not None:  # what is not started prints nothing
        st.subheader("Start it with", anchor=False)
        st.code(start, language="bash", wrap_lines=True)
        st.subheader("What it will print", anchor=False)
        _part("There are no lines for this", lambda: _show_lines(launch))
    if details is not None:
        details()


def _part(trouble: str, show: Callable[[], Shown]) -> Shown | None:
    """One part of the view; what is wrong with it is said, and the other parts stay."""
    try:
        return show()
    except KvplanError as error:
        words.show_error(error, trouble)
        return None


def ask_launch(scenario: Scenario) -> Launch:
    """The server: the scenario with its engine, a version, and the overheads that are known."""
    asked = st.query_params.get(ENGINE)
    if asked is not None and asked not in ENGINES:
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
    return launch_of(scenario, engine, (version or "").strip() or None, known_overheads(scenario, engine))


def known_overheads(scenario: Scenario, engine: str) -> tuple[Overhead, ...]:
    """The sidebar's overhead, in the parts of the log that it was taken from; nothing where it is an estimate.

    Undivided it says nothing of SGLang's pool: most of it lies outside the fraction that holds weights and pool.
    """
    if scenario.overhead_bytes is None:
        return ()
    total, parts = st.session_state.get(LOG_OVERHEAD, (None, ()))
    if total == scenario.overhead_bytes:
        return tuple(parts)
    return () if engine == "sglang" else (measured("other", scenario.overhead_bytes, "given in the sidebar"),)


# --------------------------------------------------------------------------------------------------------- memory


def _show_memory(scenario: Scenario, launch: Launch) -> Rest:
    """The answer and its numbers; how the pool comes about is for further below."""
    here = plan(scenario)
    room = (here.capacity_bytes - here.weight_bytes - here.overhead_bytes) * scenario.num_gpus
    found = reserved_of(launch, room)
    budget = found.budget
    if budget is None:
        _show_allocated(plan(scenario.with_changes(tensor_parallel=1, pipeline_parallel=1)), launch, found)
        return None
    _show_paged(here, launch, found, budget)
    if scenario.overhead_bytes is not None and not launch.known:
        st.text(
            "Note: the sidebar's overhead is one figure, of which most lies outside this engine's fraction: not used"
        )
    return lambda: _show_pool(found, budget)


def _show_paged(here: MemoryPlan, launch: Launch, found: Reserved, budget: PoolBudget) -> None:
    sentence = _paged_sentence(launch, found.typical, budget)
    st.subheader(sentence, divider=_color(found.typical.max_concurrency, launch.batch_size), anchor=False)
    words.show_numbers([*_two_numbers(here, launch, found, "on each GPU"), *_capacity_numbers(launch, found.typical)])
    _show_bars(_pool_sizes(here, found), "on each GPU")
    _show_notes(found.typical.notes)


def _show_pool(found: Reserved, budget: PoolBudget) -> None:
    st.subheader("Where the pool comes from", anchor=False)
    st.text(_pool_sentence(budget))
    words.show_table(_pool_table(found), "pool")
    st.subheader("Overheads", anchor=False)
    words.show_facts(
        [*_overhead_rows(budget.overheads, "yes"), *_overhead_rows(budget.outside, "no")],
        ("what", "low", "typical", "high", "out of the pool"),
        "overheads",
    )
    for part in (*budget.overheads, *budget.outside):
        st.text(f"{part.label}: {part.source}")


def _color(held: float, wanted: int) -> str:
    """Green where all that is wanted is held, orange where some is, red where nothing is."""
    return "green" if held >= wanted else "orange" if held >= 1 else "red"


def _paged_sentence(launch: Launch, found: EngineCapacity, budget: PoolBudget) -> str:
    label, tokens = ENGINES[launch.engine].label, f"{launch.context_length:,} tokens"
    if budget.shortfall_bytes:
        short = format_bytes(budget.shortfall_bytes, unit())
        return f"{label} does not start: weights and overhead are {short} more than it may take"
    if not found.admits_one:
        needed, pool = format_bytes(found.needed_bytes, unit()), format_bytes(found.pool_bytes, unit())
        return f"{label} cannot hold one request of {tokens}: it needs {needed} of a pool of {pool}"
    room = f"{label} has room for {found.max_concurrency:,.2f} requests of {tokens}"
    if found.max_concurrency < launch.batch_size:
        return f"{room} at once; of the {launch.batch_size:,} of the plan the others wait"
    return f"{room} at once; the plan asks for {launch.batch_size:,}"


def _show_allocated(whole: MemoryPlan, launch: Launch, found: Reserved) -> None:
    room, everywhere = found.typical.pool_bytes, "on all GPUs together"
    color = "green" if found.bytes <= room else "red"
    st.subheader(_allocated_sentence(launch, found), divider=color, anchor=False)
    longest = found.typical.longest_context
    each = "every slot" if launch.engine in HAS_SLOTS else "one request alone"
    words.show_numbers(
        [
            *_two_numbers(whole, launch, found, everywhere),
            words.Number("Room", format_bytes(room, unit()), f"What weights and typical overhead leave, {everywhere}."),
            words.Number("Longest request", words.tokens(longest), f"Tokens of {each} that this room holds."),
        ]
    )
    _show_bars({"resident": whole.cache_bytes, "reserved": found.bytes, "room": room}, everywhere)
    _show_notes(found.typical.notes)


def _allocated_sentence(launch: Launch, found: Reserved) -> str:
    size, room = (format_bytes(size, unit()) for size in (found.bytes, found.typical.pool_bytes))
    wanted = f"{words.counted(launch.batch_size, 'request')} of {launch.context_length:,} tokens"
    verdict = "fits into" if found.bytes <= found.typical.pool_bytes else "does not fit into"
    return f"{ENGINES[launch.engine].label} takes {size} for {wanted}: {verdict} the {room} that are left"


def _two_numbers(here: MemoryPlan, launch: Launch, found: Reserved, where: str) -> Iterable[words.Number]:
    """Resident and reserved: two numbers that answer two questions."""
    wanted = f"{words.counted(launch.batch_size, 'request')} of {launch.context_length:,} tokens"
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
        "Requests at once", f"{found.max_concurrency:,.2f}", f"Of {launch.context_length:,} tokens each, typical."
    )
    yield words.Number(
        "Longest request", words.tokens(found.longest_context), "Prompt and answer of one request alone, typical."
    )
    yield words.Number(
        "One block", format_bytes(found.bytes_per_block), f"{found.block_size:,} tokens, all layers of one GPU."
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
    words.show_chart(bars, f"Resident and reserved bytes beside what the engine has, {where}", "reserved")


def _pool_sentence(budget: PoolBudget) -> str:
    sizes = (budget.visible_bytes, budget.requested_bytes, budget.weight_bytes)
    visible, requested, weights = (format_bytes(size, unit()) for size in sizes)
    return (
        f"Of {visible} that a program can use on this GPU the engine may take {requested}; weights take {weights}, "
        "and the pool is what the overheads below leave of the rest."
    )


def _pool_table(found: Reserved) -> pd.DataFrame:
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


def _show_lines(launch: Launch) -> None:
    st.code("\n".join(predicted_lines(launch)), language=None, wrap_lines=True)
    if launch.engine in HAS_POOL:
        st.caption(
            "The pool is an estimate until a log says what the overheads are; what the engine makes of a pool of known "
            "size is exact."
        )


def _show_suggestions(scenario: Scenario) -> None:
    found = suggestions(scenario)
    if not found:
        return
    st.subheader("What would make the plan fit", anchor=False)
    st.caption("By resident bytes, each change alone. What the engine reserves is said above, also after a change.")
    for suggestion in found:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button("Apply", key=f"engine_{suggestion.lever}", on_click=take_scenario, args=(suggestion.scenario,))
            st.text(suggestion.sentence)
