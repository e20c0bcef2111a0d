"""Mixture of experts over several GPUs in one kernel: the names, for those who import them. No kernel yet."""

from ._unbuilt import bf16_mega_moe, fp8_fp4_mega_moe, get_symm_buffer_for_mega_moe, transform_weights_for_mega_moe

__all__ = [
    'SymmBuffer',
    'bf16_mega_moe',
    'fp8_fp4_mega_moe',
    'get_symm_buffer_for_mega_moe',
    'transform_weights_for_mega_moe',
]


class SymmBuffer:
    """What get_symm_buffer_for_mega_moe returns."""

    def __init__(self, *args, **kwargs):
        raise RuntimeError('SymmBuffer: no kernel for mega MoE yet')
