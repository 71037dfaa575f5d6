"""How many GPUs: the fewest that hold a scenario, and the replicas that serve N users.

A replica is one copy of the model on tensor_parallel x pipeline_parallel GPUs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from statistics import NormalDist

from kvplan.errors import InputError, ParallelError, quoted
from kvplan.hardware import Gpu, Price
from kvplan.model import MAX_GPUS, ROLES, Model, require_model
from kvplan.plan import MemoryPlan, Scenario, plan, require_scenario, usages
from kvplan.units import MAX_COUNT, counted, listed, parse_count, require_text, whole_number

MAX_STAGES = 16
USUAL_NODE = 8
"""GPUs of a node where the GPU's preset does not say."""

MAX_LENGTHS = 1_000_000
_P95 = NormalDist().inv_cdf(0.95)


# ---------------------------------------------------------------------------------------------------- fewest GPUs


def fewest_gpus(scenario: Scenario) -> MemoryPlan | None:
    """The plan of `scenario` on as few of its GPUs as hold it, or None where none of the tried layouts does.

    Raises InputError where it is no scenario.

    Tried: tensor parallel 1, 2, 4, 8 ... inside a node, each with up to 16 pipeline stages, which with a draft model
    are not planned: `layouts_tried` says it. A scenario in data parallel is tried without it too. Among layouts with
    the same number of GPUs the one with fewer stages wins.
    """
    return next((p for p in layouts(scenario) if p.fits), None)


def layouts(scenario: Scenario) -> Iterator[MemoryPlan]:
    """Plans of every layout that the model divides into, fewest GPUs first.

    Of data parallelism the scenario's own is tried, and none: replicas hold all weights but routed experts again.
    """
    require_scenario(scenario)
    shapes = product(_sides(scenario), range(1, _most_stages(scenario) + 1), {scenario.data_parallel: None, 1: None})
    for size, stages, copies in sorted(shapes, key=lambda shape: (math.prod(shape), shape[1])):
        changes = {"tensor_parallel": size, "pipeline_parallel": stages, "data_parallel": copies}
        try:
            yield plan(scenario.with_changes(**changes))
        except (ParallelError, InputError):  # this layout does not divide the model; the next one may
            continue


def _sides(scenario: Scenario) -> list[int]:
    """How many GPUs of a node may lie side by side."""
    node = scenario.gpu.node_gpus or USUAL_NODE
    return [2**power for power in range(node.bit_length()) if 2**power <= node]


def _most_stages(scenario: Scenario) -> int:
    return MAX_STAGES if scenario.draft_model is None else 1


def layouts_tried(scenario: Scenario) -> str:
    """Which layouts the fewest GPUs are looked for among, as a sentence; with a draft model, why no stages are."""
    require_scenario(scenario)
    why = why_no_stages(scenario)
    return f"{numbers_tried(scenario)}; {why}" if why else numbers_tried(scenario)


def numbers_tried(scenario: Scenario) -> str:
    """How many GPUs and stages the fewest are looked for among, as a sentence."""
    require_scenario(scenario)
    *fewer, most = _sides(scenario)
    tried = f"Tried: {', '.join([*map(str, fewer), counted(most, 'GPU')])}{' side by side' if fewer else ''}"
    return tried if why_no_stages(scenario) else f"{tried}, each in 1 to {MAX_STAGES} pipeline stages"


def why_no_stages(scenario: Scenario) -> str:
    """Why the fewest GPUs are not looked for among pipeline stages, or ""."""
    if scenario.draft_model is None:
        return ""
    return "pipeline stages are left out, since a draft model over them is not planned: engines place it differently"


