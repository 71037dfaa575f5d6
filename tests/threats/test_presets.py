"""Hostile preset files: each is refused with a sentence, as an upload and in a folder that is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplan.check import check_directory
from kvplan.errors import KvplanError
from kvplan.hardware import define_gpu
from kvplan.library import GPU, MAX_PRESET_BYTES, MODEL, read_preset
from kvplan.presets import dump_toml
from kvplan.units import GIB
from tests.examples import LLAMA_8B

SOUND_MODEL = dump_toml(MODEL.to_table(LLAMA_8B))
SOUND_GPU = dump_toml(GPU.to_table(define_gpu(name="A card", usable_bytes=24 * GIB)))


def model(old: str, new: str) -> str:
    assert old in SOUND_MODEL
    return SOUND_MODEL.replace(old, new, 1)


def gpu(old: str, new: str) -> str:
    assert old in SOUND_GPU
    return SOUND_GPU.replace(old, new, 1)


def scenario(*lines: str) -> str:
    return "\n".join(('schema = 1\nname = "x"\nlesson = ""\n[fields]', *lines))


NESTED_CACHE = '{ kind = "combined", members = [' * 60 + '{ kind = "none" }' + "] }" * 60

FILES: dict[str, str | bytes] = {
    # not TOML
    "nothing": "",
    "zeros": b"\0" * 1000,
    "not utf-8": b"name = '\xff\xfe'",
    "utf-16": "schema = 1".encode("utf-16"),
    "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "gzip": b"\x1f\x8b\x08\x00" + b"\0" * 100,
    "zip": b"PK\x03\x04" + b"\0" * 100,
    "gguf": b"GGUF\x03\x00\x00\x00" + b"\xff" * 100,
    "json": '{"schema": 1}',
    "yaml": "schema: !!python/object/apply:os.system ['id']",
    "html": "<html><script>alert(1)</script></html>",
    "too large": "#" * (MAX_PRESET_BYTES + 1),
    "brackets without end": "a = " + "[" * 30_000,
    "braces without end": "a = " + "{ a = " * 10_000,
    "a key of 20,000 parts": "a." * 20_000 + "a = 1",
    "a quoted key of 10,000 parts": '"a".' * 10_000 + "a = 1",
    "a header of 20,000 parts": "[" + "a." * 20_000 + "a]",
    "a hundred keys of 500 parts": "\n".join(f"{'a.' * 250}k{i} = 1" for i in range(100)),
    "spaces between 5,000 parts": "a . " * 5_000 + "a = 1",
    "10,000 keys": "\n".join(f"k{i} = 1" for i in range(6_000)),
    "10,000 tables": "\n".join(f"[t{i}]" for i in range(6_000)),
    "10,000 inline tables": "a = [" + "{},\n" * 15_000 + "]",
    "a key twice": "schema = 1\nschema = 1",
    "a string without end": 'a = "' + "x" * 60_000,
    "quotes without end": "'" * 60_000,
    "escapes without end": 'a = "' + '\\"' * 30_000,
    "a string of three without end": 'a = """' + 'x"' * 30_000,
    "a number of 50,000 digits": "a = " + "9" * 50_000,
    "a number of 50,000 binary digits": "layers = 0b" + "1" * 50_000,
    "a float of 50,000 digits": "layers = 0." + "9" * 50_000,
    "underscores": "a = " + "1_" * 30_000,
    "a date that is none": "a = 9999-99-99T99:99:99Z",
    "spaces": " " * 60_000,
    "letters": "a" * 60_000,
    "bom": b"\xef\xbb\xbfschema = 1",
    # models
    "no kind": "schema = 1",
    "two kinds": SOUND_MODEL.replace("layers =", "usable_bytes = 1\nlayers ="),
    "schema 99": model("schema = 1", "schema = 99"),
    "schema of text": model("schema = 1", 'schema = "1"'),
    "an unknown key": model("hidden_size", "__reduce__"),
    "html name": model(LLAMA_8B.name, "<img src=x onerror=alert(1)>"),
    "markdown name": model(LLAMA_8B.name, "![x](https://evil.example/x.png)"),
    "latex name": model(LLAMA_8B.name, "$\\\\href{x}{y}$"),
    "right-to-left name": model(LLAMA_8B.name, "\u202egnp.exe"),
    "zero-width name": model(LLAMA_8B.name, "Llama\u200b"),
    "line break in a name": model(LLAMA_8B.name, "a\\nb"),
    "escape code in a name": model(LLAMA_8B.name, "\\u001b[31m"),
    "a name of 2,000": model(LLAMA_8B.name, "a" * 2_000),
    "no layers": model('["32 x full"]', "[]"),
    "a million layers": model('["32 x full"]', '["99999 x full", "99999 x full"]'),
    "layers of another name": model('["32 x full"]', '["32 x ../full"]'),
    "layers of a pattern": model('["32 x full"]', '["' + "9" * 5_000 + ' x full"]'),
    "a kind that is none": model('kind = "full"', 'kind = "os.system"'),
    "no heads": model("num_kv_heads = 8", "num_kv_heads = 0"),
    "negative heads": model("num_kv_heads = 8", "num_kv_heads = -8"),
    "heads of a float": model("num_kv_heads = 8", "num_kv_heads = 8.0"),
    "heads of nan": model("num_kv_heads = 8", "num_kv_heads = nan"),
    "heads of infinity": model("num_kv_heads = 8", "num_kv_heads = inf"),
    "heads of true": model("num_kv_heads = 8", "num_kv_heads = true"),
    "heads of a date": model("num_kv_heads = 8", "num_kv_heads = 2026-01-01"),
    "heads of 2^63": model("num_kv_heads = 8", "num_kv_heads = 9223372036854775808"),
    "heads of 2^41": model("num_kv_heads = 8", "num_kv_heads = 2199023255552"),
    "heads of 5,000 digits": model("num_kv_heads = 8", "num_kv_heads = 0x" + "f" * 5_000),
    "a cache that is a list": model('{ kind = "full", num_kv_heads = 8, head_dim = 128 }', "[1, 2]"),
    "caches 60 deep": model('{ kind = "full", num_kv_heads = 8, head_dim = 128 }', NESTED_CACHE),
    "a sum that is wrong": model("num_params = 8030261248", "num_params = 1"),
    "a role that is none": model('role = "embedding"', 'role = "__class__"'),
    "a split that is none": model('split = "rows"', 'split = "evil"'),
    "a format that is none": model('dtype = "bf16"', 'dtype = "../bf16"'),
    "a format that is a list": model('dtype = "bf16"', "dtype = []"),
    # GPUs
    "no memory": gpu("usable_bytes = 25769803776", "usable_bytes = 0"),
    "memory of exabytes": gpu("usable_bytes = 25769803776", "usable_bytes = 9000000000000000000"),
    "html gpu": gpu("A card", "<svg onload=alert(1)>"),
    "range of three": gpu("usable_range = [25769803776, 25769803776]", "usable_range = [1, 2, 3]"),
    "estimate of text": gpu("is_estimate = false", 'is_estimate = "no"'),
    "tflops that are a list": SOUND_GPU.replace("schema = 1", "schema = 1\ntflops = [1]"),
    "prices of infinity": SOUND_GPU + "prices = [{ kind = 'rent', usd = inf, date = '', source = '' }]",
    # scenarios
    "no settings": scenario(),
    "a model that is a path": scenario('model = "../../etc/passwd"', 'gpu = "h100-sxm-80gb"', "self = 1"),
    "a model that is a table": scenario("model = {}", 'gpu = "card"'),
    "a setting that is a class": scenario('model = "x"', 'gpu = "y"', "__class__ = 1"),
    "a setting that is a list": scenario('model = "x"', 'gpu = "y"', "context_length = [1]"),
    "a setting that is a date": scenario('model = "x"', 'gpu = "y"', "context_length = 2026-01-01"),
    "html scenario": scenario('model = "x"', 'gpu = "y"').replace('"x"\nlesson', '"<b>x</b>"\nlesson'),
}  # fmt: skip


