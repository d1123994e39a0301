"""Softmax attention that never holds all scores in memory (Dao et al. 2022), by a kernel for the devices.

On NVIDIA GPUs it is cuDNN's (cudnn_attention.py), on TPUs Pallas's (splash_attention.py). Both compute in bfloat16.
"""

import re
from types import ModuleType

from fxf.base.devices import target_devices
from fxf.base.errors import UserError
from fxf.layers import cudnn_attention, splash_attention
from fxf.layers.config import TransformerConfig
from fxf.layers.positions import POSITIONS

KERNELS = {"gpu": cudnn_attention, "tpu": splash_attention}
AMPERE = 8.0  # compute capability of the first GPUs with cuDNN's flash attention


def kernel_of(config: TransformerConfig) -> ModuleType:
    """Returns the module whose `attend` runs this config on these devices; raises a UserError if there is none.

    The config itself refuses attention dropout, because the weights are never in memory.
    """
    needs, device = "model.attention_implementation: flash needs", target_devices()[0]
    kind, platform, width = device.device_kind, device.platform, config.head_width
    # AMD GPUs have a name as their compute capability, such as gfx90a.
    if platform not in KERNELS or (platform == "gpu" and not re.fullmatch(r"\d+\.\d+", device.compute_capability)):
        raise UserError(f"{needs} an NVIDIA GPU or a TPU; the device here is {kind}; elsewhere set it to 'xla'")
    if platform == "gpu" and float(device.compute_capability) < AMPERE:
        raise UserError(f"{needs} an NVIDIA GPU of compute capability {AMPERE} or more; {kind} is too old")
    if platform == "gpu" and config.attention_softcap:
        what = f"model.attention_softcap 0.0 on an NVIDIA GPU, got {config.attention_softcap}; a TPU has it"
        raise UserError(f"{needs} {what}")
    if platform == "gpu" and (width % 8 or width > 128):
        what = "heads whose width (model.head_dim, or model.d_model / model.n_heads) is a multiple of 8"
        raise UserError(f"{needs} {what} and at most 128 on an NVIDIA GPU, got {width}")
    if platform == "tpu" and POSITIONS[config.positions].bias is not None:
        without = [name for name, kind in POSITIONS.items() if kind.bias is None]
        what = f"'{config.positions}' adds a bias to scores, which model.attention_implementation 'flash' cannot"
        raise UserError(f"model.positions: {what} on a TPU; it can with {', '.join(without)}")
    return KERNELS[platform]
