"""The Users page: people at once, lengths that spread, and the GPUs that they need."""

import pytest

import kvplan
from kvplan.explain import users_sentence
from kvplan.fleet import fewest_for_users, lengths_from_list, lengths_from_quantiles, plan_users, why_no_stages

LLAMA = kvplan.Scenario("llama-3.1-8b", "h100-sxm-80gb")
USUAL = lengths_from_quantiles((1024, 4096), (256, 1024), 8192)


def on_users(app, **address):
    opened = app(**address)
    opened.go("users")
    assert not opened.errors()
    return opened


def in_address(page):
    """The list that the address carries; the runner holds one value as it is, and what it was given as a list."""
    return "".join(page.run.query_params.get("list", ""))


def captions(page):
    return [caption.value for caption in page.run.caption]


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


def test_a_number_with_separators_in_a_list_is_said_to_be_several(app):
    page = on_users(app)
    page.set(lengths="a list of lengths")
    page.set(length_list="900\n12,500")
    assert "“12,500” is read as 2 lengths; one number is written 12500." in captions(page)
    page.set(length_list="900, 12500")
    assert not any("is read as" in caption for caption in captions(page))


def test_the_page_says_which_length_the_95th_percentile_of_a_list_is(app):
    page = on_users(app)
    page.set(lengths="a list of lengths")
    page.set(length_list=" ".join(map(str, range(1, 41))))
    assert any("38 tokens at the 95th percentile, 40 tokens at most" in text for text in page.texts())  # 38 of 40
    assert "From 40 given lengths; 95 % of them are no longer than the 95th percentile" in captions(page)


def test_a_shared_prefix_is_held_once_for_all_users_of_a_replica(app):
    page = on_users(app, prefix="1k", overhead="0", fraction="1.0")
    page.set(users_at_once=10)
    at_p95 = page.tables()[0].iloc[1]
    token = 2 * 32 * 8 * 128 * 2  # keys and values of 32 layers, 8 KV heads of 128, in bf16
    room = kvplan.load_gpu("h100-sxm-80gb").usable_bytes - kvplan.load_model("llama-3.1-8b").weight_bytes()
    assert at_p95["cache bytes of all users"] == (1024 + 10 * (5120 - 1024)) * token
    assert at_p95["users a replica holds"] == (room - 1024 * token) // ((5120 - 1024) * token)


def test_lengths_shorter_than_the_shared_prefix_are_said_to_be_impossible(app):
    """The page's first lengths are 1,826 tokens on average."""
    said = "The shared prefix of 3,000 tokens is longer than the mean of 1,826 tokens"
    assert any(text.startswith(said) for text in on_users(app, prefix="3000").texts())
    assert not any("is longer than the mean" in text for text in on_users(app, prefix="1826").texts())


def test_what_keeps_engines_from_the_fewest_gpus_is_said_beside_them(app):
    """14,336 rows of Jamba's experts divide neither by 6 GPUs, the sidebar's, nor by 3, the fewest in replicas."""
    texts = on_users(app, model="jamba-v0.1", gpu="mi300x-192gb", batch="5000", kv="fp8", tp="2", dp="3").texts()
    rows = [text.split(":")[0] for text in texts if "do not divide by" in text]
    assert rows == [f"14,336 rows of routed experts do not divide by {gpus} GPUs" for gpus in (6, 3)]
    once = on_users(app, model="llama-3.1-8b", gpu="a16-16gb").texts()
    assert sum(text.startswith("The usable memory of A16") for text in once) == 1


def test_where_no_layout_holds_a_sequence_the_page_says_which_were_tried(app):
    texts = on_users(app, model="llama-3.1-405b", gpu="rtx-3070-8gb", fraction="0.3").texts()
    assert "No layout that was tried holds even one sequence." in texts
    assert "Tried: 1 GPU, each in 1 to 16 pipeline stages." in texts  # a node of one


def test_pairs_of_prompt_and_answer_are_added_up(app):
    page = on_users(app)
    page.set(lengths="prompt, answer pairs")
    page.set(length_list="prompt,answer\n100,20\n200,1\n")
    points = plan_users(LLAMA, 8, lengths_from_list([120, 201]))
    assert page.tables()[0]["tokens"].tolist() == [point.tokens for point in points]


@pytest.mark.parametrize(
    ("how", "text", "carried"),
    [
        ("a list of lengths", "100, 200;300\n4k", "100_200_300~4k"),
        ("a list of lengths", "tokens\n1_000\n\n2000\n", "tokens~1000~2000"),
        ("prompt, answer pairs", "prompt,answer\n100,20\n200,1\n", "prompt_answer~100_20~200_1"),
    ],
)
def test_a_pasted_list_travels_in_the_address(app, how, text, carried):
    page = on_users(app)
    page.set(lengths=how)
    page.set(length_list=text)
    assert in_address(page) == carried
    other = app()
    other.run.query_params.update({"lengths": how, "list": carried})
    other.go("users")
    assert not other.errors()
    assert other.tables()[0].equals(page.tables()[0])
    assert in_address(other) == carried


def test_a_list_too_long_for_the_address_says_so_and_is_not_in_it(app):
    page = on_users(app)
    page.set(lengths="a list of lengths")
    page.set(length_list="100 " * 1000)  # 3,999 characters with 999 separators
    assert len(in_address(page)) == 3999
    assert not any("too long for the address" in caption for caption in captions(page))
    page.set(length_list="100 " * 1000 + "1000")
    assert in_address(page) == ""
    assert any("too long for the address" in caption for caption in captions(page))
    assert page.tables()[0]["tokens"].tolist() == [101, 100, 1000]


def test_another_way_to_give_lengths_takes_the_list_out_of_the_address(app):
    page = on_users(app)
    page.set(lengths="a list of lengths")
    page.set(length_list="100")
    page.set(lengths="median and 95th percentile")
    assert in_address(page) == ""


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "![](https://example.org/x.png)", "5%00~%", "~~__~"])
def test_rubbish_of_an_address_is_refused_in_words(app, text):
    page = app()
    page.run.query_params.update({"lengths": "a list of lengths", "list": text})
    page.go("users")
    assert page.errors() == ["This cannot be planned"]


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


def test_a_replica_in_data_parallel_names_every_number_that_its_gpus_are_the_product_of(app):
    page = on_users(app, model="deepseek-v3", gpu="h200-141gb", ctx="32k", batch="100", tp="8", dp="2", ep="yes")
    assert page.metric("GPUs a replica") == "6"
    assert any(
        text.endswith("each replica on 6 GPUs: 3 pipeline stages of 1 GPU × 2 in data parallel.")
        for text in page.texts()
    )


def test_with_a_draft_model_the_fewest_gpus_say_why_no_stages_were_tried(app):
    said = f"P{why_no_stages(LLAMA.with_changes(draft_model='llama-3.2-1b'))[1:]}."
    assert said in on_users(app, draft="llama-3.2-1b").texts()
    assert said not in on_users(app).texts()


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
