"""The Lab page: eight screens whose numbers are the lab's own, with predictions before the answers."""

import sys

import pytest
import streamlit as st

import kvplan
from kvplan import lab
from kvplan.ui.lab_screens import SCREENS
from kvplan.ui.lab_screens.parts import ALL_SHOWN
from kvplan.units import format_exact_bytes

FILL, WIRE, SAME, NAME, CHECKS, SAVES, SHRINK, PLANNER = SCREENS
PROMPT = [1, 2, 3, 4]
SIZES = {"num_layers": 2, "num_attention_heads": 2, "num_kv_heads": 2, "head_dim": 16, "vocab_size": 50}


@pytest.fixture
def on(app):
    """A function that opens a screen: `on(FILL, lab_step="2")`; answers are hidden unless `shown`."""
    lab.use_one_thread()

    def start(screen, shown=False, **address):
        page = app(**address)
        page.run.session_state["lab_screen"] = screen
        page.run.session_state[ALL_SHOWN] = shown
        page.go("lab")
        assert page.heading() == screen
        return page

    return start


def smallest(**changes):
    return lab.TinyDecoder(**{**SIZES, **changes})


def notes(page):
    """What the coloured lines say."""
    return [box.value for kind in ("success", "info", "warning", "error") for box in page.run.get(kind)]


def words_of_page(page):
    return "\n".join([*page.texts(), *notes(page), *(metric.value for metric in page.run.metric)])


# ------------------------------------------------------------------------------------------------------ the page


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("shown", [False, True])
def test_every_screen_opens_without_a_complaint(on, screen, shown):
    page = on(screen, shown)
    assert not page.errors()
    assert not page.run.warning


def test_the_screens_follow_each_other(on):
    page, titles = on(FILL), list(SCREENS)
    for following in titles[1:]:
        page.click("lab_next")
        assert page.heading() == following
    assert "lab_next" not in [button.key for button in page.run.button]


def test_a_link_opens_a_screen_with_its_seed_and_step(app):
    page = app(lab_screen=FILL, lab_step="3", lab_seed="5")
    page.go("lab")
    assert page.heading() == FILL
    assert page.value("lab_step") == 3
    table = lab.trace(smallest(seed=5), PROMPT, 4)
    assert page.metric("Predicts token") == str(table.iloc[3]["predicted_token"])
    assert any("seed 5" in text for text in page.texts())


def test_what_of_a_link_is_not_understood_is_named_once(app):
    page = app(lab_screen="9 Nothing", lab_heads="many")
    page.go("lab")
    assert page.heading() == FILL
    assert "lab_heads=many" in " ".join(page.texts())
    page.run.run()
    assert "lab_heads=many" not in " ".join(page.texts())


@pytest.mark.parametrize("key", ["lab_seed", "lab_dtype", "lab_position", "lab_trace_cache", "lab_step", "lab_inputs"])
def test_an_address_without_a_value_leaves_the_usual_one_and_says_so(app, key):
    page = app(**{key: ""})
    page.go("lab")
    assert not page.errors()
    assert page.texts()[0] == f"{key}="
    assert page.metric("Predicts token") == str(lab.trace(smallest(), PROMPT, 4).iloc[0]["predicted_token"])


def test_an_empty_screen_in_the_address_is_the_first_one(app):
    page = app(lab_screen="")
    page.go("lab")
    assert page.heading() == FILL


def test_a_prediction_comes_before_the_answer_and_a_wrong_one_blocks_nothing(on):
    page = on(WIRE)
    assert not any("It is" in note for note in notes(page))
    page.set(lab_wire_guess_8_2="KV head 1")
    assert not any("It is" in note for note in notes(page))
    page.click("lab_wire_show")
    assert "You predicted: KV head 1. It is: KV head 0" in notes(page)


def test_a_right_prediction_is_said_to_be_right(on):
    page = on(WIRE)
    page.set(lab_wire_guess_8_2="KV head 0")
    page.click("lab_wire_show")
    assert "As you predicted: KV head 0" in notes(page)


def test_no_prediction_is_needed(on):
    page = on(WIRE)
    page.click("lab_wire_show")
    assert "It is: KV head 0" in notes(page)


