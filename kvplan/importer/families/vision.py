"""Image-text and audio-text wrappers: a text model inside, towers and a projector around it.

The outer object decides about the tied head, as the wrapper's class does; the inner one is read by the text
model's own rule. A tower that no rule knows is left out with a note, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kvplan.attention import CrossAttention
from kvplan.blocks import Groups, attention, embedding, gated_mlp, norm, vector
from kvplan.errors import shorten
from kvplan.importer.decoder import Parts, Shape, attention_cache, layers_of, read_shape, with_outer
from kvplan.importer.families import Family, Rule, families, towers
from kvplan.importer.view import ConfigView
from kvplan.model import Layer
from kvplan.units import counted

# ---------------------------------------------------------------------------------------------- the text model


def language(view: ConfigView, key: str, default_type: str, tied: Callable[[ConfigView, ConfigView], bool]) -> Parts:
    """The text model described by the inner object `key`, or by `view` itself where the layout is flat.

    default_type  its model_type where the inner object does not say one
    tied          whether the head is the embedding, from the outer and the inner object
    """
    is_flat = _is_flat(view, key)
    inner = view if is_flat else view.child_or_defaults(key, {})
    stated = None if is_flat else inner.text("model_type", default=None)
    family = _text_family(view, stated or default_type)
    inner.defaults = {**family.defaults}
    decided = tied(view, inner)
    if inner.data.get("tie_word_embeddings", decided) != decided:
        view.note(f"tie_word_embeddings is read as {str(decided).lower()}, as the class of the wrapper does")
    inner.decide("tie_word_embeddings", decided)
    if not is_flat:
        _refuse_text_class(view, key)
        view.pass_over("the class reads the sizes of the inner object", "vocab_size", "hidden_size")
        inner.pass_over("read with the outer dtype", "dtype", "torch_dtype")
    return family.rule(inner)


FLAT = frozenset({"llava", "qwen2_vl", "qwen2_5_vl", "glm4v", "phi3_v", "phi4mm", "videollama3_qwen2"})
"""Wrappers that were also published with the text model's keys in the outer object."""


def _require_stated(view: ConfigView, *keys: str) -> None:
    """Refuse where one of `keys` is absent: these classes then fill in sizes of their own, which no rule knows."""
    for key in keys:
        if not view.has(key):
            raise view.unsupported(f"{key} is absent, and the sizes that this class then fills in are not known")


def _is_flat(view: ConfigView, key: str) -> bool:
    """Whether the text model's keys stand in the outer object."""
    if view.has(key) or not view.has("num_hidden_layers"):
        return False
    if view.data.get("model_type") not in FLAT:
        raise view.unsupported(f"{key} is absent, and no rule reads this family's text keys in the outer object")
    return True


def _refuse_text_class(view: ConfigView, key: str) -> None:
    """`architectures` says what is counted; a class of the text alone would leave the towers out."""
    names = view.texts("architectures", default=[])
    if names and names[0].endswith("ForCausalLM"):
        raise view.unsupported(f"architectures names {shorten(names[0])}, a class of text alone; import {key} instead")


def _text_family(view: ConfigView, model_type: str) -> Family:
    known = families()
    if model_type not in known or model_type in WRAPPERS:
        raise view.unsupported(f"no rule knows the inner model_type {shorten(model_type)!r}")
    return known[model_type]


def outer_tie(default: bool) -> Callable[[ConfigView, ConfigView], bool]:
    """The outer object alone decides; `default` is the wrapper class's own, noted where it ties."""

    def tied(outer: ConfigView, inner: ConfigView) -> bool:
        if default and not outer.has("tie_word_embeddings"):
            outer.note(
                "tie_word_embeddings is not in the config; the class default, a head that is the embedding, is used"
            )
        return bool(outer.flag("tie_word_embeddings", default=default))

    return tied


def inner_tie(outer: ConfigView, inner: ConfigView) -> bool:
    """The text model has its own head, and decides alone."""
    outer.pass_over("the class asks the inner object", "tie_word_embeddings")
    return bool(inner.flag("tie_word_embeddings", default=False))


def either_tie(outer: ConfigView, inner: ConfigView) -> bool:
    """The head is tied where either object says so: these classes forward the inner switch."""
    return bool(outer.flag("tie_word_embeddings", default=False) or inner.flag("tie_word_embeddings", default=False))


