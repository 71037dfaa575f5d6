"""A hostile folder of presets, and hostile uploads into it: lists go on, and each file is answered by a sentence."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import KvplanError, PresetError
from kvplan.hardware import define_gpu
from kvplan.library import GPU, KINDS, SERVER, entries, file_text, read_upload, save, standing, stored_text, version
from kvplan.presets import list_gpus, load_gpu, save_gpu
from kvplan.units import GIB

CARD = replace(define_gpu(name="A card", usable_bytes=24 * GIB), id="card")


@pytest.fixture
def gpus(empty_library: Path) -> Path:
    """The folder of GPUs, with one sound file in it."""
    folder = empty_library / "gpus"
    folder.mkdir()
    save_gpu(CARD, folder)
    return folder


def linked(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def written(data: bytes | str) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(data.encode() if isinstance(data, str) else data)


FILES: dict[str, Callable[[Path], Any]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to itself": linked("bad.toml"),
    "a link to nothing": linked("nothing.toml"),
    "a link to a secret": linked("/etc/passwd"),
    "a link upwards": linked("../../../../../../etc/hostname"),
    "a link to a device": linked("/dev/zero"),
    "a link to the folder": linked("."),
    "nothing in it": written(""),
    "zeros": written(b"\0" * 100_000),
    "three million bytes": written("#" * 3_000_000),
    "no text": written(b"\x80\x04\x95\xff\xfe"),
    "html": written("<script>alert(1)</script>"),
    "brackets": written("a = " + "[" * 20_000),
    "a number of 50,000 digits": written("usable_bytes = " + "9" * 50_000),
    "another schema": written("schema = 99\nusable_bytes = 1"),
    "a model among the GPUs": written("schema = 1\nlayers = []"),
    "a name that renders": written(file_text(CARD).replace("A card", "![x](https://evil.example/x.png)")),
    "an id inside": written(file_text(CARD) + "\n[tflops]\nid = 1"),
}


@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_a_hostile_file_in_the_folder_takes_nothing_else_away(
    gpus: Path, bounds: Any, make: Callable[[Path], Any]
) -> None:
    make(gpus / "bad.toml")
    found = {item.id: item for item in bounds.run(lambda: entries(GPU))}
    assert (found["card"].trouble, found["card"].origin) == ("", SERVER)
    assert load_gpu("card") == CARD
    bad = found.get("bad")
    if bad is not None and bad.trouble:
        bounds.sentence(bad.trouble)
        with pytest.raises(KvplanError):
            load_gpu("bad")


SECRET = "schema = 1  # a secret that lies outside of the library"


def test_a_link_shows_nothing_of_what_lies_outside(gpus: Path, tmp_path: Path) -> None:
    secret = tmp_path / "inside" / "library" / "secret.txt"
    secret.write_text(SECRET)
    outside = tmp_path / "inside" / "other"
    try:
        secret.rename(outside)
        (gpus / "bad.toml").symlink_to(outside)
        for read in (lambda: load_gpu("bad"), lambda: stored_text(GPU, "bad"), lambda: version(GPU, "bad")):
            with pytest.raises(PresetError, match="is a link to a file outside of the library") as refused:
                read()
            assert "secret" not in str(refused.value)
        with pytest.raises(PresetError, match="outside of the library"):
            save(replace(CARD, id="bad"))
        assert outside.read_text() == SECRET
    finally:
        outside.unlink()


NAMES = [
    "A.toml", "a b.toml", "..toml", ".hidden.toml", "a\nb.toml", "\u202ea.toml", "<b>.toml", "-.toml", "con:.toml",
    "a" * 200 + ".toml", "www.a.toml", "a__b.toml", "card.toml.1", "card.toml.bak", ".card.toml.x.tmp",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_file_whose_name_is_no_id_is_no_preset(gpus: Path, name: str) -> None:
    (gpus / name).write_text(file_text(CARD))
    assert [item.id for item in entries(GPU) if item.origin == SERVER] == ["card"]
    assert name.removesuffix(".toml") not in list_gpus()


@pytest.mark.parametrize("folder", [kind.folder for kind in KINDS.values()])
def test_a_file_in_the_place_of_a_folder_is_said(empty_library: Path, folder: str) -> None:
    (empty_library / folder).write_text("")
    kind = next(kind for kind in KINDS.values() if kind.folder == folder)
    with pytest.raises(PresetError, match=rf"the folder {folder} of presets cannot be read"):
        entries(kind)


# ---------------------------------------------------------------------------------------------------------- uploads


def zipped(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as packed:
        packed.writestr(name, data)
    return out.getvalue()


CONFIGS: dict[str, bytes] = {
    "nothing": b"",
    "a list": b"[]",
    "text": b'"x"',
    "not utf-8": b'{"model_type": "\xff"}',
    "nested": b'{"a": ' * 5_000 + b"1" + b"}" * 5_000,
    "lists": b'{"model_type": "llama", "x": ' + b"[" * 900 + b"]" * 900 + b"}",
    "a key twice": b'{"model_type": "llama", "model_type": "llama"}',
    "code": b'{"model_type": "llama", "auto_map": {"AutoModel": "evil.py"}, "hidden_size": 1}',
    "an unknown type": b'{"model_type": "__class__"}',
    "a type that is a path": b'{"model_type": "../../../etc/passwd"}',
    "sizes of 2^60": json.dumps(
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2**60, "hidden_size": 2**60,
         "num_attention_heads": 1, "intermediate_size": 1, "vocab_size": 1}
    ).encode(),
    "a number of 9,000 digits": b'{"model_type": "llama", "hidden_size": ' + b"9" * 9_000 + b"}",
    "infinity": b'{"model_type": "llama", "hidden_size": Infinity}',
    "a pickle": b"\x80\x04\x95\x1a\x00.",
    "too large": b'{"model_type": "' + b"a" * 300_000 + b'"}',
}  # fmt: skip


@pytest.mark.parametrize("data", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("wrap", ["alone", "in a zip"])
def test_a_hostile_config_is_answered_by_a_sentence(bounds: Any, data: bytes, wrap: str) -> None:
    upload = ("config.json", data) if wrap == "alone" else ("x.zip", zipped("some model/config.json", data))
    found = bounds.run(lambda: read_upload(upload[1], upload[0]))
    assert found.presets == ()
    (trouble,) = found.troubles
    bounds.sentence(trouble)


UPLOAD_NAMES = ["", "..", "../../x.toml", "x.toml\n", "<img src=x>.toml", "a" * 5_000 + ".json", "\0.zip", "$(id).json",
                "COM1.json", "\u202ex.json", "/config.json", "a/../config.json"]  # fmt: skip


@pytest.mark.parametrize("name", UPLOAD_NAMES)
@pytest.mark.parametrize("data", [b"", b"{}", file_text(CARD).encode()], ids=["nothing", "json", "toml"])
def test_a_hostile_file_name_is_answered_by_a_sentence_or_stripped(bounds: Any, name: str, data: bytes) -> None:
    found = bounds.run(lambda: read_upload(data, name))
    for trouble in found.troubles:
        bounds.sentence(trouble)
    for preset in found.presets:
        assert preset.id in ("x", "card")
        assert standing(preset).is_new
    assert len(found.presets) + len(found.troubles) == 1
