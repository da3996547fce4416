"""The arithmetic of the formats, against plain Python and their promised bounds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.kernels.formats import FORMATS, Format, layout
from perc.kernels.quantised import (
    Quantised,
    dequantise,
    parts,
    quantise,
    rows,
)
from tests.kernels.common import DTYPES, pool_of, same_bits
from tests.oracles import quantised as oracle

PAGE = (8, 1, 8)
SIZE = 64
SPECIAL = [0.0, -0.0, 1e-45, -1e-39, 1e-30, 65504.0, 3e38, -3e38, 1e30]
NUMBERS = st.one_of(
    st.floats(-10, 10, width=32),
    st.floats(-1e4, 1e4, width=16),
    st.sampled_from(SPECIAL),
)
PAGES = st.lists(NUMBERS, min_size=SIZE, max_size=SIZE)
FORMS = [
    *FORMATS.values(),
    Format("int8", symmetric=False),
    Format("int8", scale_dtype="bfloat16"),
    Format("int4", "channel", False, 2, "bfloat16"),
    Format("int2", groups=2),
]
quick = settings(max_examples=20, deadline=None)
quantised = functools.partial(jax.jit, static_argnums=1)(quantise)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def restored(stored, form, page=PAGE, dtype=jnp.float32):
    return dequantise(stored, form, page, dtype)


def round_trip(values, form):
    pages = jnp.asarray(values, jnp.float32).reshape(1, *PAGE)
    stored = quantised(pages, form)
    back = np.asarray(restored(stored, form)).ravel()
    scales = np.asarray(stored.scale, np.float32).reshape(-1)
    return stored, back, scales


@pytest.mark.parametrize("form", FORMS, ids=str)
@given(values=PAGES)
@quick
def test_codes_scales_and_values_are_those_of_plain_python(form, values):
    stored, back, scales = round_trip(values, form)
    one = Quantised(stored.codes, stored.scale, stored.zero)
    codes = np.asarray(stored.codes)[0].transpose(0, 2, 1)  # [outer, inner, width]
    planes = [
        (codes >> (form.bits * p)) & ((1 << form.bits) - 1) for p in range(form.planes)
    ]
    flat = np.concatenate(planes, axis=-1).reshape(-1)
    scale = np.asarray(one.scale, np.float32)[0].transpose(0, 2, 1).reshape(-1)
    group = SIZE // len(scale)
    expected = np.zeros(SIZE, np.float32)
    for i, members in enumerate(_in_order(form)):
        want, want_scale, want_zero = oracle.quantise_group(
            [values[m] for m in members], form
        )
        assert flat[i * group : (i + 1) * group].tolist() == want
        assert scale[i] == np.float32(want_scale)
        if stored.zero is not None:
            zero = np.asarray(stored.zero, np.float32)[0].transpose(0, 2, 1).reshape(-1)
            assert zero[i] == want_zero
        for m, value in zip(
            members,
            oracle.restore_group(want, want_scale, want_zero, form),
            strict=True,
        ):
            expected[m] = value
    assert same_bits(back, expected)


def _in_order(form):
    """Groups in the order [outer, inner, group] of the test's flat arrays."""
    groups = oracle.groups_of(PAGE, form)
    if form.axis == "token":
        return groups
    columns = PAGE[1] * PAGE[2]
    return [groups[g * columns + c] for c in range(columns) for g in range(form.groups)]


def scale_of_each(form, scales):
    """The scale of every element of a flat page."""
    each = np.zeros(SIZE)
    for scale, members in zip(scales, oracle.groups_of(PAGE, form), strict=True):
        each[members] = scale
    return each


@pytest.mark.parametrize("form", [f for f in FORMS if f.kind != "fp8"], ids=str)
@given(values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=SIZE, max_size=SIZE))
@quick
def test_an_error_is_at_most_half_a_scale(form, values):
    _, back, scales = round_trip(values, form)
    each = scale_of_each(form, scales)
    slack = 1 + 2.0**-10  # the product with 1 / scale is rounded too
    assert np.all(np.abs(back - np.float32(values)) <= each / 2 * slack)


@given(values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=SIZE, max_size=SIZE))
@quick
def test_int8_errs_by_absmax_over_254(values):
    _, back, _ = round_trip(values, Format("int8"))
    rows_of = np.float32(values).reshape(8, 8)
    bound = np.maximum(np.abs(rows_of).max(axis=1, keepdims=True) / 254, 2.0**-97)
    assert np.all(np.abs(back.reshape(8, 8) - rows_of) <= bound * (1 + 2.0**-10))


def test_int8_of_cachepilots_vector():
    """Halves go to the even number: -63.5 to -64."""
    line = jnp.tile(jnp.float32([1, -0.5, 0.25, 0, 1, -0.5, 0.25, 0]), (8, 1))
    found = quantised(line.reshape(1, *PAGE), Format("int8"))
    assert np.asarray(found.codes).ravel()[:4].astype(np.int8).tolist() == [
        *(127, -64, 32, 0)
    ]
    back = dequantise(found, Format("int8"), PAGE, jnp.dtype("float32"))
    np.testing.assert_allclose(
        np.ravel(back)[:4], [1, -0.503937, 0.251969, 0], atol=1e-6
    )


