"""Links: every setting, version 1's defaults for ever, own models inside, and what a damaged link still opens."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import presets
from kvplan.errors import KvplanError, LinkError
from kvplan.hardware import define_gpu
from kvplan.library import MODEL, fingerprint, save, version
from kvplan.plan import Scenario, plan
from kvplan.presets import SHIPPED, save_gpu, save_model
from kvplan.share import (
    FIELDS,
    LINK_KEYS,
    MAX_LINK_CHARACTERS,
    OpenedLink,
    comparison_keys,
    from_comparison_link,
    from_fields,
    from_link,
    open_comparison,
    open_comparison_fields,
    open_fields,
    open_link,
    to_comparison_link,
    to_fields,
    to_link,
    written_fields,
)
from kvplan.units import GIB, TIB, counted_and
from tests.examples import LLAMA_8B, gpus, models, scenarios

MODEL_PRESET = replace(LLAMA_8B, id="llama")
GPU_PRESET = replace(define_gpu(name="A card", usable_bytes=24 * GIB, usable_range=(GIB, 24 * GIB)), id="card")
OWN_MODEL = LLAMA_8B.with_kv_heads(4)
OWN_GPU = define_gpu(name="My card", usable_bytes=12 * GIB, bandwidth=10**12, rent_usd_per_hour=0.25)
COMPARISONS = Path(__file__).parent / "data" / "comparisons_v1.txt"
FROZEN = Path(__file__).parent / "data" / "links_v1.txt"


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of one model and one GPU, which every kvplan of these tests ships."""
    for name in ("models", "gpus"):
        (tmp_path / name).mkdir()
    save_model(MODEL_PRESET, tmp_path / "models")
    save_gpu(GPU_PRESET, tmp_path / "gpus")
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(tmp_path))
    monkeypatch.setattr(presets, "SHIPPED", tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The same library for tests of many examples."""
    folder = tmp_path_factory.mktemp("presets")
    for name in ("models", "gpus"):
        (folder / name).mkdir()
    save_model(MODEL_PRESET, folder / "models")
    save_gpu(GPU_PRESET, folder / "gpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVPLAN_PRESETS_DIR", str(folder))
        patch.setattr(presets, "SHIPPED", folder)
        yield


# ---------------------------------------------------------------------------------------------------------- writing


def test_every_setting_of_a_scenario_is_in_its_link() -> None:
    assert {field.setting for field in FIELDS} == {item.name for item in fields(Scenario)}
    assert len({field.key for field in FIELDS}) == len(FIELDS)


def test_a_link_written_out() -> None:
    scenario = Scenario(
        "llama", "card", context_length=32768, kv_dtype="q8_0/q4_0", weight_dtype="mxfp4", num_kv_heads=4
    )
    assert to_link(scenario) == (
        "?v=1&model=llama&gpu=card&ctx=32768&batch=8&kv=q8_0%2Fq4_0&weights=mxfp4&heads=4&tp=1&pp=1&fraction=0.9"
        f"&overhead=&images=0&prefix=0&adapters=0&draft=&engine=&dp=1&ep=no&mfp={fingerprint(MODEL_PRESET)}"
        f"&gfp={fingerprint(GPU_PRESET)}"
    )


def test_an_own_model_and_gpu_travel_inside_with_their_ids() -> None:
    scenario = Scenario(replace(OWN_MODEL, id="my-8b"), OWN_GPU, draft_model=OWN_MODEL)
    written = to_fields(scenario)
    assert (written["model"], written["gpu"]) == ("my-8b", "")
    assert {"model_file", "gpu_file", "draft_file"} <= set(written)
    assert not {"mfp", "gfp", "dfp"} & set(written)
    opened = open_fields(written)
    assert opened.scenario == scenario
    assert opened.scenario.model.id == "my-8b"
    assert opened.carried == {"model", "gpu", "draft_model"}
    assert opened.troubles == ()


def test_a_file_key_is_the_preset_file_packed() -> None:
    packed = to_fields(Scenario(MODEL_PRESET, OWN_GPU))["gpu_file"]
    table = json.loads(zlib.decompress(base64.urlsafe_b64decode(packed + "==")))
    assert (table["name"], table["usable_bytes"]) == ("My card", 12 * 2**30)


def test_a_changed_copy_of_a_preset_travels_inside_and_never_passes_as_the_preset() -> None:
    scenario = Scenario(replace(OWN_MODEL, id="llama"), replace(GPU_PRESET, usable_bytes=GIB))
    opened = open_link(to_link(scenario))
    assert opened.scenario == scenario
    assert opened.scenario.model.num_kv_heads == 4
    assert opened.carried == {"model", "gpu"}


def test_a_preset_of_this_library_alone_travels_inside_but_is_found_again_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(presets, "SHIPPED", tmp_path / "elsewhere")
    opened = open_link(to_link(Scenario("llama", "card")))
    assert opened.scenario == Scenario("llama", "card")
    assert opened.carried == frozenset()


def test_what_does_not_fit_into_a_link_is_refused_with_what_to_do() -> None:
    words = "".join(hashlib.sha256(bytes([index])).hexdigest() for index in range(200))
    with pytest.raises(LinkError, match=r"at most 8,000 are read: send the model as a preset file instead"):
        to_link(Scenario(replace(OWN_MODEL, notes=(words,)), "card"))


def test_a_model_that_would_not_read_back_is_refused_when_the_link_is_made() -> None:
    with pytest.raises(LinkError, match="cannot travel in a link: the model inside it: name is '<b>x</b>'"):
        to_link(Scenario(replace(OWN_MODEL, name="<b>x</b>"), "card"))


@st.composite
def linkable(draw: st.DrawFn) -> Scenario:
    """Random scenarios of presets, own models and own GPUs, with every extra."""
    base = draw(scenarios())
    changes: dict[str, Any] = {"model": draw(st.sampled_from([base.model, replace(base.model, id="my-own"), LLAMA_8B]))}
    changes["gpu"] = draw(st.sampled_from([base.gpu, replace(base.gpu, id="my-gpu"), GPU_PRESET]))
    changes["tensor_parallel"] = draw(st.sampled_from([1, 2, 4]))
    changes["draft_model"] = draw(st.sampled_from([None, MODEL_PRESET, LLAMA_8B]) | models)
    changes["pipeline_parallel"] = 1
    return Scenario(**{item.name: getattr(base, item.name) for item in fields(Scenario)} | changes)


@pytest.mark.usefixtures("lasting")
@given(linkable())
def test_every_link_reads_back_to_the_scenario_that_it_came_from(scenario: Scenario) -> None:
    link = to_link(scenario)
    assert len(link) <= MAX_LINK_CHARACTERS
    assert from_link(link) == scenario
    assert set(to_fields(scenario)) <= LINK_KEYS


@pytest.mark.usefixtures("lasting")
@given(st.lists(linkable(), min_size=2, max_size=4))
def test_every_comparison_reads_back(compared: list[Scenario]) -> None:
    assert from_comparison_link(to_comparison_link(compared)) == tuple(compared)


# ------------------------------------------------------------------------------------------- links that were released

FIRST_LINKS = {
    "?v=1&model=llama&gpu=card": {},
    "?v=1&model=llama&gpu=card&ctx=32k&batch=1&kv=fp8": {"context_length": 32768, "batch_size": 1, "kv_dtype": "fp8"},
    "?v=1&model=llama&gpu=card&weights=&heads=&overhead=": {},
    "?v=1&gpu=card&model=llama&tp=2&pp=4&fraction=0.85": {
        "tensor_parallel": 2, "pipeline_parallel": 4, "memory_fraction": 0.85,
    },
    "?v=1&model=llama&gpu=card&draft=llama&prefix=7&images=576&adapters=1MiB": {
        "draft_model": MODEL_PRESET, "shared_prefix": 7, "image_tokens": 576, "adapter_bytes": 2**20,
    },
}  # fmt: skip
"""Links of version 1 as once written: what they mean never changes."""

VERSION_1_DEFAULTS = {
    "context_length": 8192,
    "batch_size": 8,
    "kv_dtype": "bf16",
    "weight_dtype": None,
    "num_kv_heads": None,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "memory_fraction": 0.9,
    "overhead_bytes": None,
    "image_tokens": 0,
    "shared_prefix": 0,
    "adapter_bytes": 0,
    "draft_model": None,
    "engine": None,
    "data_parallel": 1,
    "expert_parallel": False,
}


@pytest.mark.parametrize(("link", "settings"), FIRST_LINKS.items(), ids=range(len(FIRST_LINKS)))
def test_a_link_of_version_1_means_what_it_always_meant(link: str, settings: dict[str, object]) -> None:
    assert from_link(link) == Scenario("llama", "card", **{**VERSION_1_DEFAULTS, **settings})


FROZEN_LINKS = [line.split("\t") for line in FROZEN.read_text(encoding="utf-8").splitlines()]


FROZEN_COMPARISONS = [line.split("\t") for line in COMPARISONS.read_text(encoding="utf-8").splitlines()]
CARRYING = [row for row in FROZEN_LINKS if "model_file" in row[0]]


def require_meaning(opened: OpenedLink, expected: dict[str, object]) -> None:
    """What a released link stands for: every setting, and nothing worse than a preset that changed since."""
    assert opened.scenario is not None
    assert all("has changed since the link was made" in text for text in opened.troubles)
    for field in FIELDS:
        found = getattr(opened.scenario, field.setting)
        named = found.name if field.setting in ("model", "gpu", "draft_model") and found else found
        assert named == expected.get(field.setting, field.default)  # a setting that came later has its default


@pytest.fixture
def _shipped_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVPLAN_PRESETS_DIR")
    monkeypatch.setattr(presets, "SHIPPED", SHIPPED)


@pytest.mark.usefixtures("_shipped_presets")
@pytest.mark.parametrize(("link", "meaning"), FROZEN_LINKS, ids=range(len(FROZEN_LINKS)))
def test_every_link_ever_released_still_opens(link: str, meaning: str) -> None:
    require_meaning(open_link(link), json.loads(meaning))


@pytest.mark.usefixtures("_shipped_presets")
@pytest.mark.parametrize(("link", "meanings"), FROZEN_COMPARISONS, ids=range(len(FROZEN_COMPARISONS)))
def test_every_comparison_ever_released_still_opens(link: str, meanings: str) -> None:
    for opened, expected in zip(open_comparison(link), json.loads(meanings), strict=True):
        require_meaning(opened, expected)


@pytest.mark.parametrize(("link", "meaning"), CARRYING, ids=range(len(CARRYING)))
def test_a_released_link_that_carries_its_model_gives_the_same_bytes_for_ever(link: str, meaning: str) -> None:
    expected = json.loads(meaning)
    gpu = "" if "gpu_file" in link else "&gpu=card"  # these bytes do not depend on the GPU
    p = plan(from_link(link.replace("&gpu=h100-sxm-80gb", gpu).replace("&gfp=eaf0f1a7", "")))
    assert (p.weight_bytes, p.cache_bytes) == (expected["weight_bytes"], expected["cache_bytes"])


# ---------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("address", ["http://localhost:8501/{}", "{}#part", " {} ", "https://a.b/c/{}#d"])
def test_a_whole_address_is_read(address: str) -> None:
    scenario = Scenario("llama", "card", overhead_bytes=2 * TIB, adapter_bytes=2 * TIB)
    assert from_link(address.format(to_link(scenario))) == scenario


def test_the_question_mark_may_be_missing() -> None:
    assert from_link("v=1&model=llama&gpu=card") == from_link("?v=1&model=llama&gpu=card")


def test_a_link_whose_ampersands_a_mail_has_escaped_is_read() -> None:
    assert from_link("?v=1&amp;model=llama&amp;gpu=card&amp;batch=3").batch_size == 3


REFUSALS = [
    ("", "version is missing; this kvplan reads v=1"),
    ("?v=2&model=llama&gpu=card", "version is 2; this kvplan reads v=1"),
    ("?v=1&gpu=card", "the link names no model"),
    ("?v=1&model=llama", "the link names no GPU"),
    ("?v=1&model=lama&gpu=card", "model cannot be used: no model is called 'lama'; did you mean llama"),
    ("?v=1&model=../card&gpu=card", "no model is called"),
    ("?v=1&model=llama&gpu=card&contxt=5", "the unknown key 'contxt'"),
    ("?v=1&model=llama&gpu=card&b.ctx=5", "compares 2 scenarios; the first stands"),
    ("?v=1&model=llama&gpu=card&ctx=", "the link's ctx: number is ''"),
    ("?v=1&model=llama&gpu=card&ctx=0", "the link's ctx cannot be planned: context_length is 0"),
    ("?v=1&model=llama&gpu=card&ctx=-5", "the link's ctx: number is '-5'"),
    ("?v=1&model=llama&gpu=card&ctx=1e9", "the link's ctx: number is '1e9'"),
    ("?v=1&model=llama&gpu=card&ctx=" + "9" * 5000, "the link's ctx: number is '999"),
    ("?v=1&model=llama&gpu=card&fraction=x", "the link's fraction: 'x' is not a number"),
    ("?v=1&model=llama&gpu=card&fraction=nan", "memory_fraction is nan"),
    ("?v=1&model=llama&gpu=card&fraction=2", "memory_fraction is 2.0"),
    ("?v=1&model=llama&gpu=card&kv=fp9", "no kv dtype is called 'fp9'"),
    ("?v=1&model=llama&gpu=card&tp=3", "do not divide by tensor_parallel=3"),
    ("?v=1&model=llama&gpu=card&heads=3", "num_kv_heads is 3"),
    ("?v=1&model=llama&gpu=card&draft=lama", "draft model cannot be used: no model is called 'lama'"),
    ("?v=1&model=llama&gpu=card&ctx=1&ctx=2", "the key 'ctx' twice; the first stands"),
    ("?v=1&model=llama&gpu=card&tp=1&ctx=1&ctx=2&tp=2", "the keys 'ctx' and 'tp' twice; the first of each stands"),
    ("?" + "&".join(f"{key}=1&{key}=2" for key in "abcdefg"), "'a' and 'b' and 'c' and 'd' and 'e' and 2 more twice"),
    ("?v=1&model=llama&gpu=card&engine=x", "no engine is called 'x'"),
    ("?v=1&model=llama&gpu=card&mfp=1", r"the link's fingerprint of the model \(mfp\) is '1'; 8 hex digits are needed"),
    ("?v=1&model=llama&gpu=card&mfp=00000000", "the model An 8B of the Llama layout has changed since"),
    ("?v=1&model=llama&gpu=card&model_file=x", "the link's model cannot be read: it is damaged"),
    ("?" + "&".join(f"k{i}=1" for i in range(500)), "too many keys"),
    ("?v=1&model=" + "a" * MAX_LINK_CHARACTERS, "characters; at most 8,000 are read"),
]


@pytest.mark.parametrize(("link", "reason"), REFUSALS, ids=range(len(REFUSALS)))
def test_a_link_that_cannot_be_read_is_refused_with_its_key(link: str, reason: str) -> None:
    with pytest.raises(LinkError, match=reason) as error:
        from_link(link)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(("link", "reason"), REFUSALS, ids=range(len(REFUSALS)))
def test_what_the_strict_reading_refuses_the_other_opens_and_says_so(link: str, reason: str) -> None:
    opened = open_link(link, fallback=Scenario("llama", "card", context_length=7))
    assert opened.scenario is not None
    assert opened.troubles
    assert opened.sentence.startswith(opened.troubles[0])
    assert opened.scenario.context_length in (1, 8192)  # the link's own, or version 1's default: not the fallback's


def test_a_damaged_link_keeps_every_setting_that_can_be_read() -> None:
    opened = open_link("?v=1&model=llama&gpu=card&ctx=4k&batch=oops&kv=fp8&tp=3&heads=4&frac=1")
    assert opened.scenario == Scenario("llama", "card", context_length=4096, kv_dtype="fp8", num_kv_heads=4)
    assert opened.troubles == (
        "the link has the unknown key 'frac'",
        "the link's batch: number is 'oops'; write a whole number such as 8192 or 32k",
        (
            "the link's tp cannot be planned: An 8B of the Llama layout has 32 attention heads, which do not divide "
            "by tensor_parallel=3; choose a divisor of 32"
        ),
    )
    assert opened.sentence == "; ".join([*opened.troubles, opened.lacking])


def save_unknown_weights(folder: Path) -> None:
    """A model of which nobody knows how its checkpoint stores the weights, as `unknown`."""
    save_model(replace(MODEL_PRESET, id="unknown", name="Unknown", storage_unknown="no scales"), folder / "models")


def test_a_model_whose_stored_weights_nobody_knows_opens_in_bf16_and_not_as_another_model(shipped: Path) -> None:
    save_unknown_weights(shipped)
    opened = open_link("?v=1&model=unknown&gpu=card&ctx=4k", Scenario("llama", "card"))
    assert opened.scenario == Scenario("unknown", "card", context_length=4096, weight_dtype="bf16")
    (trouble,) = opened.troubles
    assert trouble.startswith("the link's weights cannot be planned: how the checkpoint of Unknown stores its weights ")
    assert trouble.endswith("choose a weight dtype, such as bf16 (bf16 stands in)")


def test_the_weight_dtype_of_such_a_model_is_kept_where_something_else_of_the_link_is_wrong(shipped: Path) -> None:
    save_unknown_weights(shipped)
    opened = open_link("?v=1&model=unknown&gpu=card&weights=fp8&tp=3&ctx=4k")
    assert opened.scenario == Scenario("unknown", "card", context_length=4096, weight_dtype="fp8")
    assert [trouble.split(":")[0] for trouble in opened.troubles] == ["the link's tp cannot be planned"]


def test_a_link_cut_anywhere_opens_or_says_why_not() -> None:
    link = to_link(Scenario(OWN_MODEL, OWN_GPU, context_length=4096))
    for end in range(0, len(link), 7):
        opened = open_link(link[:end], Scenario("llama", "card"))
        assert opened.scenario is not None
        assert opened.troubles


def test_a_link_cut_before_a_draft_model_of_ones_own_says_so() -> None:
    link = to_link(Scenario("llama", "card", draft_model=OWN_MODEL))
    assert open_link(link).sentence == ""
    assert [end for end in range(len(link)) if not open_link(link[:end]).sentence] == []


LACKS = "the link was cut or edited, and what it lacks is as usual: "
SETTINGS_AFTER_TP = "pp, fraction, overhead, images, prefix, adapters, draft, engine, dp, ep"


@pytest.mark.usefixtures("lasting")
@given(linkable(), st.data())
def test_every_part_of_a_link_but_the_whole_says_what_it_lacks(scenario: Scenario, data: st.DataObject) -> None:
    link = to_link(scenario)
    end = data.draw(st.one_of(st.integers(0, len(link) - 1), st.integers(len(link) - 30, len(link) - 1)))
    assert open_link(link[:end]).sentence
    assert open_link(link).sentence == ""


@pytest.mark.usefixtures("lasting")
@given(linkable(), st.data())
def test_every_setting_that_a_link_lacks_is_named(scenario: Scenario, data: st.DataObject) -> None:
    fields = to_fields(scenario)
    settings = [field.key for field in FIELDS if field.key not in ("model", "gpu", "draft", "dp", "ep")]
    lost = data.draw(st.lists(st.sampled_from(settings), min_size=1, unique=True))
    opened = open_fields({key: text for key, text in fields.items() if key not in lost})
    assert opened.lacking == LACKS + ", ".join(key for key in settings if key in lost)
    for key, field in ((field.key, field) for field in FIELDS if field.key in lost and opened.troubles == ()):
        assert getattr(opened.scenario, field.setting) == field.default, key


def test_a_link_of_presets_cut_among_its_settings_says_where() -> None:
    link = to_link(Scenario("llama", "card", context_length=4096, tensor_parallel=16, memory_fraction=0.85))
    for end in range(link.index("&ctx="), len(link)):
        opened = open_link(link[:end])
        assert opened.scenario is not None
        assert opened.sentence, link[:end]
    assert open_link(link[: link.index("=16") + 2]).sentence == LACKS + SETTINGS_AFTER_TP
    assert open_link(link[: link.index("&mfp=")]).sentence == (
        "the link was cut or edited: it lacks the fingerprint of the model and of the GPU, so nothing tells what has "
        "changed since"
    )


def test_a_link_cut_among_its_settings_is_refused_by_the_strict_reading() -> None:
    link = to_link(Scenario("llama", "card", tensor_parallel=16))
    with pytest.raises(LinkError, match=LACKS + SETTINGS_AFTER_TP):
        from_link(link[: link.index("=16") + 3])


def test_a_link_from_before_data_parallelism_lacks_nothing() -> None:
    fields = to_fields(Scenario("llama", "card"))
    assert open_fields({key: text for key, text in fields.items() if key not in ("dp", "ep")}).sentence == ""


def test_a_cut_side_of_a_comparison_says_so() -> None:
    link = to_comparison_link([Scenario("llama", "card"), Scenario("llama", "card", tensor_parallel=2)])
    first, second = open_comparison(link[: link.index("&b.pp")])
    assert first.sentence == ""
    assert second.sentence == "scenario B of the link: " + LACKS + SETTINGS_AFTER_TP


def test_sentences_on_scenarios_of_one_link_say_which_each_is_about() -> None:
    fields = {key: text for key, text in to_fields(Scenario("llama", "card")).items() if key != "ctx"}
    damaged = {**fields, "tp": "many", "c.tp": "many"} | {
        f"c.{key}": text for key, text in fields.items() if key != "tp"
    }
    first, third = open_comparison_fields(damaged)
    for letter, opened in (("A", first), ("C", third)):
        trouble, lacking = opened.sentence.split("; ")[0], opened.sentence.rpartition("; ")[2]
        assert trouble.startswith(f"scenario {letter} of the link: the link's tp: number is 'many'")
        assert lacking == f"scenario {letter} of the link: {LACKS}ctx"
    with pytest.raises(LinkError, match="scenario A of the link: the link's tp"):
        from_comparison_link("?" + urlencode(damaged))


@pytest.mark.parametrize("text", [None, 7, b"?v=1", {"v": "1"}])
def test_a_link_that_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(LinkError, match=r"the link is .*; a text is needed"):
        from_link(text)


def test_without_a_fallback_a_link_without_a_model_opens_no_scenario() -> None:
    opened = open_link("?v=1&model=nothing&gpu=card")
    assert opened.scenario is None
    assert opened.sentence.startswith("the link's model cannot be used: no model is called 'nothing'")


def test_a_stand_in_is_named() -> None:
    opened = open_link("?v=1&gpu=card&batch=2", Scenario("llama", "card"))
    assert opened.scenario == Scenario("llama", "card", batch_size=2)
    assert opened.troubles == ("the link names no model (An 8B of the Llama layout stands in)",)


def test_many_troubles_still_make_one_sentence() -> None:
    opened = open_link("?v=1&model=llama&gpu=card&ctx=x&batch=x&tp=x&pp=x&prefix=x")
    assert len(opened.troubles) == 5
    assert f"; and 2 more; {LACKS}kv, weights, heads" in opened.sentence


# ------------------------------------------------------------------------------------------------ changed presets


def test_a_preset_that_changed_since_says_what_changed_where_its_old_version_is_kept() -> None:
    link = to_link(Scenario("llama", "card"))
    save(replace(MODEL_PRESET, context_limit=4096), version(MODEL, "llama"))
    opened = open_link(link)
    assert opened.scenario == Scenario("llama", "card")
    assert opened.troubles == (
        "the model An 8B of the Llama layout has changed since the link was made: context_limit was 131072, is 4096",
    )
    with pytest.raises(LinkError, match="has changed since the link was made"):
        from_link(link)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers": OWN_MODEL.layers}, "what its layers keep and its weights or other figures changed"),
        ({"context_limit": 5}, "its weights or other figures changed"),
    ],
)
def test_without_the_old_version_it_says_which_half_changed(shipped: Path, change: dict[str, Any], words: str) -> None:
    link = to_link(Scenario("llama", "card"))
    (shipped / "models" / "llama.toml").unlink()
    save_model(replace(MODEL_PRESET, **change), shipped / "models")
    assert open_link(link).sentence.endswith(f"since the link was made: {words}")


def test_a_changed_gpu_says_that_its_memory_changed(shipped: Path) -> None:
    link = to_link(Scenario("llama", "card"))
    save_gpu(replace(GPU_PRESET, usable_bytes=GIB), shipped / "gpus")
    assert open_link(link).sentence.endswith("its usable memory changed")


def test_new_prices_names_and_sources_do_not_change_a_fingerprint(shipped: Path) -> None:
    link = to_link(Scenario("llama", "card"))
    save_gpu(replace(GPU_PRESET, name="Renamed", prices=OWN_GPU.prices, sources=("other",)), shipped / "gpus")
    save_model(replace(MODEL_PRESET, source="other", notes=("new",)), shipped / "models")
    assert open_link(link).troubles == ()


def test_fingerprints_are_digests_of_the_figures_and_alike_everywhere() -> None:
    assert fingerprint(LLAMA_8B) == "8ecba169"
    assert fingerprint(define_gpu(name="A", usable_bytes=2**30)) == fingerprint(
        define_gpu(name="B", usable_bytes=2**30)
    )


@given(gpus, gpus)
def test_gpus_of_different_memory_have_different_fingerprints(a: Any, b: Any) -> None:
    assert (fingerprint(a) == fingerprint(b)) == ((a.usable_bytes, a.bandwidth) == (b.usable_bytes, b.bandwidth))


# ------------------------------------------------------------------------------------------------------- comparison


def test_a_comparison_is_the_first_link_and_the_keys_of_the_others_with_a_letter() -> None:
    first, second = Scenario("llama", "card"), Scenario("llama", "card", batch_size=3)
    link = to_comparison_link([first, second])
    assert link.startswith(to_link(first))
    assert "&b.v=1&b.model=llama" in link
    assert from_comparison_link(link) == (first, second)
    opened = open_link(link)
    assert opened.scenario == first
    assert opened.troubles == ("the link compares 2 scenarios; the first stands",)


def test_a_link_of_one_scenario_is_a_comparison_of_one() -> None:
    assert [opened.scenario for opened in open_comparison(to_link(Scenario("llama", "card")))] == [
        Scenario("llama", "card")
    ]


def test_each_side_of_a_damaged_comparison_says_its_own_trouble() -> None:
    first, second = open_comparison("?v=1&model=llama&gpu=card&b.v=1&b.model=llama&b.gpu=card&b.ctx=x")
    assert first.troubles == ()
    said = "scenario B of the link: the link's ctx: number is 'x'; write a whole number such as 8192 or 32k"
    assert second.troubles == (said,)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_comparison_has_two_to_four_sides(count: int) -> None:
    with pytest.raises(LinkError, match=f"{counted_and(count, 'scenario', 'are')} given; a comparison has 2 to 4"):
        to_comparison_link([Scenario("llama", "card")] * count)


def test_every_key_of_a_comparison_is_listed() -> None:
    link = to_comparison_link([Scenario("llama", OWN_GPU)] * 4)
    assert {pair.partition("=")[0] for pair in link[1:].split("&")} <= set(comparison_keys())


# ------------------------------------------------------------------------------------------------------------- any


KEYS = st.sampled_from([*sorted(LINK_KEYS), "x", "b.ctx"])
VALUES = st.text(max_size=12) | st.sampled_from(["1", "llama", "card", "8k", "fp8", "0.5", "", "%", "999999999999"])


@pytest.mark.usefixtures("lasting")
@given(st.dictionaries(KEYS, VALUES))
def test_only_a_kvplan_error_comes_out_of_a_broken_link(given_fields: dict[str, str]) -> None:
    valid = {"v": "1", "model": "llama", "gpu": "card"}
    for pairs in (given_fields, {**valid, **given_fields}, {**given_fields, **valid}):
        opened = open_fields(pairs)
        assert opened.scenario is not None or opened.troubles
        try:
            message = to_link(from_fields(pairs))
        except KvplanError as error:
            message = str(error)
        assert message


@pytest.mark.usefixtures("lasting")
@given(st.text(max_size=200))
def test_any_text_is_a_link_or_a_kvplan_error(text: str) -> None:
    for link in (text, "?v=1&model=llama&gpu=card&" + text):
        try:
            message = to_link(from_link(link))
        except KvplanError as error:
            message = str(error)
        assert message
        assert open_comparison(link)


# -------------------------------------------------------------------------------------------------- pages' own keys


@pytest.mark.parametrize(
    "key", ["q", "unit", "fleet_gpus", "lab_step", "line_contexts", "users_at_once", "shelf", "list", "start_gpu"]
)
def test_a_pages_own_key_in_a_copied_address_is_no_trouble(key: str) -> None:
    scenario = Scenario("llama", "card")
    assert from_link(f"http://localhost:8501/sweep{to_link(scenario)}&{key}=anything") == scenario


@pytest.mark.parametrize("key", ["contxt", "Q", "quantity", "modelx"])
def test_a_key_that_is_neither_the_links_nor_a_pages_is_refused(key: str) -> None:
    with pytest.raises(LinkError, match="unknown key"):
        from_link(f"{to_link(Scenario('llama', 'card'))}&{key}=1")


def test_equal_models_of_other_words_are_not_mixed_up_in_links() -> None:
    first, second = (Scenario(replace(LLAMA_8B, id="my-own", notes=(note,)), GPU_PRESET) for note in ("one", "two"))
    assert first == second  # words are no part of what a plan is computed from
    assert [from_link(to_link(s)).model.notes for s in (first, second, first)] == [("one",), ("two",), ("one",)]


def test_settings_that_are_no_plan_are_written_all_the_same() -> None:
    fields = written_fields({"model": LLAMA_8B, "tensor_parallel": 3, "context_length": "lots"})
    assert (fields["tp"], fields["ctx"], fields["gpu"], fields["batch"]) == ("3", "lots", "", "8")
