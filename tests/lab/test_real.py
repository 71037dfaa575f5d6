import sys

import pytest
import torch

from kvplan.cli import main
from kvplan.errors import InputError, LabError
from kvplan.lab.real import check_checkpoint

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def save(config_class, model_class, folder, **changes):
    torch.manual_seed(0)
    model = model_class(config_class(**{**SIZES, **changes}))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save(transformers.LlamaConfig, transformers.LlamaForCausalLM, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory):
    return save(transformers.Qwen2Config, transformers.Qwen2ForCausalLM, tmp_path_factory.mktemp("qwen2"))


@pytest.mark.parametrize("name", ["llama", "qwen2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_real_architecture_passes_and_says_so(name, dtype, request):
    result = check_checkpoint(request.getfixturevalue(name), num_new_tokens=6, dtype=dtype)
    assert result.passed
    assert result.max_abs_diff <= result.bar
    assert result.max_abs_logit > 0.1
    assert {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[name] in result.sentence


def test_every_row_of_two_generations_and_a_chunked_prefill_is_compared(llama):
    result = check_checkpoint(llama, prompt=[1, 2, 3, 4, 5], num_new_tokens=4)
    assert len(result.rows) == 3 * (5 + 4)
    assert {row.phase for row in result.rows} == {"prefill", "chunk", "decode"}
    assert result.tokens_equal


def test_a_cache_that_loses_its_decode_steps_is_caught(llama, monkeypatch):
    from kvplan.lab import real

    sound = real._cached

    def forgetful(model, tokens, cache):
        logits, held = sound(model, tokens, cache)
        if len(tokens) == 1:
            held.crop(-1)
        return logits, held

    monkeypatch.setattr(real, "_cached", forgetful)
    result = check_checkpoint(llama, num_new_tokens=4)
    assert not result.passed
    assert result.first_over_bar.phase == "decode"


def test_progress_is_told_and_can_stop_the_work(llama):
    seen = []
    check_checkpoint(llama, num_new_tokens=2, on_step=seen.append)
    assert seen[-1] == 1.0
    assert seen == sorted(seen)


def test_a_path_that_is_no_folder_is_refused_before_anything_is_fetched():
    with pytest.raises(LabError, match="no folder here"):
        check_checkpoint("some-org/some-model")


def test_a_folder_without_a_model_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(LabError, match="cannot be run as a causal language model"):
        check_checkpoint(tmp_path)


def test_weights_that_could_run_code_are_not_read(llama, tmp_path):
    (tmp_path / "config.json").write_text((llama / "config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    with pytest.raises(LabError, match="cannot be run"):
        check_checkpoint(tmp_path)


def test_without_transformers_the_message_says_what_to_install(llama, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(LabError, match="pip install transformers"):
        check_checkpoint(llama)


def test_bad_input_is_refused(llama):
    with pytest.raises(InputError, match="token id"):
        check_checkpoint(llama, prompt=[1, 2, 99])
    with pytest.raises(InputError, match="num_new_tokens"):
        check_checkpoint(llama, num_new_tokens=0)
    with pytest.raises(InputError, match="dtype"):
        check_checkpoint(llama, dtype="int3")


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_the_terminal_says_whether_a_checkpoints_cache_is_exact(name, request, capsys):
    status = main(["parity", str(request.getfixturevalue(name)), "--steps", "4"])
    out = capsys.readouterr().out
    assert status == 0
    assert out.strip() == check_checkpoint(request.getfixturevalue(name), num_new_tokens=4).sentence


def test_the_terminal_refuses_a_folder_without_a_model(tmp_path, capsys):
    assert main(["parity", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("kvplan: ")
