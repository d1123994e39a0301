"""The floating-point operations of products, in the forms in which XLA writes them for CPUs, GPUs and TPUs."""

import math

from fxf.base.operations import met
from fxf.compile.hlo import Computation, Instruction

# How many products of queries, keys, values and their gradients a kernel of attention computes. Backward passes repeat
# some. All pairs of queries and keys count, as in XLA's own attention, though kernels skip blocks that a mask hides. To
# cuDNN a mask is a bias of the scores.
CUDNN_PRODUCTS = {
    "__cudnn$fmhaSoftmaxBackward": 5,
    "__cudnn$fmhaSoftmax": 2,
    "__cudnn$fmhaScaleBiasSoftmaxBackward": 5,
    "__cudnn$fmhaScaleBiasSoftmax": 2,
}
SPLASH_PRODUCTS = {"splash_mha_fwd": 2, "splash_mha_dq": 3, "splash_mha_dkv": 4}


def flops(computation: Computation, instruction: Instruction) -> int | None:
    """Returns the operations of an instruction's products; None for one, such as a decomposition, that is not known."""
    if instruction.opcode == "convolution":
        return _convolution(computation, instruction)
    if instruction.opcode in ("ragged-dot", "triangular-solve", "cholesky", "fft"):
        return None
    target = instruction.target
    product = instruction.opcode == "dot" or target.startswith("__cublas$")
    if not product and instruction.opcode != "custom-call":
        return 0
    operands = computation.operand_arrays(instruction)
    if product:
        contracted = instruction.numbers("lhs_contracting_dims") or instruction.numbers("lhs_contracting_dimensions")
        summed = math.prod(operands[0][0].dims[axis] for axis in contracted)
        return 2 * math.prod(instruction.arrays[0].dims) * summed
    for name, n_products in SPLASH_PRODUCTS.items():
        if target == "tpu_custom_call" and instruction.name.startswith(name):
            q, k = [each[0].dims for each in operands if each[0].dtype[0] in "bf"][:2]
            return 2 * n_products * math.prod(q) * k[-2]
    for name, n_products in CUDNN_PRODUCTS.items():
        if target.startswith(name):
            scores = instruction.attributes.partition("intermediate_tensor_shape")[2].partition('"dimensions"')[2]
            pairs = math.prod(int(n.strip(' "')) for n in scores[scores.index("[") + 1 : scores.index("]")].split(","))
            return 2 * n_products * pairs * operands[0][0].dims[-1]
    return instruction.number("flops")  # a kernel of Pallas may say it


def _convolution(computation: Computation, instruction: Instruction) -> int:
    """Returns the operations of a convolution. A TPU also computes matrix products as convolutions.

    The window's places outside of the input do not count, nor those between its elements if it is dilated.
    """
    left, right = (arrays[0].dims for arrays in computation.operand_arrays(instruction))
    labels = instruction.attributes.partition("dim_labels=")[2].split(",")[0].split()[0]
    of_left, rest = labels.split("_")
    of_right, of_result = rest.split("->")
    window = dict(
        pair.split("=") for pair in instruction.attributes.partition("window={")[2].partition("}")[0].split() if pair
    )
    result, pairs = instruction.arrays[0].dims, 1
    for place, label in enumerate(sorted(c for c in of_result if c.isdecimal())):

        def option(name: str, default: str, place: int = place) -> str:
            return window[name].split("x")[place] if name in window else default

        stride, of_input, of_window = (int(option(name, "1")) for name in ("stride", "lhs_dilate", "rhs_dilate"))
        low = int(option("pad", "0_0").split("_")[0])
        sizes = left[of_left.index(label)], right[of_right.index(label)], result[of_result.index(label)]
        pairs *= met(*sizes, stride, low, of_input, of_window)
    return 2 * pairs * result[of_result.index("b")] * result[of_result.index("f")] * right[of_right.index("i")]