# ---------------------------------------------------------------------------------------------------------- users


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the sequences of the users are, in tokens, prompt and answer together.

    mean, p95, maximum  rounded up to whole tokens
    is_estimate         False where they come from a list of real lengths
    source              how they were made
    """

    mean: int
    p95: int
    maximum: int
    is_estimate: bool
    source: str


def lengths_from_list(values: Iterable[int]) -> Lengths:
    """The lengths of real requests. p95 is the smallest length that at least 95 % do not exceed. Raises InputError."""
    found = sorted(whole_number(value, "length") for value in listed(values, "values", "a list of whole numbers"))
    if not 0 < len(found) <= MAX_LENGTHS:
        raise InputError(f"the list has {counted(len(found), 'length')}; from 1 to {MAX_LENGTHS:,} are accepted")
    rank = -(-95 * len(found) // 100)
    return Lengths(
        -(-sum(found) // len(found)), found[rank - 1], found[-1], False, f"{counted(len(found), 'given length')}"
    )


def parse_lengths(text: str) -> list[int]:
    """Whole numbers with commas, semicolons, spaces or lines between them. Raises InputError with the line at fault."""
    rows = _rows(text)
    for line, row in rows:
        _require_tokens(min(row, default=1), line)
    return [length for _, row in rows for length in row]


def parse_pairs(text: str) -> list[int]:
    """Lines of `prompt,answer`, each added up. Raises InputError with the line at fault."""
    rows = _rows(text)
    for line, row in rows:
        if len(row) != 2:
            raise InputError(f"line {line} has {counted(len(row), 'number')}; a prompt and an answer are needed")
        _require_tokens(sum(row), line)
    return [sum(row) for _, row in rows]


def _rows(text: str) -> list[tuple[int, list[int]]]:
    """(line, its numbers) of each line that is not empty; a first one without any digit is a heading."""
    require_text(text, "the list of lengths")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if lines and not any(letter.isdigit() for letter in lines[0][1]):
        lines = lines[1:]
    if not lines:
        raise InputError("the list of lengths is empty; whole numbers are needed")
    return [(number, [_length(word, number) for word in re.split(r"[\s,;]+", line) if word]) for number, line in lines]


def _require_tokens(length: int, line: int) -> None:
    if not length:
        raise InputError(
            f"a length in line {line} is 0; from 1 is accepted, and a comma ends a number: 12000 and not 12,000"
        )


def _length(word: str, line: int) -> int:
    if word.isascii() and word.isdigit() and len(word) < 13:  # what a long list is made of, at a tenth of the time
        return int(word)
    return parse_count(word, f"a length in line {line}")


def grouped_digits(text: str) -> str:
    """The first part of a list that may be one number with separators, such as `12,500`; "" where there is none.

    A list reads it as several lengths, since a comma ends a number there.
    """
    found = re.search(r"(?<![\d,;])[1-9]\d{0,2}(?:,\d{3})+(?![\d,;])", text)
    return found[0] if found else ""


def lengths_from_quantiles(prompt: tuple[int, int], answer: tuple[int, int], maximum: int) -> Lengths:
    """Lengths from the median and 95th percentile of prompts and of answers, and the longest that is allowed.

    Each is taken as log-normal, which is how lengths usually spread; the mean is the sum of both means. The
    95th percentiles add up to an upper bound, since a long prompt need not get a long answer. All are cut at
    `maximum`. Raises InputError.
    """
    limit = whole_number(maximum, "maximum")
    pairs = (_quantiles(prompt, "prompt"), _quantiles(answer, "answer"))
    mean = sum(_lognormal_mean(median, p95, name) for median, p95, name in pairs)
    p95 = sum(p95 for _, p95, _ in pairs)
    source = "log-normal prompts and answers; the 95th percentile is an upper bound"
    return Lengths(min(limit, math.ceil(mean)), min(limit, p95), limit, True, source)


def _quantiles(given: object, name: str) -> tuple[int, int, str]:
    """(median, 95th percentile, name)."""
    both = "a pair of median and 95th percentile"
    found = listed(given, name, both)
    if len(found) != 2:
        raise InputError(f"{name} is {quoted(given)}; {both} is needed")
    median = whole_number(found[0], f"median {name}")
    return median, whole_number(found[1], f"95th percentile {name}", low=median), name


def _lognormal_mean(median: int, p95: int, name: str) -> float:
    sigma = math.log(p95 / median) / _P95
    if sigma > 3:
        raise InputError(f"the {name}'s 95th percentile {p95:,} is too far from its median {median:,} to be believed")
    return median * math.exp(sigma**2 / 2)


@dataclass(frozen=True, slots=True)
class UserPlan:
    """What N users take when every sequence is `tokens` long.

    label          which length: mean, 95th percentile, maximum
    tokens         of one sequence
    cache_bytes    of all users together, over all GPUs of their replicas, KV heads divided
    capacity_bytes, fixed_bytes, sequence_bytes  of the GPU that is full first: what it can use, what it holds
                   whatever the number of sequences, and what each sequence adds
    users_per_replica  sequences that one replica holds; None: memory sets no limit
    replicas       copies of the model needed; None where one sequence does not fit
    num_gpus       GPUs of all replicas, or None
    rent_per_hour  US dollars an hour for all of them, where the GPU has a public price
    """

    label: str
    tokens: int
    cache_bytes: int
    capacity_bytes: int
    fixed_bytes: int
    sequence_bytes: int
    users_per_replica: int | None
    replicas: int | None
    num_gpus: int | None
    rent_per_hour: float | None


def plan_users(scenario: Scenario, num_users: int, lengths: Lengths) -> tuple[UserPlan, ...]:
    """The scenario's layout for `num_users` at once: at the mean length, the 95th percentile and the maximum."""
    require_scenario(scenario)
    _require_lengths(lengths)
    users = whole_number(num_users, "num_users")
    points = (("mean", lengths.mean), ("95th percentile", lengths.p95), ("maximum", lengths.maximum))
    return tuple(_user_plan(scenario, users, label, tokens) for label, tokens in points)


