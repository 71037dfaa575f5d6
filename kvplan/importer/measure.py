"""A config measured: what the installed transformers builds from it, on a device that holds shapes and no values.

The building happens in a worker process with limits of time and memory and without network; it runs only code of
the transformers package, never a checkpoint's own. Workers stay warm for the next config. This side has neither torch
nor transformers: it starts workers, checks every answer, and makes the `Model`.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvplan.attention import LayerCache
from kvplan.dtypes import StorageFormat
from kvplan.errors import ConfigError, NotADecoderError, UnsupportedConfigError, shorten
from kvplan.importer.decoder import CONTEXT_KEYS, MAX_LAYERS, Parts
from kvplan.importer.families.moe import MTP_KEYS
from kvplan.importer.harmless import why_harmless
from kvplan.importer.measured_cache import layer_caches
from kvplan.importer.measured_weights import Weights, weights_of
from kvplan.model import Layer, Model

MAX_SIZE = 2**48
"""Of one dimension of a tensor."""

TIME_LIMIT_SECONDS = 60
START_LIMIT_SECONDS = 180
MAX_ANSWER_BYTES = 64 * 2**20
MAX_REQUEST_BYTES = 8 * 2**20
CONFIGS_PER_WORKER = 50
IDLE_SECONDS = 300
KEPT_RESULTS = 32
MAX_WAITING = 4
"""Measurements that wait for the one in progress; more are refused at once, so that nobody piles them up."""
"""Answers in memory, of up to a megabyte each."""


WORKER = Path(__file__).with_name("measure_worker.py")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a config is, as measured: the same parts that a rule gives, and the notes that belong to them.

    unread      paths of keys that may change memory and that the class does not read
    class_name  the class that was built
    """

    parts: Parts
    notes: tuple[str, ...]
    unread: tuple[str, ...]
    class_name: str

    def refusal(self) -> UnsupportedConfigError:
        """Why a measurement with unread keys does not stand alone: they may belong to another layout."""
        return UnsupportedConfigError(
            f"config.json: cannot be measured: {', '.join(self.unread[:6])} may change memory, "
            f"and {self.class_name} of transformers does not read it"
        )


def measure_parts(
    data: Mapping[str, Any], dtype: StorageFormat | None, *, seconds: int = TIME_LIMIT_SECONDS
) -> Measurement:
    """Measure the unquantized class of `data`; `dtype` is the model's own, None where the config states none.

    Keys that the class does not read are in `unread`; whoever uses the measurement decides on them.

    Raises ConfigError or UnsupportedConfigError with the reason: an unknown type, an encoder, a config that its class
    cannot build, a cache that is not to be believed, a limit of time or memory.
    """
    answer = _answer(_request(data), seconds)
    _refuse_errors(answer, data)
    facts = _checked(answer, data)
    text = facts["text"]
    caches = layer_caches(answer["runs"], text, dtype)
    weights = weights_of(answer["parameters"], facts, caches)
    notes = (*_notes(answer, facts), *weights.notes, *_left_out(data, weights, str(answer["class"])))
    return Measurement(_parts(text, caches, weights), notes, _unread(facts, data), str(answer["class"]))


def with_known_roles(parts: Parts) -> Parts:
    """`parts`, whose matrices all have a role: a quantized checkpoint stores them by role.

    Raises UnsupportedConfigError where a name does not say the role.
    """
    unclear = [
        group for layer in parts.layers for group in layer.weights if group.role == "other" and group.columns > 1
    ]
    if unclear:
        raise UnsupportedConfigError(
            f"config.json: a matrix of {unclear[0].rows} x {unclear[0].columns} has a name that says no role, so "
            "whether the checkpoint quantizes it is not known"
        )
    return parts


