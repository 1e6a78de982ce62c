"""Numbers that hold several."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.ids import GatewayMessageId, StoreId


@pytest.mark.feature("X35")
@pytest.mark.parametrize("instance", [0, 65535])
@pytest.mark.parametrize("epoch", [0, 1023])
@pytest.mark.parametrize("counter", [0, 2**38 - 1])
def test_a_gateway_message_id_comes_back_as_it_went_in(instance: int, epoch: int, counter: int) -> None:
    parts = GatewayMessageId(instance, epoch, counter)
    number = parts.pack()
    assert GatewayMessageId.unpack(number) == parts
    assert (number >> 48, (number >> 38) & 1023, number & (2**38 - 1)) == parts


@pytest.mark.feature("X35")
@pytest.mark.parametrize(
    ("parts", "what"),
    [
        (GatewayMessageId(65536, 0, 0), "instance must be 0 to 65535, not 65536"),
        (GatewayMessageId(-1, 0, 0), "instance"),
        (GatewayMessageId(0, 1024, 0), "epoch must be 0 to 1023"),
        (GatewayMessageId(0, 0, 2**38), "counter"),
    ],
)
def test_what_does_not_fit_is_refused(parts: GatewayMessageId, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parts.pack()


@given(st.integers(0, 65535), st.integers(0, 1023), st.integers(0, 2**38 - 2))
def test_gateway_message_ids_rise_with_the_counter_and_with_the_epoch(instance: int, epoch: int, counter: int) -> None:
    now = GatewayMessageId(instance, epoch, counter).pack()
    assert GatewayMessageId(instance, epoch, counter + 1).pack() > now
    if epoch < 1023:
        assert GatewayMessageId(instance, epoch + 1, 0).pack() > now


@pytest.mark.feature("X44")
@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**48 - 1))
def test_both_layouts_come_back_and_show_the_partition_in_the_top_byte(partition: int, kind: int, counter: int) -> None:
    parts = StoreId(partition, kind, counter)
    assert StoreId.unpack_by_kind(parts.pack_by_kind()) == parts
    assert StoreId.unpack_by_time(parts.pack_by_time()) == parts
    for number in (parts.pack_by_kind(), parts.pack_by_time()):
        assert number < 2**64
        assert StoreId.partition_of(number) == partition


def test_only_one_layout_sorts_by_time() -> None:
    early, late = StoreId(1, 2, 10), StoreId(1, 1, 11)
    assert early.pack_by_kind() > late.pack_by_kind()
    assert early.pack_by_time() < late.pack_by_time()


@pytest.mark.parametrize("parts", [StoreId(256, 0, 0), StoreId(0, 256, 0), StoreId(0, 0, 2**48), StoreId(-1, 0, 0)])
def test_a_store_id_holds_one_byte_of_partition(parts: StoreId) -> None:
    with pytest.raises(ValueError, match="must be 0 to"):
        parts.pack_by_kind()
    with pytest.raises(ValueError, match="must be 0 to"):
        parts.pack_by_time()
