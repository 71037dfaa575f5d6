"""Two to four scenarios side by side: what differs among the inputs, and by how many bytes among the results.

The first is A, the others are measured against it. Every file carries all inputs, the sources and the link of the
whole comparison.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

from kvplan import charts
from kvplan.documents import (
    About,
    Figure,
    csv_text,
    html_figures,
    html_page,
    html_table,
    json_document,
    markdown_document,
    markdown_table,
    markdown_text,
)
from kvplan.errors import LinkError
from kvplan.explain import kinds_sentence, part_bytes
from kvplan.plan import MemoryPlan, Scenario, plan
from kvplan.report import plain_inputs, plain_setting, plan_title, setting_label, setting_words, source_rows
from kvplan.share import require_comparable, to_comparison_link
from kvplan.units import format_bytes, format_exact_bytes, format_params, require_kind

Row = TypeVar("Row", str, tuple[str, str])

LETTERS = "ABCD"
"""What the scenarios of a comparison are called."""


class Change(NamedTuple):
    """Something that the scenarios have in common by name, and what each says, in words."""

    what: str
    words: tuple[str, ...]


class PartChange(NamedTuple):
    """A part of the memory of one GPU, and its bytes in each scenario."""

    what: str
    sizes: tuple[int, ...]

    @property
    def differences(self) -> tuple[int, ...]:
        """How many bytes more each has than the first; the first's own is 0."""
        return tuple(size - self.sizes[0] for size in self.sizes)


@dataclass(frozen=True)
class Comparison:
    """Plans side by side.

    settings  the settings that differ
    parts     every part of one GPU's memory; the differences add up to that of the capacity, the last row
    limits    largest batch, longest context and the like, whether they differ or not
    """

    plans: tuple[MemoryPlan, ...]
    settings: tuple[Change, ...]
    parts: tuple[PartChange, ...]
    limits: tuple[Change, ...]

    @property
    def letters(self) -> str:
        """What the scenarios are called."""
        return LETTERS[: len(self.plans)]

    @property
    def answers(self) -> tuple[str, ...]:
        """The answer of each plan, with its letter."""
        return tuple(f"{letter}: {p.sentence}" for letter, p in zip(self.letters, self.plans, strict=True))

    @property
    def sentences(self) -> tuple[str, ...]:
        """For each but the first: how much more or less it holds than the first, and which of the two fits."""
        first, *others = self.plans
        return tuple(_sentence(first, other, letter) for letter, other in zip(self.letters[1:], others, strict=True))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before trusting the answers; one that not every plan has says whose it is."""
        holders = _holders(p.warnings for p in self.plans)
        return tuple(
            text if letters == self.letters else f"{', '.join(letters)}: {text}" for text, letters in holders.items()
        )

    @property
    def link(self) -> str:
        """The link of all. Raises LinkError where they do not fit into one."""
        return to_comparison_link([p.scenario for p in self.plans])


def _holders(each: Iterable[Iterable[Row]]) -> dict[Row, str]:
    """Every distinct row of the plans, in order, with the letters of those that have it."""
    holders: dict[Row, str] = {}
    for letter, rows in zip(LETTERS, each, strict=False):
        for row in dict.fromkeys(rows):
            holders[row] = holders.get(row, "") + letter
    return holders


def _held(p: MemoryPlan) -> int:
    """Bytes that one GPU holds: what the engine leaves unused is empty, and another on another GPU."""
    return p.total_bytes - p.unused_bytes


def _sentence(first: MemoryPlan, other: MemoryPlan, letter: str) -> str:
    more = _held(other) - _held(first)
    held = f"{format_bytes(abs(more))} {'more than' if more > 0 else 'less than'}" if more else "exactly as much as"
    verdicts = {
        (True, True): "both fit",
        (False, False): "neither fits",
        (True, False): "only A fits",
        (False, True): f"only {letter} fits",
    }
    return f"{letter} holds {held} A on each GPU; {verdicts[first.fits, other.fits]}"


def compare(*scenarios: Scenario) -> Comparison:
    """What differs between two to four scenarios, in settings, bytes and limits. Raises LinkError for other numbers."""
    require_comparable(scenarios)
    plans = tuple(plan(scenario) for scenario in scenarios)
    return Comparison(plans, _setting_changes(scenarios), _part_changes(plans), _limit_changes(plans))


def _setting_changes(
    scenarios: Sequence[Scenario], write: Callable[[Scenario, str], str] = setting_words
) -> tuple[Change, ...]:
    names = [item.name for item in fields(Scenario) if _differ([getattr(s, item.name) for s in scenarios])]
    changes = [Change(setting_label(name), tuple(write(s, name) for s in scenarios)) for name in names]
    if _differ([s.planned_model for s in scenarios]):
        changes += _model_changes(scenarios)
    return tuple(changes)


def _differ(values: Sequence[Any]) -> bool:
    return any(value != values[0] for value in values)


def _model_changes(scenarios: Sequence[Scenario]) -> list[Change]:
    """What makes models differ, in words that two models of one name do not share."""
    rows = [
        Change("parameters", tuple(format_params(s.planned_model.num_params) for s in scenarios)),
        Change("layers", tuple(kinds_sentence(s.planned_model) for s in scenarios)),
    ]
    return [row for row in rows if _differ(row.words)]


def _part_changes(plans: Sequence[MemoryPlan]) -> tuple[PartChange, ...]:
    parts = [{**part_bytes(p), "usable capacity": p.capacity_bytes} for p in plans]
    names = dict.fromkeys(name for each in parts for name in each)
    rows = [PartChange(name, tuple(each.get(name, 0) for each in parts)) for name in names]
    return tuple(row for row in rows if any(row.sizes))


def _limit_changes(plans: Sequence[MemoryPlan]) -> tuple[Change, ...]:
    rows = zip(*map(_limits, plans), strict=True)
    return tuple(Change(row[0][0], tuple(words for _, words in row)) for row in rows)


def _limits(p: MemoryPlan) -> list[tuple[str, str]]:
    floor, per_token = p.decode_floor_seconds, p.bytes_per_token
    whole = int(per_token)
    return [
        ("largest batch", _count_words(p.max_batch_size, "no limit")),
        ("longest context", _count_words(p.max_context_length, "no limit")),
        ("crossover context", _count_words(p.crossover_context_length, "never")),
        ("cache bytes a token", f"{whole:,}" if whole == per_token else f"{float(per_token):,.2f}"),
        ("decode floor", "bandwidth not known" if floor is None else f"{floor * 1000:.2f} ms a step"),
        ("GPUs", f"{p.scenario.num_gpus:,}"),
    ]


def _count_words(count: int | None, none: str) -> str:
    return none if count is None else f"{count:,}"


# ---------------------------------------------------------------------------------------------------------- tables


def change_rows(found: Comparison) -> list[tuple[str, ...]]:
    """The inputs that differ: what, and each scenario's; the first row is the head."""
    return [("what", *found.letters), *((change.what, *change.words) for change in found.settings)]


