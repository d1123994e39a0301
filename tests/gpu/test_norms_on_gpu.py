"""Norms on an NVIDIA GPU, one kernel per pass, equal the formula, with the same bits twice."""

import pytest

from fxf.layers import norm_kernel
from helpers import table
from norms import assert_as_the_formula, setting

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("changes", "shape"), table("norms on a gpu"))
def test_norms_and_their_gradients_are_those_of_the_formula(shape, changes, dtype):
    shape = tuple(map(int, shape.split()))
    assert norm_kernel.fits(setting(shape, dtype)[2][0])
    assert_as_the_formula(shape, dtype, **changes)
