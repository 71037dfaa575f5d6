"""Numbers as people write and read them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError, KvplanError
from kvplan.units import (
    GIB,
    KIB,
    MAX_COUNT,
    MIB,
    TIB,
    counted,
    format_bytes,
    format_exact_bytes,
    format_hundredths,
    format_params,
    format_rate,
    format_tokens,
    format_usd,
    listed,
    parse_axis,
    parse_bytes,
    parse_count,
    whole_number,
    write_bytes,
)

# ----------------------------------------------------------------------------------------------- whole numbers


@pytest.mark.parametrize("value", [7, np.int64(7), np.uint8(7)])
def test_whole_numbers_of_python_and_numpy_come_back_as_int(value: Any) -> None:
    found = whole_number(value, "batch_size")
    assert found == 7
    assert type(found) is int


@pytest.mark.parametrize("value", [7.0, "7", None, True, np.float64(7), np.bool_(True), [7], 7j, float("nan")])
def test_what_hides_a_guess_is_not_a_whole_number(value: Any) -> None:
    with pytest.raises(InputError, match=r"batch_size is .*; a whole number is needed"):
        whole_number(value, "batch_size")


@pytest.mark.parametrize(
    "value",
    [0, -1, 2**40 + 1, 10**5000, -(10**5000)],
    ids=["zero", "negative", "one too many", "huge", "hugely negative"],
)
def test_absurd_numbers_are_refused_with_what_is_accepted(value: int) -> None:
    with pytest.raises(InputError, match=r"batch_size is .*; it must be from 1 to 1,099,511,627,776"):
        whole_number(value, "batch_size")


# ------------------------------------------------------------------------------------------------------ counts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8192", 8192), ("32k", 32 * 1024), ("32K", 32 * 1024), ("32 k", 32 * 1024), ("1m", 2**20), ("1.5k", 1536),
        ("0.5k", 512), (" 7 ", 7), ("1_000", 1000), ("0", 0), ("007", 7),
    ],
)  # fmt: skip
def test_a_count_reads_as_people_write_it(text: str, expected: int) -> None:
    assert parse_count(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "k", "-1", "1e3", "0x10", "1.2.3", "8,192", "1 2", "nan", "inf", "٣", "1kk", "1g", "½", "9" * 5000, "3."],
)
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="context_length"):
        parse_count(text, "context_length")


@pytest.mark.parametrize("bad", [None, 5, 1.5, b"1", ["1"], {}, float("nan"), True], ids=repr)
def test_what_is_to_be_read_is_a_text(bad: Any) -> None:
    for read in (parse_count, parse_axis, parse_bytes):
        with pytest.raises(InputError, match=r"^size is .*; a text is needed$"):
            read(bad, "size")


@pytest.mark.parametrize("bad", [None, "12", b"12", {1: 2}, 5, float("nan"), True], ids=repr)
def test_what_holds_no_values_in_a_row_is_no_list(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^axis is .*; a list of values is needed$"):
        listed(bad, "axis")


def test_a_figure_known_to_hundredths_keeps_two_decimals_in_either_unit() -> None:
    assert format_hundredths(13 * GIB // 100) == "0.13 GiB"
    assert format_hundredths(149 * GIB // 100, "GB") == "1.60 GB"  # 1.49 × 1.073741824 = 1.599...
    assert format_hundredths(2000 * GIB) == "2,000.00 GiB"


def test_whatever_holds_values_in_a_row_is_a_list() -> None:
    assert [listed(values, "axis") for values in ((1, 2), range(1, 3), iter([1, 2]))] == [[1, 2]] * 3


def test_a_count_below_the_least_that_is_accepted_is_refused_with_that_least() -> None:
    assert parse_count("1", "context", 1) == 1
    for text in ("0", str(2**50)):
        with pytest.raises(InputError, match=f"^context is {text}; it must be from 1 to 1,099,511,627,776$"):
            parse_count(text, "context", 1)


def test_a_count_is_never_rounded() -> None:
    with pytest.raises(InputError, match=r"'1\.0001k' is not a whole number"):
        parse_count("1.0001k")


# -------------------------------------------------------------------------------------------------------- axes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1k,4k,32k,128k", [1024, 4096, 32768, 131072]),
        ("1..5", [1, 2, 3, 4, 5]),
        ("1..64*2", [1, 2, 4, 8, 16, 32, 64]),
        ("1..100*3", [1, 3, 9, 27, 81]),
        ("0..90+30", [0, 30, 60, 90]),
        ("1k..4k*2", [1024, 2048, 4096]),
        ("1..1.5k+1k", [1, 1025]),
        ("4, 1..3, 2", [4, 1, 2, 3]),
        ("7", [7]),
    ],
)
def test_an_axis_reads_as_people_write_it(text: str, expected: list[int]) -> None:
    assert parse_axis(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ",", "1,", "5..1", "1..", "..5", "1..5*1", "1..5*0", "1..5+0", "0..8*2", "1..5..9", "a..b", "1..5*", "1...5"],
)
def test_what_is_no_axis_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="batch_size"):
        parse_axis(text, "batch_size")


def test_an_axis_of_too_many_values_is_refused_before_it_is_made() -> None:
    assert len(parse_axis("1..20000")) == 20_000
    with pytest.raises(InputError, match=r"over 20,000 values; use a larger step"):
        parse_axis(f"1..{MAX_COUNT}")


@given(st.lists(st.integers(0, MAX_COUNT), min_size=1, max_size=20, unique=True))
def test_a_written_list_reads_back(values: list[int]) -> None:
    assert parse_axis(",".join(map(str, values))) == values


# ------------------------------------------------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("24 GiB", 24 * GIB), ("24GB", 24 * 10**9), ("512MiB", 512 * MIB), ("1.5 GiB", 3 * GIB // 2), ("17", 17),
        ("1 kB", 1000), ("1 KB", 1000), ("1KiB", 1024), ("2TiB", 2 * TIB), ("0 B", 0),
    ],
)  # fmt: skip
def test_a_size_reads_with_its_unit(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1 GiB", "1 gib", "1 Gb", "1 PB", "1e9", "1,000", "9" * 5000 + "GiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="overhead"):
        parse_bytes(text, "overhead")


def test_a_size_is_never_rounded() -> None:
    with pytest.raises(InputError, match="is not a whole number of bytes; write a size such as 24GiB"):
        parse_bytes("0.3 B")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (10 * MIB, "10.0 MiB"), (1234 * GIB // 100, "12.3 GiB"),
        (80 * GIB, "80.0 GiB"), (GIB - 1, "1.00 GiB"),
        (GIB - MIB, "1,023 MiB"), (-3 * GIB, "-3.00 GiB"), (5000 * TIB, "5,000 TiB"),
    ],
)  # fmt: skip
def test_bytes_are_written_in_the_largest_unit_with_three_digits(count: int, expected: str) -> None:
    assert format_bytes(count) == expected


def test_gb_and_gib_are_different_words() -> None:
    assert format_bytes(80 * 10**9, "GB") == "80.0 GB"
    assert format_bytes(80 * 10**9, "GiB") == "74.5 GiB"
    assert format_bytes(80 * 10**9, decimal=True) == "80.0 GB"
    assert format_bytes(1500, decimal=True) == "1.50 kB"
    assert format_bytes(10**9 - 1, decimal=True) == "1.00 GB"
    assert format_bytes(999_900_000, decimal=True) == "999.9 MB"


def test_the_exact_form_has_every_digit() -> None:
    assert format_exact_bytes(1_342_177_280) == "1.25 GiB (1,342,177,280 B)"
    assert format_exact_bytes(1_342_177_280, decimal=True) == "1.34 GB (1,342,177,280 B)"
    assert format_exact_bytes(520) == "520 B"


def test_a_number_brings_its_noun_in_the_right_form() -> None:
    words = [counted(count, word) for count, word in ((0, "GPU"), (1, "GPU"), (2048, "token"), (2, "matrix"))]
    assert words == ["0 GPUs", "1 GPU", "2,048 tokens", "2 matrices"]


def test_a_price_always_has_two_decimals() -> None:
    assert [format_usd(price) for price in (2.5, 0.1, 1234)] == ["$2.50", "$0.10", "$1,234.00"]


def test_the_price_of_one_keeps_every_digit_so_that_a_product_comes_out() -> None:
    assert [format_rate(price) for price in (2.5, 0.1502, 1999, 0.00001)] == [
        "$2.50",
        "$0.1502",
        "$1,999.00",
        "$0.00001",
    ]
    assert format_usd(160 * 0.1502) == "$24.03"  # and 160 x $0.15 would be $24.00


@given(st.integers(0, 10**18))
def test_a_written_size_is_within_half_a_last_digit(count: int) -> None:
    number, unit = format_bytes(count).split(" ")
    size = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}[unit]
    written = Fraction(number.replace(",", ""))
    assert abs(written - Fraction(count, size)) <= Fraction(5, 1000) * max(written, 1)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1023, "1,023"), (1024, "1K"), (32768, "32K"), (131072, "128K"), (2**20, "1M"), (10000, "10,000")],
)
def test_a_context_is_written_short_only_where_that_is_exact(count: int, expected: str) -> None:
    assert format_tokens(count) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (8_030_261_248, "8.03 B"), (70_553_706_496, "70.6 B"), (671_026_419_200, "671 B"), (124_439_808, "124 M"),
        (999_999_999, "1.00 B"), (999_499_999, "999 M"), (1_000, "1.00 K"), (999, "999"), (0, "0"),
        (1_026_000_000_000, "1.03 T"), (99_960_000, "100 M"), (9_996_000, "10.0 M"),
    ],
)  # fmt: skip
def test_parameters_are_written_with_three_digits(count: int, expected: str) -> None:
    assert format_params(count) == expected


# -------------------------------------------------------------------------------------------------------- fuzz


@given(st.text(max_size=60) | st.from_regex(r"[0-9.kKmM*+ ,]{0,40}(\.\.)?[0-9kK]{0,20}", fullmatch=True))
def test_only_a_kvplan_error_ever_comes_out_of_reading(text: str) -> None:
    for read in (parse_count, parse_axis, parse_bytes):
        try:
            message = str(read(text))
        except KvplanError as error:
            message = str(error)
        assert message


@given(st.integers(0, 2**50))
def test_bytes_are_written_so_that_they_read_back_exactly(count: int) -> None:
    assert parse_bytes(write_bytes(count)) == count


@pytest.mark.parametrize(
    ("count", "text"),
    [(16 * GIB, "16GiB"), (320 * 10**9, "320GB"), (22559 * MIB, "22559MiB"), (5, "5B"), (1536, "1536B")],
)
def test_bytes_are_written_in_the_unit_in_which_they_are_shortest(count: int, text: str) -> None:
    assert write_bytes(count) == text