def never_tied(outer: ConfigView, inner: ConfigView) -> bool:
    """The class has a head of its own, whatever the inner object says."""
    outer.pass_over("the class never ties its head", "tie_word_embeddings")
    return False


# ---------------------------------------------------------------------------------------------- towers by name

TOWERS: dict[str, tuple[Callable[[ConfigView], Groups], Mapping[str, Any]]] = {
    "clip_vision_model": (towers.clip, towers.CLIP_DEFAULTS),
    "siglip_vision_model": (towers.siglip, towers.SIGLIP_DEFAULTS),
    "siglip2_vision_model": (towers.siglip2, towers.SIGLIP2_DEFAULTS),
    "pixtral": (towers.pixtral, towers.PIXTRAL_DEFAULTS),
}
"""Towers that a wrapper may name in its vision_config."""

Projector = Callable[[ConfigView, int, int], Groups]
"""The projector from (wrapper, hidden size of the tower, hidden size of the text)."""


def tower_object(view: ConfigView, name: str, defaults: Mapping[str, Any]) -> ConfigView:
    """The object of a tower, less what only a model of its own would read."""
    tower = view.child_or_defaults(name, defaults)
    tower.pass_over("read with the outer dtype", "dtype", "torch_dtype")
    tower.pass_over("a tower has no head", "tie_word_embeddings")
    return tower


def named_tower(view: ConfigView, default_type: str, projector: Projector, hidden_size: int) -> Groups:
    """The tower that vision_config names, with its projector; one that no rule knows is left out with a note."""
    vision = tower_object(view, "vision_config", {})
    name = vision.text("model_type", default=default_type)
    if name not in TOWERS:
        vision.take_all(f"no rule knows the tower {name!r}, so neither it nor its projector is in the numbers")
        view.pass_over("the projector is left out with its tower", *_PROJECTOR_KEYS)
        return ()
    tower, vision.defaults = TOWERS[name][0], {**TOWERS[name][1]}
    return (*tower(vision), *projector(view, vision.integer("hidden_size"), hidden_size))


_PROJECTOR_KEYS = (
    "vision_feature_layer", "multimodal_projector_bias", "spatial_merge_size", "downsample_factor", "projection_dim",
    "projector_bias", "projector_hidden_size", "projector_use_layernorm",
)  # fmt: skip


def own_tower(
    text_type: str,
    tied: Callable[[ConfigView, ConfigView], bool],
    tower: Callable[[ConfigView], Groups],
    defaults: Mapping[str, Any],
) -> Rule:
    """The rule of a wrapper whose class has one tower of its own, projector included."""

    def rule(view: ConfigView) -> Parts:
        view.require("language_model_only", False, "a checkpoint without its tower is not known")
        parts = language(view, "text_config", text_type, tied)
        vision = tower_object(view, "vision_config", defaults)
        return with_towers(parts, tower(vision))

    return rule


def with_towers(parts: Parts, *groups: Groups) -> Parts:
    """`parts` with the weights of towers and projectors."""
    return replace(parts, weights=(*parts.weights, *(group for tower in groups for group in tower)))


def feature_layers(view: ConfigView) -> int:
    """Layers of the tower whose features the projector reads side by side: one, or the length of the list."""
    layers = view.data.get("vision_feature_layer")
    view.pass_over("which layer is read has no weights", "vision_feature_layer")
    return len(layers) if isinstance(layers, list) else 1


# ---------------------------------------------------------------------------------------------- wrappers


def llava(view: ConfigView) -> Parts:
    """LLaVA: CLIP or another tower by name, and two matrices."""
    if view.has("mm_vision_tower"):
        return _llava_flat(view)
    _require_stated(view, "vision_config")
    parts = language(view, "text_config", "llama", either_tie)
    return with_towers(parts, named_tower(view, "clip_vision_model", _llava_projector, parts.hidden_size))


def _llava_projector(view: ConfigView, vision: int, text: int) -> Groups:
    bias = view.flag("multimodal_projector_bias", default=True)
    return towers.two_linears(vision * feature_layers(view), text, text, bias=bias)


