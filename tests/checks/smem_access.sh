# Kernels touch the hardware, and the shared memory that TMA or wgmma also touch, only through kernels/common: that is
# what the emulation can see. First whether the check finds what it is for.
. tests/checks/lib.sh
planted=$(mktemp)

# finds TEXT: the check complains when this line is in a kernel
finds() {
    printf '#include "common/tma.h"\nstruct smem {\n    uint32_t a[4][64], b[2];\n};\n%s\n' "$1" >"$planted"
    [ -n "$(awk -f tests/checks/smem_access.awk "$planted")" ]
}
passes() { ! finds "$1"; }

for line in 'x = s->a[stage][0];' 's->b[i[2]] = 1;' 'f(*s->b);' 'asm volatile("");' '__syncthreads();' 'i = threadIdx.x;'; do
    expect "finding: $line" finds "$line"
done
for line in 'x = load_smem_u32(&s->a[stage][0]);' 'f(s->a[i[2]], s->b);' 'f(s->a[0] + 3); /* asm */' 'mbarrier_wait(&s->b[i]);'; do
    expect "passing: $line" passes "$line"
done
rm -f "$planted"

for kernel in kernels/sm90/*.cu kernels/any/*.cu; do
    complaints=$(awk -f tests/checks/smem_access.awk "$kernel")
    expect "$kernel: $complaints" [ -z "$complaints" ]
done
for header in kernels/common/*.h; do
    case $header in */ptx.h | */tma.h) continue ;; esac
    complaints=$(awk -f tests/checks/smem_access.awk "$header" | grep -v __CUDA_ARCH__)
    expect "$header: $complaints" [ -z "$complaints" ]
done
finish smem_access
