# The Python package as its users get it: `pip install .` and `python -m build` in clean environments, and the tests of
# tests/python on the wheel. What the tests import comes from PyPI by tests/requirements.txt.
. tests/checks/lib.sh
: "${BUILD:?}" "${DEPS:?}"
python=${PYTHON:-python3}
place="$PWD/$BUILD/python-check"
rm -rf "$place"
mkdir -p "$place/lib"
deps="$PWD/$DEPS"
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
fresh() { "$python" -m venv --clear "$place/$1"; }
pip() { "$place/$1/bin/pip" install --quiet --disable-pip-version-check "$2"; }

# ---- The declarations of DLPack ----------------------------------------------------------------------------------
proof() { $CC -std=c11 -fsyntax-only -I. -I"$deps/tvm-ffi/tvm_ffi/include" "$@" tests/python/dlpack_proof.c; }
expect "dlpack.h is DLPack's" proof
for falsehood in 1 2 3; do
    expect "a false line is seen ($falsehood)" sh -c '! "$@" 2>/dev/null' - $CC -std=c11 -fsyntax-only -I. \
        -I"$deps/tvm-ffi/tvm_ffi/include" -DDLPACK_PROOF_FALSEHOOD=$falsehood tests/python/dlpack_proof.c
done

# ---- The package -------------------------------------------------------------------------------------------------
expect "make python" make -s BUILD="$BUILD" CC="$CC" PYTHON="$python" python
expect "it works from the folder" env PYTHONPATH="$BUILD/python" "$python" -c 'import deep_gemm; deep_gemm.get_pdl()'
expect "a clean environment" fresh user
# What an earlier version has left where setuptools builds by itself.
stale=$("$python" -c 'import sys, sysconfig; print(f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}")')
mkdir -p "$stale/deep_gemm"
touch "$stale/deep_gemm/stale.py"
expect "pip install ." pip user .
expect "it takes nothing stale" sh -c '! find "$0" -name stale.py | grep .' "$place/user"
rm -r "$stale"
installed=$("$place/user/bin/pip" list --format=freeze | grep -vE "^(pip|setuptools|wheel)=")
expect "it is all that is installed" sh -c 'case $0 in deep[_-]gemm==*) [ "$(echo "$0" | wc -l)" = 1 ] ;; *) false ;; esac' "$installed"
expect "import" env -i "$place/user/bin/python" -I -c 'import deep_gemm; print(deep_gemm.__version__)'
expect "python -m deep_gemm" "$place/user/bin/python" -I -m deep_gemm
expect "another clean environment" fresh builder
expect "pip install build" pip builder build
expect "python -m build" "$place/builder/bin/python" -m build --outdir "$place/dist" .
wheel=$(ls "$place/dist"/*.whl)
expect "one wheel for CPython 3.10 and later" sh -c 'case $0 in *-cp310-abi3-linux_*.whl) ;; *) exit 1 ;; esac' "$wheel"
expect "the wheel" "$place/user/bin/pip" install --quiet --disable-pip-version-check --force-reinstall "$wheel"
library=$(find "$place/user" -name '_C.abi3.so')
expect "it exports its entry only" sh -c '[ "$(nm -D --defined-only "$0" | cut -d" " -f3)" = PyInit__C ]' "$library"
expect "it needs the C library only" sh -c '! readelf -d "$0" | grep NEEDED | grep -vE "lib(c|m|dl|pthread)\.so|ld-linux"' \
    "$library"
expect "no executable stack" sh -c '! readelf -lW "$0" | grep GNU_STACK | grep -q RWE' "$library"

# ---- Its tests ---------------------------------------------------------------------------------------------------
expect "the producer of made-up tensors" $CC -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -fPIC -shared \
    -isystem "$headers" -Iinclude -Isrc -I. -o "$place/lib/fake_tensor.so" tests/python/fake_tensor.c -ldl
expect "the fake driver" $CC -std=c11 -D_GNU_SOURCE -O1 -fPIC -shared -fvisibility=hidden -Iinclude -Isrc -I. \
    -o "$place/lib/libfake_cuda.so" tests/fake/fake_cuda.c tests/fake/fake_kernels.c -lpthread
export PYTHONPATH="$place/lib:$deps/numpy:$deps/ml-dtypes:$deps/tvm-ffi:$deps/typing-extensions"
export FAKE_CUDA_LIBRARY="$place/lib/libfake_cuda.so" BUILD DG_JIT_CACHE_DIR="$place/cache"
block python "import numpy" >"$place/readme.py"
expect "the example of the README" sh -c '"$0" "$1" | grep -qE "^0\.000[0-9]+$"' "$place/user/bin/python" "$place/readme.py"
"$place/user/bin/python" tests/python/run.py >"$place/log" 2>&1
cat "$place/log"
counts=$(tail -1 "$place/log" | grep -E '^python: [0-9]+ passed, [0-9]+ failed$')
expect "the tests count" [ -n "$counts" ]
counts=${counts#python: }
passed=$((passed + ${counts%% *}))
counts=${counts#*, }
failed=$((failed + ${counts%% *}))
finish python