def measure_config(
    data: Mapping[str, Any],
    *,
    name: str | None = None,
    dtype: StorageFormat | None = None,
    seconds: int = TIME_LIMIT_SECONDS,
) -> Model:
    """The `Model` of `data` as measured, unquantized: `measure_parts` with a name.

    Raises as it does, and UnsupportedConfigError where the class does not read a key that may change memory.
    """
    found = measure_parts(data, dtype, seconds=seconds)
    if found.unread:
        raise found.refusal()
    model_type = str(data.get("model_type"))
    return Model(
        name=name or model_type,
        layers=found.parts.layers,
        weights=found.parts.weights,
        dtype=dtype,
        hidden_size=found.parts.hidden_size,
        num_attention_heads=found.parts.num_attention_heads,
        vocab_size=found.parts.vocab_size,
        context_limit=found.parts.context_limit,
        tied_embeddings=found.parts.tied_embeddings,
        model_type=model_type,
        notes=found.notes,
    )


# ------------------------------------------------------------------------------------------------------------- results

_PASSING = frozenset({"slow", "gone", "busy"})
"""Errors that say more of the machine than of the config: another try may end better."""

_results: dict[str, dict[str, Any]] = {}
_results_lock = threading.Lock()


def _request(data: Mapping[str, Any]) -> str:
    """The config as the worker reads it. Raises ConfigError where it is no plain JSON."""
    try:
        text = json.dumps(_plain(data), sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"config.json: holds what JSON cannot: {shorten(error, 120)}") from None
    if len(text) > MAX_REQUEST_BYTES:
        raise ConfigError(f"config.json is over {MAX_REQUEST_BYTES // 2**20} MiB, too large for a config")
    return text


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Without what says how the checkpoint is stored: that does not change the class."""
    return {key: value for key, value in data.items() if key not in ("quantization_config", "auto_map")}


def _answer(config: str, seconds: int) -> dict[str, Any]:
    """The worker's answer, from memory where the same config was measured before."""
    key = hashlib.sha256(config.encode()).hexdigest()
    with _results_lock:
        if key in _results:
            return _results[key]
    answer = _workers.ask(config, seconds)
    if answer.get("error") in _PASSING:
        return answer
    with _results_lock:
        while len(_results) >= KEPT_RESULTS:
            _results.pop(next(iter(_results)))
        _results[key] = answer
    return answer


# ------------------------------------------------------------------------------------------------------------- workers


def _refuse_without_libraries() -> None:
    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            raise UnsupportedConfigError(f"config.json: cannot be measured: the package {name} is not installed")


def _environment() -> dict[str, str]:
    """The parent's, without its credentials, and with everything that reaches the network switched off."""
    secret = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "API_KEY")
    kept = {name: value for name, value in os.environ.items() if not any(word in name.upper() for word in secret)}
    return {
        **kept,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "critical",
    }


@dataclass
class _Worker:
    """One child process. Every exchange has a deadline, after which the process is killed."""

    process: subprocess.Popen[bytes]
    version: str = ""
    served: int = 0

    @classmethod
    def start(cls) -> _Worker:
        _refuse_without_libraries()
        process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        )
        worker = cls(process)
        greeting = worker._read(START_LIMIT_SECONDS)
        worker.version = str(greeting.get("transformers"))
        return worker

    def ask(self, config: str, seconds: int) -> dict[str, Any]:
        self.served += 1
        request = f'{{"config":{config},"seconds":{seconds}}}\n'
        try:
            self._stdin.write(request.encode())
            self._stdin.flush()
        except OSError:
            raise _Gone from None
        return {**self._read(seconds), "transformers": self.version}

    @property
    def _stdin(self) -> Any:
        return self.process.stdin

    def _read(self, seconds: int) -> dict[str, Any]:
        """One line of JSON. Raises _Gone where the process ended, _TooSlow where the deadline passed."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            line = self.process.stdout.readline(MAX_ANSWER_BYTES) if self.process.stdout else b""
        finally:
            timer.cancel()
        if late.is_set():
            raise _TooSlow
        if not line.endswith(b"\n"):
            raise _Gone
        found = json.loads(line)
        if not isinstance(found, dict):
            raise _Gone
        return found

    def close(self) -> None:
        """End the process and wait for it."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # what was still to be written goes nowhere: the process is dead
        self.process.wait()


class _Gone(Exception):  # noqa: N818 - it never leaves this module
    """The worker ended without an answer: killed for memory, or crashed."""


