"""Softmax attention that never holds all scores in memory (Dao et al. 2022), by a kernel that the devices have for it.

On NVIDIA GPUs it is cuDNN's (cudnn_attention.py), on TPUs Pallas's (splash_attention.py). Both compute in bfloat16.
"""

from types import ModuleType

from fxf.base.devices import target_devices
from fxf.base.errors import UserError
from fxf.layers import cudnn_attention, splash_attention
from fxf.layers.config import TransformerConfig

KERNELS = {"gpu": cudnn_attention, "tpu": splash_attention}


def kernel_of(config: TransformerConfig) -> ModuleType:
    """Returns the module whose `attend` these devices have for a config; raises a UserError if there is none.

    The config refuses dropout of attention weights, because they are never in memory.
    """
    device = target_devices()[0]
    if device.platform not in KERNELS:
        raise UserError(
            "model.attention_implementation: flash needs an NVIDIA GPU or a TPU; the device here is "
            f"{device.platform}; elsewhere set it to 'xla'"
        )
    kernel = KERNELS[device.platform]
    kernel.require(config, device)
    return kernel
