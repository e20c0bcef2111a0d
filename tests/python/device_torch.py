"""On a machine with a Hopper GPU and torch: python tests/python/device_torch.py. FP8 from torch in all layouts, groups,
streams, graphs, compiling, timing, and what a call costs the host. The last line counts."""

import ctypes
import sys
import time
import traceback

import deep_gemm
import torch
from deep_gemm.testing import bench_kineto, calc_diff
from deep_gemm.utils import per_block_cast_to_fp8, per_channel_cast_to_fp8, per_token_cast_to_fp8

F8, U8, BF16, F16, F32 = torch.float8_e4m3fn, torch.uint8, torch.bfloat16, torch.float16, torch.float32
BOUND = {BF16: 5e-6, F16: 2e-6, F32: 2e-6}
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def cdiv(a, b):
    return -(-a // b)


def randn(*shape, dtype=BF16, device='cuda'):
    return torch.randn(*shape, device=device).to(dtype)


class Problem:
    def __init__(self, m=133, n=576, k=1024, device='cuda'):
        self.m, self.n, self.device = m, n, device
        self.a, self.sfa = per_token_cast_to_fp8(randn(m, k, device=device), False)
        self.b, self.sfb = per_block_cast_to_fp8(randn(n, k, device=device), False)

    def want(self):
        k = self.a.shape[1]
        x = self.a.double() * self.sfa.double().repeat_interleave(128, 1)[:, :k]
        y = self.b.double() * self.sfb.double().repeat_interleave(128, 0)[: self.n].repeat_interleave(128, 1)[:, :k]
        return x @ y.t()

    def out(self, dtype=BF16):
        return torch.full((self.m, self.n), float('nan'), device=self.device, dtype=dtype)

    def args(self):
        return (self.a, self.sfa), (self.b, self.sfb)

    def run(self, d):
        deep_gemm.fp8_gemm_nt(*self.args(), d)
        return d


def near(d, want, what=''):
    assert torch.isfinite(d).all(), f'{what}: not finite'
    error = float(calc_diff(d.detach(), want))
    assert error < BOUND[d.dtype], f'{what}: {error}'


def same_bits(x, y):
    return torch.equal(x.contiguous().view(U8), y.contiguous().view(U8))


# ---- Products --------------------------------------------------------------------------------------------------------


@test
def shapes_and_types():
    for m, n, k in ((1, 576, 7168), (7, 24, 96), (64, 2112, 7168), (133, 576, 1000), (4096, 512, 512)):
        p = Problem(m, n, k)
        for dtype in (BF16, F16, F32):
            near(p.run(p.out(dtype)), p.want(), f'{m} {n} {k} {dtype}')


@test
def scale_layouts():
    p, first = Problem(62, 576, 1024), None

    def forms(s):
        wide = torch.full((2 * s.shape[0], 2 * s.shape[1]), float('nan'), device='cuda')
        step, rows = wide[::2, ::2], torch.empty(s.shape[0], s.shape[1] + 3, device='cuda')[:, : s.shape[1]]
        for t in (step, rows):
            t.copy_(s)
        return {
            'row-major': s,
            'aligned': deep_gemm.get_mn_major_tma_aligned_tensor(s),
            'transposed': s.t().contiguous().t(),
            'steps': step,
            'long rows': rows,
        }

    for x, sfa in forms(p.sfa).items():
        for y, sfb in forms(p.sfb).items():
            d = p.out()
            deep_gemm.fp8_gemm_nt((p.a, sfa), (p.b, sfb), d)
            near(d, p.want(), f'{x}, {y}')
            first = d if first is None else first
            assert same_bits(d, first), f'{x}, {y}: other bits'


@test
def packed_scales():
    x, w = randn(133, 1100), randn(576, 1100)
    plain, packed = per_token_cast_to_fp8(x, True), per_token_cast_to_fp8(x, True, use_packed_ue8m0=True)
    b = per_block_cast_to_fp8(w, True)
    sfb = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(b[1])
    one, two = (torch.empty(133, 576, device='cuda', dtype=BF16) for _ in range(2))
    deep_gemm.fp8_gemm_nt(plain, b, one)
    deep_gemm.fp8_gemm_nt(packed, (b[0], sfb), two)
    assert same_bits(one, two)


@test
def operand_layouts():
    """Transposed names, operands that are MN-major or padded, d with longer rows, c, lists, parameters."""
    p = Problem()
    want, turned = p.want(), lambda pair: tuple(x.t() for x in pair)
    a, b = p.args()
    for kind, x, y in (('nt', a, b), ('nn', a, turned(b)), ('tn', turned(a), turned(b)), ('tt', turned(a), b)):
        for how in (lambda x: x, lambda x: x.contiguous()):
            d = p.out()
            getattr(deep_gemm, 'fp8_gemm_' + kind)(tuple(map(how, x)), list(map(how, y)), d)
            near(d, want, kind)
    for pad in (1, 8, 16):
        wide = torch.full((p.m, p.a.shape[1] + pad), 0x7F, device='cuda', dtype=U8).view(F8)[:, : p.a.shape[1]]
        wide.view(U8).copy_(p.a.view(U8))
        d = torch.full((p.m, p.n + pad), float('nan'), device='cuda', dtype=BF16)[:, : p.n]
        deep_gemm.fp8_gemm_nt((wide, p.sfa), b, d)
        near(d, want, f'rows longer by {pad}')
    for dtype in (BF16, F32):
        c = randn(p.m, p.n, dtype=dtype)
        d, e = p.out(dtype), c.clone()
        deep_gemm.fp8_gemm_nt(a, b, d, c)
        deep_gemm.fp8_gemm_nt(a, b, e, c=e)
        near(d, want + c.double(), 'c')
        assert same_bits(d, e), 'c is d'
    d = torch.nn.Parameter(p.out())
    deep_gemm.fp8_gemm_nt(a, (torch.nn.Parameter(p.b, requires_grad=False), torch.nn.Parameter(p.sfb)), d)
    near(d, want, 'parameters')


@test
def the_table_is_used():
    assert hasattr(torch.Tensor, '__dlpack_c_exchange_api__'), f'torch {torch.__version__}'
    row = torch.zeros(8, 4, device='cuda').t()[:1]
    assert deep_gemm.get_mn_major_tma_aligned_tensor(row) is row, 'the stride of a dimension of size 1 counts'


@test
def casts_bit_for_bit():
    for dtype in (BF16, F32):
        x = randn(256, 640, dtype=dtype) * 3
        for rounded in (False, True):
            for cast, gm, gk in (
                (per_token_cast_to_fp8, 1, 128),
                (per_block_cast_to_fp8, 128, 128),
                (per_channel_cast_to_fp8, 128, 1),
            ):
                q, sf = cast(x, rounded)
                v = x.view(256 // gm, gm, 640 // gk, gk)
                s = v.abs().float().amax((1, 3)).clamp(1e-4) / 448
                s = deep_gemm.ceil_to_ue8m0(s) if rounded else s
                w = (v * (1.0 / s)[:, None, :, None]).to(F8).view(256, 640)
                assert torch.equal(sf, s) and same_bits(q, w), f'{cast.__name__} {dtype} {rounded}'


@test
def refusals():
    p = Problem()
    for words, call in (
        ('cpu', lambda d: deep_gemm.fp8_gemm_nt((p.a, p.sfa.cpu()), (p.b, p.sfb), d)),
        ('recipe', lambda d: deep_gemm.fp8_gemm_nt(*p.args(), d, recipe=(1, 2, 3))),
    ):
        d = p.out()
        try:
            call(d)
        except RuntimeError as e:
            assert words in str(e).lower(), e
        else:
            raise AssertionError('accepted')
        assert torch.isnan(d).all()
    near(p.run(p.out()), p.want(), 'afterwards')


# ---- Groups ----------------------------------------------------------------------------------------------------------


class Experts:
    """a [..., k] and b [G, n, k]; torch makes each group's product by itself."""

    def __init__(self, rows, groups=4, n=576, k=1024):
        a, b = randn(*rows, k), [per_block_cast_to_fp8(randn(n, k), False) for _ in range(groups)]
        q, sf = per_token_cast_to_fp8(a.view(-1, k), False)
        self.a, self.sfa = q.view(*rows, k), sf.view(*rows, cdiv(k, 128))
        self.b, self.sfb = torch.stack([q.view(U8) for q, _ in b]).view(F8), torch.stack([sf for _, sf in b])
        self.d = torch.full((*rows, n), float('nan'), device='cuda', dtype=BF16)

    def args(self):
        return (self.a, self.sfa), (torch.nn.Parameter(self.b, requires_grad=False), self.sfb), self.d

    def check(self, where, group):
        d = torch.empty_like(self.d[where])
        deep_gemm.fp8_gemm_nt((self.a[where], self.sfa[where]), (self.b[group], self.sfb[group]), d)
        near(self.d[where], d.double(), f'group {group}')

    def untouched(self, where):
        assert torch.isnan(self.d[where]).all(), f'{where} was written'


def int32(values):
    return torch.tensor(values, device='cuda', dtype=torch.int32)


@test
def groups_of_rows():
    e = Experts((500,))
    ids = int32([2] * 128 + [-1] * 128 + [0] * 100 + [-1] * 28 + [3] * 116)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(*e.args(), ids)
    for rows, group in ((slice(0, 128), 2), (slice(256, 356), 0), (slice(384, 500), 3)):
        e.check(rows, group)
    e.untouched(slice(128, 256))
    a, (b, sfb), _ = e.args()
    wanted, e.d = e.d, torch.full_like(e.d, float('nan'))
    turned = b.transpose(1, 2).contiguous(), sfb.transpose(1, 2).contiguous()
    deep_gemm.m_grouped_fp8_gemm_nn_contiguous(a, turned, e.d, ids)
    for rows, group in ((slice(0, 128), 2), (slice(256, 356), 0), (slice(384, 500), 3)):
        near(e.d[rows], wanted[rows].double(), 'nn')


@test
def groups_of_rows_by_their_ends():
    for zeros in (True, False):
        e = Experts((512,))
        ends = int32([100, 128, 300, 390])
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
            *e.args(), ends, use_psum_layout=True, ensure_zero_padding=zeros, expected_m_for_psum_layout=100
        )
        for rows, group in ((slice(0, 100), 0), (slice(128, 300), 2), (slice(384, 390), 3)):
            e.check(rows, group)
        if zeros:
            assert (e.d[100:128] == 0).all() and (e.d[300:384] == 0).all() and (e.d[390:512] == 0).all()
        else:
            e.untouched(slice(100, 128))
            e.untouched(slice(300, 384))


@test
def masked_groups():
    """Eager, and in a graph that follows the counts."""
    for most in (1, 65, 256):
        e, counts = Experts((4, most)), int32([1, 0, most, min(3, most)])
        run = lambda: deep_gemm.m_grouped_fp8_gemm_nt_masked(*e.args(), counts, 16)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            run()
        for replay, numbers in ((False, counts.tolist()), (True, [most, 1, 0, 0]), (True, [0] * 4)):
            counts.copy_(int32(numbers))
            e.d.fill_(float('nan'))
            graph.replay() if replay else run()
            for group, count in enumerate(numbers):
                if count:
                    e.check((group, slice(0, count)), group)
                e.untouched((group, slice(count, most)))


@test
def groups_along_k():
    """Flat and tall operands; c is d, apart, and not there; a host list that disagrees; in a graph; release 1."""
    m, n, ks = 264, 576, [128, 0, 384, 256]
    a, b = ([per_token_cast_to_fp8(randn(mn, k), False) for k in ks] for mn in (m, n))
    whole = lambda x, s: x.double() * s.double().repeat_interleave(128, 1)
    want = torch.stack([whole(*x) @ whole(*y).t() for x, y in zip(a, b)])
    join = lambda parts: torch.cat([x.view(U8).reshape(-1) for x, _ in parts]).view(F8)
    sf = lambda parts: torch.cat([s.t() for _, s in parts]).contiguous()
    tall = lambda parts: torch.cat([x.view(U8).t() for x, _ in parts]).contiguous().view(F8)
    flat = [(join(parts), sf(parts).t()) for parts in (a, b)]
    layout, c = int32(ks), randn(4, m, n, dtype=F32) * 16
    empty = lambda: torch.full_like(c, float('nan'))
    d, e, f, g = empty(), empty(), c.clone(), c.clone()
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*flat, d, ks, layout)
    near(d, want)
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*flat, e, [sum(ks), 0, 0, 0], layout, c=c)
    near(e, want + c.double(), 'c apart')
    assert torch.equal(e[1], c[1]), 'a group of K=0 is c'
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*flat, f, tuple(ks), layout, f)
    assert same_bits(f, e), 'c is d'
    deep_gemm.k_grouped_wgrad_gemm_fp8_fp8_fp32_nt(*((x, s.t()) for x, s in flat), g, ks)
    near(g, want + c.double(), 'release 1')
    d.fill_(float('nan'))
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous((tall(a), sf(a)), (tall(b), sf(b)), d, ks, layout)
    near(d, want, 'tn')
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        deep_gemm.k_grouped_fp8_gemm_nt_contiguous(*flat, d, ks, layout)
    d.fill_(float('nan'))
    graph.replay()
    near(d, want, 'graph')


