"""What may be a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.errors import RequestError, TooLarge
from pixiu.model.names import check_platform, check_public_id, has_controls, own_number


@pytest.mark.parametrize(
    ("public_id", "number"),
    [
        ("1", 1), ("42", 42), (str(2**48 - 1), 2**48 - 1), (str(2**48), None), ("0", None), ("00", None), ("042", None),
        ("-1", None), ("+1", None), ("1 ", None), ("1_0", None), ("1.0", None), ("١", None), ("²", None), ("", None),
        ("9" * 15, None), ("alice", None),
    ],
)  # fmt: skip
def test_only_a_canonical_decimal_is_its_own_number(public_id: str, number: int | None) -> None:
    assert own_number(public_id) == number


@given(st.integers(1, 2**48 - 1))
def test_every_number_below_2_to_the_48th_has_one_name(number: int) -> None:
    assert own_number(str(number)) == number
    assert own_number(f"0{number}") is None


@pytest.mark.parametrize("public_id", ["alice", "a b", "é" * 32, "貔貅", "x" * 64, "👩‍🚀", "a/b:c", "\u2028"])
def test_a_public_id_is_any_short_text(public_id: str) -> None:
    assert check_public_id(public_id, what="user") == public_id


@pytest.mark.parametrize("public_id", ["", "0", "a\n", "\x00", "\x7f", "\x9f", "\ud800"])
def test_control_characters_and_the_systems_name_are_refused(public_id: str) -> None:
    with pytest.raises(RequestError):
        check_public_id(public_id, what="user")


@pytest.mark.parametrize("public_id", ["x" * 65, "é" * 33])
def test_a_public_id_has_at_most_64_bytes(public_id: str) -> None:
    with pytest.raises(TooLarge, match="user may have 64 bytes"):
        check_public_id(public_id, what="user")


@given(st.text(max_size=20))
def test_controls_are_those_of_unicodes_category_cc(text: str) -> None:
    assert has_controls(text) == any(ord(each) < 32 or 127 <= ord(each) < 160 for each in text)


def test_a_platform_may_hold_a_dash_but_is_not_empty_nor_the_inbox_before_the_first_login() -> None:
    assert [check_platform(name) for name in ("web", "ios-beta")] == ["web", "ios-beta"]
    for platform in ("", "first"):
        with pytest.raises(RequestError):
            check_platform(platform)
