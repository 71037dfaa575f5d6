"""The child process that measures a config: what transformers builds on torch's meta device, and what its cache holds.

It stands alone (no kvplan inside), so that `measure.py` can start it with nothing but this file. It reads one JSON
object a line from stdin and writes one a line to what was stdout: first a greeting, then an answer for each request.

    request  {"config": {...}, "seconds": 30}
    answer   {"class", "parameters": [[name, shape, dtype, module class]], "runs": [...], "facts": {...}}
             or {"error": kind, "text": reason}

Only shapes are computed: meta tensors have no values. It judges nothing; what the runs mean is decided in `measure.py`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

MEMORY_BYTES = 1 << 30
"""Address space that one measurement may take on top of the loaded libraries."""

STATIC_TOKENS, STATIC_CAPACITY = 8, 3 << 20
"""A prompt in a cache with room for more tokens than any window has: what stays small there is a window."""

DYNAMIC_TOKENS = (24, 40)
OWN_TOKENS = (16, 24)
"""For models with a cache of their own, which may walk through their tokens one by one."""

PLAIN_LAYERS = frozenset(
    {
        "DynamicLayer",
        "DynamicSlidingWindowLayer",
        "DynamicIndexedLayer",
        "LinearAttentionLayer",
        "LinearAttentionAndFullAttentionLayer",
        "LinearAttentionAndSlidingWindowAttentionLayer",
        "DummyLayer",
    }
)
"""Cache layers of the library itself: they keep a row for every token, a window of them, or a state of fixed size."""

UNREAD = ("quantization_config", "auto_map", "_name_or_path", "torch_dtype", "dtype", "attn_implementation",
          "_attn_implementation", "_attn_implementation_internal", "transformers_version")  # fmt: skip
"""Keys that must not reach the class: how it is stored, run and loaded is not measured."""

MAX_LAYERS = 10_000
"""As for the rules."""

CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")
"""What models call the cache that they take and return."""


class Refusal(Exception):  # noqa: N818 - it never leaves this process
    """A reason not to measure: a kind that `measure.py` knows, and a text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


# ------------------------------------------------------------------------------------------------------ the process


def main() -> None:
    """Answer requests until stdin ends."""
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not reach the channel
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), write_through=True)
    version = load_libraries()
    limit_memory()
    sys.addaudithook(guard())
    send(channel, {"transformers": version})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        limit_seconds(request["seconds"])
        send(channel, answer(request["config"]))


def send(channel: Any, message: Mapping[str, Any]) -> None:
    channel.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
    channel.flush()


def load_libraries() -> str:
    """Import what measuring needs, and teach transformers the two stand-ins. The version of transformers."""
    import torch
    import torch.fx.experimental._config as fx
    import transformers
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    fx.meta_nonzero_assume_all_nonzero = True  # else no model whose experts pick tokens by value can run
    transformers.logging.set_verbosity(logging.CRITICAL)
    ALL_ATTENTION_FUNCTIONS.register("shapes_only", attention_shape)
    ALL_EXPERTS_FUNCTIONS.register("shapes_only", experts_shape)
    return str(transformers.__version__)


def limit_memory() -> None:
    """Let the process grow by no more than MEMORY_BYTES from here."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):  # no such limit on this system; the parent's time limit still holds
        return
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def limit_seconds(seconds: int) -> None:
    """End the process after `seconds` more of processor time, even where the parent is gone."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    wanted = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (wanted, resource.getrlimit(resource.RLIMIT_CPU)[1]))


_FORBIDDEN = re.compile(
    r"socket\.(connect|bind|getaddrinfo|gethostbyname|sendto)|os\.(system|exec|posix_spawn|fork|kill|symlink|link)"
    r"|subprocess\.Popen"
)
_ON_FILES = re.compile(r"open|os\.(listdir|scandir|mkdir|rmdir|remove|rename|chmod|chown|truncate)|shutil\.\w+")


