"""Imports _torch_ops when torch._dynamo is there, or when it comes: torch.compile brings it, and whoever does not
compile waits for nothing."""

import sys
import warnings

TRIGGER = 'torch._dynamo'


class _Finder:
    """Has others find one module, as often as it is looked for, and leaves once that has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name != TRIGGER:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, 'find_spec'))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and hasattr(spec.loader, 'exec_module'):
            self._run_after(spec.loader)
        return spec

    def _run_after(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                register()

        loader.exec_module = exec_module


def register():
    """Within torch's own import, which a torch that is too old, or has the names already, must not make fail."""
    try:
        from . import _torch_ops  # noqa: F401
    except Exception as reason:
        warnings.warn(f'deep_gemm is not registered with torch.compile: {reason}', RuntimeWarning, stacklevel=2)


def watch():
    if TRIGGER in sys.modules:
        register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