def _user_plan(scenario: Scenario, users: int, label: str, tokens: int) -> UserPlan:
    prefix = min(scenario.shared_prefix, tokens + scenario.image_tokens)
    here = scenario.with_changes(context_length=tokens, batch_size=1, shared_prefix=prefix)
    answer = plan(here)
    room = answer.max_batch_size
    replicas = 1 if room is None else -(-users // room) if room else None
    gpus = None if replicas is None else replicas * scenario.num_gpus
    price = scenario.gpu.rent_per_hour
    fixed, each = first_full(answer)
    return UserPlan(
        label=label,
        tokens=tokens,
        cache_bytes=scenario.tensor_parallel * _cache_of_users(here, users, replicas or 1),
        capacity_bytes=answer.capacity_bytes,
        fixed_bytes=fixed,
        sequence_bytes=each,
        users_per_replica=room,
        replicas=replicas,
        num_gpus=gpus,
        rent_per_hour=None if gpus is None or price is None else _rent(gpus, price),
    )


def first_full(answer: MemoryPlan) -> tuple[int, int]:
    """(fixed, each): bytes of n sequences are fixed + n * each, on the pipeline stage that holds the fewest."""
    tokens, lines = answer.scenario.context_length, []
    for usage in answer.stages:
        one, two = (replace(usage, replicas=1).total_bytes(tokens, batch) for batch in (1, 2))
        lines.append((2 * one - two, two - one))
    return min(lines, key=lambda line: (answer.capacity_bytes - line[0]) / max(1, line[1]))


@dataclass(frozen=True, slots=True)
class UserLayout:
    """A layout of the GPUs, and what N users take on it."""

    scenario: Scenario
    point: UserPlan


def fewest_for_users(scenario: Scenario, num_users: int, lengths: Lengths) -> UserLayout | None:
    """The layout that serves all users at the 95th percentile of `lengths` with the fewest GPUs of the scenario's kind.

    None where no layout that is tried holds even one sequence.
    """
    tried = [UserLayout(p.scenario, plan_users(p.scenario, num_users, lengths)[1]) for p in layouts(scenario)]
    possible = [found for found in tried if found.point.num_gpus is not None]
    return min(possible, key=lambda found: found.point.num_gpus or 0, default=None)


def _require_lengths(given: object) -> None:
    if not isinstance(given, Lengths):
        raise InputError(f"lengths is {quoted(given)}; what lengths_from_list makes is needed")


def user_warnings(scenario: Scenario, num_users: int, lengths: Lengths) -> tuple[str, ...]:
    """What a person should know before trusting the answer for `num_users` of these lengths. Raises InputError.

    The users are the batch here: what the scenario's own would leave idle is no matter.
    """
    require_scenario(scenario)
    _require_lengths(lengths)
    longest, prefix = max(lengths.maximum, scenario.shared_prefix), scenario.shared_prefix
    users = whole_number(num_users, "num_users")
    found = plan(scenario.with_changes(context_length=longest, batch_size=users)).warnings
    if prefix <= lengths.mean + scenario.image_tokens:
        return found
    shorter = (
        f"The shared prefix of {counted(prefix, 'token')} is longer than the mean of {counted(lengths.mean, 'token')}, "
        "though every prompt begins with it: what is shorter counts as nothing but the prefix; give lengths that "
        "include it"
    )
    return (*found, shorter)


def _cache_of_users(scenario: Scenario, users: int, replicas: int) -> int:
    """Cache bytes of one tensor-parallel rank of all replicas, users spread evenly, all stages together."""
    copies = replicas * scenario.data_parallel
    low, more = divmod(users, copies)
    sizes = [(low + 1, more), (low, copies - more)]
    return sum(
        count * replace(usage, replicas=1).cache_bytes(scenario.context_length, size)
        for usage in usages(scenario)
        for size, count in sizes
        if size
    )


# ---------------------------------------------------------------------------------------------- models x GPUs


def _rent(gpus: int, price: Price) -> float:
    """So many times the price as it is written: of floats 7 x 0.1502 would be 1.0514000000000001, also in files."""
    return float(gpus * Decimal(repr(price.usd)))


@dataclass(frozen=True, slots=True)
class FleetRow:
    """The fewest GPUs of one kind for one model; `answer` is None where no tried layout fits.

    reason  why there is no answer, or ""
    """

    model: str
    gpu: str
    answer: MemoryPlan | None
    price: Price | None
    reason: str = ""

    @property
    def num_gpus(self) -> int | None:
        return None if self.answer is None else self.answer.scenario.num_gpus

    @property
    def rent_per_hour(self) -> float | None:
        """US dollars an hour for all of them, where the GPU has a public price."""
        if self.answer is None or self.price is None:
            return None
        return _rent(self.answer.scenario.num_gpus, self.price)


def which_gpu(scenario: Scenario, models: Sequence[Model | str], gpus: Sequence[Gpu | str]) -> tuple[FleetRow, ...]:
    """For each model and GPU, objects or preset ids, the fewest GPUs that hold the scenario's context and batch.

    Raises InputError where one of them is none.
    """
    require_scenario(scenario)
    kinds = listed(gpus, "gpus", "a list of GPUs or preset ids")
    asked = listed(models, "models", "a list of models or preset ids")
    return tuple(_fleet_row(scenario, model, gpu) for model in asked for gpu in kinds)


def cheapest_first(rows: Iterable[FleetRow]) -> list[FleetRow]:
    """By price an hour; then what has no price by its number of GPUs, then what does not fit.

    Raises InputError where one of them is no FleetRow.
    """
    return sorted(
        _fleet_rows(rows), key=lambda row: (row.rent_per_hour is None, row.rent_per_hour or 0.0, *_by_number(row))
    )


def fewest_first(rows: Iterable[FleetRow]) -> list[FleetRow]:
    """By number of GPUs, of equal ones the cheapest; what does not fit comes last.

    Raises InputError where one of them is no FleetRow.
    """
    return sorted(_fleet_rows(rows), key=_by_number)


def _fleet_rows(given: object) -> list[FleetRow]:
    rows = listed(given, "rows", "a list of FleetRow, as which_gpu returns it,")
    for row in rows:
        if not isinstance(row, FleetRow):
            raise InputError(f"a row is {quoted(row)}; a FleetRow, as which_gpu returns it, is needed")
    return rows


def _by_number(row: FleetRow) -> tuple[bool, int, float, str, str]:
    return row.num_gpus is None, row.num_gpus or 0, row.rent_per_hour or math.inf, row.gpu, row.model


def _fleet_row(scenario: Scenario, model: Model | str, gpu: Gpu | str) -> FleetRow:
    settings = {name: getattr(scenario, name) for name in _CARRIED}
    here = Scenario(model, gpu, **settings)
    if here.model == scenario.model:
        here = here.with_changes(**{name: getattr(scenario, name) for name in _MODELS_OWN})
    answer = fewest_gpus(here)
    left_out = f"; {why}" if (why := why_no_stages(here)) else ""
    reason = "" if answer else f"does not fit in any layout tried{left_out}"
    return FleetRow(
        here.model.id or here.model.name, here.gpu.id or here.gpu.name, answer, here.gpu.rent_per_hour, reason
    )


_MODELS_OWN = ("num_kv_heads", "draft_model")
"""Settings that belong to the scenario's own model alone."""

_CARRIED = (
    "context_length", "batch_size", "weight_dtype", "kv_dtype", "memory_fraction", "overhead_bytes",
    "image_tokens", "shared_prefix", "adapter_bytes",
)  # fmt: skip
"""Settings that make sense for any model."""


# ------------------------------------------------------------------------------------------------------- adapters

ADAPTED_ROLES = ("attention_q", "attention_k", "attention_v", "attention_o", "mlp")


def adapter_bytes(
    model: Model, rank: int, count: int = 1, roles: Sequence[str] = ADAPTED_ROLES, tensor_parallel: int = 1
) -> int:
    """Bytes on one GPU of `count` LoRA adapters of `rank` in 16 bit, on all matrices of `roles`.

    Each adapted matrix (rows, columns) gets A (rank, columns), copied by tensor parallelism, and B (rows, rank),
    divided as the rows are. Raises InputError.
    """
    require_model(model)
    rank = whole_number(rank, "rank", high=8192)
    count = whole_number(count, "count", low=0, high=MAX_COUNT)
    whole_number(tensor_parallel, "tensor_parallel", high=MAX_GPUS)
    for role in listed(roles, "roles", "a list of roles"):
        if role not in list(ROLES):
            raise InputError(f"role is {quoted(role)}; one of {', '.join(ROLES)} is needed")
    values = sum(
        times * group.count * rank * sum(group.shape_per_gpu(tensor_parallel))
        for group, times in model.all_groups
        if group.role in roles and group.columns > 1
    )
    if not values:
        raise InputError(f"the matrices of {model.name} are not known by role, so its adapters cannot be counted")
    return 2 * count * values