def guard() -> Callable[[str, Any], None]:
    """An audit hook: no connection, no other program, and no file but those of Python and its packages."""
    homes = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, *sys.path) if path}
    allowed = (*homes, Path(f"/proc/{os.getpid()}"), Path("/dev/null"))

    def refuse(event: str, args: Any) -> None:
        if _FORBIDDEN.match(event):
            raise PermissionError(f"a measurement may not use {event}")
        if _ON_FILES.fullmatch(event) and args and isinstance(args[0], (str, bytes)):
            path = Path(os.fsdecode(args[0])).resolve()
            if not any(path.is_relative_to(home) for home in allowed):
                raise PermissionError(f"a measurement may not use {event} on a file of its own choice")

    return refuse


def answer(config: dict[str, Any]) -> dict[str, Any]:
    try:
        return measure(config)
    except Refusal as reason:
        return {"error": reason.kind, "text": str(reason)}
    except MemoryError:
        return {"error": "memory", "text": ""}
    except (Exception, RecursionError) as error:
        return {"error": "build", "text": in_one_line(error)}


def in_one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:300]


# ---------------------------------------------------------------------------------------------------------- stand-ins


def attention_shape(module: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> tuple[Any, None]:
    """The shape of attention's result (batch, tokens, heads, value width) without computing it."""
    batch, heads, tokens, _width = query.shape
    return query.new_empty((batch, tokens, heads, value.shape[-1])), None


def experts_shape(module: Any, hidden: Any, top_k_index: Any = None, *_: Any, **__: Any) -> Any:
    """Routing depends on data, and meta tensors have none: the experts' result has their input's shape."""
    if top_k_index is not None and not top_k_index.is_floating_point():
        module.experts_read = int(top_k_index.shape[-1])
    return hidden


def same_shape(hidden: Any, *_: Any, **__: Any) -> Any:
    return hidden


@contextlib.contextmanager
def without_mlps(model: Any) -> Iterator[None]:
    """Pass over MLPs, whose result has the shape of their input and which keep nothing."""
    changed = [module for module in model.modules() if re.search(r"(MLP|Mlp|Experts)$", type(module).__name__)]
    for module in changed:
        experts = type(module).__name__.endswith("Experts")
        module.forward = functools.partial(experts_shape, module) if experts else same_shape
    try:
        yield
    finally:
        for module in changed:
            vars(module).pop("forward", None)


def remembered_shapes() -> Any:
    """A mode in which the shape of an operation's result is worked out once for each shape of what goes in.

    Without values, what comes out of an operation follows from the shapes, dtypes and settings that go in. torch works
    it out anew each time, in Python, which is nearly all that a run costs; layers and tokens repeat the same few
    hundred. Operations that write into a tensor, or give back a view of one, are always run.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class RememberedShapes(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.known: dict[Any, Any] = {}

        def __torch_dispatch__(self, operation: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            try:
                key = (operation, *map(traits, args), *((name, traits(value)) for name, value in kwargs.items()))
                found = self.known.get(key)
            except TypeError:  # a tensor with values, or something that cannot be compared
                return operation(*args, **kwargs)
            if found is not None:
                return from_outline(found)
            result = operation(*args, **kwargs)
            if makes_new_tensors(operation):
                self.known[key] = outline(result)
            return result

    return RememberedShapes()


@functools.cache
def makes_new_tensors(operation: Any) -> bool:
    """Whether all that `operation` gives back is new, and nothing that it is given changes."""
    schema = operation._schema
    return not schema.is_mutable and all(item.alias_info is None for item in schema.returns)


def traits(value: Any) -> Any:
    """What can matter of an argument: of a tensor without values its shape, strides and dtype."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        if not value.is_meta:
            raise TypeError("a tensor with values")
        return shape, value.stride(), value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(map(traits, value))
    return type(value), value


def outline(result: Any) -> Any:
    """Shape, strides and dtype of a new tensor, or of each in a tuple; None for anything else."""
    import torch

    if type(result) is torch.Tensor and result.is_meta:
        return result.shape, result.stride(), result.dtype
    if type(result) is tuple and result and all(type(item) is torch.Tensor and item.is_meta for item in result):
        return [outline(item) for item in result]
    return None


def from_outline(found: Any) -> Any:
    import torch

    if isinstance(found, list):
        return tuple(from_outline(item) for item in found)
    shape, strides, dtype = found
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


# ------------------------------------------------------------------------------------------------------------ building


def measure(config: dict[str, Any]) -> dict[str, Any]:
    import torch

    settings, model_class = choose(config)
    with torch.device("meta"):
        model = build(model_class, own_settings(model_class, settings))
        refuse_cross_attention(model)
        with remembered_shapes():
            runs = all_runs(model)
    return {
        "class": model_class.__name__,
        "parameters": parameters(model),
        "runs": runs,
        "facts": facts(model, config),
    }


def choose(config: dict[str, Any]) -> tuple[Any, Any]:
    """The settings and the class of `config`: the one that architectures names, else image-text before causal."""
    import transformers
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    name = str(config.get("model_type"))
    if name not in CONFIG_MAPPING:
        raise Refusal("unknown", "")
    kinds = (
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    )
    offered = [class_name for kind in kinds for class_name in names_of(kind.get(name))]
    settings = settings_of(CONFIG_MAPPING[name], config)
    refuse_endless_stacks(settings)
    if getattr(settings, "is_encoder_decoder", False):
        raise Refusal("encoder-decoder", "")
    if name in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise Refusal("encoder", "")
    if not offered:
        raise Refusal("no decoder", "")
    return settings, getattr(transformers, chosen_class(config, offered))


def refuse_endless_stacks(settings: Any) -> None:
    """So many layers that building them would only end at a limit of time or memory."""
    parts = [settings, *(part for part in vars(settings).values() if hasattr(part, "attribute_map"))]
    for part in parts:
        count = fact(part, "num_hidden_layers")
        if isinstance(count, int) and count > MAX_LAYERS:
            raise Refusal("layers", f"{count:,}")


def chosen_class(config: Mapping[str, Any], offered: list[str]) -> str:
    """The class that architectures names, however it is spelled; the first on offer where the config names none."""
    stated = next((item for item in config.get("architectures") or [] if isinstance(item, str)), None)
    if stated is None:
        return offered[0]
    spelled = {name.lower().replace("_", ""): name for name in reversed(offered)}
    found = spelled.get(stated.lower().replace("_", ""))
    if found is None:
        raise Refusal("architecture", stated)
    return found


def names_of(entry: Any) -> tuple[str, ...]:
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)