def _llava_flat(view: ConfigView) -> Parts:
    """The first LLaVA layout: the text model's keys beside `mm_*`; the tower is named, not described."""
    view.require("mm_projector_type", "mlp2x_gelu", "only the projector of two matrices is known")
    view.require("mm_resampler_type", None, "a resampler is not known")
    view.require("mm_vision_tower", "openai/clip-vit-large-patch14-336", "the sizes of no other tower are known")
    view.pass_over("how images are cut and trained", *_LLAVA_TRAINING)
    parts = language(view, "text_config", "llama", either_tie)
    vision = ConfigView(_CLIP_LARGE_336, "the CLIP tower")
    view.note("the vision tower is a checkpoint of its own, openai/clip-vit-large-patch14-336; it is counted here")
    projector = towers.two_linears(view.integer("mm_hidden_size"), parts.hidden_size, parts.hidden_size)
    return with_towers(parts, towers.clip(vision), projector)


_LLAVA_TRAINING = (
    "freeze_mm_mlp_adapter", "freeze_mm_vision_resampler", "image_aspect_ratio", "mm_use_im_patch_token",
    "mm_use_im_start_end", "mm_vision_select_feature", "mm_vision_select_layer", "tune_mm_mlp_adapter",
    "tune_mm_vision_resampler", "unfreeze_mm_vision_tower", "use_mm_proj", "max_length",
)  # fmt: skip
_CLIP_LARGE_336 = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 336, "patch_size": 14,
}  # fmt: skip


def mistral3(view: ConfigView) -> Parts:
    """Mistral 3: Pixtral, a merger of `spatial_merge_size`^2 patches, and two matrices."""
    _require_stated(view, "text_config", "vision_config")
    parts = language(view, "text_config", "mistral", outer_tie(default=True))
    return with_towers(parts, named_tower(view, "pixtral", _mistral3_projector, parts.hidden_size))


def _mistral3_projector(view: ConfigView, vision: int, text: int) -> Groups:
    taps = view.integer("spatial_merge_size", default=2) ** 2
    bias = view.flag("multimodal_projector_bias", default=False)
    return (
        *towers.rms_norms("projector", vision),
        *towers.dense("projector", vision, vision * taps, bias=False),
        *towers.two_linears(vision * feature_layers(view), text, text, bias=bias),
    )


def gemma3(view: ConfigView) -> Parts:
    """Gemma 3: SigLIP, one norm and one matrix."""
    parts = language(view, "text_config", "gemma3_text", outer_tie(default=True))
    return with_towers(parts, named_tower(view, "siglip_vision_model", _gemma3_projector, parts.hidden_size))


def _gemma3_projector(view: ConfigView, vision: int, text: int) -> Groups:
    return (*towers.dense("projector", text, vision, bias=False), *towers.rms_norms("projector", vision))


def paligemma(view: ConfigView) -> Parts:
    """PaliGemma: SigLIP and one matrix."""
    _require_stated(view, "text_config", "vision_config")
    parts = language(view, "text_config", "gemma", outer_tie(default=True))
    return with_towers(parts, named_tower(view, "siglip_vision_model", _paligemma_projector, parts.hidden_size))


def _paligemma_projector(view: ConfigView, vision: int, text: int) -> Groups:
    return towers.dense("projector", view.integer("projection_dim", default=2048), vision)


def lfm2_vl(view: ConfigView) -> Parts:
    """LFM2-VL: SigLIP 2, pixels unshuffled, two matrices."""
    view.require("tie_embedding", None, "this older switch is not read")
    parts = language(view, "text_config", "lfm2", outer_tie(default=True))
    return with_towers(parts, named_tower(view, "siglip2_vision_model", _lfm2_projector, parts.hidden_size))


def _lfm2_projector(view: ConfigView, vision: int, text: int) -> Groups:
    merged = vision * view.integer("downsample_factor", default=2) ** 2
    width, bias = view.integer("projector_hidden_size", default=2560), view.flag("projector_bias", default=True)
    norms = view.flag("projector_use_layernorm", default=True)
    return (
        *(towers.layer_norms("projector", merged) if norms else ()),
        *towers.two_linears(merged, width, text, bias=bias),
    )


def llama4(view: ConfigView) -> Parts:
    """Llama 4: its own tower with an adapter, and one matrix."""
    parts = language(view, "text_config", "llama4_text", inner_tie)
    vision = tower_object(view, "vision_config", towers.LLAMA4_DEFAULTS)
    vision.pass_over("which layer is read has no weights", "vision_feature_layer")
    out = vision.integer("vision_output_dim")
    return with_towers(parts, towers.llama4(vision), towers.dense("projector", parts.hidden_size, out, bias=False))


