"""Screen 3: cached and uncached logits side by side, a check that can fail, and every fault to try it on."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
import streamlit as st

from kvplan import lab, lab_charts
from kvplan.ui.address import BIND
from kvplan.ui.lab_screens.decoder import Setting, ask_decoder
from kvplan.ui.lab_screens.parts import (
    Measure,
    Prediction,
    ask,
    heading,
    long_work,
    settle,
    show_chart,
    show_measures,
    show_verdict,
)
from kvplan.ui.words import show_table
from kvplan.units import counted

NO_FAULT, ANY_CACHE = "no fault", "as needed"
GREEDY_TOKENS = 30
EQUAL, ROUNDING, DIFFERENT = "equal to the bit", "the same up to rounding", "different: over the bar"
TRAPS = (
    "One pass with the cache on against one with it off proves nothing: the cache is written and never read.",
    "Comparing only the last row hides faults of the rows before it.",
    "Comparing only token ids hides most faults: the best token often survives.",
    "Half precision cannot see an int8 or a 16-bit cache: its own rounding is as large.",
)


class Choice(NamedTuple):
    """What is planted, where, and in which arithmetic it is run."""

    fault: str | None
    cache: str | None
    exact: bool

    @property
    def subject(self) -> str:
        return f"{self.fault}_{self.cache}_{self.exact}"


def show() -> None:
    """The whole screen."""
    st.text("The same tokens go through the decoder twice: once with a cache, once as a whole sequence without one.")
    setting = ask_decoder("lab_new")
    choice = _ask_choice()
    arguments = (setting.model, setting.prompt, setting.new_tokens, choice.cache, choice.fault, choice.exact)
    result = lab.check_parity(*arguments)
    heading("See")
    _show_goes_wrong(result)
    question = Prediction("lab_same", "Cached and uncached logits will be:", (EQUAL, ROUNDING, DIFFERENT))
    subject = f"{choice.subject}_{setting.words}"
    heading("Predict")
    if ask(question, subject):
        settle(question, subject, _answer(result))
        _show_logits(lab.side_by_side(*arguments))
        _show_verdicts(result)
        _show_rows(result)
    heading("Check")
    _show_traps()
    _show_thirty(setting)


def _ask_choice() -> Choice:
    titles = [NO_FAULT, *(fault.title for fault in lab.FAULTS.values())]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        title = st.selectbox("Plant a fault", titles, key="lab_fault", bind=BIND, width=380)
        caches = [ANY_CACHE, *lab.CACHES]
        cache = st.selectbox(
            "Cache", caches, key="lab_cache", bind=BIND, width=180,
            help="As needed: dynamic, or with a fault the cache, rows, positions and window that show it.",
        )  # fmt: skip
        exact = st.toggle(
            "Exact shapes", key="lab_exact", bind=BIND,
            help="Every matrix product has one shape, so equality to the bit is demanded.",
        )  # fmt: skip
    names = {fault.title: name for name, fault in lab.FAULTS.items()}
    return Choice(names.get(title or ""), None if cache == ANY_CACHE else cache, exact)


def _show_goes_wrong(result: lab.ParityResult) -> None:
    shape = result.model.shape
    st.text(f"With a {result.what}, positions {shape.position}, window {shape.window or 'none'}, these are compared:")
    for scenario in result.scenarios:
        st.text(f"• {scenario.title}")
    if result.fault is not None:
        st.text(f"Planted: {result.fault.goes_wrong}.")


def _answer(result: lab.ParityResult) -> str:
    if result.bit_equal:
        return EQUAL
    return ROUNDING if result.passed else DIFFERENT


def _show_logits(step: lab.SideBySide) -> None:
    show_measures(
        [
            Measure(
                "Cache length", f"{step.length_before} → {step.length_after}", f"one step reads token {step.token}"
            ),
            Measure("Logits", f"({', '.join(map(str, step.cached.shape))})", "(batch, vocabulary) of that step"),
            Measure("Difference of this step", f"{step.max_abs_diff:.2g}", "max |cached − whole sequence|"),
        ]
    )
    show_chart(
        lab_charts.side_by_side(step.table()),
        "Logits of the last decode step over the vocabulary, from the cache and from the whole sequence",
        "lab_logits",
    )


def _show_verdicts(result: lab.ParityResult) -> None:
    show_verdict(result.passed, "The check passes", "The check fails")
    st.text(result.sentence)
    if result.fault is not None:
        caught = "It is caught. Found by" if not result.passed else "It hides here. It hides when"
        why = result.fault.found_by if not result.passed else result.fault.hides_when
        st.text(f"{caught}: {why}. In float64: {result.fault.in_float64}.")
    logic, gate = result.logic, result.gate
    gates = [_gate("Logic gate, float64", logic)]
    if gate.name != "logic":
        gates.append(_gate(f"{gate.name.capitalize()} gate, {gate.dtype}", gate))
    show_measures(
        [
            *gates,
            Measure(
                "Decision line",
                "safe" if result.greedy_is_safe else "not safe",
                f"{result.max_abs_diff:.2g} against {result.decision_line:.2g}, half the smallest lead of a best logit",
            ),
            Measure("r", f"{result.r:.3g}", "difference / (eps × largest logit)"),
            Measure("Greedy tokens", _token_words(result), f"{counted(len(result.rows), 'row')}, argmax of both"),
        ]
    )


def _gate(label: str, gate: lab.Gate) -> Measure:
    verdict = "passes" if gate.passed else "fails"
    return Measure(label, f"{verdict}: {gate.max_abs_diff:.2g}", f"bar {gate.bar:.2g} = {gate.formula}")


def _token_words(result: lab.ParityResult) -> str:
    row = result.first_divergence
    return "all equal" if row is None else f"differ at {row.position}"


def _show_rows(result: lab.ParityResult) -> None:
    table = result.table()
    levels = [
        ("bar", "bar of the gate", result.bar),
        ("decision", "decision line", result.decision_line),
        *(("usual", f"usual constant, {line.dtype}", line.value) for line in result.usual_lines),
    ]
    if result.bit_equal:
        st.text(f"All {counted(len(table), 'row')}: the difference is exactly 0.")
    else:
        alt = "The largest difference of every compared row of logits, on a log axis, with the bars as lines"
        show_chart(lab_charts.row_differences(table, levels), alt, "lab_rows")
        st.text("A mark on the lower edge is a difference of exactly 0.")
    for line in result.usual_lines:
        over = "exceeded here" if line.is_over else "not exceeded here"
        st.text(f"{line.value:g} ({line.dtype}), {over}: holds for {line.holds_for}. It is not the verdict.")
    with st.expander("Every row as a table"):
        show_table(table, "Difference of every row of logits", "lab_rows")


def _show_traps() -> None:
    st.text("Checks that prove little:")
    for trap in TRAPS:
        st.text(f"• {trap}")


def _show_thirty(setting: Setting) -> None:
    st.text(f"{GREEDY_TOKENS} greedy tokens of each cache on its own, against no cache; and what the logits say then.")
    table = long_work(
        "lab_thirty",
        f"Compare {GREEDY_TOKENS} tokens of every cache",
        setting.words,
        lambda tell: lab.compare_caches(setting.model, setting.prompt, GREEDY_TOKENS, tell),
    )
    if table is not None:
        _show_thirty_table(table)


def _show_thirty_table(table: pd.DataFrame) -> None:
    lossless = table[table["cache"] != "quantized"]
    show_verdict(
        bool(lossless["tokens_equal"].all()),
        "Every lossless cache gives the tokens of no cache",
        "A lossless cache gives other tokens: in half precision a near tie is enough",
    )
    quantized = table[table["cache"] == "quantized"].iloc[0]
    other = quantized["first_other_token"]
    tokens = "all its tokens are the same" if other is None else f"its first other token is at position {other}"
    st.text(
        f"The quantized cache is off by {quantized['logic_diff']:.2g} in float64, over the bar of "
        f"{quantized['logic_bar']:.2g} from position {quantized['first_over_bar']} on; {tokens}."
    )
    shown = table.assign(
        tokens=table["tokens"].map(lambda ids: " ".join(map(str, ids))),
        window=table["window"].map(lambda value: "none" if value is None else str(value)),
        first_other_token=table["first_other_token"].map(lambda value: "none" if value is None else str(value)),
        first_over_bar=table["first_over_bar"].map(lambda value: "none" if value is None else str(value)),
        logic_diff=table["logic_diff"].map("{:.2g}".format),
        logic_bar=table["logic_bar"].map("{:.2g}".format),
    )
    show_table(shown, "Greedy tokens of every cache", "lab_thirty")