def part_rows(
    found: Comparison,
    write: Callable[[int], str] = format_exact_bytes,
    write_more: Callable[[int], str] = lambda more: f"{more:+,} B" if more else "0 B",
) -> list[tuple[str, ...]]:
    """The parts of the memory: what, A, and of each other its bytes and how many more; the first row is the head."""
    head = ["what", "A"]
    for letter in found.letters[1:]:
        head += [letter, f"{letter} − A"]
    return [tuple(head), *(_part_row(part, write, write_more) for part in found.parts)]


def _part_row(part: PartChange, write: Callable[[int], str], write_more: Callable[[int], str]) -> tuple[str, ...]:
    row = [part.what, write(part.sizes[0])]
    for size, difference in zip(part.sizes[1:], part.differences[1:], strict=True):
        row += [write(size), write_more(difference)]
    return tuple(row)


def limit_rows(found: Comparison) -> list[tuple[str, ...]]:
    """The limits: what, and each scenario's; the first row is the head."""
    return [("what", *found.letters), *((change.what, *change.words) for change in found.limits)]


# ---------------------------------------------------------------------------------------------------------- figure

SEGMENTS: dict[str, tuple[str, str, str]] = {
    "weights": ("Weights", charts.BLUE, ""),
    "KV cache": ("KV cache", charts.ORANGE, ""),
    "run-time overhead": ("Overhead", charts.PURPLE, ""),
    "adapters": ("Adapters", charts.SKY, "."),
    "draft model": ("Draft model", charts.VIOLET, "x"),
    "left unused": ("Left by the engine", charts.GREY, "-"),
    "free": ("Free", charts.FREE_FILL, ""),
}
"""Name, colour and pattern of each part in the figure where it is no estimate."""


