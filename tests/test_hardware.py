"""Accelerators and links: what their data sheets say, and how long copies take."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.catalogue import index
from perc.errors import InputError
from perc.hardware import ACCELERATORS, LINKS, accelerator, link

ways = st.sampled_from(LINKS)


def test_catalogues_are_large_and_name_their_sources():
    assert len(ACCELERATORS) >= 15 and len(LINKS) >= 15
    assert all(entry.source for entry in [*ACCELERATORS, *LINKS])
    assert len({card.name for card in ACCELERATORS}) == len(ACCELERATORS)
    for card in ACCELERATORS:
        assert link(card.scale_up).name == card.scale_up
        assert link(card.host).name == card.host


REFERENCE = (
    "h100_sxm h100_pcie a100_80 a100_40 a10g rtx4090 rtx3090 l4 h100_80 h200_141"
)


@pytest.mark.parametrize("name", REFERENCE.split())
def test_names_of_the_reference_catalogue_are_known(name):
    assert accelerator(name) is accelerator(name.replace("_", "-").upper())


@pytest.mark.parametrize(
    "name, dense",
    [("h100-sxm", 989.4), ("h100-pcie", 756.5), ("a100", 312), ("l4", 121)],
)
def test_peaks_are_dense(name, dense):
    """CachePilot lists 1,979 and 1,513, with sparsity."""
    assert accelerator(name).bf16_flops == dense * 1e12


@pytest.mark.parametrize("card", ACCELERATORS, ids=lambda card: card.name)
def test_no_sheet_was_mixed_up(card):
    assert 16 <= card.memory_gib <= 300
    assert 100e9 < card.bytes_per_s <= 8e12
    assert 50 < card.ridge < 700 or card.name == "h20"  # cut to little compute
    if card.fp8_flops:
        assert 1 <= card.fp8_flops / card.bf16_flops <= 2.03
    assert card.name.startswith(("a1", "a3", "rtx-3")) == (card.fp8_flops is None)


def test_the_card_of_aws_is_not_nvidias():
    assert accelerator("a10g").bf16_flops < accelerator("a10").bf16_flops


@pytest.mark.parametrize(
    "name, large_ms, small_ms",
    [
        ("pcie5", 33.559, 8.394),
        ("nvlink4", 4.774, 1.195),
        ("ndr", 42.953, 10.740),
        ("ethernet-100g", 171.809, 42.960),
    ],
)
def test_transport_of_the_reference(name, large_ms, small_ms):
    """Script 20: 2 GiB and 512 MiB, nominal; 900 GB/s would be both ways at once."""
    times = link(name).time_s([2 * 2**30, 2**29], efficiency=1.0) * 1e3
    assert times.round(3).tolist() == [large_ms, small_ms]


def test_a_block_of_cachepilot():
    """Section 2.13: 16 MiB at 64 GiB/s take 244.140625 us, a model without latency."""
    way = dataclasses.replace(link("pcie5"), bytes_per_s=64 * 2.0**30, latency_s=0.0)
    assert float(way.time_s(16 * 2**20, efficiency=1.0)) == 244.140625e-6


@given(ways, st.lists(st.integers(0, 2**45), min_size=1))
def test_copies_take_longer_the_larger_they_are(way, sizes):
    times = way.time_s(np.sort(sizes))
    assert (np.diff(times) >= 0).all()
    assert ((times > 0) == (np.sort(sizes) > 0)).all()
    assert (times >= way.time_s(np.sort(sizes), efficiency=1.0)).all()


@given(ways, st.integers(1, 2**40), st.integers(1, 2**40))
def test_one_copy_is_no_slower_than_two(way, a, b):
    assert way.time_s(a + b) <= (way.time_s(a) + way.time_s(b)) * (1 + 1e-12)


@given(ways, st.integers(0, 2**40), st.integers(0, 2**40))
def test_duplex_links_send_both_ways_at_once(way, out, back):
    one, other = way.time_s(out), way.time_s(back)
    together = max(one, other) if way.duplex else one + other
    assert way.exchange_s(out, back) == together
    assert way.duplex == (not way.name.startswith("nvme"))


def test_copies_are_timed_inside_jit():
    found = jax.jit(link("pcie5").time_s)(jnp.array([0, 2**20, 2**30]))
    wanted = link("pcie5").time_s([0, 2**20, 2**30])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_unknown_names_list_near_ones():
    with pytest.raises(InputError, match="Near: .*h100-sxm"):
        accelerator("h100-sxn")
    with pytest.raises(InputError, match="Near: .*pcie5"):
        link("pcie7")
    with pytest.raises(InputError, match="There are a10, "):
        accelerator("%")


def test_senseless_hardware_is_refused():
    for change in ({"bytes_per_s": 0.0}, {"efficiency": 1.5}, {"latency_s": -1.0}):
        with pytest.raises(InputError):
            dataclasses.replace(link("pcie5"), **change)
    for change in ({"memory_gib": 0}, {"fp8_flops": -1.0}, {"bf16_flops": np.nan}):
        with pytest.raises(InputError):
            dataclasses.replace(accelerator("l4"), **change)
    with pytest.raises(InputError, match="efficiency"):
        link("pcie5").time_s(1, efficiency=0.0)
    for size in (-5, np.nan, [1, -1]):
        with pytest.raises(InputError, match="must be 0 or more"):
            link("pcie5").time_s(size)
    assert np.isnan(link("pcie5").time_s(jnp.array([-5.0, np.nan]))).all()


def test_a_name_means_one_thing():
    with pytest.raises(ValueError, match="two entries answer to 'A-1'"):
        index([("a1", object()), ("A-1", object())])
