import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airprune.checks import quantity, whole_number
from airprune.errors import InvalidValue
from airprune.units import (
    db_to_ratio,
    dbm_to_watt,
    hz_to_mhz,
    mhz_to_hz,
    ms_to_s,
    ratio_to_db,
    s_to_ms,
    watt_to_dbm,
)
from support.each import each

CONVERSIONS = [db_to_ratio, ratio_to_db, dbm_to_watt, watt_to_dbm, mhz_to_hz, hz_to_mhz, ms_to_s, s_to_ms]


def test_ten_db_is_a_factor_of_ten_in_power():
    assert db_to_ratio(10.0) == 10.0
    assert db_to_ratio(-20.0) == pytest.approx(0.01, rel=1e-15, abs=0)  # one rounding of 10^-2


def test_zero_dbm_is_one_milliwatt_and_thirty_is_one_watt():
    assert dbm_to_watt(0.0) == pytest.approx(1e-3, rel=1e-15, abs=0)  # one rounding of 10^-3
    assert dbm_to_watt(30.0) == 1.0


def test_the_papers_noise_is_ten_femtowatt():
    assert dbm_to_watt(-110.0) == pytest.approx(1e-14, rel=1e-14, abs=0)  # one pow()


def test_doubling_power_adds_three_db():
    assert ratio_to_db(2.0) == pytest.approx(3.0103, abs=5e-5)  # the value has four decimals


def test_megahertz_and_milliseconds_are_decimal():
    assert mhz_to_hz(20.0) == 20e6
    assert hz_to_mhz(20e6) == 20.0
    assert ms_to_s(30.0) == 0.030
    assert s_to_ms(0.030) == 30.0


@given(st.floats(-2000, 2000))
def test_every_conversion_has_its_inverse(value):
    # log10 of 10^x is off by an ulp of x plus the rounding of 10^x, both below 1e-12 of 2000.
    assert ratio_to_db(db_to_ratio(value)) == pytest.approx(value, rel=1e-12, abs=1e-12)
    assert watt_to_dbm(dbm_to_watt(value)) == pytest.approx(value, rel=1e-12, abs=1e-11)
    assert hz_to_mhz(mhz_to_hz(value)) == pytest.approx(value, rel=1e-15, abs=1e-300)
    assert s_to_ms(ms_to_s(value)) == pytest.approx(value, rel=1e-15, abs=1e-300)  # subnormals round away


@pytest.mark.parametrize("convert", CONVERSIONS)
def test_scalars_give_floats_and_arrays_give_arrays(convert):
    assert type(convert(1)) is float
    assert convert(np.array([[1.0, 2.0]])).shape == (1, 2)
    assert convert(np.array([3.0]))[0] == convert(3.0)


@each("convert", CONVERSIONS)
@each("bad", [math.nan, math.inf, -math.inf, "ten", None])
def test_no_conversion_accepts_what_is_not_a_finite_number(convert, bad):
    with pytest.raises(InvalidValue, match=convert.__name__):
        convert(bad)


@pytest.mark.parametrize("convert", [ratio_to_db, watt_to_dbm])
def test_zero_power_has_no_db(convert):
    with pytest.raises(InvalidValue, match="> 0, got 0"):
        convert(0.0)


def test_a_quantity_error_names_field_rule_entry_and_way_out():
    with pytest.raises(InvalidValue, match=r"Radio\.x must be > 0, got -1 at entry 2\. Try 1"):
        quantity("Radio.x", [1.0, 2.0, -1.0], above=0.0, way_out="Try 1")


def test_infinite_passes_only_where_allowed_and_nan_never():
    assert quantity("t", math.inf, at_least=0.0, finite=False) == math.inf
    with pytest.raises(InvalidValue):
        quantity("t", math.nan, finite=False)


@pytest.mark.parametrize("bad", [2.0, -1, "2", None, 11])
def test_a_count_is_a_whole_number_within_its_limits(bad):
    with pytest.raises(InvalidValue, match="n must be a whole number ≥ 0 and ≤ 10"):
        whole_number("n", bad, at_most=10)


def test_numpy_integers_are_whole_numbers():
    assert whole_number("n", np.int32(7)) == 7
