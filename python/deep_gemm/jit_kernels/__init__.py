"""Names of release 1."""

from . import gemm, utils
