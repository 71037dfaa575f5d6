"""Nodes: machines of several equal GPUs, as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.check import check_directory
from kvplan.cli import main
from kvplan.errors import InputError, PresetError, UnknownNameError
from kvplan.hardware import Node, define_gpu
from kvplan.plan import Scenario, node_sentence, plan
from kvplan.presets import (
    SHIPPED,
    dump_toml,
    largest_node,
    list_nodes,
    load_gpu,
    load_node,
    node_from_table,
    node_to_table,
    usual_node,
)
from kvplan.units import GIB


@pytest.mark.parametrize("name", list_nodes())
def test_every_node_has_a_gpu_that_is_known_and_a_source(name: str) -> None:
    node = load_node(name)
    assert load_gpu(node.gpu).id == node.gpu
    assert name == f"{node.num_gpus}x{node.gpu}"
    assert node.num_gpus > 1
    assert node.source


def test_the_usual_machines_are_there() -> None:
    assert {
        "8xh100-sxm-80gb", "8xh200-141gb", "8xb200-180gb", "4xa100-sxm-80gb", "2xrtx-4090-24gb", "8xmi300x-192gb",
    } <= set(list_nodes())  # fmt: skip


def test_a_node_reads_back_from_its_table() -> None:
    node = load_node("2xrtx-4090-24gb")
    assert node_from_table(node_to_table(node), "x.toml", node.id) == node


def test_an_unknown_node_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 8xh100-sxm-80gb"):
        load_node("8xh100-sxm-80g")


def test_a_node_without_gpus_is_refused() -> None:
    with pytest.raises(InputError, match="num_gpus is 0"):
        Node("N", "rtx-4090-24gb", 0, "nowhere")
    with pytest.raises(PresetError, match=r"x\.toml: has the unknown key 'id'"):
        node_from_table({"schema": 1, "name": "N", "gpu": "g", "num_gpus": 2, "source": "s", "id": "n"}, "x.toml")


def scenario(gpu: str, **settings: int) -> Scenario:
    return Scenario("llama-3.1-8b", gpu, **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ""),
        ({"tensor_parallel": 2}, "2 GPUs: a part of a node of 8"),
        ({"tensor_parallel": 4}, "4 GPUs: a node of 4, or a part of a node of 8"),
        ({"tensor_parallel": 8}, "8 GPUs: one whole node"),
        ({"tensor_parallel": 4, "data_parallel": 3}, "12 GPUs on 2 nodes of 8: they need a fast network between them"),
    ],
)
def test_a_plan_says_how_many_nodes_it_takes(settings: dict[str, int], words: str) -> None:
    assert node_sentence(scenario("h100-sxm-80gb", **settings)) == words


def test_a_card_without_a_usual_node_has_those_of_the_presets() -> None:
    card = load_gpu("rtx-4090-24gb")
    assert (card.node_gpus, usual_node(card), largest_node(card)) == (1, 8, 8)
    assert not plan(scenario("rtx-4090-24gb", tensor_parallel=2)).warnings
    assert largest_node(define_gpu(name="G", usable_bytes=GIB)) is None


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for kind in ("gpus", "nodes"):
        (tmp_path / kind).mkdir()
    (tmp_path / "gpus" / "card.toml").write_bytes((SHIPPED / "gpus" / "rtx-4090-24gb.toml").read_bytes())
    return tmp_path


def test_a_folder_is_checked_for_nodes_of_unknown_gpus(library: Path) -> None:
    table = {"schema": 1, "name": "Two", "gpu": "card", "num_gpus": 2, "source": "a test"}
    (library / "nodes" / "two.toml").write_text(dump_toml(table))
    assert check_directory(library) == []
    (library / "nodes" / "three.toml").write_text(dump_toml({**table, "gpu": "cart"}))
    (found,) = check_directory(library)
    assert (found.file, found.text) == ("nodes/three.toml", "no GPU is called 'cart'; did you mean card?")


def test_the_terminal_takes_a_node_for_gpu_and_parallelism(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "llama-3.1-70b", "--node", "8xh100-sxm-80gb"]) == 0
    whole = capsys.readouterr().out
    assert main(["plan", "llama-3.1-70b", "--gpu", "h100-sxm-80gb", "--tp", "8"]) == 0
    assert capsys.readouterr().out == whole
    assert main(["plan", "llama-3.1-70b", "--node", "8xh100-sxm-80gb", "--tp", "4"]) == 0
    assert "on 4 × H100" in capsys.readouterr().out


def test_a_gpu_and_a_node_together_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "llama-3.1-8b", "--node", "8xh100-sxm-80gb", "--gpu", "h100-sxm-80gb"]) == 2
    assert "not allowed with" in capsys.readouterr().err


def test_replicas_and_whole_experts_are_written_in_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "qwen3-30b-a3b", "--gpu", "h100-sxm-80gb", "--data-parallel", "8", "--expert-parallel", "--json"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert '"data_parallel": 8' in out
    assert '"expert_parallel": true' in out
    assert '"num_gpus": 8' in out