def gemma4(view: ConfigView) -> Parts:
    """Gemma 4: vision and audio towers where their objects stand, each with one matrix into the text model."""
    parts = language(view, "text_config", "gemma4_text", outer_tie(default=True))
    groups: list[Groups] = []
    if view.has("vision_config"):
        vision = tower_object(view, "vision_config", towers.GEMMA4_VISION_DEFAULTS)
        vision.pass_over("positions of a tower, not of the text", "max_position_embeddings")
        groups += [towers.gemma4_vision(vision), _into_text(parts, vision.integer("hidden_size"))]
    if view.has("audio_config"):
        audio = tower_object(view, "audio_config", towers.GEMMA4_AUDIO_DEFAULTS)
        groups += [towers.gemma4_audio(audio), _into_text(parts, audio.integer("output_proj_dims"))]
    return with_towers(parts, *groups)


def _into_text(parts: Parts, width: int) -> Groups:
    return towers.dense("projector", parts.hidden_size, width, bias=False)


def qwen2_audio(view: ConfigView) -> Parts:
    """Qwen2-Audio: a Whisper encoder and one matrix."""
    parts = language(view, "text_config", "qwen2", never_tied)
    audio = tower_object(view, "audio_config", towers.WHISPER_DEFAULTS)
    width = audio.integer("d_model", "hidden_size")
    return with_towers(parts, towers.whisper(audio), towers.dense("projector", parts.hidden_size, width))


def voxtral(view: ConfigView) -> Parts:
    """Voxtral: a Whisper encoder, four frames of which share one text token, and two matrices without bias."""
    _require_stated(view, "text_config", "audio_config")
    parts = language(view, "text_config", "llama", never_tied)
    audio = tower_object(view, "audio_config", towers.WHISPER_DEFAULTS)
    width, text = audio.integer("encoder_ffn_dim", "intermediate_size"), parts.hidden_size
    return with_towers(parts, towers.whisper(audio), towers.two_linears(width, text, text, bias=False))


def kimi_k25(view: ConfigView) -> Parts:
    """Kimi K2.5: MoonViT, a merger of neighbouring patches, and two matrices."""
    parts = language(view, "text_config", "kimi_k2", outer_tie(default=True))
    vision = tower_object(view, "vision_config", {})
    vision.require("mm_projector_type", "patchmerger", "only the merger of patches is known")
    vision.require("merge_type", "sd2_tpool", "only merging by pooling in time is known")
    vision.require("pos_emb_type", "divided_fixed", "only positions of a fixed grid are known")
    vision.pass_over("the text model says its own", "text_hidden_size")
    vision.pass_over("attention of a tower holds no cache", "video_attn_type")
    rows, columns = towers.pair(vision, "merge_kernel_size")
    width = vision.integer("mm_hidden_size")
    merged = vision.integer("vt_hidden_size") * rows * columns
    projector = (*towers.layer_norms("projector", width), *towers.two_linears(merged, merged, parts.hidden_size))
    return with_towers(parts, towers.moonvit(vision), projector)


def minimax_m3_vl(view: ConfigView) -> Parts:
    """MiniMax M3: a tower of CLIP's blocks, two matrices, and two more behind the merger of patches."""
    parts = language(view, "text_config", "minimax_m3_vl_text", either_tie)
    view.pass_over("reward heads are not built", "num_reward_heads")
    view.require("multimodal_projector_bias", True, "the class builds biases")
    view.pass_over("the tower reads its own", "img_token_compression_config", "vision_feature_layer")
    vision, text = tower_object(view, "vision_config", {}), parts.hidden_size
    width = view.integer("projector_hidden_size", default=text)
    compression = vision.child("img_token_compression_config")
    compression.require("image_token_compression_method", "patch_merge", "only merging patches is known")
    merged = text * compression.integer("spatial_merge_size") ** 2
    projector = (
        *towers.two_linears(vision.integer("hidden_size"), width, text),
        *towers.two_linears(merged, width, text),
    )
    return with_towers(parts, towers.minimax_m3(vision), projector)


def internvl(view: ConfigView) -> Parts:
    """InternVL in the layout of transformers: InternViT, pixels shuffled, one norm and two matrices."""
    parts = language(view, "text_config", "qwen2", outer_tie(default=True))
    vision = tower_object(view, "vision_config", towers.INTERNVL_DEFAULTS)
    view.pass_over("which layer is read has no weights", "vision_feature_layer")
    merged = vision.integer("hidden_size") * int(1 / towers.ratio(view, "downsample_ratio", default=0.5)) ** 2
    text = parts.hidden_size
    projector = (*towers.layer_norms("projector", merged), *towers.two_linears(merged, text, text))
    return with_towers(parts, towers.internvl(vision), projector)