def test_without_torch_the_page_says_what_to_install(app, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("kvplan.lab.", "kvplan.ui.lab_screens"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "kvplan.lab")
    monkeypatch.delattr(kvplan, "lab")
    monkeypatch.setitem(sys.modules, "torch", None)
    st.cache_resource.clear()
    page = app()
    page.go("lab")
    assert page.errors() == ["The lab cannot run here"]
    assert any("pip install -r requirements.txt" in text for text in page.texts())


# ------------------------------------------------------------------------------------------------- 1 fill the cache


def test_the_grid_and_the_numbers_are_the_traces_one_step_a_click(on):
    page = on(FILL)
    table, cells = lab.trace(smallest(), PROMPT, 4), lab.trace_grid(smallest(), PROMPT, 4)
    for step in range(5):
        row = table.iloc[step]
        assert page.metric("Cache length") == f"{row['length_before']} → {row['length_after']}"
        assert page.metric("K of one layer") == str(row["key_shape"])
        assert page.metric("Predicts token") == str(row["predicted_token"])
        text = page.figure("The cache")["data"][0]["text"]
        first = cells[(cells["step"] == step) & (cells["layer"] == 0)]
        assert [cell.split("</b>")[0].removeprefix("<b>") for cell in text[0]] == [str(t) for t in first["token"]]
        if step < 4:
            page.click("lab_forward")
    page.click("lab_back")
    assert page.value("lab_step") == 3
    page.click("lab_again")
    assert page.value("lab_step") == 0


def test_eight_heads_of_64_have_the_shapes_of_the_lesson(on):
    page = on(FILL)
    page.set(lab_heads=8, lab_kv_heads=8, lab_head_dim=64, lab_prompt="1 2 3", lab_inputs=2)
    shapes, written = [page.metric("K of one layer")], [page.metric("Column written")]
    for _ in range(2):
        page.click("lab_forward")
        shapes.append(page.metric("K of one layer"))
        written.append(page.metric("Column written"))
    assert shapes == ["(1, 8, 3, 64)", "(1, 8, 4, 64)", "(1, 8, 5, 64)"]
    assert written == ["0 to 2", "3", "4"]


@pytest.mark.parametrize("cache", lab.CACHES)
def test_bytes_held_equal_the_planners_formula_for_every_cache(on, cache):
    page = on(FILL, lab_step="2")
    page.set(lab_trace_cache=cache)
    model = lab.variant(smallest(), window=4) if cache == "sliding" else smallest()
    held = lab.trace(model, PROMPT, 4, cache)["bytes_held"].iloc[2]
    assert page.metric("Held by the tensors") == page.metric("The planner's formula") == f"{held:,} B"
    assert f"Equal, to the byte: {format_exact_bytes(int(held))}" in notes(page)


def test_the_last_token_is_never_read(on):
    page = on(FILL)
    page.click("lab_length_show")
    assert "It is: 8: the prompt and all new tokens but the last" in notes(page)


def test_fewer_steps_than_the_one_on_screen_move_it_back(on):
    page = on(FILL, lab_step="4")
    page.set(lab_inputs=2)
    assert page.value("lab_step") == 2


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("lab_prompt", "one two", "'one two'"),
        ("lab_prompt", "![](https://example.org/p.png)", "![](https://example.org/p.png)"),
        ("lab_prompt", " ", "write token ids"),
        ("lab_prompt", "1 2 50", "token id 50"),
        ("lab_prompt", " ".join("1" * 17), "stops at 16"),
        ("lab_heads", 3, "3 query heads"),
        ("lab_head_dim", 7, "head_dim must be even"),
    ],
)
def test_what_cannot_be_run_is_a_sentence_and_no_traceback(on, key, value, found):
    page = on(FILL)
    page.set(**{key: value})
    assert page.errors() == ["This cannot be run"]
    assert any(found in text for text in page.texts())


def test_more_work_than_a_shared_server_bears_is_refused_with_its_bound(on):
    page = on(FILL)
    page.set(lab_layers=4, lab_heads=8, lab_inputs=32)
    assert any("33,792, and this page stops at 9,600" in text for text in page.texts())


# ------------------------------------------------------------------------------------------------- 2 wire the heads


