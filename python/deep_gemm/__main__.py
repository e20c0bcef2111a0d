"""python -m deep_gemm: what is here, line for line as `deepgemm info` tells it."""

import os
import sys

from . import _C

CPU_FEATURES = (
    'avx2',
    'f16c',
    'fma',
    'avx512f',
    'avx512bw',
    'avx512_vnni',
    'avx512_bf16',
    'amx_tile',
    'amx_bf16',
    'amx_int8',
)
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10


def cpu_line(name):
    """The value of the first "name : value" line of /proc/cpuinfo."""
    try:
        with open('/proc/cpuinfo') as file:
            return next((line.partition(':')[2].strip() for line in file if line.startswith(name)), '')
    except OSError:
        return ''


def print_cpu():
    flags = cpu_line('flags').split()
    print(f'CPU          {cpu_line("model name") or "unknown"}, {len(os.sched_getaffinity(0))} threads')
    print('             ' + ''.join(f'{feature} ' for feature in CPU_FEATURES if feature in flags))


def version(number):
    return f'{number // 1000}.{number % 1000 // 10}'


def print_device(device):
    try:
        info = _C.device_info(device)
    except RuntimeError as reason:
        return print(f'cuda:{device:<7} {reason}')
    if device == 0:
        print(f'CUDA driver  {version(info["driver_version"])}')
    print(
        f'cuda:{device:<7} {info["name"]}, compute capability {info["arch"] // 10}.{info["arch"] % 10}, '
        f'{info["num_sms"]} SMs, {info["memory_bytes"] / GIB:.1f} GiB, L2 {info["l2_bytes"] / MIB:.0f} MiB, '
        f'shared memory {info["smem_bytes_per_block"] // KIB} KiB a block'
    )


def print_devices():
    try:
        count = _C.device_count()
    except RuntimeError as reason:
        return print(f'CUDA         none: {reason}')
    if count == 0:
        print('CUDA         the driver is here, but no device')
    for device in range(count):
        print_device(device)


def print_compiler():
    try:
        number, path = _C.compiler()
    except RuntimeError as reason:
        return print(f'NVRTC        none: {reason}')
    print(f'NVRTC        {version(number)}, {path}')


def can_grow(folder):
    """Whether files can be made in the folder, or the folder itself in the nearest one above that exists."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder) or '.'
    return os.access(folder, os.W_OK | os.X_OK)


def print_cache():
    directory = _C.cache_directory()
    if not directory:
        return print(f'cache        none, kernels are kept in memory: {_C.last_error()}')
    sizes = [os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(directory) for name in names]
    note = '' if can_grow(directory) else '; not writable: new kernels are kept in memory only'
    print(f'cache        {directory}, {(sum(sizes) + 1023) // 1024} KiB in {len(sizes)} files{note}')


if __name__ == '__main__':
    sys.stdout.reconfigure(errors='backslashreplace')  # paths in any encoding
    print(f'deepgemm     {_C.version}')
    print_cpu()
    print_devices()
    print_compiler()
    print_cache()