# ---- Streams and graphs ----------------------------------------------------------------------------------------------


@test
def side_streams():
    """Operands that are written late on a side stream."""
    p, late = Problem(), Problem()
    p.run(p.out())
    torch.cuda.synchronize()
    stream, d, want = torch.cuda.Stream(), p.out(), late.want()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        for to, x in zip((p.a, p.sfa, p.b, p.sfb), (late.a, late.sfa, late.b, late.sfb)):
            to.copy_(x)
        sf = deep_gemm.get_mn_major_tma_aligned_tensor(p.sfa)
        deep_gemm.fp8_gemm_nt((p.a, sf), (p.b, p.sfb), d)
    stream.synchronize()
    near(d, want)


@test
def graphs():
    """Captured, the first call of a shape too, with a cast and a layout inside; replayed with other inputs."""
    for n in (576, 1344):
        x, w = randn(77, 1024), randn(n, 1024)
        b, d = per_block_cast_to_fp8(w, False), torch.empty(77, n, device='cuda', dtype=BF16)
        if n == 576:
            deep_gemm.fp8_gemm_nt(per_token_cast_to_fp8(x, False), b, d)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            q, sf = per_token_cast_to_fp8(x, False)
            deep_gemm.fp8_gemm_nt((q, deep_gemm.get_mn_major_tma_aligned_tensor(sf)), b, d)
        for _ in range(3):
            x.copy_(randn(77, 1024))
            d.fill_(float('nan'))
            graph.replay()
            eager = torch.empty_like(d)
            deep_gemm.fp8_gemm_nt(per_token_cast_to_fp8(x, False), b, eager)
            near(d, eager.double(), f'n={n}')


