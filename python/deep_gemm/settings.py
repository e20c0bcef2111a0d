"""Settings that other releases have and this library needs no more; they are kept and change nothing."""

_compile_mode = 0


def set_ignore_compile_dims(ignore):
    """Shapes are arguments of the kernels here: no setting is needed to share one kernel between shapes."""


def set_block_size_multiple_of(multiple):
    """Which tiles there are follows from the problem alone."""


def use_deterministic_algorithms(enable):
    """Results are bitwise repeatable always."""


def get_compile_mode() -> int:
    """What was set, else 0."""
    return _compile_mode


def set_compile_mode(mode: int):
    """Kernels are compiled when they are first used, whatever the mode."""
    global _compile_mode
    _compile_mode = int(mode)
