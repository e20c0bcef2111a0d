"""The little that torch and NumPy (and CuPy, which has NumPy's names) spell differently. Nothing here imports either:
whoever passes one of their arrays has done so."""

import sys


def is_torch(x):
    torch = sys.modules.get('torch')
    return torch is not None and isinstance(x, torch.Tensor)


class Torch:
    """Operations on torch tensors; new ones lie on the device of `like` and come from its allocator."""

    @staticmethod
    def dtype(name):
        return getattr(sys.modules['torch'], name)

    @staticmethod
    def dtype_name(x):
        return str(x.dtype).rpartition('.')[2]

    @staticmethod
    def empty(like, shape, dtype):
        return sys.modules['torch'].empty(shape, dtype=Torch.dtype(dtype), device=like.device)

    @staticmethod
    def zeros(like, shape, dtype):
        return sys.modules['torch'].zeros(shape, dtype=Torch.dtype(dtype), device=like.device)

    @staticmethod
    def count(like, n):
        """0, 1, ..., n - 1"""
        return sys.modules['torch'].arange(n, device=like.device)

    @staticmethod
    def table(like, values):
        return sys.modules['torch'].tensor(values, dtype=Torch.dtype('float32'), device=like.device)

    @staticmethod
    def cast(x, dtype):
        return x.to(Torch.dtype(dtype))

    @staticmethod
    def bits(x, dtype):
        """The same memory as another type."""
        return x.contiguous().view(Torch.dtype(dtype))

    @staticmethod
    def plain(x):
        """x, or a copy if its strides or bytes are in an order that the extension does not take."""
        return x

    @staticmethod
    def amax(x, axes, keep=False):
        return x.amax(dim=axes, keepdim=keep)

    @staticmethod
    def clip(x, low, high=None):
        return x.clamp(low, high)

    @staticmethod
    def transposed(x):
        return x.transpose(-1, -2)

    @staticmethod
    def contiguous(x):
        return x.contiguous()


class Numpy:
    """The same for arrays of NumPy or CuPy. Types that they lack are those of ml_dtypes."""

    def __init__(self, module):
        self.module = module

    def dtype(self, name):
        return getattr(self.module, name, None) or getattr(__import__('ml_dtypes'), name)

    @staticmethod
    def dtype_name(x):
        return x.dtype.name

    def empty(self, like, shape, dtype):
        return self.module.empty(shape, self.dtype(dtype))

    def zeros(self, like, shape, dtype):
        return self.module.zeros(shape, self.dtype(dtype))

    def count(self, like, n):
        return self.module.arange(n)

    def table(self, like, values):
        return self.module.array(values, self.module.float32)

    def cast(self, x, dtype):
        return x.astype(self.dtype(dtype))

    def bits(self, x, dtype):
        return self._native(x).view(self.dtype(dtype))

    def plain(self, x):
        return x if x.dtype.isnative and min(x.strides, default=0) >= 0 else self._native(x)

    def _native(self, x):
        return self.module.asarray(x, x.dtype.newbyteorder('='), order='C')

    @staticmethod
    def amax(x, axes, keep=False):
        return x.max(axis=axes, keepdims=keep, initial=0.0)

    def clip(self, x, low, high=None):
        return self.module.clip(x, low, high)

    @staticmethod
    def transposed(x):
        return x.swapaxes(-1, -2)

    def contiguous(self, x):
        return self.module.ascontiguousarray(x)


def library_of(x):
    """Torch, or Numpy for the module that `x` is an array of."""
    if is_torch(x):
        return Torch
    for name in ('numpy', 'cupy'):
        module = sys.modules.get(name)
        if module is not None and isinstance(x, module.ndarray):
            return Numpy(module)
    raise TypeError(f'wanted a tensor of torch, NumPy or CuPy, not {type(x).__name__}')