def test_the_wires_are_drawn_once_the_answer_is_shown(on):
    page = on(WIRE)
    assert len(page.figure("8 query heads")["data"]) == 2
    page.click("lab_wire_show")
    assert len(page.figure("8 query heads")["data"]) == 2 + 8
    page.set(lab_wrong=True)
    wrong = [trace["x"][0:2] for trace in page.figure("The wrong wiring")["data"][:8]]
    right = [trace["x"][0:2] for trace in page.figure("8 query heads")["data"][:8]]
    assert wrong != right


@pytest.mark.parametrize(("heads", "kv_heads", "name"), [("8", "8", "multi-head"), ("4", "1", "multi-query")])
def test_both_ends_of_the_axis(on, heads, kv_heads, name):
    page = on(WIRE, shown=True)
    page.set(lab_wires=heads)
    page.set(lab_shared=kv_heads)
    assert page.metric("Called") == name
    assert page.metric("Bytes a token") == f"{2 * 2 * int(kv_heads) * 16 * 4:,} B"
    page.set(lab_wrong=True)
    assert any("It hides here" in text for text in page.texts())


def test_fewer_query_heads_bring_a_number_of_kv_heads_that_divides_them(on):
    page = on(WIRE, lab_wires="16", lab_shared="16")
    page.set(lab_wires="4")
    assert page.value("lab_shared") == "2"


def test_a_grouped_model_equals_its_duplicated_twin(on):
    assert any(note.startswith("The same model") for note in notes(on(WIRE)))


# --------------------------------------------------------------------------------------------------- 3 same answer?


def test_the_smallest_program_goes_from_four_to_five_and_agrees_up_to_rounding(on):
    page = on(SAME, shown=True)
    result = lab.check_parity(smallest(), PROMPT, 1)
    assert page.metric("Cache length") == "4 → 5"
    assert page.metric("Logits") == "(1, 50)"
    assert result.sentence in page.texts()
    assert "It is: the same up to rounding" in notes(page)
    assert page.metric("Logic gate, float64") == f"passes: {result.logic.max_abs_diff:.2g}"
    assert page.metric("Number gate, float32") == f"passes: {result.gate.max_abs_diff:.2g}"
    assert page.metric("Decision line") == "safe"


def test_the_rows_on_screen_and_the_lines_are_the_results(on):
    page = on(SAME, shown=True)
    result = lab.check_parity(smallest(), PROMPT, 1)
    figure = page.figure("The largest difference")
    names = [trace["name"] for trace in figure["data"]]
    assert f"bar of the gate: {result.bar:.2g}" in names
    assert [name for name in names if name.startswith("usual constant")] == [
        "usual constant, float32: 1e-05",
        "usual constant, float16: 0.001",
    ]
    assert sum("It is not the verdict" in text for text in page.texts()) == 2
    assert len(page.tables()[0]) == len(result.rows)


def test_every_fault_can_be_planted_and_says_what_the_check_found(on):
    page = on(SAME, shown=True)
    for name, fault in lab.FAULTS.items():
        page.set(lab_fault=fault.title)
        result = lab.check_parity(smallest(), PROMPT, 1, fault=name)
        assert result.sentence in page.texts(), name
        why = fault.hides_when if result.passed else fault.found_by
        assert any(why in text for text in page.texts()), name


def test_nothing_of_the_result_is_on_the_page_before_the_answer_is_shown(on):
    page = on(SAME, lab_fault="Write one slot late")
    result = lab.check_parity(smallest(), PROMPT, 1, fault="write_one_late")
    assert not page.run.get("plotly_chart")
    assert result.sentence not in words_of_page(page)
    page.click("lab_same_show")
    assert result.sentence in page.texts()
    assert "It is: different: over the bar" in notes(page)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_in_exact_shapes_the_logits_are_equal_to_the_bit(on, dtype):
    page = on(SAME, shown=True, lab_dtype=dtype)
    page.set(lab_exact=True)
    assert page.value("lab_dtype") == dtype
    assert "It is: equal to the bit" in notes(page)
    assert any("the difference is exactly 0" in text for text in page.texts())


def test_half_precision_says_what_it_cannot_see(on):
    page = on(SAME, shown=True, lab_dtype="float16", lab_cache="quantized")
    result = lab.check_parity(smallest(dtype="float16"), PROMPT, 1, cache="quantized")
    assert result.sentence in page.texts()
    assert "float16 cannot see it" in result.sentence


