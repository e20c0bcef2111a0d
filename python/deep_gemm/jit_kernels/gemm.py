"""Names of release 1."""

from .._v1 import gemm_fp8_fp8_bf16_nt
