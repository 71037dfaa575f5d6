"""Outside truth: transformers' own GPT-2, Llama and Qwen2 at tiny size, every weight, bias and norm randomised."""

import pytest
import torch

from kvplan.errors import InputError
from kvplan.lab.caches import DynamicCache, StaticCache
from kvplan.lab.weights import from_gpt2, from_llama

transformers = pytest.importorskip("transformers")

IDS = torch.randint(0, 61, (2, 12), generator=torch.Generator().manual_seed(3))


def randomised(model):
    """Biases start at zero and norms at one, which hides errors: so every parameter is drawn anew."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            scale = weight.shape[-1] ** -0.5 if weight.ndim == 2 else 0.3
            weight.copy_(noise * scale + (1 if "norm" in name or "ln_" in name else 0) * (weight.ndim == 1))
    return model.eval()


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=61, n_positions=32, n_embd=24, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return randomised(transformers.GPT2LMHeadModel(config))


def llama(**changes):
    config = transformers.LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        **changes,
    )
    return randomised(transformers.LlamaForCausalLM(config))


def qwen2():
    config = transformers.Qwen2Config(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    return randomised(transformers.Qwen2ForCausalLM(config))


def outside_logits(model):
    with torch.no_grad():
        return model(IDS, use_cache=False).logits


def cached_logits(model, cache):
    parts = [model(IDS[:, :5], cache), model(IDS[:, 5:8], cache)]
    return torch.cat(parts + [model(IDS[:, t : t + 1], cache) for t in range(8, 12)], 1)


def relative(mine, theirs):
    return float((mine - theirs).abs().max() / theirs.abs().max())


CASES = {
    "gpt2": (gpt2, lambda w: from_gpt2(w, 4)),
    "llama": (llama, lambda w: from_llama(w, 4, 2)),
    "llama with wider heads and another theta": (
        lambda: llama(head_dim=12, rope_theta=500.0, rms_norm_eps=1e-5),
        lambda w: from_llama(w, 4, 2, rope_theta=500.0, norm_eps=1e-5),
    ),
    "qwen2 with biases and a tied head": (qwen2, lambda w: from_llama(w, 4, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_transformers_without_and_with_a_cache(name):
    make, load = CASES[name]
    theirs = make()
    mine = load(theirs.state_dict())
    truth = outside_logits(theirs)
    assert relative(mine(IDS), truth) < 1e-5
    assert relative(cached_logits(mine, DynamicCache(mine, 2)), truth) < 1e-5
    assert relative(cached_logits(mine, StaticCache(mine, 2, 12)), truth) < 1e-5


def test_gpt2_weights_without_a_qkv_bias_load_as_a_bias_of_zero():
    theirs = gpt2()
    with torch.no_grad():
        for block in theirs.transformer.h:
            block.attn.c_attn.bias.zero_()
    weights = {name: w for name, w in theirs.state_dict().items() if not name.endswith("c_attn.bias")}
    mine = from_gpt2(weights, 4)
    assert not mine.shape.qkv_bias
    assert relative(mine(IDS), outside_logits(theirs)) < 1e-5


def test_a_missing_or_unknown_weight_is_refused_by_name():
    weights = llama().state_dict()
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(InputError, match=r"blocks\.1\.up\.weight"):
        from_llama(weights, 4, 2)
    with pytest.raises(InputError, match="wte"):
        from_gpt2(weights, 4)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(InputError, match="5 heads"):
        from_gpt2(gpt2().state_dict(), 5)
