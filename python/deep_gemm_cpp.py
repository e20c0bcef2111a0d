"""The extension under the name it had in releases 2.0 to 2.2."""

from deep_gemm._C import *  # noqa: F401,F403