def settings_of(config_class: Any, config: dict[str, Any]) -> Any:
    data = without_unread(config)
    data.pop("model_type", None)
    data.pop("architectures", None)
    return config_class.from_dict(data)


def without_unread(config: dict[str, Any]) -> dict[str, Any]:
    return {
        key: without_unread(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in UNREAD
    }


def own_settings(model_class: Any, settings: Any) -> Any:
    """A class of the text alone is built from the text's settings, as AutoModelForCausalLM does."""
    text = getattr(settings, "sub_configs", {}).get("text_config")
    return settings.get_text_config() if text is not None and model_class.config_class is text else settings


def build(model_class: Any, settings: Any) -> Any:
    """The model in bf16, so that whatever stays float32 is seen; without attention and experts where it can be."""
    import copy

    import torch

    fast = {"attn_implementation": "shapes_only", "experts_implementation": "shapes_only"}
    for choice in (fast, {"attn_implementation": "eager", "experts_implementation": "shapes_only"}, {}):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return model_class._from_config(copy.deepcopy(settings), dtype=torch.bfloat16, **choice).eval()
    return model_class._from_config(settings, dtype=torch.bfloat16).eval()


_CROSS = re.compile(
    r"\b(encoder_attn|crossattention|cross_attn|EncDecAttention|encoder_decoder_attention|gated_cross_attn)\b"
)


def refuse_cross_attention(model: Any) -> None:
    """Layers that attend to an image or an encoder keep its keys and values, which no run on text shows."""
    prefix = decoder_path(model)
    for name, _ in model.named_modules():
        if name.startswith(prefix) and (found := _CROSS.search(name)):
            raise Refusal("cross", found[1])


# ---------------------------------------------------------------------------------------------------------- parameters


def parameters(model: Any) -> list[list[Any]]:
    """Every parameter once: name, shape, dtype, and the class of the module that has it."""
    owners = dict(model.named_modules())
    return [
        [
            name,
            list(value.shape),
            str(value.dtype).removeprefix("torch."),
            type(owners[name.rpartition(".")[0]]).__name__,
        ]
        for name, value in model.named_parameters()
    ]


def facts(model: Any, config: dict[str, Any]) -> dict[str, Any]:
    """What the names of parameters cannot tell: where the decoder is, its sizes, and what the class did not know."""
    text = model.config.get_text_config(decoder=True)
    names = {id(value): name for name, value in model.named_parameters()}
    return {
        "embedding": name_of_weight(model.get_input_embeddings, names),
        "head": name_of_weight(model.get_output_embeddings, names),
        "decoder": decoder_path(model),
        "experts_read": {
            name: module.experts_read for name, module in model.named_modules() if "experts_read" in vars(module)
        },
        "text": {key: value for key in TEXT_FACTS if (value := fact(text, key)) is not None},
        "unknown": unknown_keys(model.config, config, sources(model)),
        "defaults": defaults(model.config, config),
    }


TEXT_FACTS = (
    "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "vocab_size", "num_hidden_layers",
    "max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx", "model_max_length", "kv_lora_rank",
    "qk_rope_head_dim", "index_topk", "num_experts_per_tok", "kv_sharing_modes",
)  # fmt: skip


def fact(settings: Any, key: str) -> Any:
    """A setting as JSON has it; None where it is absent, or differs from layer to layer."""
    try:
        return plain(getattr(settings, key, None))
    except Exception:  # transformers refuses a setting that layers do not share with an error of its own
        return None


def plain(value: Any) -> Any:
    """`value` where it is a number or a list of numbers and texts, as JSON has them."""
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(item, (int, float, str)) for item in value):
        return list(value)
    return None