class _TooSlow(Exception):  # noqa: N818
    """The worker took longer than it may."""


@dataclass
class _Workers:
    """One measurement at a time, so that a server's memory is bounded; the worker stays warm for a while after."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    warm: _Worker | None = None
    busy: _Worker | None = None
    idle: threading.Timer | None = None
    places: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1 + MAX_WAITING))

    def ask(self, config: str, seconds: int) -> dict[str, Any]:
        if not self.places.acquire(blocking=False):
            return {"error": "busy"}
        try:
            return self._ask_in_turn(config, seconds)
        finally:
            self.places.release()

    def _ask_in_turn(self, config: str, seconds: int) -> dict[str, Any]:
        with self.turn:
            self._stop_waiting()
            worker, self.warm = self.warm or _start(), None
            self.busy = worker
            try:
                answer = worker.ask(config, seconds)
            except (_Gone, _TooSlow, ValueError) as reason:
                worker.close()
                return {"error": "slow" if isinstance(reason, _TooSlow) else "gone", "text": str(seconds)}
            except BaseException:
                worker.close()
                raise
            finally:
                self.busy = None
            self._keep(worker)
            return answer

    def _keep(self, worker: _Worker) -> None:
        if worker.served >= CONFIGS_PER_WORKER:
            worker.close()
            return
        self.warm = worker
        self.idle = threading.Timer(IDLE_SECONDS, self.close)
        self.idle.daemon = True
        self.idle.start()

    def _stop_waiting(self) -> None:
        if self.idle is not None:
            self.idle.cancel()
            self.idle = None

    def warm_up(self) -> None:
        with self.turn:
            if self.warm is None:
                self._keep(_start())

    def stop(self) -> None:
        """End everything at once, a measurement in progress included: the interpreter is about to exit."""
        if self.busy is not None:
            self.busy.process.kill()
        self.close()

    def close(self) -> None:
        with self.turn:
            self._stop_waiting()
            if self.warm is not None:
                self.warm.close()
                self.warm = None


def _start() -> _Worker:
    try:
        return _Worker.start()
    except (_Gone, _TooSlow, OSError, ValueError):
        raise UnsupportedConfigError(
            "config.json: cannot be measured: torch and transformers did not start in a process of their own"
        ) from None


_workers = _Workers()
atexit.register(_workers.stop)


def start_worker() -> None:
    """Start a worker before the first config comes. Raises UnsupportedConfigError where none can be started."""
    _workers.warm_up()


def close_workers() -> None:
    """End the waiting worker; the next measurement starts one."""
    _workers.close()


# -------------------------------------------------------------------------------------------------------------- errors


def _refuse_errors(answer: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    if "error" not in answer:
        return
    model_type, version = shorten(repr(data.get("model_type"))), answer.get("transformers", "")
    text = shorten(answer.get("text", ""), 240)
    sentences = {
        "unknown": f"transformers {version} knows no model_type {model_type}",
        "encoder": f"{model_type} is an encoder, which keeps no cache; decoder language models can be measured",
        "encoder-decoder": f"{model_type} is an encoder-decoder; decoder language models can be measured",
        "no decoder": f"transformers {version} has no decoder language model of type {model_type}",
        "cross": f"{model_type} has cross-attention ({text}), whose cache text alone does not fill",
        "architecture": f"architectures names {text}, no language model of this type in transformers {version}",
        "build": f"transformers {version} cannot build it ({text})",
        "layers": f"it has {text} layers; up to {MAX_LAYERS:,} are known",
        "memory": "it takes more memory than a measurement may",
        "slow": f"it takes longer than {text} seconds",
        "gone": "it takes more memory or time than a measurement may",
        "busy": "others wait for their measurement already; try again in a minute",
    }
    kind = str(answer["error"])
    raised = NotADecoderError if kind in ("encoder", "encoder-decoder") else UnsupportedConfigError
    raise raised(f"config.json: cannot be measured: {sentences.get(kind, 'an unknown reason')}")


def _checked(answer: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The facts of an answer whose shape is as agreed. Raises UnsupportedConfigError."""
    facts = answer.get("facts")
    whole = (
        isinstance(facts, dict)
        and isinstance(facts.get("text"), dict)
        and isinstance(answer.get("runs"), list)
        and all(isinstance(run, dict) for run in answer["runs"])
        and isinstance(answer.get("parameters"), list)
        and all(_is_parameter(item) for item in answer["parameters"])
    )
    if not whole or not isinstance(facts, dict):
        raise UnsupportedConfigError(f"config.json: cannot be measured: {_too_large(answer, data)}")
    return facts