def memory_bars(found: Comparison, unit: str = "GiB") -> charts.Figure:
    """One bar of the memory of one GPU for each scenario, with its usable capacity as a line.

    A plan that does not fit runs past its line by the shortfall. What is an estimate is drawn as hatching on an empty
    ground, as in the bar of one plan.
    """
    parts = {part.what: part.sizes for part in found.parts}
    bars = [_segments(name, parts[name], found, unit) for name in SEGMENTS if any(parts.get(name, ()))]
    reach = max(max(p.capacity_bytes, p.total_bytes) for p in found.plans)
    return {
        "data": bars,
        "layout": charts.layout(
            barmode="stack",
            height=150 + 62 * len(found.plans),
            margin=charts.BELOW_TOOLBAR,
            xaxis=charts.axis(f"{unit} on each GPU") | {"range": [0, charts.scaled(reach, unit) * 1.03]},
            yaxis={"type": "category", "autorange": "reversed", "automargin": True, "fixedrange": True},
            shapes=[_capacity_line(row, p.capacity_bytes, unit) for row, p in enumerate(found.plans)],
        ),
    }


def _segments(name: str, sizes: Sequence[int], found: Comparison, unit: str) -> charts.Figure:
    label = SEGMENTS[name][0]
    guessed = [_is_estimate(name, p) for p in found.plans]
    shown = [size if size > 0 else None for size in sizes]  # what is short is no part of the memory
    return {
        "type": "bar",
        "orientation": "h",
        "name": label,
        "y": list(found.letters),
        "x": [None if size is None else charts.scaled(size, unit) for size in shown],
        "customdata": [
            [size, charts.exact(size, unit), ", an estimate" if is_guessed else ""]
            for size, is_guessed in zip(sizes, guessed, strict=True)
        ],
        "hovertemplate": f"%{{y}}: {label}%{{customdata[2]}}<br>%{{customdata[1]}}<extra></extra>",
        "marker": _looks(name, guessed),
    }


def _is_estimate(name: str, p: MemoryPlan) -> bool:
    return p.runtime.is_estimate if name == "run-time overhead" else name == "weights" and p.scenario.model.is_estimate


def _looks(name: str, guessed: Sequence[bool]) -> charts.Figure:
    """Colour and pattern of one part; where any of it is an estimate, hatching tells which."""
    _, color, pattern = SEGMENTS[name]
    if any(guessed):
        shapes = ["/" if is_guessed else "" for is_guessed in guessed]
        hollow = {"shape": shapes, "size": 7, "fillmode": "replace", "fgcolor": color}
        return {"color": color, "line": {"width": 1, "color": color}, "pattern": hollow}
    outline = charts.GREEN if name == "free" else "rgba(255,255,255,0.6)"
    overlay = {"shape": pattern, "fgcolor": "rgba(255,255,255,0.75)", "size": 7, "fillmode": "overlay"}
    return {"color": color, "line": {"width": 1, "color": outline}} | ({"pattern": overlay} if pattern else {})


def _capacity_line(row: int, size: int, unit: str) -> charts.Figure:
    x = charts.scaled(size, unit)
    line = {"width": 2, "dash": "dash", "color": charts.VERMILLION}
    legend = {"name": "Usable", "showlegend": row == 0}
    return {"type": "line", "x0": x, "x1": x, "y0": row - 0.45, "y1": row + 0.45, "line": line, **legend}


def figure_alt(found: Comparison) -> str:
    """What the figure shows, in words."""
    return f"Memory of one GPU side by side. {'; '.join(found.sentences)}."


# ----------------------------------------------------------------------------------------------------------- files


def comparison_about(found: Comparison, address: str = "") -> About:
    """What every file of a comparison carries."""
    scenarios = [p.scenario for p in found.plans]
    rows = _setting_rows(scenarios, setting_words)
    inputs = {letter: plain_inputs(s) for letter, s in zip(found.letters, scenarios, strict=True)}
    return About([("setting", *found.letters), *rows], inputs, _sources(found), _link_or_reason(found, address))


def _setting_rows(scenarios: Sequence[Scenario], write: Callable[[Scenario, str], str]) -> list[tuple[str, ...]]:
    """Every setting, whether it differs or not: what, and each scenario's."""
    return [(setting_label(item.name), *(write(s, item.name) for s in scenarios)) for item in fields(Scenario)]


