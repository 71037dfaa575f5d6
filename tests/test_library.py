"""The library: what a save may and may not do, with real processes; listing, copies, and zips both ways."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import kvplan.library
from kvplan import presets
from kvplan.attention import FullAttention
from kvplan.errors import InputError, KvplanError, PresetError
from kvplan.hardware import Node, define_gpu
from kvplan.importer import import_config
from kvplan.library import (
    GPU,
    KINDS,
    MAX_PRESET_BYTES,
    MODEL,
    SCENARIO,
    SERVER,
    SHIPS,
    Preset,
    changed_fields,
    differences,
    duplicate,
    entries,
    entry,
    export_zip,
    file_of,
    file_text,
    is_in_library,
    is_read_only,
    is_shipped,
    kind_of,
    load_previous,
    previous_file,
    read_preset,
    read_upload,
    read_zip,
    save,
    save_all,
    scenario_of,
    scenario_preset,
    shipped_preset,
    standing,
    stored_text,
    version,
    why_nothing_is_saved,
)
from kvplan.plan import Scenario
from kvplan.presets import (
    ScenarioPreset,
    list_gpus,
    load_file,
    load_gpu,
    load_model,
    load_node,
    load_scenario,
    save_gpu,
)
from kvplan.units import GIB
from tests.examples import LLAMA_8B

ROOT = Path(__file__).resolve().parent.parent
CARD = replace(define_gpu(name="A card", usable_bytes=24 * GIB, usable_range=(GIB, 24 * GIB)), id="card")
LLAMA = replace(LLAMA_8B, id="llama")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty library of a kvplan that ships nothing."""
    monkeypatch.setenv("KVPLAN_PRESETS_DIR", str(tmp_path))
    monkeypatch.delenv("KVPLAN_READ_ONLY", raising=False)
    monkeypatch.setattr(presets, "SHIPPED", tmp_path.parent / "nothing")
    return tmp_path