def _is_parameter(item: Any) -> bool:
    return _has_shape(item) and all(0 <= size < MAX_SIZE for size in item[1])


def _has_shape(item: Any) -> bool:
    return (
        isinstance(item, list)
        and len(item) == 4
        and isinstance(item[0], str)
        and isinstance(item[1], list)
        and all(isinstance(size, int) for size in item[1])
    )


def _too_large(answer: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Which tensor of an answer has a size beyond every model, and from which key, or that the answer is broken."""
    parameters = answer.get("parameters")
    listed = parameters if isinstance(parameters, list) else []
    found = next((item for item in listed if _has_shape(item) and not _is_parameter(item)), None)
    if found is None or max(found[1]) < MAX_SIZE:
        return "the worker's answer is not whole"
    size = max(found[1])
    inner = [data, *(value for value in data.values() if isinstance(value, Mapping))]
    named = next((key for config in inner for key, value in config.items() if value == size), "a size")
    return f"{named} is {size:,}, the size of {shorten(found[0])}; sizes below {MAX_SIZE:,} are accepted"


def _unread(facts: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[str, ...]:
    """What the class does not read and may change memory: of another layout, or of a checkpoint's own code.

    Layers that predict further tokens are not part of the decoder; `stored_beside` names them.
    """
    stated = [(path, _at(data, path)) for path in facts.get("unknown", ())]
    return tuple(
        path
        for path, value in stated
        if value is not None and (name := path.split(".")[-1]) not in MTP_KEYS and why_harmless(name, value) is None
    )


def _at(data: Any, path: str) -> Any:
    """The value under the keys of `path`."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


# -------------------------------------------------------------------------------------------------------------- models


def _parts(text: Mapping[str, Any], caches: Sequence[LayerCache], weights: Weights) -> Parts:
    heads = text.get("num_attention_heads")
    made: dict[Any, Layer] = {}  # equal layers are one object, which keeps sums fast
    layers = []
    for cache, groups in zip(caches, weights.layers, strict=True):
        if (cache, groups) not in made:
            attends = bool(cache.cache_parts()) and isinstance(heads, int)
            made[(cache, groups)] = Layer(cache, groups, heads if attends else None)
        layers.append(made[(cache, groups)])
    return Parts(
        layers=tuple(layers),
        weights=weights.outer,
        hidden_size=_number(text, "hidden_size") or 0,
        num_attention_heads=heads if isinstance(heads, int) else None,
        vocab_size=_number(text, "vocab_size"),
        context_limit=next((limit for key in CONTEXT_KEYS if (limit := _number(text, key))), None),
        tied_embeddings=weights.tied,
    )


def _number(text: Mapping[str, Any], key: str) -> int | None:
    value = text.get(key)
    return value if isinstance(value, int) and value > 0 else None


def _left_out(data: Mapping[str, Any], weights: Weights, class_name: str) -> list[str]:
    """The towers of a config whose architectures names a class of the text alone."""
    towers = [key for key in ("vision_config", "audio_config") if isinstance(data.get(key), Mapping)]
    if not towers or any(group.tower != "text" for group in weights.outer):
        return []
    verb = "is" if len(towers) == 1 else "are"
    return [f"{' and '.join(towers)} {verb} not counted: {class_name} is a class of text alone"]


def _notes(answer: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[str, ...]:
    notes = [f"measured with transformers {answer['transformers']}: {answer['class']}, on shapes without values"]
    if facts.get("defaults"):
        used = ", ".join(f"{key} {value}" for key, value in facts["defaults"].items())
        notes.append(f"class defaults are used for {used}")
    return tuple(notes)