def _sources(found: Comparison) -> list[tuple[str, str]]:
    """The sources of all; one that not every scenario rests on says whose it is."""
    return [
        (what if letters == found.letters else f"{what} ({', '.join(letters)})", text)
        for (what, text), letters in _holders(source_rows(p.scenario) for p in found.plans).items()
    ]


def _link_or_reason(found: Comparison, address: str) -> str:
    try:
        return address + found.link
    except LinkError as error:
        return f"no link: {error}"


def comparison_title(found: Comparison) -> str:
    """`A against B: Llama 3.1 8B on H100, Llama 3.1 8B on L4`."""
    titles = dict.fromkeys(plan_title(p.scenario) for p in found.plans)
    return f"{' against '.join(found.letters)}: {', '.join(titles)}"


def comparison_csv(found: Comparison, address: str = "") -> str:
    """A comparison as CSV of the columns section, what, and each scenario's with its difference from the first."""
    require_kind(found, "the comparison", Comparison)
    about = comparison_about(found, address)
    inputs = _setting_rows([p.scenario for p in found.plans], plain_setting)
    rows = [("input", *_spread(row)) for row in inputs]
    rows += [("bytes", *row) for row in part_rows(found, str, str)[1:]]
    rows += [("limit", *_spread([_plain_number(cell) for cell in row])) for row in limit_rows(found)[1:]]
    rows.append(("answer", *_spread(("answer", *(p.sentence for p in found.plans)))))
    rows += [("difference", letter, text) for letter, text in zip(found.letters[1:], found.sentences, strict=True)]
    rows += [("source", *row) for row in about.sources]
    rows.append(("link", "link", about.link))
    head = ("section", *part_rows(found)[0])
    return csv_text(head, (_filled(row, len(head)) for row in rows))


def _plain_number(text: str) -> str:
    """`116,858` as a program reads it; other words stay as they are."""
    return text.replace(",", "") if re.fullmatch(r"[\d,]+(\.\d+)?", text) else text


def _spread(row: Sequence[str]) -> Iterable[str]:
    """A row of words under the columns of the parts: no differences."""
    what, first, *others = row
    return (what, first, *(cell for other in others for cell in (other, "")))


def _filled(row: Sequence[str], width: int) -> tuple[str, ...]:
    return (*row, *([""] * (width - len(row))))


def comparison_json(found: Comparison, address: str = "") -> str:
    """A comparison as one JSON object; bytes are ints, in the order of the scenarios."""
    require_kind(found, "the comparison", Comparison)
    changed = _setting_changes([p.scenario for p in found.plans], plain_setting)
    content = {
        "answers": {letter: p.sentence for letter, p in zip(found.letters, found.plans, strict=True)},
        "differences": list(found.sentences),
        "changed": [{"what": change.what, "values": change.words} for change in changed],
        "bytes": [
            {"what": part.what, "bytes": part.sizes, "more_than_the_first": part.differences} for part in found.parts
        ],
        "limits": [{"what": what, "values": [_plain_number(cell) for cell in cells]} for what, cells in found.limits],
    }
    return json_document(comparison_about(found, address), content)


def comparison_markdown(found: Comparison, address: str = "") -> str:
    """A comparison as a Markdown document."""
    require_kind(found, "the comparison", Comparison)
    lines = [f"- {markdown_text(text)}" for text in (*found.answers, *found.sentences)]
    blocks = ["\n".join(lines)]
    for title, rows in _tables(found):
        blocks += [f"## {title}", markdown_table(rows[0], rows[1:])]
    return markdown_document(comparison_title(found), comparison_about(found, address), blocks)


def comparison_html(found: Comparison, address: str = "", unit: str = "GiB") -> str:
    """A comparison as one HTML page with its figure, which opens anywhere and asks no server for anything."""
    require_kind(found, "the comparison", Comparison)
    figure = Figure("Memory of one GPU", figure_alt(found), memory_bars(found, unit))
    answers = [f"<p class='answer'>{html.escape(text)}</p>" for text in (*found.answers, *found.sentences)]
    tables = [html_table(title, rows[0], rows[1:]) for title, rows in _tables(found)]
    return html_page(
        comparison_title(found), comparison_about(found, address), [*answers, *html_figures([figure]), *tables]
    )


def _tables(found: Comparison) -> list[tuple[str, list[tuple[str, ...]]]]:
    return [
        ("What differs", change_rows(found)),
        ("Bytes on each GPU", part_rows(found)),
        ("Limits", limit_rows(found)),
    ]