def names(folder: Path) -> set[str]:
    """Every file below `folder`, hidden ones but the lock included."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


# ----------------------------------------------------------------------------------------------------------- saving


def test_a_saved_preset_is_read_back_as_it_is(folder: Path) -> None:
    assert save(CARD) == folder / "gpus" / "card.toml"
    assert save(LLAMA) == folder / "models" / "llama.toml"
    assert (load_gpu("card"), load_model("llama")) == (CARD, LLAMA)
    assert names(folder) == {"gpus/card.toml", "models/llama.toml"}


def test_a_file_that_was_not_seen_is_never_overwritten() -> None:
    save(CARD)
    with pytest.raises(InputError, match="card exists already; choose another id, or open it and save it from there"):
        save(replace(CARD, usable_bytes=GIB))
    assert load_gpu("card") == CARD


def test_a_seen_file_is_replaced_and_its_version_before_is_kept(folder: Path) -> None:
    save(CARD)
    other = replace(CARD, usable_bytes=GIB)
    save(other, version(GPU, "card"))
    assert load_gpu("card") == other
    assert load_previous(GPU, "card") == CARD
    assert names(folder) == {"gpus/card.toml", "gpus/card.toml.1"}
    assert list_gpus() == ("card",)


def test_a_file_that_changed_since_it_was_seen_is_not_overwritten() -> None:
    save(CARD)
    seen = version(GPU, "card")
    save(replace(CARD, usable_bytes=GIB), seen)
    with pytest.raises(InputError, match="card was changed by someone else in the meantime"):
        save(replace(CARD, usable_bytes=2 * GIB), seen)
    assert load_gpu("card").usable_bytes == GIB


def test_a_file_that_was_removed_since_it_was_seen_is_not_made_again() -> None:
    path = save(CARD)
    seen = version(GPU, "card")
    path.unlink()
    with pytest.raises(InputError, match="was changed by someone else"):
        save(CARD, seen)


def test_the_kept_version_can_be_saved_again() -> None:
    save(CARD)
    save(replace(CARD, usable_bytes=GIB), version(GPU, "card"))
    save(load_previous(GPU, "card"), version(GPU, "card"))
    assert load_gpu("card") == CARD
    assert load_previous(GPU, "card").usable_bytes == GIB


def test_without_a_kept_version_or_with_a_broken_one_there_is_none(folder: Path) -> None:
    assert load_previous(GPU, "card") is None
    previous_file(save(CARD)).write_text("schema = ")
    assert load_previous(GPU, "card") is None


@pytest.mark.parametrize(("setting", "read_only"), [("", False), ("0", False), ("1", True), ("yes", True)])
def test_a_read_only_server_saves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, setting: str, read_only: bool
) -> None:
    monkeypatch.setenv("KVPLAN_READ_ONLY", setting)
    assert is_read_only() is read_only
    if read_only:
        with pytest.raises(PresetError, match=r"this server's library is read-only \(KVPLAN_READ_ONLY=1\)"):
            save(CARD)
        assert names(folder) == set()


@pytest.mark.parametrize("name", ["", "../card", "a/b", "A", "a..b", "con:", ".lock", "a" * 81])
def test_only_ids_become_file_names(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match="preset id is"):
        save(replace(CARD, id=name))
    assert names(folder) == set()


def test_nothing_is_written_that_could_not_be_read_back(folder: Path) -> None:
    with pytest.raises(PresetError, match="name is '<b>'"):
        save(replace(LLAMA, name="<b>"))
    with pytest.raises(PresetError, match=r"has a value no file can hold"):
        save(replace(CARD, tflops={"bf16": float("nan")}))
    with pytest.raises(PresetError, match=f"at most {MAX_PRESET_BYTES:,}"):
        save(replace(LLAMA, notes=("x" * MAX_PRESET_BYTES,)))
    assert names(folder) == set()


def test_a_folder_that_cannot_be_written_says_so(folder: Path) -> None:
    (folder / "gpus").write_text("a file where the folder should be")
    with pytest.raises(PresetError, match=r"card\.toml cannot be saved: "):
        save(CARD)


def test_a_system_without_locks_saves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(PresetError, match="this system cannot lock files, so it saves nothing"):
        save(CARD)
    assert names(folder) == set()


@pytest.fixture
def as_another_user(folder: Path) -> Iterator[None]:
    """The tests may run as root, who may write everywhere: then as a user who may not."""
    folder.chmod(0o777)
    for path in folder.parents:
        if os.geteuid() == 0 and path.stat().st_mode & 0o055 != 0o055:
            path.chmod(path.stat().st_mode | 0o055)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


def test_a_folder_without_permission_to_write_says_why_nothing_is_saved(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    save(CARD)
    assert why_nothing_is_saved() == ""
    (folder / "gpus").chmod(0o555)
    request.getfixturevalue("as_another_user")
    assert why_nothing_is_saved() == "the folder gpus of this server's library cannot be written"
    with pytest.raises(PresetError, match=r"card-2\.toml cannot be saved: Permission denied"):
        save(replace(CARD, id="card-2"))
    assert load_gpu("card") == CARD


def test_a_read_only_server_says_why_nothing_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPLAN_READ_ONLY", "1")
    assert why_nothing_is_saved() == "this server's library is read-only (KVPLAN_READ_ONLY=1)"


def test_a_library_holds_a_bounded_number_of_presets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvplan.library, "MAX_SAVED", 1)
    save(CARD)
    with pytest.raises(PresetError, match="the library holds 1 gpus already"):
        save(replace(CARD, id="second"))
    save(replace(CARD, usable_bytes=GIB), version(GPU, "card"))  # what exists can still be changed


def test_a_save_does_not_wait_for_ever_for_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvplan.library, "LOCK_SECONDS", 0.0)
    (folder / "gpus").mkdir()
    with (folder / "gpus" / ".lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PresetError, match="someone else is saving into this library and does not finish"):
            save(CARD)
    assert names(folder) == set()


# ---------------------------------------------------------------------------------------------- several at once


def saving(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.saving_process", *map(str, arguments)]
    environment = {**os.environ, "KVPLAN_PRESETS_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def answers(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What each says once all have started: they are let go together."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate(timeout=120)[0].strip() for process in processes]


def test_of_several_processes_that_save_a_new_file_one_wins_and_the_others_hear_it(folder: Path) -> None:
    said = answers([saving(folder, size * GIB, "new") for size in range(1, 5)])
    assert said.count("saved") == 1
    assert load_gpu("card").usable_bytes == (said.index("saved") + 1) * GIB
    assert all("exists already" in text for text in said if text != "saved")
    assert names(folder) == {"gpus/card.toml"}


def test_of_several_processes_that_replace_a_file_one_wins_and_the_others_hear_it(folder: Path) -> None:
    save(CARD)
    said = answers([saving(folder, size * GIB, version(GPU, "card")) for size in range(1, 5)])
    assert said.count("saved") == 1
    assert load_gpu("card").usable_bytes == (said.index("saved") + 1) * GIB
    assert load_previous(GPU, "card") == CARD
    assert all("changed by someone else" in text for text in said if text != "saved")


STEPS = range(13)  # four files opened (lock, old, copy, new), two written, four syncs, two renames; then it is done


@pytest.mark.parametrize("steps", STEPS)
def test_a_save_that_dies_leaves_the_old_file_or_the_new_one_whole(folder: Path, steps: int) -> None:
    save(CARD)
    seen = version(GPU, "card")
    process = saving(folder, GIB, seen, steps)
    answers([process])
    assert process.returncode == (0 if steps == STEPS[-1] else 9)
    now = load_gpu("card")
    assert now in (CARD, replace(define_gpu(name="A card", usable_bytes=GIB), id="card"))
    assert list_gpus() == ("card",)
    save(replace(CARD, usable_bytes=3 * GIB), version(GPU, "card"))  # the next save goes through and tidies up
    assert load_previous(GPU, "card") == now
    assert names(folder) == {"gpus/card.toml", "gpus/card.toml.1"}


# -------------------------------------------------------------------------------------------------------- scenarios


def test_a_scenario_is_saved_by_the_ids_of_its_presets() -> None:
    save_all([CARD, LLAMA])
    scenario = Scenario("llama", "card", batch_size=3, weight_dtype="fp8_per_tensor", draft_model="llama")
    preset = scenario_preset(scenario, "Three at once", "What three take.", "three")
    save(preset)
    assert load_scenario("three") == preset
    assert scenario_of(load_scenario("three")) == scenario


def test_a_scenario_of_an_own_model_needs_the_model_in_the_library_first() -> None:
    save(CARD)
    with pytest.raises(InputError, match="the model An 8B of the Llama layout is not in the library; save it there"):
        scenario_preset(Scenario(LLAMA, "card"), "Mine", "", "mine")


def test_a_scenario_that_cannot_be_planned_is_not_saved(folder: Path) -> None:
    save_all([CARD, LLAMA])
    with pytest.raises(KvplanError, match="attention heads"):
        save(ScenarioPreset("No", "", {"model": "llama", "gpu": "card", "tensor_parallel": 3}, "", "no"))
    assert "scenarios/no.toml" not in names(folder)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"gpu": "card"}, "fields lacks 'model'"),
        ({"model": "llama", "gpu": 5}, "fields lacks 'gpu'"),
        ({"model": "llama", "gpu": "card", "ctx": 5}, "fields.ctx is no setting; there is adapter_bytes"),
        ({"model": "llama", "gpu": "card", "kv_dtype": ["bf16"]}, "fields.kv_dtype is .*; a number or text is needed"),
    ],
)
def test_the_settings_of_a_scenario_are_checked(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(PresetError, match=reason):
        scenario_of(ScenarioPreset("No", "", settings, "", "no"))


def test_a_node_is_saved_where_its_gpu_is_known() -> None:
    node = Node("Two cards", "card", 2, "", "two")
    with pytest.raises(InputError, match="no GPU is called 'card'"):
        save(node)
    save_all([node, CARD])
    assert load_node("two") == node


# ---------------------------------------------------------------------------------------------------------- listing


def test_a_library_lists_its_files_with_what_is_wrong(folder: Path) -> None:
    save(replace(CARD, sources=("a", "b")))
    save(replace(CARD, usable_bytes=GIB, sources=("a", "b")), version(GPU, "card"))
    (folder / "gpus" / "broken.toml").write_text("schema = 2")
    broken, card = entries(GPU)
    assert (card.id, card.name, card.source, card.trouble, card.has_previous) == ("card", "A card", "a; b", "", True)
    assert (broken.id, broken.has_previous) == ("broken", False)
    assert broken.trouble.startswith("broken.toml: schema is 2")


def test_a_copy_has_its_own_id_and_name() -> None:
    save(CARD)
    duplicate(GPU, "card", "card-2", "Another card")
    assert load_gpu("card-2") == replace(CARD, id="card-2", name="Another card")
    with pytest.raises(InputError, match="card exists already"):
        duplicate(GPU, "card-2", "card")


def test_what_changed_between_two_presets_is_said_field_by_field() -> None:
    other = replace(CARD, usable_bytes=GIB, bandwidth=5, notes=("new",))
    assert changed_fields(CARD, other) == (
        "usable_bytes was 25769803776, is 1073741824", "bandwidth was not given, is 5", "notes changed",
    )  # fmt: skip
    assert changed_fields(CARD, CARD) == ()


@pytest.fixture
def shipped(folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What kvplan ships in these tests: one GPU."""
    beside = tmp_path_factory.mktemp("shipped")
    (beside / "gpus").mkdir()
    save_gpu(CARD, beside / "gpus")
    monkeypatch.setattr(presets, "SHIPPED", beside)
    return beside