@pytest.mark.parametrize("name", ["fp8_token", "fp8_channel"])
@given(values=st.lists(st.floats(-1e3, 1e3, width=32), min_size=SIZE, max_size=SIZE))
@quick
def test_fp8_errs_by_a_sixteenth_of_a_normal_value(name, values):
    form = FORMATS[name]
    _, back, scales = round_trip(values, form)
    each = scale_of_each(form, scales)
    x = np.float32(values)
    error = np.abs(back - x)
    # below the least normal number steps are 2^-9 of the scale
    bound = np.where(np.abs(x) >= each * 2.0**-6, np.abs(x) * 2.0**-4, each * 2.0**-10)
    assert np.all(error <= bound * (1 + 2.0**-10))


def test_scales_on_fewer_elements_err_less_where_channels_stand_out():
    """Per tensor > per token > per channel, on keys with outlier channels."""
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(1, 32, 2, 64)).astype(np.float32)
    keys *= np.exp(rng.normal(size=(1, 32, 2, 1)))  # tokens differ
    keys[..., [3, 40]] *= 60
    small = np.ones(64, bool)
    small[[3, 40]] = False

    def error(form, shape):
        pages = jnp.asarray(keys).reshape(shape)
        back = restored(quantised(pages, form), form, shape[1:])
        return np.abs(np.asarray(back).reshape(keys.shape) - keys)[..., small].mean()

    tensor = error(Format("int8"), (1, 1, 1, keys.size))
    token = error(Format("int8"), keys.shape)
    channel = error(Format("int8", "channel"), keys.shape)
    assert tensor > 2 * token > 4 * channel


def test_all_256_codes_of_fp8():
    form = Format("fp8")
    codes = jnp.arange(256, dtype=jnp.uint8).reshape(1, 1, 256, 1)
    stored = Quantised(codes, jnp.ones((1, 1, 1, 1), jnp.float32), None)
    values = np.asarray(dequantise(stored, form, (1, 1, 256), jnp.float32)).ravel()
    expected = np.asarray([oracle.e4m3(c) for c in range(256)], np.float32)
    assert same_bits(values, expected)
    finite = [c for c in range(256) if c & 0x7F != 0x7F]
    page = jnp.asarray(expected[finite]).reshape(1, 1, 1, -1)  # holds 448: scale is 1
    again = quantise(page, form)
    assert np.asarray(again.codes).ravel().tolist() == finite
    assert np.asarray(again.scale).ravel().tolist() == [1.0]


@pytest.mark.parametrize("symmetric", [True, False])
def test_all_256_bytes_of_int4_pairs(symmetric):
    form = Format("int4", symmetric=symmetric)
    codes = jnp.arange(256, dtype=jnp.uint8).reshape(1, 1, 256, 1)
    one = jnp.ones((1, 1, 1, 1), jnp.float32)
    stored = Quantised(codes, one, None if symmetric else -3 * one)
    values = np.asarray(dequantise(stored, form, (1, 1, 512), jnp.float32)).ravel()
    zero = -8 if symmetric else -3
    low, high = (
        [c % 16 + zero for c in range(256)],
        [c // 16 + zero for c in range(256)],
    )
    assert values.tolist() == [*low, *high]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_group_with_nan_or_infinity_comes_back_as_nan_alone(form, bad):
    values = np.linspace(-1, 1, SIZE, dtype=np.float32)
    values[13] = bad
    stored, back, scales = round_trip(values, form)
    (lost,) = [g for g in oracle.groups_of(PAGE, form) if 13 in g]
    kept = np.setdiff1d(np.arange(SIZE), lost)
    assert np.isnan(back[lost]).all() and np.isfinite(back[kept]).all()
    assert np.isinf(scales).sum() == 1


@pytest.mark.parametrize("value, dtype", [(1e7, "float16"), (2.0**103, "float32")])
def test_a_scale_that_overflows_loses_its_group_visibly(value, dtype):
    values = np.ones(SIZE, np.float32)
    values[0] = value  # / 127 is above 65,504, or 2^96
    _, back, _ = round_trip(values, Format("int8", scale_dtype=dtype))
    assert np.isnan(back[:8]).all() and np.isfinite(back[8:]).all()


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_zeros_come_back_as_zeros(form):
    _, back, scales = round_trip(np.zeros(SIZE), form)
    assert not back.any() and np.all(scales == form.floor)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_rows_hold_the_parts(form, dtype):
    page = (8, 2, 16)
    stored = quantised(pool_of(1, (3, *page), dtype), form)
    packed = jax.jit(rows, static_argnums=(1, 2))(stored, form, page)
    assert packed.shape == (3, layout(form, page).row_bytes)
    again = parts(packed, form, page)
    for left, right in zip(stored, again, strict=True):
        assert (left is None and right is None) or same_bits(left, right)


@pytest.mark.parametrize("name", ["int8_token", "fp8_channel", "int2_values"])
def test_jit_changes_nothing(name):
    form = FORMATS[name]
    pages = pool_of(2, (2, 8, 2, 16), "bfloat16")
    stored = quantise(pages, form)
    for left, right in zip(stored, quantised(pages, form), strict=True):
        assert left is None or same_bits(left, right)
    plain = dequantise(stored, form, (8, 2, 16), jnp.bfloat16)
    assert same_bits(plain, restored(stored, form, (8, 2, 16), jnp.bfloat16))
