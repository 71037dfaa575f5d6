"""Hostile links: each is refused with a sentence, and opened as far as it goes without one error."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from kvplan.hardware import define_gpu
from kvplan.library import GPU, MODEL
from kvplan.plan import Scenario
from kvplan.share import from_comparison_link, from_link, open_comparison, open_link
from kvplan.units import GIB
from tests.examples import LLAMA_8B

CARD = define_gpu(name="A card", usable_bytes=24 * GIB)
FALLBACK = Scenario(LLAMA_8B, CARD)


def packed(data: bytes | str) -> str:
    """What a file key holds for `data`."""
    text = data.encode() if isinstance(data, str) else data
    return base64.urlsafe_b64encode(zlib.compress(text, 9)).decode().rstrip("=")


def packed_table(table: Any) -> str:
    return packed(json.dumps(table))


SOUND_MODEL, SOUND_GPU = MODEL.to_table(LLAMA_8B), GPU.to_table(CARD)
LAYER = SOUND_MODEL["layer"]["full"]
SOUND = f"?v=1&model_file={packed_table(SOUND_MODEL)}&gpu_file={packed_table(SOUND_GPU)}"


def with_model(**changes: Any) -> str:
    return f"?v=1&gpu_file={packed_table(SOUND_GPU)}&model_file={packed_table({**SOUND_MODEL, **changes})}"


def with_gpu(**changes: Any) -> str:
    return f"?v=1&model_file={packed_table(SOUND_MODEL)}&gpu_file={packed_table({**SOUND_GPU, **changes})}"


def with_packed(value: str) -> str:
    return f"?v=1&gpu_file={packed_table(SOUND_GPU)}&model_file={quote(value)}"


def nested(depth: int) -> Any:
    cache: Any = LAYER["cache"]
    for _ in range(depth):
        cache = {"kind": "combined", "members": [cache]}
    return {"full": {**LAYER, "cache": cache}}


BOMB = packed(b"\0" * 4_000_000)
HEAVY = {"a": {**LAYER, "weights": [{"role": "norm", "rows": 1, "columns": 1}] * 400}}

LINKS: dict[str, str] = {
    # not a link at all
    "nothing": "",
    "spaces": " " * 5000,
    "zeros": "\0" * 100,
    "one word": "javascript:alert(1)",
    "data address": "data:text/html,<script>alert(1)</script>",
    "file address": "file:///etc/passwd",
    "only a question mark": "?",
    "many question marks": "?" * 4000,
    "many ampersands": "?" + "&" * 7900,
    "many equals": "?v=1&" + "=" * 7000,
    "percent signs": "?v=1&model=" + "%" * 7000,
    "broken percents": "?v=1&model=%zz%0&gpu=%",
    "not utf-8": "?v=1&model=%ff%fe&gpu=%c0%af",
    "surrogates": "?v=1&model=\ud800&gpu=x",
    "right to left": "?v=1&model=\u202ellama&gpu=x",
    "line breaks": "?v=1&model=a%0d%0aSet-Cookie:x&gpu=b",
    "escape codes": "?v=1&model=%1b[31mred&gpu=x",
    "a megabyte": "?v=1&model=" + "a" * 2**20,
    "8,001 characters": "?v=1&model=" + "a" * 7989,
    "too many keys": "?v=1&" + "&".join(f"k{i}=" for i in range(900)),
    "a key twice": SOUND + "&ctx=1&ctx=2",
    "a thousand of one key": "?v=1" + "&model=a&model=b" * 450,
    "semicolons": "?v=1;model=a;gpu=b",
    # names
    "path up": "?v=1&model=../../etc/passwd&gpu=x",
    "encoded path up": "?v=1&model=..%2f..%2fetc%2fpasswd&gpu=x",
    "absolute path": "?v=1&model=/etc/passwd&gpu=x",
    "windows path": "?v=1&model=C:%5cwindows%5cwin.ini&gpu=x",
    "share path": "?v=1&model=%5c%5chost%5cshare&gpu=x",
    "zero in a name": "?v=1&model=llama%00.toml&gpu=x",
    "glob": "?v=1&model=*&gpu=x",
    "html": "?v=1&model=<script>alert(1)</script>&gpu=x",
    "markdown": "?v=1&model=![](https://evil.example/p.png)&gpu=x",
    "latex": "?v=1&model=$\\frac{1}{0}$&gpu=x",
    "template": "?v=1&model={{7*7}}${7*7}&gpu=x",
    "format": "?v=1&model=%25s%25n{0.__class__}&gpu=x",
    "shell": "?v=1&model=$(id)`id`;id&gpu=x",
    "sql": "?v=1&model=' OR 1=1 --&gpu=x",
    "address": "?v=1&model=http://169.254.169.254/latest&gpu=x",
    "long name": "?v=1&gpu=x&model=" + "a" * 5000,
    "hidden name": "?v=1&model=.lock&gpu=x",
    # versions and keys
    "no version": SOUND.replace("v=1&", ""),
    "version 0": SOUND.replace("v=1", "v=0"),
    "version 2": SOUND.replace("v=1", "v=2"),
    "version text": SOUND.replace("v=1", "v=one"),
    "long version": SOUND.replace("v=1", "v=" + "1" * 3000),
    "unknown key": SOUND + "&__class__=x",
    "html key": SOUND + "&<b>=x",
    "self": SOUND + "&self=1",
    # numbers
    "zero context": SOUND + "&ctx=0",
    "negative": SOUND + "&ctx=-1",
    "huge": SOUND + "&ctx=" + "9" * 3000,
    "beyond int64": SOUND + "&ctx=9223372036854775808",
    "exponent": SOUND + "&ctx=1e9",
    "nan": SOUND + "&fraction=nan",
    "infinity": SOUND + "&fraction=inf",
    "minus zero": SOUND + "&fraction=-0.0",
    "long fraction": SOUND + "&fraction=0." + "0" * 2000 + "1e-999",
    "digits of another script": SOUND + "&ctx=" + quote("٣٢"),
    "hexadecimal": SOUND + "&ctx=0x10",
    "many spaces in a number": SOUND + "&ctx=1" + "+" * 3000 + "x",
    "many digits and dots": SOUND + "&overhead=" + "1." * 1500,
    "huge batch": SOUND + "&batch=1099511627777",
    "tensor parallel of zero": SOUND + "&tp=0",
    "tensor parallel of thousands": SOUND + "&tp=4096",
    "pipeline beyond layers": SOUND + "&pp=4096",
    "overhead of exabytes": SOUND + "&overhead=999999999999999TiB",
    "prefix beyond context": SOUND + "&prefix=1099511627776",
    "no such dtype": SOUND + "&kv=fp8;DROP",
    "dtype of many slashes": SOUND + "&kv=" + "/" * 3000,
    "weights of nothing": SOUND + "&weights=__import__",
    "heads of zero": SOUND + "&heads=0",
    "heads of millions": SOUND + "&heads=1000000",
    "an engine that is a path": SOUND + "&engine=../vllm",
    # fingerprints
    "fingerprint of html": "?v=1&model=x&gpu=y&mfp=<b>",
    "long fingerprint": "?v=1&model=x&gpu=y&mfp=" + "0" * 5000,
    # what travels inside
    "not base64": with_packed("*" * 100),
    "base64 of another alphabet": with_packed("ab+/"),
    "one character": with_packed("A"),
    "not zlib": with_packed(base64.urlsafe_b64encode(b"hello world").decode()),
    "gzip": with_packed("H4sIAAAAAAAA_0vLz0lKBwA"),
    "pickle": with_packed(packed(b"\x80\x04\x95\x00\x00\x00\x00cos\nsystem\n.")),
    "cut short": with_packed(packed_table(SOUND_MODEL)[:-20]),
    "one byte wrong": with_packed(packed_table(SOUND_MODEL)[:60] + "A" + packed_table(SOUND_MODEL)[61:]),
    "something behind": with_packed(base64.urlsafe_b64encode(zlib.compress(b"{}") + b"more").decode()),
    "a bomb": with_packed(BOMB),
    "a bomb of json": with_packed(packed("[" + "0," * 900_000 + "0]")),
    "not utf-8 inside": with_packed(packed(b"\xff\xfe")),
    "not json": with_packed(packed("schema = 1")),
    "a list": with_packed(packed("[]")),
    "a number": with_packed(packed("1")),
    "null": with_packed(packed("null")),
    "nan inside": with_packed(packed('{"schema": NaN}')),
    "a number of 10,000 digits": with_packed(packed('{"schema": ' + "9" * 10_000 + "}")),
    "brackets 30,000 deep": with_packed(packed("[" * 30_000)),
    "braces 30,000 deep": with_packed(packed('{"a":' * 10_000)),
    "empty": with_packed(packed("{}")),
    "wrong schema": with_model(schema=2),
    "schema true": with_model(schema=True),
    "an extra key": with_model(__class__="x"),
    "an id inside": with_model(id="llama-3.1-8b"),
    "html name": with_model(name="<img src=x onerror=alert(1)>"),
    "markdown name": with_model(name="[x](javascript:alert)"),
    "icon name": with_model(name=":material/home:"),
    "www name": with_model(name="www.evil.example"),
    "name of nothing": with_model(name=""),
    "name of 10,000": with_model(name="a" * 10_000),
    "name that is a list": with_model(name=["a"]),
    "no layers": with_model(layers=[]),
    "a million layers": with_model(layers=["99999 x full"] * 11),
    "layers of zero": with_model(layers=["0 x full"]),
    "layers of nothing known": with_model(layers=["1 x __init__"]),
    "layers that are a number": with_model(layers=5),
    "layers that are tables": with_model(layers=[{}]),
    "layers that are a table": with_model(layer=[]),
    "a kind that is a class": with_model(layer={"full": {**LAYER, "cache": {"kind": "__class__"}}}),
    "caches 6 deep": with_model(layer=nested(6)),
    "caches 300 deep": with_model(layer=nested(300)),
    "heavy layers": with_model(layer=HEAVY, layers=["1 x a"] * 100),
    "wrong sum": with_model(num_params=1),
    "hidden size of 2^63": with_model(hidden_size=2**63),
    "hidden size of text": with_model(hidden_size="4096"),
    "hidden size of a float": with_model(hidden_size=4096.0),
    "hidden size of true": with_model(hidden_size=True),
    "negative vocabulary": with_model(vocab_size=-1),
    "no such format": with_model(dtype="pickle"),
    "a weight of nothing": with_model(weights=[{}]),
    "negative rows": with_model(weights=[{"role": "embedding", "rows": -1, "columns": 1}]),
    "a model in the gpu's place": f"?v=1&model_file={packed_table(SOUND_MODEL)}&gpu_file={packed_table(SOUND_MODEL)}",
    "no memory": with_gpu(usable_bytes=0),
    "memory of exabytes": with_gpu(usable_bytes=2**62),
    "html gpu": with_gpu(name="<b>x</b>"),
    "bandwidth of zero": with_gpu(bandwidth=0),
    "range backwards": with_gpu(usable_range=[2, 1]),
    "tflops of text": with_gpu(tflops={"bf16": "x"}),
    "confidence of html": with_gpu(confidence="<b>"),
    "an id that is a path": SOUND + "&model=../x",
    "a draft that is a bomb": SOUND + f"&draft_file={BOMB}",
    # comparisons
    "many sides": "?" + "&".join(f"{letter}.v=1" for letter in "abcdefghijklmnopqrstuvwxyz"),
    "a broken side": SOUND + "&b.v=1&b.model=../x",
}  # fmt: skip


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
@pytest.mark.parametrize("read", [from_link, from_comparison_link])
def test_a_hostile_link_is_refused_with_a_sentence(bounds: Any, link: str, read: Callable[[str], Any]) -> None:
    bounds.refusal(lambda: read(link))


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_a_hostile_link_opens_as_far_as_it_goes(bounds: Any, link: str) -> None:
    for opened in (bounds.run(lambda: open_link(link, FALLBACK)), *bounds.run(lambda: open_comparison(link, FALLBACK))):
        assert opened.scenario is not None
        if opened.troubles:
            bounds.sentence(opened.sentence[:700])
    assert bounds.run(lambda: open_link(link)).troubles


def test_a_bomb_inside_a_link_is_never_unpacked(bounds: Any) -> None:
    assert bounds.run(lambda: open_link(with_packed(BOMB)), most_bytes=2**20).scenario is None