def qwen2_5_omni(view: ConfigView) -> Parts:
    """Qwen2.5-Omni: its thinker; the parts that speak are separate models."""
    for name in ("talker_config", "token2wav_config"):
        view.dismiss(name, "only the thinker, which reads and writes text, is planned for")
    view.pass_over("whether speech is made", "enable_audio_output", "enable_audio_output_", "enable_talker")
    thinker = view.child("thinker_config")
    thinker.pass_over("read with the outer dtype", "dtype", "torch_dtype")
    return qwen2_5_omni_thinker(thinker)


def qwen2_5_omni_thinker(view: ConfigView) -> Parts:
    """Text, audio and vision of Qwen2.5-Omni."""
    parts = language(view, "text_config", "qwen2_5_omni_text", outer_tie(default=False))
    vision = tower_object(view, "vision_config", towers.QWEN25_VL_DEFAULTS)
    audio = tower_object(view, "audio_config", towers.OMNI_AUDIO_DEFAULTS)
    vision.pass_over("the class reads hidden_size", "embed_dim")
    return with_towers(parts, towers.qwen2_5_vl(vision), towers.omni_audio(audio))


def language_only(key: str, text_type: str, others: tuple[str, ...], settings: tuple[str, ...] = ()) -> Rule:
    """The rule of a wrapper whose towers no rule knows: the text model, and a note for each of `others`.

    settings  keys that say how images are cut or where the towers are read
    """

    def rule(view: ConfigView) -> Parts:
        view.pass_over("how images are cut, and what was trained", *settings)
        parts = language(view, key, text_type, either_tie)
        for name in others:
            if view.has(name):
                view.child(name).take_all("no rule knows this part, so it is not in the numbers")
        return parts

    return rule


# ---------------------------------------------------------------------------------------------- cross-attention


def mllama(view: ConfigView) -> Parts:
    """Llama 3.2 Vision: cross-attention layers keep K and V of the image's tokens, which do not grow with the text."""
    text = view.child("text_config", _MLLAMA_TEXT)
    vision = tower_object(view, "vision_config", _MLLAMA_VISION)
    text.pass_over("read with the outer dtype", "dtype", "torch_dtype")
    text.decide("tie_word_embeddings", never_tied(view, text))
    shape, width = read_shape(text), text.integer("intermediate_size")
    crossing = set(text.integers("cross_attention_layers"))
    tokens = vision.integer("max_num_tiles") * _mllama_positions(vision)
    view.note(f"cross-attention layers hold {counted(tokens, 'image token')}: one image in all its tiles")
    layers = layers_of(
        [index in crossing for index in range(shape.num_layers)],
        lambda crosses: _mllama_layer(shape, width, tokens if crosses else None),
    )
    extra = embedding(8, shape.hidden)  # rows for image tokens, which the head lacks
    parts = with_outer(shape, layers, norm(shape.hidden, role="final_norm"), extra)
    return with_towers(parts, _mllama_tower(vision), _mllama_projector(vision, shape.hidden))


def _mllama_layer(shape: Shape, width: int, image_tokens: int | None) -> Layer:
    sizes = (shape.hidden, shape.heads, shape.kv_heads, shape.head_dim)
    rest = (*gated_mlp(shape.hidden, width), *norm(shape.hidden, count=2))
    if image_tokens is None:
        return Layer(attention_cache(shape.kv_heads, shape.head_dim, None), (*attention(*sizes), *rest), shape.heads)
    gates = vector("other", 1, count=2)
    cache = CrossAttention(shape.kv_heads, shape.head_dim, image_tokens)
    return Layer(cache, (*attention(*sizes, qk_norm="head"), *rest, *gates), shape.heads)