@test
def two_devices():
    for device in range(min(2, torch.cuda.device_count())):
        p = Problem(device=f'cuda:{device}')
        near(p.run(p.out()), p.want(), f'cuda:{device}')
        assert torch.cuda.current_device() == 0


# ---- Compiling and timing --------------------------------------------------------------------------------------------


@test
def compile_fullgraph():
    w = randn(576, 1024)
    b = per_block_cast_to_fp8(w, False)

    def layer(x, d):
        q, sf = per_token_cast_to_fp8(x, False)
        deep_gemm.fp8_gemm_nt((q, deep_gemm.get_mn_major_tma_aligned_tensor(sf)), b, d)
        return d * 2

    x, d, e = randn(64, 1024), *(torch.empty(64, 576, device='cuda', dtype=BF16) for _ in range(2))
    want = layer(x, d)
    for backend in ('aot_eager', 'inductor'):
        got = torch.compile(layer, fullgraph=True, backend=backend)(x, e.zero_())
        assert same_bits(got, want) and same_bits(d, e), backend


@test
def kineto():
    p = Problem(256, 1024, 1024)
    d = p.out()
    seconds = bench_kineto(lambda: p.run(d), 'gemm_', num_tests=5, suppress_kineto_output=True)
    assert 0 < seconds < 0.01, seconds
    pair = bench_kineto(lambda: p.run(d), ('fp8_gemm', 'no such kernel'), num_tests=5, suppress_kineto_output=True)
    assert pair[0] > 0 and pair[1] == 0, pair
    return f'{seconds * 1e6:.2f} us'