def name_of_weight(get: Callable[[], Any], names: Mapping[int, str]) -> str | None:
    """The name of the weight of the module that the class says is its embedding or head."""
    try:
        return names.get(id(getattr(get(), "weight", None)))
    except (AttributeError, NotImplementedError):  # some wrappers do not say
        return None


def decoder_path(model: Any) -> str:
    """The path of the text decoder inside the model, or "" where the model is the decoder."""
    try:
        decoder = model.get_decoder()
    except (AttributeError, NotImplementedError):
        return ""
    return next((name for name, module in model.named_modules() if module is decoder), "")


def sources(model: Any) -> str:
    """The text of the modules that define the model, its parts and its settings: what they name, they may read."""
    parts = [part for part in vars(model.config).values() if hasattr(part, "attribute_map")]
    owners = [*map(type, (model.config, *parts, model)), *(type(module) for module in model.modules())]
    names = {base.__module__ for owner in owners for base in owner.__mro__ if ".models." in base.__module__}
    return "\n".join(inspect.getsource(sys.modules[name]) for name in sorted(names))


def unknown_keys(settings: Any, config: Mapping[str, Any], source: str) -> list[str]:
    """Paths of keys that the class of their object has no field for, does not derive, and `source` does not name."""
    inner = [
        f"{key}.{path}"
        for key, value in config.items()
        if isinstance(value, dict) and hasattr(part := getattr(settings, key, None), "attribute_map")
        for path in unknown_keys(part, value, source)
    ]
    return [*foreign_keys(settings, config, source), *inner]


def foreign_keys(settings: Any, config: Mapping[str, Any], source: str) -> list[str]:
    """The keys of one object that its class does not know."""
    names = {
        name for owner in type(settings).__mro__ for name in (*vars(owner), *vars(owner).get("__annotations__", ()))
    }
    known = names | set(type(settings).attribute_map)
    strange = [key for key in config if key not in UNREAD and key not in known]
    foreign = [key for key in strange if not re.search(rf"\b{re.escape(key)}\b", source)]
    if not foreign:
        return []
    bare = settings_of(type(settings), {key: value for key, value in config.items() if key not in foreign})
    return [key for key in foreign if not hasattr(bare, key) or getattr(bare, key) != config[key]]


