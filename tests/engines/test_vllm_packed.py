"""DeepSeek V4 in vLLM: five kinds of cache behind one set of block ids."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.engines import EngineCapacity, engine_capacity
from kvplan.engines.capacity import checked_request
from kvplan.engines.vllm_packed import packed_layout
from kvplan.errors import InputError
from kvplan.units import GIB
from tests.engines.log_cases import published

FLASH = "nvidia/DeepSeek-V4-Flash-NVFP4"  # 43 layers: 21 of ratio 4, 20 of ratio 128, 2 with a window only
PRO = "deepseek-ai/DeepSeek-V4-Pro"  # 61 layers: 30 of ratio 4, 31 of ratio 128

MAIN = 65 * 576  # 64 entries of 584 B in multiples of 576
INDEX = 15 * 576  # 64 entries of 132 B
SMALL = 3 * 576  # 2 entries of 584 B


def ask(name: str, **settings: Any) -> EngineCapacity:
    return engine_capacity(published(name), **{"pool_bytes": GIB, "kv_dtype": "fp8", **settings})


def test_a_refused_start_needs_what_version_0_22_said() -> None:
    """https://github.com/vllm-project/vllm/issues/44376: 30,000 tokens need 6.66 GiB; 5.44 GiB hold 13,528."""
    settings = {"engine_version": "0.22", "max_model_len": 30000, "max_num_batched_tokens": 16384}
    low, high = (ask(FLASH, pool_bytes=round(gib * GIB), **settings) for gib in (5.435, 5.445))
    assert f"{low.needed_bytes / GIB:.2f}" == "6.66"
    assert (low.longest_context or 0) <= 13528 <= (high.longest_context or 0)


def test_a_request_holds_five_kinds() -> None:
    found = ask(FLASH, engine_version="0.22", max_model_len=30000, max_num_batched_tokens=16384)
    rows, window = 118, 2 * (258 + 1)  # 30,000 / 256; (127 + 16,384) / 64 and one, for 22 and 21 layers
    ratio_4, ratio_128 = 4098 + 1, 2064 + 1  # (7 + 16,384) / 4 and (127 + 16,384) / 8, and one each
    assert found.request_blocks == rows + window + ratio_4 + ratio_128
    assert "5 groups of layers share one pool" in found.notes[0]


def test_the_first_layout_keeps_22_whole_rows() -> None:
    assert ask(FLASH, engine_version="0.22").bytes_per_block == 22 * (MAIN + INDEX + SMALL) == 1_051_776


def test_the_second_keeps_of_each_page_the_most_that_a_group_has() -> None:
    """https://github.com/vllm-project/vllm/pull/44454 gives 1.16 % more; pull/48993 starts from 1,473,408 B for Pro."""
    flash = ask(FLASH, engine_version="0.23").bytes_per_block
    assert flash == 22 * MAIN + 21 * INDEX + 20 * SMALL
    assert f"{1_051_776 / flash - 1:.2%}" == "1.16%"
    assert ask(PRO, engine_version="0.25").bytes_per_block == 31 * MAIN + 30 * INDEX + 31 * SMALL == 1_473_408


def test_the_third_is_as_wide_as_its_widest_group() -> None:
    """pull/48993 gives 1,315,008 B for Pro with index keys of 4 bits, 8 x 576 B a page instead of 15."""
    found = ask(PRO, engine_version="0.27").bytes_per_block
    assert found == 30 * (MAIN + INDEX) + 31 * SMALL
    assert found - 30 * (INDEX - 8 * 576) == 1_315_008


def test_pages_of_the_compressors_hold_float32_values_and_scores() -> None:
    request = checked_request(published(FLASH), GIB, "fp8", 1, 1, None, 4096, None, 1, None)
    dense = [{page.page_bytes for page in group} for group in packed_layout(request, 0, (0, 27)).groups]
    state = 57 * 576  # 4 tokens of 2 x 2 x 512 values, or 8 of 2 x 512, in multiples of 576
    assert dense == [{MAIN, INDEX, SMALL}, {MAIN}, {MAIN}, {state, INDEX}, {state}]
    padded = [{page.page_bytes for page in group} for group in packed_layout(request, 0, (0, 22)).groups]
    assert padded == [{MAIN, INDEX, SMALL}, {MAIN}, {MAIN}, {MAIN, INDEX}, {MAIN}]


def test_draft_layers_have_a_window_only() -> None:
    drafted = ask(FLASH, engine_version="0.22", draft_layers=3)
    assert drafted.bytes_per_block == 23 * (MAIN + INDEX + SMALL)  # 46 windows in two groups


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_dtype": "bf16"}, "vLLM has no cache dtype bf16; choose fp8, its default"),
        ({"pipeline_parallel": 2}, "for one stage and blocks of 256 tokens"),
        ({"block_size": 64}, "for one stage and blocks of 256 tokens"),
    ],
)
def test_pages_that_are_not_known_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(FLASH, **settings)


def test_the_usual_cache_is_8_bits_wide() -> None:
    assert ask(FLASH, kv_dtype="auto").bytes_per_block == ask(FLASH, kv_dtype="fp8").bytes_per_block


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm"])
def test_other_engines_pages_of_compressed_layers_are_not_guessed(engine: str) -> None:
    with pytest.raises(InputError, match="compressed attention is not known here; plan its resident bytes"):
        ask(FLASH, engine=engine)
