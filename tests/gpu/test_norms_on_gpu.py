"""Norms on an NVIDIA GPU, one kernel each way, are those of the formula, and have the same bits twice."""

import pytest

from fxf.layers import norm_kernel
from norms import assert_as_the_formula, setting

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ((3, 701, 768), {"norm": "layer"}),
        ((5, 1033, 97), {"norm": "rms", "zero_centered_scale": True}),
        ((2, 600, 5120), {"norm": "layer", "dropout": 0.1}),
        ((1, 1100, 8192), {"norm": "rms"}),
        ((40, 33, 3), {"norm": "layer"}),
    ],
)
def test_norms_and_their_gradients_are_those_of_the_formula(shape, changes, dtype):
    assert norm_kernel.fits(setting(shape, dtype)[2][0])
    assert_as_the_formula(shape, dtype, **changes)
