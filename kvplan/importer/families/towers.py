"""Vision and audio towers, and the projectors behind them: weights only, since no tower keeps a cache.

A tower's function reads its own config object and returns groups of the tower "vision" or "audio"; what maps
their features into the text model belongs to the tower "projector".
"""

from __future__ import annotations

from kvplan.blocks import Groups, linear, vector
from kvplan.importer.view import ConfigView
from kvplan.units import counted

CLIP_DEFAULTS = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 32,
}  # fmt: skip
SIGLIP_DEFAULTS = {**CLIP_DEFAULTS, "patch_size": 16, "vision_use_head": True}
SIGLIP2_DEFAULTS = {**SIGLIP_DEFAULTS, "num_patches": 256}
PIXTRAL_DEFAULTS = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "num_channels": 3, "patch_size": 16,
}  # fmt: skip
QWEN2_VL_DEFAULTS = {
    "depth": 32, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "in_channels": 3, "patch_size": 14,
    "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
QWEN25_VL_DEFAULTS = {
    "depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "out_hidden_size": 3584, "in_channels": 3,
    "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
QWEN35_DEFAULTS = {
    "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "out_hidden_size": 3584, "in_channels": 3,
    "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304,
}  # fmt: skip
QWEN3_VL_DEFAULTS = {**QWEN35_DEFAULTS, "deepstack_visual_indexes": [8, 16, 24]}
GLM4V_DEFAULTS = {
    "depth": 24, "hidden_size": 1536, "intermediate_size": 13696, "out_hidden_size": 4096, "in_channels": 3,
    "image_size": 336, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "attention_bias": False,
}  # fmt: skip
LLAMA4_DEFAULTS = {
    "hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "num_channels": 3, "image_size": 448,
    "patch_size": 14, "pixel_shuffle_ratio": 0.5, "projector_input_dim": 4096, "projector_output_dim": 4096,
    "vision_output_dim": 7680,
}  # fmt: skip
GEMMA4_VISION_DEFAULTS = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12,
    "num_key_value_heads": 12, "head_dim": 64, "attention_bias": False, "patch_size": 16,
    "position_embedding_size": 10240,
}  # fmt: skip
GEMMA4_AUDIO_DEFAULTS = {
    "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8, "subsampling_conv_channels": [128, 32],
    "conv_kernel_size": 5, "output_proj_dims": 1536,
}  # fmt: skip
WHISPER_DEFAULTS = {
    "num_mel_bins": 128, "encoder_layers": 32, "encoder_ffn_dim": 5120, "d_model": 1280, "max_source_positions": 1500,
}  # fmt: skip
OMNI_AUDIO_DEFAULTS = {**WHISPER_DEFAULTS, "output_dim": 3584}
INTERNVL_DEFAULTS = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_channels": 3,
    "image_size": [448, 448], "patch_size": [14, 14], "attention_bias": False, "use_qk_norm": False,
    "norm_type": "layer_norm",
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------- pieces


def dense(tower: str, out_features: int, in_features: int, *, bias: bool = True, count: int = 1) -> Groups:
    """`count` matrices of a tower; a convolution's kernel is a matrix (outputs, inputs x taps)."""
    return linear(tower, out_features, in_features, bias=bias, count=count, tower=tower)


def layer_norms(tower: str, size: int, count: int = 1) -> Groups:
    """`count` norms with weight and bias."""
    return vector(tower, size, count=2 * count, tower=tower)


def rms_norms(tower: str, size: int, count: int = 1) -> Groups:
    """`count` norms with a weight only."""
    return vector(tower, size, count=count, tower=tower)


def plain_encoder(tower: str, layers: int, hidden: int, width: int, *, key_bias: bool = True) -> Groups:
    """`layers` blocks of attention and a plain MLP, with biases and two LayerNorms each."""
    return (
        *dense(tower, hidden, hidden, count=3 * layers),
        *dense(tower, hidden, hidden, bias=key_bias, count=layers),
        *dense(tower, width, hidden, count=layers),
        *dense(tower, hidden, width, count=layers),
        *layer_norms(tower, hidden, 2 * layers),
    )


def gated_encoder(layers: int, hidden: int, width: int, *, qkv_bias: bool, out_bias: bool, mlp_bias: bool) -> Groups:
    """`layers` blocks of attention and a gated MLP, with two RMSNorms each."""
    return (
        *dense("vision", hidden, hidden, bias=qkv_bias, count=3 * layers),
        *dense("vision", hidden, hidden, bias=out_bias, count=layers),
        *dense("vision", width, hidden, bias=mlp_bias, count=2 * layers),
        *dense("vision", hidden, width, bias=mlp_bias, count=layers),
        *rms_norms("vision", hidden, 2 * layers),
    )


def two_linears(hidden: int, width: int, out: int, *, bias: bool = True, count: int = 1) -> Groups:
    """`count` projectors of two matrices: hidden -> width -> out."""
    first = dense("projector", width, hidden, bias=bias, count=count)
    return (*first, *dense("projector", out, width, bias=bias, count=count))


def patches(view: ConfigView, frames: int = 1) -> int:
    """Values of one patch: channels x frames x side x side."""
    side = view.integer("patch_size")
    return int(view.integer("num_channels", "in_channels", default=3) * frames * side * side)


def pair(view: ConfigView, name: str) -> tuple[int, int]:
    """A list of two sizes, such as [height, width]."""
    sizes = view.integers(name, low=1)
    if len(sizes) != 2:
        raise view.error(f"{name} has {counted(len(sizes), 'entry')}; 2 are needed")
    return sizes[0], sizes[1]


def ratio(view: ConfigView, name: str, default: float | None = None) -> float:
    """A number over 0 and up to 1."""
    value = view.number(name) if default is None else view.number(name, default=default)
    if not 0 < value <= 1:
        raise view.error(f"{name} is {value}; a number over 0 and up to 1 is needed")
    return float(value)


def _grid(view: ConfigView) -> int:
    """Patches of the image that the position embedding is made for."""
    return int(view.integer("image_size") // view.integer("patch_size")) ** 2


def _heads(view: ConfigView) -> None:
    """Heads share `hidden_size` and have no weights of their own."""
    view.pass_over("heads split hidden_size", "num_attention_heads", "num_heads", "num_key_value_heads", "head_dim")


# ---------------------------------------------------------------------------------------------------- CLIP, SigLIP


def clip(view: ConfigView) -> Groups:
    """CLIP: class token, learned positions, LayerNorm before and behind the blocks."""
    hidden, layers = view.integer("hidden_size"), view.integer("num_hidden_layers")
    view.pass_over(
        "belongs to the contrastive head and the text half, which are not built", "projection_dim", "vocab_size"
    )
    _heads(view)
    return (
        *dense("vision", hidden, patches(view), bias=False),
        *dense("vision", _grid(view) + 1, hidden, bias=False),
        *rms_norms("vision", hidden),  # the class token
        *layer_norms("vision", hidden, 2),
        *plain_encoder("vision", layers, hidden, view.integer("intermediate_size")),
    )


def siglip(view: ConfigView) -> Groups:
    """SigLIP: learned positions for every patch of the image size."""
    return _siglip(view, _grid(view))


def siglip2(view: ConfigView) -> Groups:
    """SigLIP 2: learned positions for `num_patches` patches of any image."""
    return _siglip(view, view.integer("num_patches"))


def _siglip(view: ConfigView, positions: int) -> Groups:
    hidden, width = view.integer("hidden_size"), view.integer("intermediate_size")
    _heads(view)
    view.pass_over("the text half and the projector are built elsewhere", "vocab_size", "projection_dim")
    view.pass_over("tokens of an image, not weights", "num_image_tokens")
    return (
        *dense("vision", hidden, patches(view)),
        *dense("vision", positions, hidden, bias=False),
        *plain_encoder("vision", view.integer("num_hidden_layers"), hidden, width),
        *layer_norms("vision", hidden),
        *(_pooling_head(hidden, width) if view.flag("vision_use_head") else ()),
    )


def _pooling_head(hidden: int, width: int) -> Groups:
    """One more block whose query is a learned probe."""
    probe = rms_norms("vision", hidden)
    attention = (*dense("vision", 3 * hidden, hidden), *dense("vision", hidden, hidden))
    mlp = (*dense("vision", width, hidden), *dense("vision", hidden, width))
    return (*probe, *attention, *layer_norms("vision", hidden), *mlp)


def pixtral(view: ConfigView) -> Groups:
    """Pixtral: rotary positions, gated MLP, no biases."""
    hidden, layers = view.integer("hidden_size"), view.integer("num_hidden_layers")
    _heads(view)
    view.pass_over("positions are computed", "image_size")
    return (
        *dense("vision", hidden, patches(view), bias=False),
        *rms_norms("vision", hidden),
        *gated_encoder(
            layers, hidden, view.integer("intermediate_size"), qkv_bias=False, out_bias=False, mlp_bias=False
        ),
    )


# ---------------------------------------------------------------------------------------------------- Qwen


def _qwen_patches(view: ConfigView, hidden: int, bias: bool) -> Groups:
    view.require("in_chans", 3, "the class reads in_channels")
    view.pass_over("the same as patch_size", "spatial_patch_size")
    _heads(view)
    return dense("vision", hidden, patches(view, view.integer("temporal_patch_size")), bias=bias)


def qwen2_vl(view: ConfigView) -> Groups:
    """Qwen2-VL: plain blocks of `embed_dim`; the merger maps `spatial_merge_size`^2 patches to `hidden_size`."""
    hidden = view.integer("embed_dim")
    merged = hidden * view.integer("spatial_merge_size") ** 2
    return (
        *_qwen_patches(view, hidden, bias=False),
        *plain_encoder("vision", view.integer("depth"), hidden, hidden * view.integer("mlp_ratio")),
        *layer_norms("projector", hidden),
        *two_linears(merged, merged, view.integer("hidden_size")),
    )


def qwen2_5_vl(view: ConfigView) -> Groups:
    """Qwen2.5-VL: gated blocks with biases, RMSNorm."""
    hidden, width = view.integer("hidden_size"), view.integer("intermediate_size")
    merged = hidden * view.integer("spatial_merge_size") ** 2
    view.pass_over("windows of a tower hold no cache", "window_size", "fullatt_block_indexes", "tokens_per_second")
    return (
        *_qwen_patches(view, hidden, bias=False),
        *gated_encoder(view.integer("depth"), hidden, width, qkv_bias=True, out_bias=True, mlp_bias=True),
        *rms_norms("projector", hidden),
        *two_linears(merged, merged, view.integer("out_hidden_size")),
    )


def qwen3_vl(view: ConfigView) -> Groups:
    """Qwen3-VL: the tower of Qwen3.5, and one more merger for each deepstack index."""
    extra = len(view.integers("deepstack_visual_indexes"))
    merged = view.integer("hidden_size") * view.integer("spatial_merge_size") ** 2
    if not extra:
        return _qwen3_tower(view, merged)
    mergers = two_linears(merged, merged, view.integer("out_hidden_size"), count=extra)
    return (*_qwen3_tower(view, merged), *layer_norms("projector", merged, extra), *mergers)


def qwen3_5(view: ConfigView) -> Groups:
    """Qwen3.5: learned positions, plain blocks with biases, one merger; deepstack mergers are not built."""
    view.pass_over("the class builds no deepstack mergers", "deepstack_visual_indexes")
    return _qwen3_tower(view, view.integer("hidden_size") * view.integer("spatial_merge_size") ** 2)


def _qwen3_tower(view: ConfigView, merged: int) -> Groups:
    hidden, width = view.integer("hidden_size"), view.integer("intermediate_size")
    return (
        *_qwen_patches(view, hidden, bias=True),
        *dense("vision", view.integer("num_position_embeddings"), hidden, bias=False),
        *plain_encoder("vision", view.integer("depth"), hidden, width),
        *layer_norms("projector", hidden),
        *two_linears(merged, merged, view.integer("out_hidden_size")),
    )


# ---------------------------------------------------------------------------------------------------- the others


def glm4v(view: ConfigView) -> Groups:
    """GLM-4.xV: gated blocks as wide as the text model, a convolution that merges patches, and a gated merger."""
    hidden, out = view.integer("hidden_size"), view.integer("out_hidden_size")
    taps, width = view.integer("spatial_merge_size") ** 2, view.integer("intermediate_size")
    bias = view.flag("attention_bias")
    _heads(view)
    return (
        *dense("vision", hidden, patches(view, view.integer("temporal_patch_size"))),
        *dense("vision", _grid(view), hidden, bias=False),
        *rms_norms("vision", hidden, 2),
        *gated_encoder(view.integer("depth"), hidden, out, qkv_bias=bias, out_bias=False, mlp_bias=False),
        *dense("projector", out, hidden * taps),
        *dense("projector", out, out, bias=False),
        *layer_norms("projector", out),
        *dense("projector", width, out, bias=False, count=2),
        *dense("projector", out, width, bias=False),
    )


def llama4(view: ConfigView) -> Groups:
    """Llama 4: class token, plain blocks with biases, and an adapter behind the pixel shuffle."""
    hidden, width = view.integer("hidden_size"), view.integer("intermediate_size")
    view.pass_over("the adapter reads intermediate_size, whatever the shuffle gives", "pixel_shuffle_ratio")
    adapter_in, adapter_out = view.integer("projector_input_dim"), view.integer("projector_output_dim")
    view.require("multi_modal_projector_bias", False, "a projector with biases is not known")
    _heads(view)
    return (
        *dense("vision", hidden, patches(view), bias=False),
        *dense("vision", _grid(view) + 1, hidden, bias=False),
        *rms_norms("vision", hidden),
        *layer_norms("vision", hidden, 2),
        *plain_encoder("vision", view.integer("num_hidden_layers"), hidden, width),
        *dense("vision", adapter_in, width, bias=False),
        *dense("vision", adapter_out, adapter_out, bias=False),
    )


def gemma4_vision(view: ConfigView) -> Groups:
    """Gemma 4 vision: two position tables, gated blocks with q and k norms, four norms a block."""
    hidden, width, layers = (view.integer(name) for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    head = view.integer("head_dim")
    queries, keys = view.integer("num_attention_heads") * head, view.integer("num_key_value_heads") * head
    view.pass_over("the class has no biases there, whatever is stated", "attention_bias")
    view.pass_over("pooling and clipping have no trained weights", "standardize", "pooling_kernel_size")
    view.pass_over("the class reads head_dim", "global_head_dim")
    view.pass_over("tokens of an image, not weights", "default_output_length")
    return (
        *dense("vision", 2 * view.integer("position_embedding_size"), hidden, bias=False),
        *dense("vision", hidden, patches(view), bias=False),
        *dense("vision", queries, hidden, bias=False, count=layers),
        *dense("vision", keys, hidden, bias=False, count=2 * layers),
        *dense("vision", hidden, queries, bias=False, count=layers),
        *rms_norms("vision", head, 2 * layers),
        *dense("vision", width, hidden, bias=False, count=2 * layers),
        *dense("vision", hidden, width, bias=False, count=layers),
        *rms_norms("vision", hidden, 4 * layers),
    )


def gemma4_audio(view: ConfigView) -> Groups:
    """Gemma 4 audio: a Conformer, two convolutions in front and an output projection."""
    hidden, layers = view.integer("hidden_size"), view.integer("num_hidden_layers")
    head = hidden // view.integer("num_attention_heads")
    first, second = pair(view, "subsampling_conv_channels")
    view.pass_over("attention of a tower holds no cache", "attention_chunk_size", "attention_context_left")
    view.pass_over("attention of a tower holds no cache", "attention_context_right", "attention_logit_cap")
    return (
        *dense("audio", first, 9, bias=False),
        *dense("audio", second, first * 9, bias=False),
        *rms_norms("audio", first),
        *rms_norms("audio", second),
        *dense("audio", hidden, first // 4 * second, bias=False),
        *dense("audio", 4 * hidden, hidden, bias=False, count=2 * layers),
        *dense("audio", hidden, 4 * hidden, bias=False, count=2 * layers),
        *dense("audio", hidden, hidden, bias=False, count=5 * layers),  # q, k, v, output, relative keys
        *rms_norms("audio", head, layers),
        *dense("audio", 2 * hidden, hidden, bias=False, count=layers),
        *dense("audio", hidden, hidden, bias=False, count=layers),
        *dense("audio", hidden, view.integer("conv_kernel_size"), bias=False, count=layers),
        *rms_norms("audio", hidden, 9 * layers),
        *dense("audio", view.integer("output_proj_dims"), hidden),
    )


def whisper(view: ConfigView) -> Groups:
    """A Whisper encoder (Qwen2-Audio, Voxtral): two convolutions, positions, blocks whose keys have no bias."""
    hidden = view.integer("d_model", "hidden_size")
    layers = view.integer("encoder_layers", "num_hidden_layers")
    width = view.integer("encoder_ffn_dim", "intermediate_size")
    _heads(view)
    view.pass_over("heads split d_model", "encoder_attention_heads")
    view.pass_over("the decoder is not built", "vocab_size")
    return (
        *dense("audio", hidden, 3 * view.integer("num_mel_bins")),
        *dense("audio", hidden, 3 * hidden),
        *dense("audio", view.integer("max_source_positions"), hidden, bias=False),
        *plain_encoder("audio", layers, hidden, width, key_bias=False),
        *layer_norms("audio", hidden),
    )


def omni_audio(view: ConfigView) -> Groups:
    """The audio half of Qwen2.5-Omni: a Whisper encoder with computed positions and a projection."""
    hidden, layers, out = view.integer("d_model"), view.integer("encoder_layers"), view.integer("output_dim")
    view.pass_over("heads split d_model", "encoder_attention_heads", "num_hidden_layers")
    view.pass_over("positions are computed, windows hold no cache", "max_source_positions", "n_window")
    return (
        *dense("audio", hidden, 3 * view.integer("num_mel_bins")),
        *dense("audio", hidden, 3 * hidden),
        *plain_encoder("audio", layers, hidden, view.integer("encoder_ffn_dim"), key_bias=False),
        *layer_norms("audio", hidden),
        *dense("audio", 2, out, bias=False),  # begin and end of audio
        *dense("audio", out, hidden),
    )


def internvl(view: ConfigView) -> Groups:
    """InternViT: class token, learned positions, biases where attention_bias says so, two layer scales a block."""
    hidden, width, layers = (view.integer(name) for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    (height, wide), (rows, columns) = pair(view, "image_size"), pair(view, "patch_size")
    bias, grid = view.flag("attention_bias"), (height // rows) * (wide // columns)
    for name, expected in (("use_qk_norm", False), ("norm_type", "layer_norm"), ("use_mask_token", False)):
        view.require(name, expected, "another layout of this tower is not known")
    view.require("use_absolute_position_embeddings", True, "a tower without learned positions is not known")
    view.require("use_mean_pooling", True, "a pooling norm is not known")
    view.pass_over("a starting value", "layer_scale_init_value")
    _heads(view)
    return (
        *rms_norms("vision", hidden),  # the class token
        *dense("vision", grid + 1, hidden, bias=False),
        *dense("vision", hidden, view.integer("num_channels") * rows * columns),
        *dense("vision", hidden, hidden, bias=bias, count=3 * layers),
        *dense("vision", hidden, hidden, count=layers),
        *dense("vision", width, hidden, count=layers),
        *dense("vision", hidden, width, count=layers),
        *layer_norms("vision", hidden, 2 * layers),
        *rms_norms("vision", hidden, 2 * layers),
    )


def moonvit(view: ConfigView) -> Groups:
    """MoonViT (Kimi K2.5): learned positions of a grid, plain blocks; its merger stands in the same object."""
    hidden, layers = view.integer("vt_hidden_size"), view.integer("vt_num_hidden_layers")
    positions = view.integer("init_pos_emb_height") * view.integer("init_pos_emb_width")
    view.pass_over("heads split vt_hidden_size", "vt_num_attention_heads")
    view.pass_over("positions in time are computed", "init_pos_emb_time")
    return (
        *dense("vision", hidden, patches(view)),
        *dense("vision", positions, hidden, bias=False),
        *plain_encoder("vision", layers, hidden, view.integer("vt_intermediate_size")),
        *layer_norms("vision", hidden),
    )


def minimax_m3(view: ConfigView) -> Groups:
    """MiniMax M3: CLIP's blocks with rotary positions and no class token."""
    hidden, layers = view.integer("hidden_size"), view.integer("num_hidden_layers")
    view.require("position_embedding_type", "rope", "learned positions are not known here")
    compression = view.child("img_token_compression_config")
    view.pass_over("positions are computed", "image_size", "rope_mode")
    view.pass_over("belongs to the text half, which is not built", "projection_dim", "vocab_size")
    _heads(view)
    return (
        *dense("vision", hidden, patches(view, compression.integer("temporal_patch_size")), bias=False),
        *layer_norms("vision", hidden),
        *plain_encoder("vision", layers, hidden, view.integer("intermediate_size")),
    )
