"""Lists of modules: what each way of writing them matches, and what is refused."""

from __future__ import annotations

import pytest

from kvplan.blocks import gated_mlp, linear, pinned_matrix
from kvplan.errors import UnsupportedConfigError
from kvplan.importer.quantized.modules import (
    Matrix,
    ModuleList,
    bare_name,
    fragment_list,
    glob_list,
    matrices,
    name_list,
)
from kvplan.importer.quantized.names import MODULE_NAMES
from kvplan.importer.view import ConfigView
from kvplan.model import WeightGroup

VIEW = ConfigView({}, "config.json quantization_config")


@pytest.mark.parametrize(
    "name",
    ["layers.3.mlp.up_proj", "model.layers.3.mlp.up_proj", "language_model.model.layers.3.mlp.up_proj",
     "model.language_model.layers.3.mlp.up_proj", "transformer.layers.3.mlp.up_proj", "transformer.h.3.mlp.up_proj",
     "model.decoder.layers.3.mlp.up_proj", "transformer.blocks.3.mlp.up_proj"],
)  # fmt: skip
def test_a_bare_name_begins_with_the_layers(name: str) -> None:
    assert bare_name(name) == "layers.3.mlp.up_proj"


@pytest.mark.parametrize(
    ("entry", "held", "free"),
    [
        ("model.layers.1*", ["layers.1.mlp.up_proj", "layers.12.mlp.up_proj"], ["layers.2.mlp.up_proj"]),
        ("model.layers.1.*", ["layers.1.mlp.up_proj"], ["layers.12.mlp.up_proj"]),
        ("*.self_attn.*", ["layers.0.self_attn.q_proj"], ["layers.0.mlp.up_proj"]),
        ("model.layers.4.mlp", ["layers.4.mlp.up_proj"], ["layers.4.mlp2.up_proj", "layers.5.mlp.up_proj"]),
        ("model.layers.?.mlp.up_proj", ["layers.4.mlp.up_proj"], ["layers.44.mlp.up_proj"]),
        ("lm_head", ["lm_head"], ["lm_head2", "layers.0.lm_head"]),
    ],
)
def test_a_shell_pattern_matches_whole_names(entry: str, held: list[str], free: list[str]) -> None:
    found = glob_list(VIEW, [entry])
    assert [name for name in [*held, *free] if found.holds(name)] == held


@pytest.mark.parametrize(
    ("entry", "held", "free"),
    [
        ("model.layers.4.mlp.up_proj", ["layers.4.mlp.up_proj"], ["layers.4.mlp", "layers.44.mlp.up_proj"]),
        ("re:.*self_attn.*", ["layers.0.self_attn.q_proj"], ["layers.0.mlp.up_proj"]),
        ("re:vision_tower.*", [], ["layers.0.mlp.up_proj"]),
        ("re:.*lm_head", ["lm_head"], ["embed_tokens"]),
    ],
)
def test_an_expression_matches_from_the_beginning(entry: str, held: list[str], free: list[str]) -> None:
    found = name_list(VIEW, [entry])
    assert [name for name in [*held, *free] if found.holds(name)] == held


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("re:(a+)+b", "too involved"),
        ("re:" + "a" * 300, "too involved"),
        ("re:(", "no regular expression"),
        (r"re:.*\.h\.0\..*", "another name for the layers"),
        (r"re:transformer\.blocks\.0.*", "another name for the layers"),
        ("model.layers.0.mlp.experts.7.up_proj", "a single expert"),
    ],
)
def test_an_entry_that_cannot_be_followed_is_refused(entry: str, words: str) -> None:
    with pytest.raises(UnsupportedConfigError, match=words):
        name_list(VIEW, [entry])


def test_an_expression_whose_match_depends_on_the_wrapper_is_refused() -> None:
    found = name_list(VIEW, ["re:model\\.layers.*"])
    with pytest.raises(UnsupportedConfigError, match="depends on what stands before it"):
        found.holds("layers.0.mlp.up_proj")


def test_a_fragment_that_tools_match_differently_is_refused() -> None:
    with pytest.raises(UnsupportedConfigError, match="depends on the tool that reads it"):
        fragment_list(VIEW, ["gate"]).holds("layers.0.mlp.gate_proj")


def test_a_fragment_matches_wherever_it_stands() -> None:
    found = fragment_list(VIEW, ["model.layers.1.", "k_proj"])
    names = ["layers.1.mlp.up_proj", "layers.11.mlp.up_proj", "layers.3.self_attn.k_proj"]
    assert [found.holds(name) for name in names] == [True, False, True]


def llama_layer() -> list[WeightGroup]:
    return [*linear("attention_q", 8, 4, bias=True), *gated_mlp(4, 6), *pinned_matrix("mlp", 4, 4)]


def test_each_group_has_the_names_of_the_matrices_that_it_holds() -> None:
    found = matrices(llama_layer(), MODULE_NAMES["llama"])
    assert [(matrix.position, matrix.names) for matrix in found] == [
        (0, ("self_attn.q_proj",)),
        (2, ("mlp.gate_proj", "mlp.up_proj")),
        (3, ("mlp.down_proj",)),
    ]


def test_the_further_parts_of_a_fused_matrix_are_marked() -> None:
    groups = [*linear("attention_q", 8, 4), *linear("attention_k", 8, 4)]
    assert [matrix.fused for matrix in matrices(groups, MODULE_NAMES["qwen"])] == ["first", "part"]


def test_groups_that_are_not_the_expected_number_have_no_names() -> None:
    groups = linear("mlp", 6, 4)
    (matrix,) = matrices(groups, MODULE_NAMES["llama"])
    assert matrix.names == ()
    with pytest.raises(UnsupportedConfigError, match="the names of the modules with the dense MLP are not known"):
        glob_list(VIEW, []).leaves_out(matrix, 0)


def layers_of(count: int) -> list[list[Matrix]]:
    return [matrices(llama_layer(), MODULE_NAMES["llama"])] * count


@pytest.mark.parametrize(
    "entry",
    ["model.layers.1.mlp*", "model.layers.1*", "model.layers.1.mlp.gate", "model.layers.0.input_layernorm",
     "model.layers.7.other", "lm_head", "*.attn.*"],
)  # fmt: skip
def test_an_entry_for_a_known_matrix_a_norm_a_router_or_elsewhere_passes(entry: str) -> None:
    glob_list(VIEW, [entry]).require_known(layers_of(2))


@pytest.mark.parametrize("entry", ["model.layers.1.attn*", "model.layers.0.mlp.fc1"])
def test_an_entry_for_a_layer_that_names_none_of_its_matrices_is_refused(entry: str) -> None:
    found: ModuleList = glob_list(VIEW, [entry])
    with pytest.raises(UnsupportedConfigError, match="name of no matrix that is known"):
        found.require_known(layers_of(2))
