"""The floating-point operations of products, in the forms in which XLA writes them for CPUs, GPUs and TPUs."""

import math
from typing import NamedTuple

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


class Work(NamedTuple):
    """Operations of products.

    Attributes:
      dtype: the type of their numbers, `f32 highest` for those that are computed in the whole precision of float32.
      done: those that are computed; a kernel of causal attention leaves out half of its pairs.
    """

    flops: int = 0
    dtype: str = "bf16"
    done: float = 0

    def plus(self, other: "Work") -> "Work":
        """Returns the sum, in the type of the larger part."""
        return Work(self.flops + other.flops, max(self, other).dtype, self.done + other.done)


def work(computation: Computation, instruction: Instruction) -> Work | None:
    """Returns the products of an instruction; None for one, such as a decomposition, that is not known."""
    flops = _flops(computation, instruction)
    if not flops:
        return None if flops is None else Work()
    read = [operand[0] for operand in computation.operand_arrays(instruction) if operand]
    if instruction.opcode == "custom-call" and not instruction.target.startswith("__cublas"):
        read = [array for array in read if array.dtype[0] in "bf"] or read  # not the masks
    dtype = max(read[:2], key=lambda array: array._replace(dims=()).n_bytes).dtype
    highest = "highest" in instruction.attributes.partition("operand_precision")[2][:20].lower()
    whole = dtype == "f32" and highest
    return Work(flops, f"{dtype} highest" if whole else dtype, flops * _visible(computation, instruction))


def _visible(computation: Computation, instruction: Instruction) -> float:
    """Returns the share of all pairs that a kernel of attention computes: about half of a causal window's square."""
    ratio = 0.0
    if '"mask_type": "CAUSAL"' in instruction.attributes:
        n_columns = _scores(instruction)[-1]
        ratio = (instruction.number("sliding_window_length") or n_columns) / n_columns
    elif instruction.name.startswith(tuple(SPLASH_PRODUCTS)):
        arrays = [array for operand in computation.operand_arrays(instruction) for array in operand]
        masks = [array.dims for array in arrays if array.dtype == "s8"]
        if masks and any(array.dtype == "s32" for array in arrays):  # places, from which it computes the mask
            ratio = min(masks[0][-2:]) / max(masks[0][-2:])
    return ratio - ratio**2 / 2 if ratio else 1.0


def _flops(computation: Computation, instruction: Instruction) -> int | None:
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
            return 2 * n_products * math.prod(_scores(instruction)) * operands[0][0].dims[-1]
    return instruction.number("flops")  # a kernel of Pallas may say it


def _scores(instruction: Instruction) -> list[int]:
    """Returns the dimensions of the scores of cuDNN's attention."""
    found = instruction.attributes.partition("intermediate_tensor_shape")[2].partition('"dimensions"')[2]
    return [int(n.strip(' "')) for n in found[found.index("[") + 1 : found.index("]")].split(",")]


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