# ---- What a call costs the host --------------------------------------------------------------------------------------


def nanoseconds(call, *args, calls=200, rounds=30):
    best = 1e9
    for _ in range(rounds):
        torch.cuda.synchronize()
        started = time.perf_counter_ns()
        for _ in range(calls):
            call(*args)
        best = min(best, (time.perf_counter_ns() - started) / calls)
    torch.cuda.synchronize()
    return best


class Launch(ctypes.Structure):
    """CUlaunchConfig"""

    _fields_ = [(name, ctypes.c_uint) for name in ('gx', 'gy', 'gz', 'bx', 'by', 'bz', 'shared')] + [
        ('stream', ctypes.c_void_p),
        ('attributes', ctypes.c_void_p),
        ('count', ctypes.c_uint),
    ]


def empty_launch():
    """(call, its arguments): cuLaunchKernelEx of a kernel that does nothing, by ctypes."""
    nvrtc, cuda = ctypes.CDLL(deep_gemm.compiler()[1]), ctypes.CDLL('libcuda.so.1')
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(b'--gpu-architecture=sm_90a')
    assert (
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), b'extern "C" __global__ void nothing() {}', b'nothing.cu', 0, None, None
        )
        == 0
    )
    assert nvrtc.nvrtcCompileProgram(program, 1, options) == 0
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    image = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetCUBIN(program, image) == 0
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b'nothing') == 0
    launch = Launch(1, 1, 1, 32, 1, 1, 0, torch.cuda.current_stream().cuda_stream, None, 0)
    call, args = cuda.cuLaunchKernelEx, (ctypes.byref(launch), function, None, None)
    assert call(*args) == 0
    return call, args, cuda.cuDriverGetVersion


