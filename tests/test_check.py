"""Checks of a folder of presets: each problem with its file, its line and a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kvplan.check import Problem, check_directory, check_text
from kvplan.errors import PresetError
from kvplan.hardware import define_gpu
from kvplan.library import GPU, MODEL
from kvplan.presets import SHIPPED, save_gpu, save_model
from kvplan.units import GIB
from tests.examples import LLAMA_8B

SCENARIO = """schema = 1
name = "One"
lesson = "Why."

[fields]
model = "llama"
gpu = "card"
batch_size = 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound library of one model, one GPU and one scenario."""
    for name in ("models", "gpus", "scenarios"):
        (tmp_path / name).mkdir()
    save_model(replace(LLAMA_8B, id="llama", notes=("head_dim = 5, schema = 2",)), tmp_path / "models")
    save_gpu(replace(define_gpu(name="A card", usable_bytes=24 * GIB), id="card"), tmp_path / "gpus")
    (tmp_path / "scenarios" / "one.toml").write_text(SCENARIO)
    return tmp_path


def change(path: Path, old: str, new: str) -> str:
    """Put `new` in the place of `old`. Returns the line on which it stands, with the file before it."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return f"{path.parent.name}/{path.name}:{text[: text.index(old)].count(chr(10)) + 1}: "


def test_a_sound_folder_has_no_problems(folder: Path) -> None:
    assert check_directory(folder) == []


def test_the_presets_that_kvplan_ships_have_no_problems() -> None:
    assert check_directory(SHIPPED) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("models/llama.toml", "hidden_size", "hiden_size", "has the unknown key 'hiden_size'"),
        ("models/llama.toml", "head_dim = 128", "head_dim = 0", "layer.full.cache head_dim of full attention is 0"),
        ("models/llama.toml", "= 14336, columns = 4096", "= 14336, columns = 'x'", "weights[4].columns is 'x'"),
        ("models/llama.toml", 'kind = "full"', 'kind = "fll"', "layer.full.cache.kind is 'fll'"),
        ("models/llama.toml", "32 x full", "32 x ful", "layers[0] is '32 x ful'"),
        ("models/llama.toml", "num_params = 8", "num_params = 9", "num_params is 9,"),
        ("models/llama.toml", "[layer.full]", "[layer.full", "is not valid TOML"),
        ("models/llama.toml", "schema = 1", "schema = 3", "schema is 3; this version reads schema = 1"),
        ("gpus/card.toml", "usable_bytes = 25769803776", "usable_bytes = 5", "usable_bytes is 5; it must be from"),
        ("gpus/card.toml", 'name = "A card"', 'name = "![x](y)"', "GPU name is '![x](y)'"),
        ("scenarios/one.toml", "batch_size", "batch", "fields.batch is no setting"),
        ("scenarios/one.toml", '"llama"', '"lama"', "no model is called 'lama'; did you mean llama or"),
        ("scenarios/one.toml", "batch_size = 2", "batch_size = 0", "batch_size is 0"),
    ],
)  # fmt: skip
def test_a_problem_names_its_file_and_line(folder: Path, file: str, old: str, new: str, words: str) -> None:
    start = change(folder / file, old, new)
    found = [str(problem) for problem in check_directory(folder)]
    assert [text for text in found if text.startswith(start) and words in text], (start, found)


def test_the_text_of_one_file_is_checked_as_someone_edits_it(folder: Path) -> None:
    text = (folder / "gpus" / "card.toml").read_text()
    assert check_text(text, "card.toml", GPU).preset == replace(
        define_gpu(name="A card", usable_bytes=24 * GIB), id="card"
    )
    checked = check_text(text.replace("usable_bytes = ", "usable_bytes = x"), "card.toml", GPU)
    assert checked.preset is None
    assert checked.problem is not None
    assert checked.problem.line == text[: text.index("usable_bytes")].count("\n") + 1
    assert checked.problem.text.startswith("is not valid TOML")
    wrong_kind = check_text(text, "card.toml", MODEL)
    assert wrong_kind.problem is not None


def test_a_scenario_of_a_team_may_name_what_kvplan_ships(folder: Path) -> None:
    change(folder / "scenarios" / "one.toml", '"llama"', '"llama-3.1-8b"')
    change(folder / "scenarios" / "one.toml", '"card"', '"h100-sxm-80gb"')
    assert check_directory(folder) == []
    (folder / "models" / "llama-3.1-8b.toml").write_text("schema = 1")
    assert [problem.file for problem in check_directory(folder)] == ["models/llama-3.1-8b.toml", "scenarios/one.toml"]