def as_bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_a_hostile_upload_is_refused_with_a_sentence(bounds: Any, data: str | bytes) -> None:
    bounds.refusal(lambda: read_preset(as_bytes(data), "upload.toml"))


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_a_hostile_file_in_a_folder_is_a_problem_with_a_line(tmp_path: Path, bounds: Any, data: str | bytes) -> None:
    folder = tmp_path / "inside" / "library" / "models"
    folder.mkdir()
    (folder / "upload.toml").write_bytes(as_bytes(data))
    (problem,) = bounds.run(lambda: check_directory(folder.parent))
    assert problem.file == "models/upload.toml"
    assert problem.line >= 1
    bounds.sentence(problem.text)


NAMES = [
    "", ".", "..", "../x.toml", "/etc/passwd", "C:\\x.toml", "a/../../b.toml", "x\0.toml", "\u202ex.toml", "CON .toml",
    "a" * 300 + ".toml", "<b>.toml", "$(id).toml", "x.toml\n", "-rf /.toml", ".hidden.toml", "A.toml", "é.toml",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_file_name_is_refused_or_stripped_to_an_id(bounds: Any, name: str) -> None:
    try:
        preset = bounds.run(lambda: read_preset(SOUND_GPU.encode(), name))
    except KvplanError as error:
        bounds.sentence(str(error))
    else:
        assert preset.id in ("x", "b", "passwd")  # the last part of a path, and nothing of what stands before it