def test_a_sliding_cache_without_a_window_is_refused_in_words(on):
    page = on(SAME)
    page.set(lab_cache="sliding")
    assert page.errors() == ["This cannot be run"]
    page.set(lab_window=3)
    assert not page.errors()


def test_the_two_presets_fill_in_the_decoder(on):
    page = on(SAME)
    page.click("lab_telling")
    assert (page.value("lab_heads"), page.value("lab_kv_heads"), page.value("lab_new")) == (4, 2, 8)
    page.click("lab_smallest")
    assert (page.value("lab_heads"), page.value("lab_new")) == (2, 1)


def test_greedy_tokens_of_every_cache_are_compared_with_those_of_none(on, monkeypatch):
    monkeypatch.setattr("kvplan.ui.lab_screens.same.GREEDY_TOKENS", 5)
    page = on(SAME)
    page.click("lab_thirty_start")
    assert "Every lossless cache gives the tokens of no cache" in notes(page)
    table = page.tables()[-1].set_index("cache")
    wanted = lab.compare_caches(smallest(), PROMPT, 5).set_index("cache")
    assert table["tokens_equal"].tolist() == wanted["tokens_equal"].tolist()
    assert not table.loc["quantized", "logic_passed"]
    page.set(lab_seed=1)
    assert not any("Every lossless" in note for note in notes(page))


# ------------------------------------------------------------------------------------------------- 4 name the fault


def riddle_model(seed):
    return lab.TinyDecoder(num_layers=3, head_dim=8, dtype="float64", seed=seed)


def test_a_riddle_shows_two_grids_and_keeps_its_answer(on):
    page = on(NAME, lab_riddle="7")
    riddle = lab.mystery(7, riddle_model(7), PROMPT)
    assert list(page.run.radio[0].options) == list(riddle.choices)
    fault = riddle.fingerprint.fault
    assert fault.goes_wrong not in words_of_page(page)
    assert fault.name not in str(page.run.query_params)
    page.click("lab_name_show")
    assert f"It is: {riddle.answer}" in notes(page)
    assert page.metric("The grids say") == page.metric("The fault's family") == fault.family


def test_the_next_riddle_is_hidden_again(on):
    page = on(NAME, lab_riddle="7")
    page.click("lab_name_show")
    page.click("lab_next_riddle")
    assert page.value("lab_riddle") == 8
    assert not any("It is" in note for note in notes(page))


def test_every_fault_has_its_fingerprint_on_the_page(on):
    page = on(NAME)
    for fault in lab.FAULTS.values():
        page.set(lab_planted=fault.title)
        assert page.metric("The grids say") == fault.family
        assert any(fault.goes_wrong in text for text in page.texts())


# ---------------------------------------------------------------------------------- 5 the check that cannot fail


def test_the_matrix_on_screen_is_the_labs(on, monkeypatch):
    monkeypatch.setattr("kvplan.ui.lab_screens.checks.NEW_TOKENS", 2)
    page = on(CHECKS)
    assert "lab_matrix_start" not in [button.key for button in page.run.button]
    page.click("lab_vacuous_show")
    page.click("lab_matrix_start")
    table = lab.check_matrix(lab.TinyDecoder(dtype="float64"), PROMPT, 2)
    marks = page.figure("Every fault by every check")["data"][0]["text"]
    assert [mark == "✓" for row in marks for mark in row] == table["caught"].tolist()
    caught = table.groupby("check")["caught"].sum()
    assert page.metric("One pass") == f"{caught['one_pass']} of {len(lab.FAULTS)}"
    assert page.metric("Everything") == f"{caught['everything']} of {len(lab.FAULTS)}"


# ---------------------------------------------------------------------------------------------------- 6 what it saves


def test_projections_are_counted_for_any_number_of_steps(on):
    page = on(SAVES, shown=True)
    assert page.metric("Saved") == f"{2000 * 1999 // 2:,}" == "1,999,000"
    page.set(lab_counted="1m")
    assert page.metric("Without a cache") == f"{2**20 * (2**20 + 1) // 2:,}"


@pytest.mark.parametrize("text", ["many", "0", "2000m"])
def test_a_number_of_steps_that_is_none_is_refused_in_words(on, text):
    page = on(SAVES, shown=True)
    page.set(lab_counted=text)
    assert page.errors() == ["This cannot be run"]