def test_a_library_is_what_is_shipped_and_what_the_team_added(shipped: Path) -> None:
    save(replace(CARD, id="team"))
    assert list_gpus() == ("card", "team")
    assert [(item.id, item.origin, item.replaces) for item in entries(GPU)] == [
        ("card", SHIPS, False), ("team", SERVER, False),
    ]  # fmt: skip
    assert load_gpu("card") == CARD


def test_a_team_s_file_wins_over_the_shipped_one_of_the_same_id_and_says_so(shipped: Path, folder: Path) -> None:
    ours = replace(CARD, usable_bytes=GIB)
    (folder / "gpus").mkdir()
    save_gpu(ours, folder / "gpus")
    assert load_gpu("card") == ours
    assert (entry(GPU, "card").origin, entry(GPU, "card").replaces) == (SERVER, True)
    assert shipped_preset(GPU, "card") == CARD
    assert not is_shipped(ours)
    assert is_in_library(ours)


def test_a_shipped_preset_is_replaced_only_by_who_has_seen_it_and_stays_as_it_was(shipped: Path) -> None:
    ours = replace(CARD, usable_bytes=GIB)
    with pytest.raises(InputError, match="card exists already"):
        save(ours)
    save(ours, version(GPU, "card"))
    assert load_gpu("card") == ours
    assert load_previous(GPU, "card") == CARD
    assert load_file(shipped / "gpus" / "card.toml") == CARD


