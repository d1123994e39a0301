"""The floating-point operations of products, in the forms in which XLA writes them for CPUs, GPUs and TPUs."""

import math
import re
from typing import NamedTuple

from fxf.base.operations import met
from fxf.compile.hlo import Instruction

# How many products of queries, keys, values and their gradients a kernel of attention computes. Backward passes repeat
# some. All pairs of queries and keys count, as in XLA's own attention, though kernels skip blocks that a mask hides.
SPLASH_PRODUCTS = {"splash_mha_fwd": 2, "splash_mha_dq": 3, "splash_mha_dkv": 4}
ALL_GRADIENTS = 5  # of the last if it also writes the gradients of queries, those of each block of keys
CUDNN, CUDNN_FORWARD, CUDNN_BACKWARD = "__cudnn$fmha", 2, 5


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


def work(instruction: Instruction) -> Work | None:
    """Returns the products of an instruction; None for one, such as a decomposition, that is not known."""
    flops = _flops(instruction)
    if not flops:
        return None if flops is None else Work()
    read = [operand.arrays[0] for operand in instruction.operands if operand.arrays]
    if instruction.opcode == "custom-call" and not instruction.target.startswith("__cublas"):
        read = [array for array in read if array.dtype[0] in "bf"] or read  # not the masks
    dtype = max(read[:2], key=lambda array: array._replace(dims=()).n_bytes).dtype
    if dtype == "f32" and re.search(r"operand_precision\W{1,5}highest", instruction.attributes, re.IGNORECASE):
        dtype = "f32 highest"
    return Work(flops, dtype, flops * _visible(instruction))


def _visible(instruction: Instruction) -> float:
    """Returns the share of all pairs that a kernel of attention computes: about half of a causal window's square."""
    ratio = 0.0
    if '"mask_type": "CAUSAL"' in instruction.attributes:
        n_columns = _scores(instruction)[-1]
        ratio = (instruction.number("sliding_window_length") or n_columns) / n_columns
    elif instruction.name.startswith(tuple(SPLASH_PRODUCTS)):
        arrays = [array for operand in instruction.operands for array in operand.arrays]
        masks = [array.dims for array in arrays if array.dtype == "s8"]
        if masks and any(array.dtype == "s32" for array in arrays):  # places, from which it computes the mask
            n_queries, n_keys = (dims[-2] for dims in _queries_and_keys(instruction))
            # Blocks of queries by how many blocks of keys each reads; for the gradient of keys the other way around.
            (blocks, width), of_blocks, of_width = masks[0][-2:], n_queries, n_keys
            if instruction.name.startswith("splash_mha_dkv"):
                blocks, width, of_blocks, of_width = width, blocks, n_keys, n_queries
            window = width * of_blocks / blocks
            ratio = window / n_keys if window < of_width else 1.0  # without a window it may read all
    return ratio - ratio**2 / 2 if ratio else 1.0


def _flops(instruction: Instruction) -> int | None:
    opcode, target, operands = instruction.opcode, instruction.target, instruction.operands
    if opcode == "convolution":
        return _convolution(instruction)
    if opcode in ("ragged-dot", "triangular-solve", "cholesky", "fft"):
        return None
    if opcode == "dot" or target.startswith("__cublas$"):
        contracted = instruction.numbers("lhs_contracting_dims") or instruction.numbers("lhs_contracting_dimensions")
        summed = math.prod(operands[0].arrays[0].dims[axis] for axis in contracted)
        return 2 * math.prod(instruction.arrays[0].dims) * summed
    if opcode != "custom-call":
        return 0
    for name, n_products in SPLASH_PRODUCTS.items():
        if target == "tpu_custom_call" and instruction.name.startswith(name):
            q, k = _queries_and_keys(instruction)
            n_products = ALL_GRADIENTS if any(len(array.dims) > len(q) for array in instruction.arrays) else n_products
            return 2 * n_products * math.prod(q) * k[-2]
    if target.startswith(CUDNN):
        n_products = CUDNN_BACKWARD if "Backward" in target else CUDNN_FORWARD
        return 2 * n_products * math.prod(_scores(instruction)) * operands[0].arrays[0].dims[-1]
    return instruction.number("flops")  # a kernel of Pallas may say it


def _queries_and_keys(instruction: Instruction) -> list[tuple[int, ...]]:
    """Returns the dimensions of the first two arrays of a kernel of attention on a TPU; others say what it skips."""
    return [each.arrays[0].dims for each in instruction.operands if each.arrays[0].dtype[0] in "bf"][:2]


def _scores(instruction: Instruction) -> list[int]:
    """Returns the dimensions of the scores of cuDNN's attention."""
    (dimensions,) = re.findall(r'intermediate_tensor_shape.*?"dimensions"\W*([\d", ]+)', instruction.attributes)
    return [int(n) for n in re.findall(r"\d+", dimensions)]


def _convolution(instruction: Instruction) -> int:
    """Returns the operations of a convolution. A TPU also computes matrix products as convolutions.

    The window's places outside of the input do not count, nor those between its elements if it is dilated.
    """
    left, right = (operand.arrays[0].dims for operand in instruction.operands)
    of_left, of_right, of_result = re.findall(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.attributes)[0]
    window = dict(re.findall(r"(\w+)=([\w-]+)", instruction.attributes.partition("window={")[2].partition("}")[0]))
    result, pairs = instruction.arrays[0].dims, 1
    for place, label in enumerate(sorted(c for c in of_result if c.isdecimal())):
        # Options of all places are joined by x; the padding in front stands before a _.
        options = [
            int(window[name].split("x")[place].split("_")[0]) if name in window else default
            for name, default in (("stride", 1), ("pad", 0), ("lhs_dilate", 1), ("rhs_dilate", 1))
        ]
        sizes = left[of_left.index(label)], right[of_right.index(label)], result[of_result.index(label)]
        pairs *= met(*sizes, *options)
    return 2 * pairs * result[of_result.index("b")] * result[of_result.index("f")] * right[of_right.index("i")]