def test_what_a_file_names_is_looked_for_in_the_folder_and_among_what_kvplan_ships(folder: Path) -> None:
    start = change(folder / "scenarios" / "one.toml", '"llama"', '"llama-3.1-80b"')
    (problem,) = check_directory(folder)
    assert str(problem).startswith(start)
    assert "did you mean llama-3.1-8b" in problem.text
    change(folder / "scenarios" / "one.toml", '"llama-3.1-80b"', '"llama"')
    change(folder / "models" / "llama.toml", "schema = 1", "schema = 2")
    needs = [problem.text for problem in check_directory(folder) if problem.file == "scenarios/one.toml"]
    assert needs == ["the model llama cannot be used: see what is wrong with its own file"]


def test_a_node_without_its_gpu_is_found_on_the_line_that_names_it(folder: Path) -> None:
    (folder / "nodes").mkdir()
    (folder / "nodes" / "box.toml").write_text('schema = 1\nname = "Box"\nnum_gpus = 8\ngpu = "crad"\nsource = "x"\n')
    (problem,) = check_directory(folder)
    assert str(problem).startswith("nodes/box.toml:4: no GPU is called 'crad'; did you mean card")


def test_a_link_out_of_the_folder_is_named_as_no_kvplan_reads_it(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path.with_name(f"{tmp_path.name}-outside.toml")
    outside.write_bytes((folder / "gpus" / "card.toml").read_bytes())
    (folder / "gpus" / "link.toml").symlink_to(outside)
    (folder / "gpus" / "inside.toml").symlink_to(folder / "gpus" / "card.toml")
    assert check_directory(folder) == [
        Problem("gpus/link.toml", 1, "is a link to a file outside of the library, so no kvplan reads it")
    ]


def test_a_file_that_is_too_large_is_named_with_all_its_bytes(folder: Path) -> None:
    (folder / "gpus" / "large.toml").write_text("#" * 70_000)
    assert [problem.text for problem in check_directory(folder)] == ["has 70,000 bytes; a preset has at most 65,536"]


def test_a_pipe_in_a_folder_is_named_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "gpus" / "pipe.toml")
    assert [str(problem) for problem in check_directory(folder)] == [
        "gpus/pipe.toml:1: is no plain file, so no kvplan reads it"
    ]


def test_an_item_is_found_on_its_own_line_whatever_stands_before_it(folder: Path) -> None:
    (folder / "gpus" / "card.toml").write_text(
        'schema = 1\nname = "A card"\nusable_bytes = 25769803776\nusable_basis = "x"\n'
        "usable_range = [1, 2]\nis_estimate = false\nprices = [ # a comment with ], and ,\n"
        '  { kind = "rent", usd = 1.0, date = "", source = "a, b ] {" },\n\n'
        '  { kind = "buy", usd = 1.0, date = "", source = "" },\n]\n'
    )
    (problem,) = [item for item in check_directory(folder) if item.file == "gpus/card.toml"]
    assert problem == Problem("gpus/card.toml", 10, "prices[1].kind is 'buy'; one of rent, list is needed")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda f: (f / "gpus" / "A.toml").write_text(""), ("gpus/A.toml", 1, "the file's name is 'A'; use a-z")),
        (lambda f: (f / "stray.toml").write_text(""), ("stray.toml", 1, "stands outside models/, gpus/")),
        (lambda f: (f / "gpus" / "b.toml").write_bytes(b"\xff"), ("gpus/b.toml", 1, "is not UTF-8 text")),
        (lambda f: (f / "gpus" / "b.toml").write_text("a = 1\nb ="), ("gpus/b.toml", 2, "is not valid TOML")),
        (lambda f: (f / "gpus" / "b.toml").write_text("schema = 1"), ("gpus/b.toml", 1, "lacks 'name'")),
    ],
    ids=["name", "stray", "utf-8", "end", "empty"],
)
def test_whole_files_that_are_wrong(
    folder: Path, damage: Callable[[Path], object], problem: tuple[str, int, str]
) -> None:
    damage(folder)
    (found,) = check_directory(folder)
    assert (found.file, found.line) == problem[:2]
    assert found.text.startswith(problem[2])


def test_every_broken_file_is_reported_and_a_scenario_that_needs_it_too(folder: Path) -> None:
    change(folder / "models" / "llama.toml", "schema = 1", "schema = 2")
    assert [problem.file for problem in check_directory(folder)] == ["models/llama.toml", "scenarios/one.toml"]


def test_settings_of_tools_beside_the_presets_are_no_presets(folder: Path) -> None:
    (folder / ".taplo.toml").write_text("[[rule]]")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "pyproject.toml").write_text("[project]")
    assert check_directory(folder) == []


def test_the_version_before_is_not_checked(folder: Path) -> None:
    (folder / "gpus" / "card.toml.1").write_text("broken")
    assert check_directory(str(folder)) == []


def test_a_folder_without_presets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PresetError, match="has no folder models, gpus, nodes or scenarios"):
        check_directory(tmp_path / "nothing")
