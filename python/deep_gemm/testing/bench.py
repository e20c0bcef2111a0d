"""Timing on a GPU with torch."""

import contextlib
import os
import sys

__all__ = ['bench', 'bench_kineto', 'empty_suppress', 'suppress_stdout_stderr']

L2_FLUSH_BYTES = 256 << 20  # several times any L2
REST_BYTES = 8 * 10**9  # long enough to write that the GPU cools down between two runs
NAME_WIDTH = 100  # of a kernel's name, as far as it is compared


def bench(fn, num_warmups: int = 5, num_tests: int = 10, high_precision: bool = False) -> float:
    """Seconds of one fn(), on average, by CUDA events. high_precision: behind a long kernel, so that the time to launch
    does not count."""
    import torch

    torch.cuda.synchronize()
    torch.empty(L2_FLUSH_BYTES, dtype=torch.int8, device='cuda').zero_()
    for _ in range(num_warmups):
        fn()
    if high_precision:
        x = torch.randn((8192, 8192), dtype=torch.float32, device='cuda')
        x @ x
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(num_tests):
        fn()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / num_tests / 1e3


@contextlib.contextmanager
def empty_suppress():
    """Everything written is seen: what stands in for suppress_stdout_stderr."""
    yield


@contextlib.contextmanager
def suppress_stdout_stderr():
    """Nothing written to the two, by C code either, is seen."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved, sink = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for descriptor in (*saved, sink):
            os.close(descriptor)


def _profile(fn, num_tests, flush_l2, barrier):
    import torch

    rest = torch.empty(REST_BYTES, dtype=torch.int8, device='cuda') if flush_l2 else None
    # The first half of the runs is not recorded: kineto is slow to start.
    schedule = torch.profiler.schedule(wait=1, warmup=0, active=1, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, schedule=schedule, acc_events=True) as profiler:
        for _ in range(2):
            for _ in range(num_tests):
                if flush_l2:
                    rest.zero_()
                if barrier is not None:
                    barrier()
                fn()
            torch.cuda.synchronize()
            profiler.step()
    return profiler


def _device_microseconds(event):
    """torch 2.5 renamed it."""
    return event.device_time_total if hasattr(event, 'device_time_total') else event.cuda_time_total


def _seconds(events, name, with_multiple_kernels):
    matching = [event for event in events if name in event.key[:NAME_WIDTH]]
    if not with_multiple_kernels:
        assert len(matching) <= 1, f'{name} is in the names of {[event.key[:NAME_WIDTH] for event in matching]}'
    runs = sum(event.count for event in matching)
    return sum(map(_device_microseconds, matching)) / runs / 1e6 if runs else 0


def bench_kineto(
    fn,
    kernel_names,
    num_tests: int = 30,
    suppress_kineto_output: bool = False,
    trace_path=None,
    flush_l2: bool = True,
    with_multiple_kernels: bool = False,
    barrier=None,
):
    """Seconds of the kernel whose name holds `kernel_names` (a string; a tuple gives a tuple), on average over the runs
    of fn, by torch's profiler; 0 when there is none. DG_USE_NVIDIA_TOOLS=1, for runs under NVIDIA's own profilers:
    fn runs once and the answer is 1."""
    names = kernel_names if isinstance(kernel_names, tuple) else (kernel_names,)
    if int(os.environ.get('DG_USE_NVIDIA_TOOLS', '0')):
        fn()
        return (1,) * len(names) if isinstance(kernel_names, tuple) else 1
    fn()  # compiles and loads, outside of the profile
    with suppress_stdout_stderr() if suppress_kineto_output else empty_suppress():
        profiler = _profile(fn, num_tests, flush_l2, barrier)
    if trace_path is not None:
        profiler.export_chrome_trace(trace_path)
    times = tuple(_seconds(profiler.key_averages(), name, with_multiple_kernels) for name in names)
    return times if isinstance(kernel_names, tuple) else times[0]