@test
def host_cost():
    """At most 2 us above an empty launch plus an empty Python call."""
    p = Problem(1, 576, 256)
    p.sfa = deep_gemm.get_mn_major_tma_aligned_tensor(p.sfa)
    a, b, d = *p.args(), p.out()
    x, w, e = randn(1, 256), randn(576, 256).t(), torch.empty(1, 576, device='cuda', dtype=BF16)
    call, args, trivial = empty_launch()
    version = ctypes.c_int()
    through_ctypes = nanoseconds(trivial, ctypes.byref(version), None, None, None)
    launch = nanoseconds(call, *args) - through_ctypes
    python = nanoseconds(lambda a, b, d: None, a, b, d)
    ours = nanoseconds(deep_gemm.fp8_gemm_nt, a, b, d)
    changing = nanoseconds(lambda: deep_gemm.fp8_gemm_nt(a, b, torch.empty_like(d))) - nanoseconds(
        lambda: torch.empty_like(d)
    )
    mm = nanoseconds(lambda: torch.mm(x, w, out=e))
    text = (
        f'fp8_gemm_nt {ours:.0f} ns, with a new d each time {changing:.0f} ns, empty launch {launch:.0f} ns (by '
        f'ctypes, whose {through_ctypes:.0f} ns are taken off), empty Python function {python:.0f} ns, '
        f'torch.mm {mm:.0f} ns'
    )
    assert ours <= launch + python + 2000, text
    return text


def main():
    passed, names = 0, sys.argv[1:]
    chosen = [t for t in TESTS if not names or t.__name__ in names]
    print(f'torch {torch.__version__}, deep_gemm {deep_gemm.__version__}, {torch.cuda.get_device_name(0)}')
    for t in chosen:
        torch.manual_seed(1)
        started = time.time()
        try:
            detail = t()
            torch.cuda.synchronize()
            passed += 1
            print(f'ok   {t.__name__} {time.time() - started:.1f} s {detail or ""}', flush=True)
        except Exception:
            print(f'FAIL {t.__name__}\n{traceback.format_exc()}', flush=True)
    print(f'device_torch: {passed} passed, {len(chosen) - passed} failed')
    return passed < len(chosen)


if __name__ == '__main__':
    sys.exit(main())
