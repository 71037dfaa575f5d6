"""The Users page: people at once, lengths that spread, and the GPUs that they need."""

import pytest

import kvplan
from kvplan.explain import users_sentence
from kvplan.fleet import fewest_for_users, lengths_from_list, lengths_from_quantiles, plan_users

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
USUAL = lengths_from_quantiles((1024, 4096), (256, 1024), 8192)


def on_users(app, **address):
    opened = app(**address)
    opened.go("users")
    assert not opened.errors()
    return opened


def test_the_answer_stands_on_top(app):
    points = plan_users(LLAMA, 8, USUAL)
    assert on_users(app).heading() == users_sentence(LLAMA, 8, USUAL, points[1])


def test_users_at_mean_95th_percentile_and_maximum(app):
    page = on_users(app)
    page.set(users_at_once=100)
    table, points = page.tables()[0], plan_users(LLAMA, 100, USUAL)
    assert table["tokens"].tolist() == [point.tokens for point in points]
    assert table["cache bytes of all users"].tolist() == [point.cache_bytes for point in points]
    assert table["GPUs"].tolist() == [point.num_gpus for point in points]


def test_the_users_are_the_batch_until_another_number_is_given(app):
    page = on_users(app, batch="20")
    assert page.value("users_at_once") == 20
    page.set(batch=30)
    assert page.value("users_at_once") == 30
    page.set(users_at_once=7)
    page.set(batch=40)
    assert page.value("users_at_once") == 7


@pytest.mark.parametrize(
    "text", ["100, 200;300\n4000", "100 200 300 4000", "tokens\n100\n200\n300\n4000\n", "100,200,300,4000,"]
)
def test_lengths_may_be_pasted_in_any_usual_form(app, text):
    page = on_users(app)
    page.set(lengths="a list of lengths")
    assert page.errors() == ["This cannot be planned"]
    page.set(length_list=text)
    points = plan_users(LLAMA, 8, lengths_from_list([100, 200, 300, 4000]))
    assert page.tables()[0]["tokens"].tolist() == [point.tokens for point in points]


def test_pairs_of_prompt_and_answer_are_added_up(app):
    page = on_users(app)
    page.set(lengths="prompt, answer pairs")
    page.set(length_list="prompt,answer\n100,20\n200,1\n")
    points = plan_users(LLAMA, 8, lengths_from_list([120, 201]))
    assert page.tables()[0]["tokens"].tolist() == [point.tokens for point in points]


@pytest.mark.parametrize(
    ("text", "said"), [("100\n1 2 3", "line 1 has 1 number"), ("1,2\n3,4,5", "line 2 has 3 numbers")]
)
def test_what_is_no_pair_is_named_by_its_line(app, text, said):
    page = on_users(app)
    page.set(lengths="prompt, answer pairs")
    page.set(length_list=text)
    assert any(said in found for found in page.texts())


def test_rubbish_in_a_list_is_named_by_its_line(app):
    page = on_users(app)
    page.set(lengths="a list of lengths")
    page.set(length_list="100\n<script>alert(1)</script>")
    assert page.errors() == ["This cannot be planned"]
    assert any("a length in line 2" in text for text in page.texts())


def test_a_hundred_thousand_lengths_are_read(app):
    page = on_users(app)
    page.set(lengths="a list of lengths")
    page.set(length_list="\n".join(str(1 + number % 5000) for number in range(100_000)))
    assert page.tables()[0]["tokens"].tolist() == [2501, 4750, 5000]


def test_the_fewest_gpus_are_those_of_the_best_layout(app):
    page = on_users(app, model="llama-3.1-70b")
    scenario = kvplan.Scenario("llama-3.1-70b", "h100-sxm-80gb")
    assert page.metric("GPUs") == str(fewest_for_users(scenario, 8, USUAL).point.num_gpus)


def test_the_formula_ends_in_the_tables_numbers(app):
    page = on_users(app)
    page.open("users_formula")
    how = page.tables()[2].set_index("what")["how"]
    point = plan_users(LLAMA, 8, USUAL)[1]
    assert how["users a replica"].endswith(f"= {point.users_per_replica}")
    assert how["GPUs"] == f"{point.replicas} × 1 = {point.num_gpus}"


def test_a_gpu_without_a_price_says_so(app):
    page = on_users(app, gpu="a10-24gb", model="llama-3.2-1b")
    priced = kvplan.load_gpu("a10-24gb").rent_per_hour is not None
    assert (page.metric("Price") == "no public price") is not priced


def test_the_chart_speaks_the_visitors_unit(app):
    page = on_users(app)
    page.set(unit="GB")
    figure = page.figure("KV cache of all users")
    assert figure["layout"]["xaxis"]["title"]["text"] == "KV cache of all users, GB"
    assert figure["data"][0]["customdata"][1].startswith("5.37 GB")


@pytest.mark.parametrize("text", ["many", "-1", "0"])
def test_a_length_that_is_no_length_is_refused_in_words(app, text):
    page = on_users(app)
    page.set(p50=text)
    assert page.errors() == ["This cannot be planned"]


def test_lengths_beyond_the_models_limit_are_warned_of(app):
    page = on_users(app)
    page.set(lengths="a list of lengths")
    page.set(length_list="200000")
    assert any("are beyond the 131,072" in text for text in page.texts())
