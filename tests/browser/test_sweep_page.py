"""The Sweep page in a real browser: what is drawn, what stands in the file, and what kvplan.sweep says are the same."""

from urllib.parse import urlencode

import pytest

import kvplan
from kvplan.ui.axes import POPULAR_GPUS

pytestmark = pytest.mark.browser

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
PAIR = "What do two settings do together?"
QUESTIONS = {
    "When does the cache pass the weights?": "crossover",
    "What fits?": "fit",
    "What would more or fewer KV heads cost?": "heads_token",
    "Which GPU?": "fleet",
    PAIR: "pair",
}


def address(**parts):
    return f"/sweep?{urlencode(parts)}"


def downloaded(visitor):
    """Rows of the CSV of what is on screen, by column."""
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="CSV", exact=True).click()
    lines = [line for line in download.value.path().read_text().splitlines() if not line.startswith("#")]
    head, *rows = [line.split(",") for line in lines]
    return {name: [row[index] for row in rows] for index, name in enumerate(head)}


@pytest.mark.parametrize(("viewport", "scheme"), [(PHONE, "dark"), (DESKTOP, "light")], ids=["phone", "desktop"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_is_drawn_and_nothing_is_wider_than_the_screen(visit, question, viewport, scheme):
    visitor = visit(address(q=question), viewport=viewport, color_scheme=scheme)
    assert visitor.figure(QUESTIONS[question])
    assert visitor.heading()
    assert visitor.spilled() == 0


def test_a_map_of_two_settings_its_file_and_the_sweep_are_the_same(visit):
    visitor = visit(address(q=PAIR, across="KV heads", up="GPU"))
    cells = visitor.figure("pair")[0]
    table = kvplan.sweep(LLAMA, num_kv_heads=[1, 8, 32], gpu=POPULAR_GPUS)
    assert [size for row in cells["customdata"] for size, *_ in row] == table["total_bytes"].tolist()
    assert (cells["x"], cells["y"]) == (["1", "8", "32"], list(POPULAR_GPUS))
    file = downloaded(visitor)
    keys = zip(file["gpu"], map(int, file["num_kv_heads"]), strict=True)
    found = dict(zip(keys, map(int, file["total_bytes"]), strict=True))
    assert found == {(row.gpu, row.num_kv_heads): row.total_bytes for row in table.itertuples()}


def test_lines_of_two_settings_are_the_sweeps_totals(visit):
    visitor = visit(address(q=PAIR, across="Context length", up="KV cache precision"))
    lines = {trace["name"]: trace for trace in visitor.figure("pair")}
    for kv in ("bf16", "fp8"):
        table = kvplan.sweep(LLAMA, context_length="1k..256k*2", kv_dtype=[kv])
        assert lines[kv]["customdata"] == table["total_bytes"].tolist()
        assert lines[kv]["x"] == table["context_length"].tolist()


def test_a_map_of_twenty_thousand_points_is_drawn_from_the_sweep_and_its_table_scrolls(visit):
    visitor = visit(address(map_context_length="1k..200k+1k", map_batch_size="1..100"))
    cells = visitor.figure("fit")[0]
    table = kvplan.sweep(LLAMA, context_length="1k..200k+1k", batch_size="1..100")
    assert [size for row in cells["customdata"] for size in row] == table["total_bytes"].tolist()
    assert downloaded(visitor)["total_bytes"] == [str(size) for size in table["total_bytes"]]


def pointed_at(visitor, key, across, up):
    """The lines that show when the mouse stands in a cell of a map; `across` and `up` are shares of its sides."""
    box = visitor.page.locator(f".st-key-{key} .nsewdrag").first.bounding_box()
    place = box["x"] + box["width"] * across, box["y"] + box["height"] * (1 - up)
    visitor.page.mouse.move(place[0] - 2, place[1])
    visitor.page.mouse.move(*place)
    lines = visitor.page.locator(f".st-key-{key} .hoverlayer tspan")
    lines.first.wait_for()
    return lines.all_text_contents()


def test_a_cell_that_does_not_fit_says_to_the_byte_what_it_would_take(visit):
    visitor = visit("/sweep")
    visitor.figure("fit")
    table = kvplan.sweep(LLAMA, context_length=[2**18], batch_size=[256])
    (size,), (usable,) = table["total_bytes"], table["capacity_bytes"]
    assert size > max(usable, 10**12)  # more digits than Plotly shows unless it is told to
    assert pointed_at(visitor, "fit", 0.97, 0.97) == [
        "context length (tokens): 256K", "sequences at once: 256", f"{size / 2**30:,.2f} GiB ({size:,} B)",
        f"usable: {kvplan.units.format_exact_bytes(usable)}",
    ]  # fmt: skip


def test_a_cell_of_a_map_of_gpus_says_to_the_byte_what_it_takes_of_its_own_gpu(visit):
    visitor = visit(address(q="What do two settings do together?", across="KV heads", up="GPU"))
    visitor.figure("pair")
    (row,) = kvplan.sweep(LLAMA, gpu=["t4-16gb"], num_kv_heads=[1]).itertuples()  # in the corner on top, on the left
    size, usable = row.total_bytes, row.capacity_bytes
    assert pointed_at(visitor, "pair", 0.1, 0.97) == [
        "KV heads: 1", "GPU: t4-16gb", f"{size / usable:,.1%} of usable".replace("%", " %"),
        f"{size / 2**30:,.2f} GiB ({size:,} B)", f"usable: {usable / 2**30:,.2f} GiB ({usable:,} B)",
    ]  # fmt: skip


def test_a_bar_says_its_number_of_kv_heads_and_its_bytes(visit):
    visitor = visit(address(q="What would more or fewer KV heads cost?"))
    visitor.figure("heads_token")
    assert pointed_at(visitor, "heads_token", 0.42, 0.1) == ["8 KV heads", "128.0 KiB (131,072 B)"]


def test_crossovers_on_screen_are_the_plans(visit):
    visitor = visit(address(q="When does the cache pass the weights?"))
    marks = {t["name"]: t["x"] for t in visitor.figure("crossover") if t["name"].startswith("Crossover")}
    plans = {kv: kvplan.plan(LLAMA.with_changes(kv_dtype=kv)) for kv in ("bf16", "fp8")}
    assert marks == {f"Crossover, {kv}": [p.crossover_context_length] for kv, p in plans.items()}


def test_the_formula_opens_with_the_numbers_of_the_largest_point(visit):
    visitor = visit("/sweep")
    visitor.page.get_by_text("Show the formula").click()
    visitor.page.get_by_text("Weights + KV cache + overhead of 2 × 131,072 tokens on one GPU:").wait_for()
