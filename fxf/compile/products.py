"""The floating-point operations of matrix products, as XLA writes them for CPUs, GPUs and TPUs."""

import math
import re
from typing import NamedTuple

from fxf.base.operations import overlaps
from fxf.compile.hlo import Instruction

# The number of products of queries, keys, values and their gradients in an attention kernel. Backward passes recompute
# some. All pairs of queries and keys count, as in XLA's own attention, although kernels skip masked blocks.
SPLASH_PRODUCTS = {"splash_mha_fwd": 2, "splash_mha_dq": 3, "splash_mha_dkv": 4}
ALL_GRADIENTS = 5  # for splash_mha_dkv if it also writes the gradients of queries, for each block of keys
CUDNN, CUDNN_FORWARD, CUDNN_BACKWARD = "__cudnn$fmha", 2, 5


class Work(NamedTuple):
    """Operations of matrix products.

    Attributes:
      dtype: the dtype of the operands, `f32 highest` for products in full float32 precision.
      done: the operations that run; a causal attention kernel skips about half of its pairs.
    """

    flops: int = 0
    dtype: str = "bf16"
    done: float = 0

    def plus(self, other: "Work") -> "Work":
        """Returns the sum, with the dtype of the larger part."""
        return Work(self.flops + other.flops, max(self, other).dtype, self.done + other.done)


def work(instruction: Instruction) -> Work | None:
    """Returns the operations of an instruction; None if they are unknown, as for a decomposition."""
    flops = _flops(instruction)
    if not flops:
        return None if flops is None else Work()
    read = [operand.arrays[0] for operand in instruction.operands if operand.arrays]
    if instruction.opcode == "custom-call" and not instruction.target.startswith("__cublas"):
        read = [array for array in read if array.dtype[0] in "bf"] or read  # without masks
    dtype = max(read[:2], key=lambda array: array._replace(dims=()).n_bytes).dtype
    if dtype == "f32" and re.search(r"operand_precision\W{1,5}highest", instruction.attributes, re.IGNORECASE):
        dtype = "f32 highest"
    return Work(flops, dtype, flops * _visible(instruction))


def _visible(instruction: Instruction) -> float:
    """Returns the share of all pairs that an attention kernel computes: w - w²/2 with a causal window of share w."""
    ratio = 0.0
    if '"mask_type": "CAUSAL"' in instruction.attributes:
        n_columns = _scores(instruction)[-1]
        ratio = (instruction.number("sliding_window_length") or n_columns) / n_columns
    elif instruction.name.startswith(tuple(SPLASH_PRODUCTS)):
        arrays = [array for operand in instruction.operands for array in operand.arrays]
        masks = [array.dims for array in arrays if array.dtype == "s8"]
        if masks and any(array.dtype == "s32" for array in arrays):  # positions, from which it computes the mask
            n_queries, n_keys = (dims[-2] for dims in _queries_and_keys(instruction))
            # [blocks of queries, blocks of keys that each reads]; for the gradient of keys the other way around.
            (blocks, width), n_rows, n_columns = masks[0][-2:], n_queries, n_keys
            if instruction.name.startswith("splash_mha_dkv"):
                blocks, width, n_rows, n_columns = width, blocks, n_keys, n_queries
            window = width * n_rows / blocks
            ratio = window / n_keys if window < n_columns else 1.0  # without a window it may read all
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
    return instruction.number("flops")  # Pallas kernels may have an estimate


def _queries_and_keys(instruction: Instruction) -> list[tuple[int, ...]]:
    """Returns the dimensions of queries and keys, the first two float operands of an attention kernel on a TPU."""
    return [op.arrays[0].dims for op in instruction.operands if op.arrays[0].dtype[0] in "bf"][:2]


def _scores(instruction: Instruction) -> list[int]:
    """Returns the dimensions of the scores of cuDNN's attention."""
    (dimensions,) = re.findall(r'intermediate_tensor_shape.*?"dimensions"\W*([\d", ]+)', instruction.attributes)
    return [int(n) for n in re.findall(r"\d+", dimensions)]


def _convolution(instruction: Instruction) -> int:
    """Returns the operations of a convolution. TPUs also compute matrix products as convolutions.

    Positions of the window outside of the input do not count, nor the zeros that dilation inserts.
    """
    left, right = (operand.arrays[0].dims for operand in instruction.operands)
    left_axes, right_axes, axes = re.findall(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.attributes)[0]
    window = dict(re.findall(r"(\w+)=([\w-]+)", instruction.attributes.partition("window={")[2].partition("}")[0]))
    result, pairs = instruction.arrays[0].dims, 1
    for i, label in enumerate(sorted(c for c in axes if c.isdecimal())):
        # An option has a value for each spatial axis, joined by x; padding is low_high.
        options = [
            int(window[name].split("x")[i].split("_")[0]) if name in window else default
            for name, default in (("stride", 1), ("pad", 0), ("lhs_dilate", 1), ("rhs_dilate", 1))
        ]
        sizes = left[left_axes.index(label)], right[right_axes.index(label)], result[axes.index(label)]
        pairs *= overlaps(*sizes, *options)
    return 2 * pairs * result[axes.index("b")] * result[axes.index("f")] * right[right_axes.index("i")]