def _mllama_positions(vision: ConfigView) -> int:
    return int(vision.integer("image_size") // vision.integer("patch_size")) ** 2 + 1


def _mllama_tower(vision: ConfigView) -> Groups:
    """A tower of `num_hidden_layers` blocks and `num_global_layers` gated ones, with positions for every tile."""
    hidden, width = vision.integer("hidden_size"), vision.integer("intermediate_size")
    layers, gated = vision.integer("num_hidden_layers"), vision.integer("num_global_layers")
    tiles, positions = vision.integer("max_num_tiles"), _mllama_positions(vision)
    shapes = vision.count_of("supported_aspect_ratios", default=8) + 1  # and one for no image
    vision.pass_over("heads split hidden_size", "attention_heads", "num_attention_heads")
    return (
        *towers.dense("vision", hidden, towers.patches(vision), bias=False),
        *towers.rms_norms("vision", hidden),  # the class token
        *towers.dense("vision", positions, hidden, bias=False),
        *towers.dense("vision", shapes, tiles * positions * hidden, bias=False),
        *towers.dense("vision", shapes, tiles * hidden, bias=False, count=2),
        *towers.rms_norms("vision", 1, 3 + 2 * gated),  # gates
        *towers.layer_norms("vision", hidden, 2),
        *_mllama_blocks(layers + gated, hidden, width),
    )


def _mllama_blocks(layers: int, hidden: int, width: int) -> Groups:
    return (
        *towers.dense("vision", hidden, hidden, bias=False, count=4 * layers),
        *towers.dense("vision", width, hidden, count=layers),
        *towers.dense("vision", hidden, width, count=layers),
        *towers.layer_norms("vision", hidden, 2 * layers),
    )


def _mllama_projector(vision: ConfigView, hidden: int) -> Groups:
    vision.pass_over("which layers are read, not weights", "intermediate_layers_indices")
    return towers.dense("projector", hidden, vision.integer("vision_output_dim"))


_MLLAMA_TEXT = {
    "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "max_position_embeddings": 131072,
    "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
}  # fmt: skip
_MLLAMA_VISION = {
    "hidden_size": 1280, "num_hidden_layers": 32, "num_global_layers": 8, "num_channels": 3, "intermediate_size": 5120,
    "vision_output_dim": 7680, "image_size": 448, "patch_size": 14, "max_num_tiles": 4,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------- text halves


def same_rule_as(model_type: str) -> Rule:
    """The rule of another family, looked up when it is used."""
    return lambda view: _text_family(view, model_type).rule(view)


def qwen3_vl_text(view: ConfigView) -> Parts:
    """Qwen3 without windows, whose switch this class does not know."""
    view.decide("use_sliding_window", False)
    return _text_family(view, "qwen3").rule(view)


def glm4v_text(view: ConfigView) -> Parts:
    """GLM-4 with biases of q, k and v, whatever the config says."""
    view.decide("attention_bias", True)
    return _text_family(view, "glm4").rule(view)


def qwen3_vl_moe_text(view: ConfigView) -> Parts:
    """Qwen3 with experts and without windows, whose switch this class does not know."""
    view.decide("use_sliding_window", False)
    return _text_family(view, "qwen3_moe").rule(view)


_QWEN2_VL_TEXT = {
    "vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 32768,
    "use_sliding_window": False, "max_window_layers": 80, "tie_word_embeddings": False,
}  # fmt: skip
_QWEN25_OMNI_TEXT = {
    "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 32768,
    "use_sliding_window": False, "max_window_layers": 28, "tie_word_embeddings": False,
}  # fmt: skip
_QWEN3_VL_TEXT = {
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 128000,
    "tie_word_embeddings": False,
}  # fmt: skip
_GLM4V_TEXT = {
    "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40,
    "num_attention_heads": 32, "num_key_value_heads": 2, "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}  # fmt: skip
_GLM4V_MOE_TEXT = {
    "vocab_size": 151424, "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46,
    "num_attention_heads": 96, "num_key_value_heads": 8, "max_position_embeddings": 65536, "attention_bias": True,
    "moe_intermediate_size": 1408, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128,
    "first_k_dense_replace": 1, "use_qk_norm": False, "tie_word_embeddings": False,
}  # fmt: skip
_QWEN3_VL_MOE_TEXT = {
    "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
    "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 128000, "decoder_sparse_step": 1,
    "moe_intermediate_size": 1408, "num_experts_per_tok": 4, "num_experts": 60, "mlp_only_layers": [],
    "tie_word_embeddings": False,
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    "llava": Family(llava, {}),
    "mistral3": Family(mistral3, {}),
    "gemma3": Family(gemma3, {}),
    "paligemma": Family(paligemma, {}),
    "lfm2_vl": Family(lfm2_vl, {}),
    "llama4": Family(llama4, {}),
    "gemma4": Family(gemma4, {}),
    "qwen2_audio": Family(qwen2_audio, {}),
    "voxtral": Family(voxtral, {}),
    "kimi_k25": Family(kimi_k25, {}),
    "minimax_m3_vl": Family(minimax_m3_vl, {}),
    "mllama": Family(mllama, {}),
    "internvl": Family(internvl, {}),
    "qwen2_5_omni": Family(qwen2_5_omni, {}),
    "qwen2_5_omni_thinker": Family(qwen2_5_omni_thinker, {}),
    "internvl_chat": Family(
        language_only(
            "llm_config",
            "llama",
            ("vision_config",),
            (
                "downsample_ratio",
                "dynamic_image_size",
                "force_image_size",
                "max_dynamic_patch",
                "min_dynamic_patch",
                "pad2square",
                "ps_version",
                "select_layer",
                "template",
                "use_backbone_lora",
                "use_llm_lora",
            ),
        ),
        {},
    ),
    "locateanything": Family(
        language_only(
            "text_config",
            "qwen2",
            ("vision_config",),
            ("mlp_checkpoint", "mlp_connector_layers", "template", "use_backbone_lora", "use_llm_lora"),
        ),
        {},
    ),
    "videollama3_qwen2": Family(
        language_only(
            "text_config", "qwen2", ("vision_encoder_config",), ("mm_projector_type", "use_token_compression")
        ),
        {},
    ),
    "kimi_vl": Family(language_only("text_config", "deepseek_v3", ("vision_config",), ("vocab_size",)), {}),
    "phi3_v": Family(language_only("text_config", "phi3", ("embd_layer", "img_processor")), {}),
    "phi4mm": Family(
        language_only("text_config", "phi3", ("embd_layer", "audio_processor", "vision_lora", "speech_lora")), {}
    ),
    "gemma3n": Family(
        language_only(
            "text_config",
            "gemma3n_text",
            ("vision_config", "audio_config"),
            ("audio_soft_tokens_per_image", "vision_soft_tokens_per_image"),
        ),
        {},
    ),
    "qwen2_vl": Family(own_tower("qwen2_vl_text", either_tie, towers.qwen2_vl, towers.QWEN2_VL_DEFAULTS), {}),
    "qwen2_5_vl": Family(own_tower("qwen2_5_vl_text", either_tie, towers.qwen2_5_vl, towers.QWEN25_VL_DEFAULTS), {}),
    "qwen3_vl": Family(own_tower("qwen3_vl_text", outer_tie(False), towers.qwen3_vl, towers.QWEN3_VL_DEFAULTS), {}),
    "qwen3_vl_moe": Family(
        own_tower("qwen3_vl_moe_text", outer_tie(False), towers.qwen3_vl, towers.QWEN3_VL_DEFAULTS), {}
    ),
    "qwen3_5": Family(own_tower("qwen3_5_text", outer_tie(False), towers.qwen3_5, towers.QWEN35_DEFAULTS), {}),
    "qwen3_5_moe": Family(own_tower("qwen3_5_moe_text", outer_tie(False), towers.qwen3_5, towers.QWEN35_DEFAULTS), {}),
    "glm4v": Family(own_tower("glm4v_text", either_tie, towers.glm4v, towers.GLM4V_DEFAULTS), {}),
    "glm4v_moe": Family(own_tower("glm4v_moe_text", either_tie, towers.glm4v, towers.GLM4V_DEFAULTS), {}),
    "qwen2_5_omni_text": Family(same_rule_as("qwen2"), _QWEN25_OMNI_TEXT),
    "qwen2_vl_text": Family(same_rule_as("qwen2"), _QWEN2_VL_TEXT),
    "qwen2_5_vl_text": Family(same_rule_as("qwen2"), _QWEN2_VL_TEXT),
    "qwen3_vl_text": Family(qwen3_vl_text, _QWEN3_VL_TEXT),
    "qwen3_vl_moe_text": Family(qwen3_vl_moe_text, _QWEN3_VL_MOE_TEXT),
    "glm4v_text": Family(glm4v_text, _GLM4V_TEXT),
    "glm4v_moe_text": Family(same_rule_as("glm4_moe"), _GLM4V_MOE_TEXT),
}

WRAPPERS = frozenset(name for name in FAMILIES if not name.endswith("_text"))
"""Types that stand around a text model and cannot be one themselves."""