def defaults(settings: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes that `config` leaves to its class."""
    text = settings.get_text_config(decoder=True)
    stated = {key for part in (config, *(v for v in config.values() if isinstance(v, dict))) for key in part}
    aliases = dict(type(text).attribute_map)
    return {
        key: value
        for key in SIZES
        if key not in stated and aliases.get(key) not in stated and (value := fact(text, key)) is not None
    }


SIZES = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
    "head_dim", "vocab_size", "sliding_window", "tie_word_embeddings", "num_experts_per_tok",
)  # fmt: skip
"""Settings whose class default a user should know of."""


# ---------------------------------------------------------------------------------------------------------------- runs


def all_runs(model: Any) -> list[dict[str, Any]]:
    """A run with a static cache where there is one, and runs with a dynamic one: one length where both agree to work,
    else two, and longer ones where layers share entries between tokens."""
    tokens, more = DYNAMIC_TOKENS
    attempt = Attempts(list(ways(model)))
    found = [attempt(static_run), attempt(dynamic_run, tokens)]
    if all("failed" in run for run in found):
        return [attempt(own_run, length) for length in OWN_TOKENS]
    if any(layer["class"] not in PLAIN_LAYERS for layer in found[-1].get("layers", ())):
        return [found[0], *(attempt(dynamic_run, length) for length in long_lengths(found[-1]))]
    if any("failed" in run for run in found):
        found.append(attempt(static_run if "failed" in found[1] else dynamic_run, more))
    return found


def long_lengths(run: Mapping[str, Any]) -> tuple[int, ...]:
    """Lengths of whole blocks, the shortest above every window."""
    windows = [layer["window"] for layer in run["layers"] if isinstance(layer["window"], int)]
    block = 512 * max(1, -(-max(windows, default=0) // 512))
    return (block, 2 * block)


class Attempts:
    """Runs in the cheapest way that works; the way that worked is tried first by the next run."""

    def __init__(self, ways: list[tuple[Any, str | None, bool]]) -> None:
        self.ways = ways

    def __call__(self, run: Callable[..., dict[str, Any]], *settings: Any) -> dict[str, Any]:
        """What `run` sees; where it fails in every way, the last reason."""
        reasons = []
        for way in list(self.ways):
            try:
                found = self._run(way, run, settings)
            except MemoryError:
                raise
            except Exception as error:
                reasons.append(in_one_line(error))
            else:
                self.ways.sort(key=lambda other: other is not way)
                return found
        return {"failed": reasons[-1], "capacity": None}

    def _run(self, way: tuple[Any, str | None, bool], run: Callable[..., Any], settings: Any) -> dict[str, Any]:
        target, attention, passes_over_mlps = way
        if attention is not None:
            target.config._attn_implementation = attention
        with without_mlps(target) if passes_over_mlps else contextlib.nullcontext():
            found: dict[str, Any] = run(target, *settings)
        return found


def ways(model: Any) -> Iterator[tuple[Any, str | None, bool]]:
    """(what to run, how it attends, whether MLPs are passed over), cheapest first: without attention and MLPs, with
    attention, with both, the decoder of a wrapper alone."""
    fast = model.config._attn_implementation
    yield model, fast, True
    if fast != "eager":
        yield model, "eager", True
    yield model, "eager" if fast else None, False
    decoder = dict(model.named_modules()).get(decoder_path(model))
    if decoder is not None and decoder is not model:
        yield decoder, fast, True


def static_run(model: Any, tokens: int = STATIC_TOKENS) -> dict[str, Any]:
    from transformers import StaticCache

    capacity = STATIC_CAPACITY + tokens  # another length, another capacity
    return {"capacity": capacity, **read_run(model, StaticCache(config=model.config, max_cache_len=capacity), tokens)}


def dynamic_run(model: Any, tokens: int) -> dict[str, Any]:
    from transformers import DynamicCache

    return {"capacity": None, **read_run(model, DynamicCache(config=model.config), tokens)}


def own_run(model: Any, tokens: int) -> dict[str, Any]:
    """For a model that takes no cache but its own: what it gives back."""
    returned = forward(model, None, tokens)
    if isinstance(returned, (list, tuple)) and all(hasattr(item, "shape") for item in returned):
        layers = layers_in_stacks(returned)
    else:
        layers = read_layers(returned, {})
    return {
        "capacity": None,
        "tokens": tokens,
        "kept": returned is not None,
        "returned": type(returned).__name__,
        "layers": layers,
    }


def layers_in_stacks(stacks: Any) -> list[dict[str, Any]]:
    """A state that is a few tensors, each of all layers at once, the layer last: what each layer has of them."""
    counts = {int(stack.shape[-1]) for stack in stacks}
    if len(counts) != 1:
        raise ValueError("its state is stacks of different numbers of layers")
    held = {f"state.{index}": stack[..., 0] for index, stack in enumerate(stacks)}
    return [{"class": "Stack", "seen": [], "window": None, "tensors": list(tensors(held))}] * counts.pop()


def read_run(model: Any, cache: Any, tokens: int) -> dict[str, Any]:
    """What `cache` holds after the model has read `tokens` tokens, and whether the model gave that cache back."""
    with watched(cache) as seen:
        returned = forward(model, cache, tokens)
    return {
        "tokens": tokens,
        "kept": returned is cache,
        "returned": type(returned).__name__,
        "layers": read_layers(cache if returned is None else returned, seen),
    }


def read_layers(cache: Any, seen: Mapping[int, list[int]]) -> list[dict[str, Any]]:
    """Each layer of `cache`; what a cache class of a model keeps beside its layers is read by its index."""
    layers = list(getattr(cache, "layers", ()))
    beside = {
        name: value for name, value in vars(cache).items() if name != "layers" and isinstance(value, (list, dict))
    }
    indices = {key for value in beside.values() if isinstance(value, dict) for key in value if isinstance(key, int)}
    count = max(
        [len(layers), *(len(value) for value in beside.values() if isinstance(value, list)), *(i + 1 for i in indices)]
    )
    return [
        read_layer(layers[i : i + 1], {name: at(value, i) for name, value in beside.items()}, seen)
        for i in range(count)
    ]


def at(value: list[Any] | dict[int, Any], index: int) -> Any:
    if isinstance(value, dict):
        return value.get(index)
    return value[index] if index < len(value) else None


def read_layer(layers: list[Any], beside: dict[str, Any], seen: Mapping[int, list[int]]) -> dict[str, Any]:
    layer = layers[0] if layers else None
    return {
        "class": type(layer).__name__,
        "seen": seen.get(id(layer), []),
        "window": plain(getattr(layer, "sliding_window", None)),
        "tensors": list(tensors({**(vars(layer) if layers else {}), **beside})),
    }


@contextlib.contextmanager
def watched(cache: Any) -> Iterator[dict[int, list[int]]]:
    """How many tokens each update brings to each layer (by id) of `cache`, those that the model adds included."""
    seen: dict[int, list[int]] = {}
    busy: set[int] = set()

    def watch(update: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: Any, keys: Any, values: Any, *more: Any, **named: Any) -> Any:
            if id(self) in busy or keys is None:  # a class that calls its parent's update is one update
                return update(self, keys, values, *more, **named)
            busy.add(id(self))
            seen.setdefault(id(self), []).append(int(keys.shape[-2]))
            try:
                return update(self, keys, values, *more, **named)
            finally:
                busy.discard(id(self))

        return noted

    classes: set[Any] = {owner for layer in cache.layers for owner in type(layer).__mro__ if "update" in vars(owner)}
    originals = {owner: owner.update for owner in classes}
    for owner, update in originals.items():
        owner.update = watch(update)
    try:
        yield seen
    finally:
        for owner, update in originals.items():
            owner.update = update


def forward(model: Any, cache: Any, tokens: int) -> Any:
    """Let the model read `tokens` tokens into `cache`; the cache that it returns."""
    import torch

    accepted = inspect.signature(model.forward).parameters
    name = next((name for name in CACHE_NAMES if name in accepted), "cache")
    result = model(input_ids=torch.zeros((1, tokens), dtype=torch.int64), use_cache=True, **{name: cache})
    return next((value for name in CACHE_NAMES if (value := getattr(result, name, None)) is not None), None)


def tensors(held: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Name, shape and dtype of each tensor that a cache layer holds, each once however many names it has."""
    done: set[int] = set()
    for path, value in inside(held, ""):
        if id(value) not in done and value.dim() > 1:
            done.add(id(value))
            yield [path, list(value.shape), str(value.dtype).removeprefix("torch.")]


def inside(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from inside(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from inside(item, f"{path}.{index}")


if __name__ == "__main__":
    main()