def test_only_what_every_kvplan_has_counts_as_shipped(shipped: Path) -> None:
    assert is_shipped(CARD)
    assert not is_shipped(replace(CARD, usable_bytes=GIB))
    assert not is_shipped(replace(CARD, id="card-2"))
    save(replace(CARD, id="card-2"))
    assert not is_shipped(load_gpu("card-2"))
    save(CARD, version(GPU, "card"))  # the same once more, as the server's own
    assert is_shipped(CARD)


def test_what_is_saved_among_the_shipped_presets_is_none_of_them(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVPLAN_PRESETS_DIR")
    save(replace(CARD, id="saved"))
    assert [(item.id, item.origin) for item in entries(GPU)] == [("card", SHIPS), ("saved", SERVER)]
    assert is_shipped(CARD)
    assert not is_shipped(load_gpu("saved"))
    assert stored_text(GPU, "saved") == file_text(replace(CARD, id="saved"))


def test_a_list_is_made_once_and_again_when_a_file_changes(folder: Path) -> None:
    path = save(CARD)
    assert entries(GPU) is entries(GPU)
    path.write_text(path.read_text().replace("A card", "Another card"))
    assert [item.name for item in entries(GPU)] == ["Another card"]
    save(replace(CARD, id="second"))
    assert [item.id for item in entries(GPU)] == ["card", "second"]


def test_two_presets_are_compared_down_to_single_values() -> None:
    other = replace(
        LLAMA, name="Other", layers=tuple(replace(layer, cache=FullAttention(4, 64)) for layer in LLAMA.layers)
    )
    found = {key: (one, two) for key, one, two in differences(LLAMA, other)}
    assert found == {
        "name": (LLAMA.name, "Other"),
        "layer.full.cache.num_kv_heads": ("8", "4"),
        "layer.full.cache.head_dim": ("128", "64"),
    }
    assert differences(CARD, replace(CARD, bandwidth=5)) == (("bandwidth", "not given", "5"),)
    assert differences(CARD, CARD) == ()


def test_a_comparison_is_bounded_and_says_so() -> None:
    many = replace(CARD, tflops={f"t{index}": 1.0 for index in range(300)})
    rows = differences(CARD, many)
    assert len(rows) == 201
    assert rows[-1] == ("and 100 more fields", "", "")


def test_a_preset_stands_to_the_library_as_new_same_or_replacing(folder: Path) -> None:
    assert standing(CARD).is_new
    save(CARD)
    assert standing(CARD).is_same
    found = standing(replace(CARD, usable_bytes=GIB))
    assert (found.is_new, found.is_same) == (False, False)
    assert found.changes == ("usable_bytes was 25769803776, is 1073741824",)
    save(replace(CARD, usable_bytes=GIB), found.seen)
    (folder / "gpus" / "card.toml").write_text("broken")
    assert standing(CARD).changes[0].startswith("what stands there cannot be read: card.toml")


def test_presets_that_exist_are_replaced_together_where_that_is_asked_for() -> None:
    save(CARD)
    other = replace(CARD, usable_bytes=GIB)
    done = save_all([other, LLAMA], {("GPU", "card"): version(GPU, "card")})
    assert (len(done.paths), done.troubles) == (2, ())
    assert load_gpu("card") == other


# -------------------------------------------------------------------------------------------------- files from outside


@pytest.mark.parametrize("preset", [CARD, LLAMA], ids=["gpu", "model"])
def test_an_uploaded_file_says_itself_what_kind_it_is(preset: Preset) -> None:
    assert read_preset(file_text(preset).encode(), f"{preset.id}.toml") == preset


@pytest.mark.parametrize(
    ("data", "file", "reason"),
    [
        (b"schema = 1", "a.toml", "a.toml is no preset: exactly one of the keys layers"),
        (b"layers = []\nusable_bytes = 1", "a.toml", "exactly one of the keys"),
        (b"\xff", "a.toml", "a.toml is not UTF-8 text"),
        (b"a = ", "a.toml", r"a.toml is not valid TOML: .*end of document"),
        (b"#" * (MAX_PRESET_BYTES + 1), "a.toml", "has 65,537 bytes; a preset has at most 65,536"),
        (b"layers = []", "A b.toml", "the file's name is 'A b'; use a-z, 0-9"),
        (b"a." * 9 + b"a = 1", "a.toml", "a key of over 8 parts"),
        (b"layers = " + b"[" * 9 + b"]" * 9, "a.toml", "over 8 deep"),
        (b"layers = [" + b"'1 x a'," * 400 + b"]\n[layer.a]\nweights = [" + b"{}," * 300 + b"]", "a.toml", "too many"),
    ],
)
def test_an_upload_that_is_no_preset_is_refused(data: bytes, file: str, reason: str) -> None:
    with pytest.raises(KvplanError, match=reason):
        read_preset(data, file)


def test_dots_in_text_and_comments_are_no_long_key() -> None:
    text = file_text(replace(CARD, sources=("https://a.b.c.d.e.f.g.h.i.j.k/",), notes=("a.b.c.d.e.f.g.h.i.j",)))
    assert read_preset((text + "# a.b.c.d.e.f.g.h.i.j.k\n").encode(), "card.toml").notes == ("a.b.c.d.e.f.g.h.i.j",)


@pytest.mark.parametrize("file", ["card (1).toml", "card(12).toml", "downloads/card (3).toml"])
def test_a_file_that_was_downloaded_again_is_the_same_preset(file: str) -> None:
    assert read_preset(file_text(CARD).encode(), file) == CARD


CONFIG = Path(__file__).parent / "data" / "configs" / "meta-llama__Llama-3.1-8B.json"


def test_a_config_json_is_read_as_the_model_that_its_folder_names() -> None:
    found = read_zip(zipped({"My Llama/config.json": CONFIG.read_bytes(), "b/tiny.json": b"{}"}))
    (model,) = found.presets
    assert (model.id, model.name, model.num_params) == ("my-llama", "My Llama", 8030261248)
    assert found.troubles == ("b/tiny.json: lacks model_type, the name of the model's family",)


@pytest.mark.parametrize(
    ("data", "file", "reason"),
    [
        (b"[1]", "a.json", "a.json: holds a list"),
        (b"{", "a.json", "a.json: is not valid JSON"),
        (b" " * (2**18 + 1), "config.json", "config.json has 262,145 bytes"),
        (b'{"model_type": "no-such"}', "x/config.json", "x/config.json: "),
        (b"x", "a.zip", "the upload is not a sound zip"),
        (b"x", "a.toml", "a.toml is not valid TOML"),
        (b"x", "a.exe", "the file's name is 'a.exe'|a.exe is not valid TOML"),
    ],
)
def test_an_upload_that_holds_nothing_says_why(data: bytes, file: str, reason: str) -> None:
    presets_found, (trouble,) = read_upload(data, file)
    assert presets_found == ()
    assert re.search(reason, trouble), trouble


# -------------------------------------------------------------------------------------------------------------- zips


def zipped(files: dict[str, str | bytes], **settings: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            for key, value in settings.items():
                setattr(info, key, value)
            packed.writestr(info, data)
    return out.getvalue()


def test_a_zip_of_presets_is_read_back_and_saved_elsewhere() -> None:
    save_all([CARD, LLAMA])
    preset = scenario_preset(Scenario("llama", "card"), "Both", "", "both")
    node = Node("Two cards", "card", 2, "", "two")
    packed = export_zip([preset, LLAMA, node, CARD])
    assert packed == export_zip([CARD, preset, LLAMA, node])
    found = read_zip(packed)
    assert found.troubles == ()
    assert set(map(kind_of, found.presets)) == set(KINDS.values())
    assert {item.id for item in found.presets} == {"both", "card", "llama", "two"}
    assert zipfile.ZipFile(io.BytesIO(packed)).namelist() == [
        "gpus/card.toml", "models/llama.toml", "nodes/two.toml", "scenarios/both.toml",
    ]  # fmt: skip


def test_saving_a_zip_saves_what_is_new_and_leaves_what_exists() -> None:
    save(CARD)
    preset = ScenarioPreset("Both", "", {"model": "llama", "gpu": "card"}, "", "both")
    done = save_all([preset, replace(CARD, usable_bytes=GIB), LLAMA])  # the scenario needs the model, and stands first
    assert [path.name for path in done.paths] == ["llama.toml", "both.toml"]
    assert done.troubles == ("GPU card: card exists already; choose another id, or open it and save it from there",)
    assert load_gpu("card") == CARD


def test_files_of_a_zip_that_are_no_presets_are_named_and_the_others_read() -> None:
    found = read_zip(zipped({"team/gpus/card.toml": file_text(CARD), "README.md": "hello", "x.toml": "schema = 1"}))
    assert found.presets == (CARD,)
    assert found.troubles[0] == "'README.md': neither a .toml nor a config.json file, so left out"
    assert found.troubles[1].startswith("x.toml is no preset")


def test_a_zipped_checkpoint_is_one_model_and_its_other_files_are_named_together() -> None:
    beside = {"m/tokenizer.json": "{}", "m/generation_config.json": "{}", "m/weights.safetensors": "x"}
    found = read_zip(zipped({"m/config.json": CONFIG.read_bytes(), **beside}))
    assert [item.id for item in found.presets] == ["m"]
    assert found.troubles == ("'m/tokenizer.json' and 2 more: neither a .toml nor a config.json file, so left out",)


def test_the_quantization_beside_a_zipped_config_counts() -> None:
    quantized = json.dumps({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}})
    (plain,) = read_zip(zipped({"m/config.json": CONFIG.read_bytes()})).presets
    found = read_zip(zipped({"m/config.json": CONFIG.read_bytes(), "m/hf_quant_config.json": quantized}))
    (model,) = found.presets
    assert found.troubles == ()
    assert model == replace(import_config(CONFIG, json.loads(quantized)), id="m", name="m", source=model.source)
    assert model != plain


def test_of_two_presets_with_one_id_in_a_zip_the_first_counts_and_the_second_is_named() -> None:
    other = file_text(replace(CARD, usable_bytes=GIB))
    found = read_zip(zipped({"a/card.toml": file_text(CARD), "b/card.toml": other, "c/card.toml": file_text(CARD)}))
    assert found.presets == (CARD,)
    assert found.troubles == ("'b/card.toml' is a second GPU card; the first is taken",)


def test_after_ten_broken_files_the_rest_of_a_zip_is_not_read() -> None:
    found = read_zip(zipped({f"{index}.toml": "schema = 1" for index in range(30)}))
    assert len(found.troubles) == 11
    assert found.troubles[-1] == "the rest of the zip was not read"


def test_what_a_system_puts_beside_the_files_of_a_zip_is_passed_over() -> None:
    cards = {f"gpus/card-{index}.toml": file_text(CARD) for index in range(12)}
    beside = {f"__MACOSX/gpus/._card-{index}.toml": "\0\5\x16\7" for index in range(12)}
    others = {"gpus/.DS_Store": "x", ".taplo.toml": "x", "Thumbs.db": "x", "gpus/desktop.ini": "x"}
    found = read_zip(zipped({**cards, **beside, **others, "./gpus/last.toml": file_text(CARD)}))
    assert len(found.presets) == 13
    assert found.troubles == ()


def test_a_schema_in_a_zip_is_no_config() -> None:
    found = read_zip(zipped({"card.toml": file_text(CARD), "gpu.schema.json": "{}"}))
    assert found == ((CARD,), ("'gpu.schema.json': neither a .toml nor a config.json file, so left out",))


@pytest.mark.parametrize("files", [{}, {"gpus/": ""}, {"__MACOSX/._card.toml": "x"}], ids=["none", "folder", "mac"])
def test_a_zip_without_a_file_says_so(files: dict[str, str]) -> None:
    assert read_zip(zipped(files)) == ((), ("the zip holds no file; a .toml or a config.json is needed",))


def test_a_save_that_changes_nothing_keeps_the_version_before() -> None:
    save(CARD)
    changed = replace(CARD, usable_bytes=GIB)
    save(changed, version(GPU, "card"))
    save(changed, version(GPU, "card"))
    assert load_gpu("card") == changed
    assert load_previous(GPU, "card") == CARD


def test_reading_a_zip_writes_nothing(folder: Path) -> None:
    read_zip(export_zip([CARD]))
    assert names(folder) == set()


def test_where_a_file_would_stand_is_inside_the_library(folder: Path) -> None:
    assert file_of(SCENARIO, "a.b-c") == folder / "scenarios" / "a.b-c.toml"
    assert file_of(MODEL, "x").parent.parent == folder