def test_the_counts_of_a_live_run_are_those_of_the_formula(on):
    page = on(SAVES)
    page.set(lab_timed=12)
    page.click("lab_savings_start")
    assert f"Counted {12 * 13 // 2} and 12: what the formulas say" in notes(page)
    assert page.figure("Projections over steps")["data"][0]["name"] == "without a cache"
    assert page.tables()[-1]["uncached_projections"].iloc[-1] == 78


# -------------------------------------------------------------------------------------------------- 7 shrink the heads


def test_a_model_is_trained_pooled_and_trained_on(on, monkeypatch):
    monkeypatch.setattr("kvplan.ui.lab_screens.shrink.TRAINING_STEPS", 6)
    page = on(SHRINK)
    page.click("lab_train_start")
    trained = lab.train(lab.training_model(), 6)
    assert page.metric("Loss after training") == f"{trained.loss_after:.3f}"
    page.set(lab_mend=1, lab_pool="2")
    page.click("lab_pooled_show")
    page.click("lab_shrink_start")
    shrunk = lab.shrink(trained.model, 2, 1)
    assert page.figure("Loss of")["data"][0]["text"] == [
        f"{loss:.3f}" for loss in (trained.loss_after, shrunk.loss_before, shrunk.loss_after)
    ]
    assert any("no free conversion" in text for text in page.texts())


# ------------------------------------------------------------------------------------------- 8 from toy to planner


def test_every_number_of_the_ladder_is_on_the_page(on):
    page = on(PLANNER, shown=True)
    lines = "\n".join(page.texts())
    for row in lab.ladder().to_dict("records"):
        assert f"{row['step']}: {row['formula']} = {format_exact_bytes(row['bytes'])}" in lines
    for row in lab.crossovers().to_dict("records"):
        assert f"{row['tokens']:,} tokens" in lines
    for row in lab.seventy_billion().to_dict("records"):
        assert f"{row['bytes']:,} B" in lines
    for belief in lab.misconceptions():
        assert belief.settled_by in lines


def loaded(page):
    """The plan of the shared scenario after a press of a button."""
    page.go("plan")
    return page.heading()


@pytest.mark.parametrize("place", range(1, 7))
def test_each_rung_loads_into_the_planner_with_its_bytes(on, place):
    page = on(PLANNER, shown=True)
    page.click(f"lab_rung_{place}")
    row = lab.ladder().iloc[place]
    context = page.value("ctx")
    assert kvplan.units.parse_count(context) == row["tokens"]
    settings = {
        "context_length": int(row["tokens"]), "batch_size": int(row["sequences"]), "kv_dtype": row["dtype"],
        "num_kv_heads": None if row["kv_heads"] == 8 else int(row["kv_heads"]),
    }  # fmt: skip
    plan = kvplan.plan(kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb", **settings))
    assert plan.cache_bytes == row["bytes"]
    assert loaded(page) == plan.sentence


@pytest.mark.parametrize("preset", ["llama-2-7b", "llama-3.1-8b", "llama-3.1-70b"])
def test_each_crossover_loads_into_the_planner_which_finds_it_too(on, preset):
    page = on(PLANNER, shown=True)
    page.click(f"lab_cross_{preset}")
    tokens = lab.crossovers().set_index("preset").loc[preset, "tokens"]
    page.go("plan")
    assert page.metric("Crossover") == f"{tokens:,}"


@pytest.mark.parametrize("place", range(4))
def test_each_case_of_the_large_model_loads_with_its_bytes(on, place):
    page = on(PLANNER)
    page.click("lab_large_first_show")
    assert "It is: neither: both are the same" in notes(page)
    page.click(f"lab_large_{place}")
    row = lab.seventy_billion().iloc[place]
    heads = None if row["kv_heads"] == 8 else int(row["kv_heads"])
    plan = kvplan.plan(
        kvplan.Scenario(
            "llama-3.1-70b", "h100-sxm-80gb", context_length=32768, batch_size=int(row["requests"]), num_kv_heads=heads
        )
    )
    assert plan.cache_bytes == row["bytes"]
    assert loaded(page) == plan.sentence
