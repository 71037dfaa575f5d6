"""Published weight layouts, read into a `TinyDecoder`.

    TinyDecoder                    GPT-2 (after `transformer.`)     Llama, Qwen2 (after `model.`)
    embedding.weight               wte.weight                       embed_tokens.weight
    position_embedding.weight      wpe.weight                       (rotary)
    blocks.N.attention_norm.*      h.N.ln_1.*                       layers.N.input_layernorm.weight
    blocks.N.q / k / v.*           h.N.attn.c_attn.* (thirds)       layers.N.self_attn.q_proj / k_proj / v_proj.*
    blocks.N.out.*                 h.N.attn.c_proj.*                layers.N.self_attn.o_proj.weight
    blocks.N.mlp_norm.*            h.N.ln_2.*                       layers.N.post_attention_layernorm.weight
    blocks.N.gate.weight           (none)                           layers.N.mlp.gate_proj.weight
    blocks.N.up / down.*           h.N.mlp.c_fc / c_proj.*          layers.N.mlp.up_proj / down_proj.weight
    norm.*                         ln_f.*                           norm.weight
    head.weight                    lm_head.weight, else wte         lm_head.weight, else embed_tokens

GPT-2 keeps its matrices as (in, out) and `nn.Linear` as (out, in), so those are transposed. Another layout loads
through `model.load_state_dict`, under the names on the left.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kvplan.errors import InputError
from kvplan.lab.limits import DTYPES, dtype_name
from kvplan.lab.model import TinyDecoder
from kvplan.units import counted_and

Weights = Mapping[str, Tensor]


def from_gpt2(weights: Weights, num_attention_heads: int, dtype: str = "float32") -> TinyDecoder:
    """A decoder with GPT-2's weights, sizes read from their shapes; `attn.c_attn.bias` may be absent.

    weights: the `state_dict()` of a `GPT2LMHeadModel` or `GPT2Model`.
    """
    plain = _without_prefix(weights, "transformer.")
    vocab_size, hidden = _shape(plain, "wte.weight")
    model = TinyDecoder(
        num_layers=_count(plain, "h."),
        num_attention_heads=num_attention_heads,
        num_kv_heads=num_attention_heads,
        head_dim=_divide(hidden, num_attention_heads),
        vocab_size=vocab_size,
        position="learned",
        qkv_bias="h.0.attn.c_attn.bias" in plain,
        mlp_size=_shape(plain, "h.0.mlp.c_fc.weight")[1],
        max_positions=_shape(plain, "wpe.weight")[0],
        dtype=dtype,
    )
    return _load(model, _gpt2_names(plain, model.shape.num_layers))


def from_llama(
    weights: Weights,
    num_attention_heads: int,
    num_kv_heads: int | None = None,
    rope_theta: float = 10000.0,
    norm_eps: float = 1e-6,
    window: int | None = None,
    dtype: str = "float32",
) -> TinyDecoder:
    """A decoder with the weights of a Llama, or of a Qwen2 with its q, k and v biases; sizes come from the shapes.

    weights: the `state_dict()` of a `LlamaForCausalLM`. rope_theta and norm_eps stand in its config only.
    """
    plain = _without_prefix(weights, "model.")
    vocab_size, hidden = _shape(plain, "embed_tokens.weight")
    model = TinyDecoder(
        num_layers=_count(plain, "layers."),
        num_attention_heads=num_attention_heads,
        num_kv_heads=num_attention_heads if num_kv_heads is None else num_kv_heads,
        head_dim=_divide(_shape(plain, "layers.0.self_attn.q_proj.weight")[0], num_attention_heads),
        vocab_size=vocab_size,
        hidden_size=hidden,
        mlp_size=_shape(plain, "layers.0.mlp.up_proj.weight")[0],
        norm="rms",
        mlp="swiglu",
        qkv_bias="layers.0.self_attn.q_proj.bias" in plain,
        window=window,
        rope_theta=rope_theta,
        norm_eps=norm_eps,
        dtype=dtype,
    )
    return _load(model, _llama_names(plain))


def _gpt2_names(plain: Weights, num_layers: int) -> dict[str, Tensor]:
    renamed = {
        "embedding.weight": plain["wte.weight"],
        "position_embedding.weight": plain["wpe.weight"],
        "head.weight": plain.get("lm_head.weight", plain["wte.weight"]),
    }
    renamed |= _renamed(plain, {"ln_f": "norm"})
    for i in range(num_layers):
        norms = {f"h.{i}.ln_1": f"blocks.{i}.attention_norm", f"h.{i}.ln_2": f"blocks.{i}.mlp_norm"}
        matrices = {"attn.c_proj": "out", "mlp.c_fc": "up", "mlp.c_proj": "down"}
        renamed |= _renamed(plain, norms)
        transposed = _renamed(plain, {f"h.{i}.{old}": f"blocks.{i}.{new}" for old, new in matrices.items()})
        renamed |= {name: tensor.t() for name, tensor in transposed.items()}
        for kind, whole in _renamed(plain, {f"h.{i}.attn.c_attn": ""}).items():
            parts = zip("qkv", whole.chunk(3, -1), strict=True)
            renamed |= {f"blocks.{i}.{name}{kind}": part.t() for name, part in parts}
    return renamed


def _llama_names(plain: Weights) -> dict[str, Tensor]:
    inside = {
        "self_attn.q_proj": "q",
        "self_attn.k_proj": "k",
        "self_attn.v_proj": "v",
        "self_attn.o_proj": "out",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "mlp_norm",
        "mlp.gate_proj": "gate",
        "mlp.up_proj": "up",
        "mlp.down_proj": "down",
    }
    renamed = {"head.weight": plain["embed_tokens.weight"]} | _renamed(
        plain, {"embed_tokens": "embedding", "norm": "norm", "lm_head": "head"}
    )
    for i in range(_count(plain, "layers.")):
        renamed |= _renamed(plain, {f"layers.{i}.{old}": f"blocks.{i}.{new}" for old, new in inside.items()})
    return renamed


def _renamed(weights: Weights, names: Mapping[str, str]) -> dict[str, Tensor]:
    """The `.weight` and `.bias` of each old name, where there is one, under its new name."""
    return {
        f"{new}{kind}": weights[f"{old}{kind}"]
        for old, new in names.items()
        for kind in (".weight", ".bias")
        if f"{old}{kind}" in weights
    }


def _without_prefix(weights: Weights, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items()}


def _shape(weights: Weights, name: str) -> tuple[int, ...]:
    if name not in weights:
        raise InputError(f"these weights have no {name!r}, which this layout needs")
    return tuple(weights[name].shape)


def _count(weights: Weights, prefix: str) -> int:
    return len({name.removeprefix(prefix).split(".")[0] for name in weights if name.startswith(prefix)})


def _divide(width: int, heads: int) -> int:
    if heads < 1 or width % heads:
        raise InputError(f"{counted_and(heads, 'head', 'do')} not divide a width of {width}")
    return width // heads


def _load(model: TinyDecoder, weights: Weights) -> TinyDecoder:
    dtype = DTYPES[dtype_name(model.shape.dtype)]
    wanted = model.state_dict()
    wrong = sorted(
        wanted.keys() ^ weights.keys()
        | {name for name in wanted.keys() & weights.keys() if wanted[name].shape != weights[name].shape}
    )
    if wrong:
        raise InputError(f"these weights do not fit this layout; missing, unknown or of another shape: {wrong[0]}")
    model.load_state_dict({name: tensor.to(dtype) for name, tensor in weights.items()})
    return model
