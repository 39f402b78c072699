"""What nvcc refuses, the CPU backend refuses, in a sentence; what nvcc takes, it takes."""

import re
import shutil
import subprocess

import pytest
import torch

from helpers.compiler import CompileError, compile_cuda
from helpers.compiler.build import STANDARD
from helpers.compiler.errors import diagnostics
from helpers.compiler.flags import NVCC_DEFINES
from helpers.compiler.tools import cpu_backend
from helpers.cuda_on_cpu import ANY_CONVERSION, TranslateError, translate
from helpers.device import BACKEND, DEVICE

# --- what the translator says ---------------------------------------------------------------------

K = "__global__ void k(float* a, int n) {{ {} }}"


@pytest.mark.parametrize(
    "src, sentence",
    [
        ("__global__ float k(float* a) { return a[0]; }", "a kernel returns nothing: write __glo"),
        ("struct P { __global__ void k(int* a) {} };", "a kernel is no method: declare k outside"),
        ("__global__ void k(int* a, ...) {}", "a kernel takes a fixed number of arguments"),
        (K.format("__shared__ int s = 0;"), "a __shared__ variable has no first value: let one"),
        (K.format("__shared__ int s[2] = {0, 1};"), "let one thread store it in s"),
        (K.format("__shared__ int s{0};"), "let one thread store it in s"),
        (K.format("std::vector<int> v(n);"), "std::vector lives on the host: a kernel has arrays"),
        ("using namespace std;" + K.format("vector<int> v(n);"), "vector lives on the host"),
        (K.format("std::cout << n;"), "std::cout is a part of the host's library"),
        (K.format("std::swap(a[0], a[1]);"), "std::swap is a part of the host's library"),
        (K.format("a[0] = rand();"), "rand is a part of the host's library"),
        (K.format("cudaDeviceSynchronize();"), "wait for each other with __syncthreads()"),
        (K.format("cudaMemcpy(a, a, 4, k);"), "cudaMemcpy is for the host"),
        ("__global__ void k(const torch::Tensor t) {}", "k cannot take a torch::Tensor: give it"),
        ("__global__ void k(int n, std::vector<int> v) {}", "k cannot take a std::vector, which"),
        (K.format("std::complex<float> z(1, 2);"), "std::complex is a part of the host's library"),
        ("__device__ float f(P p) { return p.x.data_ptr<float>()[0]; }", "data_ptr is a function"),
        (K.format("auto f = [=] __device__ (int i) { return i; };"), "flags=['--extended-lambda']"),
        ("auto f = [] __host__ __device__ (int i) { return i; };", "nvcc takes __host__ at a la"),
        (K.format("threadIdx.x = 3;"), "threadIdx.x says where a thread is; nobody can change it"),
        (K.format("++ blockIdx . y;"), "blockIdx.y says where"),
        (K.format("a[0] = dynamic_cast<B*>(a) != 0;"), "device code knows no types at run time"),
        (K.format("if (n) throw 1;"), "a kernel has no exceptions, and here stands 'throw'"),
        (K.format("") + "void run(float* a) { k(a, 3); }", "k<<<grid, block>>>(...)"),
        ("template <class T>" + K.format("") + "void f(float* a) { k<int>(a, 3); }", "k is a k"),
        ("__device__ int f() { return 1; } int g() { return f(); }", "unless it is __host__ __dev"),
        ("void k(int* a) { } void run(int* a) { k<<<1, 2>>>(a); }", "k is launched, but it is no"),
        ("void k(int* a) { __syncthreads(); }", "__syncthreads is for kernels, and k is a"),
        ("void run() { __shared__ int a[2]; }", "__shared__ is for kernels"),
        (
            K.format("extern __shared__ int s[];")
            + K.format("extern __shared__ float s[];").replace("k(", "g("),
            "s is one array for the whole file, of int in line 3 and of float here",
        ),
    ],
)  # fmt: skip
def test_refused_in_a_sentence(src, sentence):
    with pytest.raises(TranslateError) as raised:
        translate(f"\n\n{src}\n")
    assert raised.value.line == 3 and sentence in raised.value.message
    assert raised.value.message.endswith(".")


TAKEN = [
    "__global__ void k(torch::PackedTensorAccessor32<float, 2> t, const int n) {}",
    K.format("if (threadIdx.x == 3 || blockIdx.x <= 2) a[0] = threadIdx.x - 1;"),
    "void run(torch::Tensor t, std::vector<int> v) { t.data_ptr<float>(); }",
]


@pytest.mark.parametrize("src", TAKEN)
def test_taken(src):
    translate(src)


LAMBDAS = r"""
template <class F> __global__ void k(float* a, F f) { a[threadIdx.x] = f(threadIdx.x); }
template <class F> struct Twice { F f; __device__ float operator()(int i) { return 2 * f(i); } };
struct Half { __device__ float operator()(int i) { return 0.5f * i; } };
template <class F> void launch(float* a, F f) { k<<<1, 8>>>(a, f); }
torch::Tensor go(torch::Tensor x) {
  float* a = x.data_ptr<float>();
  HERE
  return x;
}
"""
FUNCTION = "(int i) { return i + 1.f; }"


@pytest.mark.parametrize(
    ("here", "flags", "sentence"),
    [
        ("launch(a, Twice<Half>{Half{}});", (), ""),
        (f"launch(a, [=] {FUNCTION});", (), "nvcc gives a kernel no lambda of the host: write a"),
        (f"auto f = [=] {FUNCTION}; k<<<1, 8>>>(a, Twice<decltype(f)>{{f}});", (), "no lambda of"),
        (f"launch(a, [=] __device__ {FUNCTION});", (), "flags=['--extended-lambda']"),
        (f"launch(a, [=] __device__ {FUNCTION});", "--extended-lambda", ""),
        (f"launch(a, [] __host__ __device__ {FUNCTION});", ["--expt-extended-lambda"], ""),
        (f"k<<<1, 8>>>(a, [=] {FUNCTION});", "--extended-lambda", "write __device__ after its []"),
    ],
)
def test_lambdas_for_kernels_need_a_flag(here, flags, sentence):
    src = LAMBDAS.replace("HERE", here)
    if sentence:
        with pytest.raises(CompileError) as raised:
            compile_cuda(src, flags=flags)
        assert sentence in str(raised.value) and "line 8: " in str(raised.value)
    else:
        given = torch.zeros(8, device=DEVICE)
        added = torch.arange(8.0) if "Half{" in here else torch.arange(8.0) + 1
        assert torch.equal(compile_cuda(src, flags=flags).go(given).cpu(), added)


LIMITS = r"""
__constant__ float table[CONSTANTS], rest[4];
constexpr int MOST = 64;
struct Many { float of[ARGUMENTS]; };
__global__ void __launch_bounds__(MOST, 2) bounded(float* out) { out[threadIdx.x] = rest[0]; }
template <int N> __global__ void __launch_bounds__(N) of_template(float* out) { out[0] = N; }
__global__ void takes(Many many, float* out) { out[0] = many.of[0] + table[0]; }
torch::Tensor run(torch::Tensor out, int64_t threads) {
    bounded<<<1, threads>>>(out.data_ptr<float>());
    of_template<32><<<1, 64>>>(out.data_ptr<float>());
    return out;
}
"""


def limits(constants=16380, arguments=8191):
    src = LIMITS.replace("CONSTANTS", str(constants)).replace("ARGUMENTS", str(arguments))
    many = (
        "torch::Tensor give(torch::Tensor out) {\n    takes<<<1, 1>>>(Many{}, GIVEN); return out; }"
    )
    given = "out.data_ptr<float>()" if arguments < 8191 else "nullptr"
    return compile_cuda(src + many.replace("GIVEN", given))


@pytest.mark.skipif(BACKEND == "cuda", reason="the CPU backend's sentences")
def test_constants_arguments_and_threads_have_limits():
    run = limits(arguments=8189).run
    out = torch.zeros(64, device=DEVICE)
    run(out, 64)
    with pytest.raises(RuntimeError, match="65 threads, and its __launch_bounds__ says 64 at most"):
        run(out, 65)
    with pytest.raises(CompileError, match="line 2: .*64 KB of constant memory"):
        limits(constants=16381)
    with pytest.raises(CompileError, match="line 14: .*32,764 bytes of arguments at most"):
        limits(arguments=8192)


# --- what the compiler finds out ------------------------------------------------------------------

# Every line with "wrong" has an error, and no other line.
WRONG = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
float twice(float x) { return 2 * x; }
template <class T> T same(T x) { return x; }
struct P { float s; P(float s) : s(s) {} float get() const { return s; } };
struct Add { float operator()(float x) const { return x; } };
P operator+(P a, P b) { return P(a.s + b.s); }
namespace deep { static inline float* next(float* x) { return x + 1; } }
float later(float x);
float both(float x) { return x; }
__device__ double both(double x) { return x; }
int count = 3;
float table[2] = {1, 2};
template <class F> __global__ void map(float* a, F f) { a[0] = f(a[0]); }  // wrong: Add
__global__ void k(float* a, P* p, int n) {
    a[0] = twice(a[0]);      // wrong
    a[1] = same(a[0]);       // wrong
    a[2] = p->get();         // wrong
    p[0] = P(3.f);           // wrong
    p[1] = p[0] + p[2];      // wrong
    a = deep::next(a);       // wrong
    a[0] = later(1);         // wrong
    a[0] = both(1.f);        // wrong
    a[0] = count;            // wrong
    a[0] = table[n];         // wrong
    auto f = [](float x) { return twice(x); };  // wrong
    a[3] = both(1.0) + f(1);
}
__device__ float nested(float x) { return twice(x); }  // wrong
__global__ void halves(__half* h, __half2* h2, __nv_bfloat16* b, float* f) {
    h[0] = h[0] + h[1];      // wrong
    h[0] = 1.0f;             // wrong
    f[0] = h[0];             // wrong
    if (h[0] < h[1]) f[0]++; // wrong
    h2[0] = h2[0] * h2[1];   // wrong
    b[0] = 1.0f;             // wrong
    f[1] = b[0];             // wrong
    b[0] = b[0] + b[1];
    h[0] = __hadd(h[0], __float2half(f[0]));
}
__global__ void mixed(float* a, int n, long l) {
    a[0] = max(n, 0.f);      // wrong
    a[1] = min(n, l);        // wrong
    a[2] = max(n, 3u) + max(a[0], 0.0) + min('a', 3);
}
template <class T> __global__ void dynamic(T* a) {
    extern __shared__ T raw[]; a[0] = raw[0];  // wrong: for the second T
}
void run(float* a, int* b) { dynamic<<<1, 1, 8>>>(a), dynamic<<<1, 1, 8>>>(b); }
uchar4 four(unsigned char x) { return uchar4(x, x, x, x); }  // wrong
__device__ int vla(int n) { int t[n]; return t[0]; }  // wrong
float later(float x) { return x; }
void run(float* a) { map<<<1, 1>>>(a, Add{}); }
"""

# Of what nvcc only warns of: no line of these is refused by it.
NO_RETURN = r"""
__device__ int none(int x) { x + 1; }  // wrong
__device__ int some(int x) { if (x) return 1; }  // wrong
__device__ int loops(volatile int* x) { while (true) { if (*x) return 3; } }
__device__ int traps(int x) { switch (x) { case 0: return 1; default: __trap(); } }
__device__ int asserts(int x) { if (x) return 1; assert(false); }
template <int N> __device__ int chosen() { if constexpr (N > 1) return 2; else return 3; }
__global__ void k(int* a) { a[0] = none(1) + some(2) + loops(a) + traps(3) + chosen<2>(); }
"""

RIGHT = r"""
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <new>
#include <tuple>
#include <vector>
using namespace std;
#if !defined(__CUDACC__) || !defined(__NVCC__)
#error this is CUDA
#endif
#define HD __host__ __device__ inline
#define UNARY(name, op) __device__ float name(float x) { return op; }
#define RUN(T, ...) k_##T<<<1, 1>>>(__VA_ARGS__)
UNARY(twice, 2 * x)
HD float lerp(float a, float b, float t) { return a + t * (b - a); }
struct P { float s; HD P(float s) : s(s) {} HD float get() const { return s; } };
struct Host { float get() { return 1; } float size() { return 2; } };
struct Device { __device__ float size() { return 3; } };
struct Plain { float s; Plain() = default; Plain(const Plain&) = default; };
struct Options { int n; int get() const { return n; } };
template <class D> struct Base { __device__ float run() { return static_cast<D*>(this)->f(); } };
struct Derived : Base<Derived> { __device__ float f() { return 1; } };
constexpr int cdiv(int a, int b) { return (a + b - 1) / b; }
const int N = 4;
const float SCALE = 2.0f;
constexpr float PI = 3.14f;
enum { TILE = 4 };
__device__ int counted = 0;
__constant__ float weights[2] = {1, 2};
float host_only(float x) { return x; }
HD float split(float x) {
#ifdef __CUDA_ARCH__
    return x;
#else
    return host_only(x);
#endif
}
float overloaded(float x) { return x; }
__device__ double overloaded(double x) { return x; }
namespace h { float same(float x) { return x; } }
namespace d { __device__ float same(float x) { return x; } }
__device__ float declared(float x);
__global__ void add(float* a);
template <class T> __global__ void filled(T* a) {
    extern __shared__ char raw[];
    a[0] = ((T*)raw)[0];
}
template __global__ void filled<float>(float*);
template <class T> void run_filled(T* a) { filled<T><<<1, 1, 8>>>(a); }
template void run_filled<int>(int*);
void __global__ k_float(float* a) { extern __shared__ char raw[]; a[0] = raw[0]; }
static __global__ void __launch_bounds__(32) k_int(int* a) { a[0] = 1; }
template <int M> __global__ void tile(float* a) { __shared__ float s[M == 4 ? 1 : 2]; a[0] = s[0]; }
__global__ void k(float* a, Options o) {
    auto host_only = [](float x) { return x + 1; };
    Plain plain;
    plain.s = host_only(twice(lerp(a[0], P(1).get(), Device().size())));
    a[0] = plain.s + cdiv(o.n, N) * SCALE * PI * TILE + counted + weights[0] + Derived().run();
    a[1] = split(overloaded(1.0)) + d::same(declared(1)) + std::get<0>(std::make_pair(1, 2.f));
    a[2] = std::sqrt(std::abs(a[0])) + max(1, 2) + std::min(a[0], numeric_limits<float>::max());
    float* p = new float[2];
    new (p) float(3);
    memcpy(a, p, 4), printf("%f\n", a[0]);
    delete[] p;
    using T = decltype(a[0]);
    static_assert(std::is_same<T, float&>::value, "");
}
__device__ float declared(float x) { return x; }
__global__ void add(float* a) { a[0] = 1; }
void add(float* a, int n) { add<<<1, n>>>(a); }
template <class K> void launch(K kernel, float* a) { kernel<<<1, 1>>>(a); }
int main() {
    float* a = nullptr;
    Options o{3};
    std::vector<int> v(3);
    std::sort(v.begin(), v.end());
    std::cout << v[0] << o.get() << Host().get() << Host().size() << h::same(1) << std::endl;
    auto k_int = [](int x) { return x; };
    k<<<1, k_int(2)>>>(a, o);
    add(a, 3), launch(k_float, a), RUN(float, a), tile<4><<<1, 1>>>(a);
    void (*pointer)(float*) = add;
    (*pointer)<<<1, 1>>>(a);
    cudaDeviceSynchronize();
    return split(lerp(1, 2, 3)) > 0 ? 0 : 1;
}
"""


def errors(src: str) -> dict[int, str]:
    """Return the lines that the compiler refuses, and what it says."""
    command = [cpu_backend().compiler, STANDARD, "-x", "c++", *cpu_backend().flags(), *NVCC_DEFINES]
    command += ["-ferror-limit=0"] if cpu_backend().is_clang else []  # or clang ends at the 20th
    unit = f'#include <cuda_runtime.h>\n{ANY_CONVERSION}#line 1 "cell"\n{translate(src)}'
    done = subprocess.run(
        [*command, "-S", "-O0", "-", "-o", "/dev/null"], input=unit, capture_output=True, text=True
    )
    return {found.line: found.what for found in diagnostics(done.stderr, src, "cell")}


def wrong_lines(src: str) -> set[int]:
    return {i for i, line in enumerate(src.splitlines(), 1) if "// wrong" in line}


def test_what_is_of_the_host_is_refused_in_code_for_the_device():
    found = errors(WRONG)
    assert set(found) == wrong_lines(WRONG), found
    said = {
        WRONG.splitlines()[line - 1].split("//")[0].strip(): what for line, what in found.items()
    }
    host = "is a function of the host: a kernel can call it with __device__ before it"
    assert said["a[0] = twice(a[0]);"] == f"twice {host}"
    assert said["p[0] = P(3.f);"] == f"the constructor of P {host}"
    assert said["a[0] = count;"].startswith("count is a variable of the host: pass it to the kern")
    twice = said["extern __shared__ T raw[]; a[0] = raw[0];"]
    assert re.match(r"conflicting declaration 'int raw \[\]'|redeclaration of 'raw' with", twice)
    assert "write __hadd(a, b), __hmul(a, b)" in said["h[0] = h[0] + h[1];"]
    assert "write __float2half(x) or __half2float(x)" in said["h[0] = 1.0f;"]


def test_a_missing_return_is_refused():
    assert set(errors(NO_RETURN)) == wrong_lines(NO_RETURN)


def test_what_is_right_is_taken():
    assert errors(RIGHT) == {}


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not here")
def test_nvcc_is_of_the_same_mind(tmp_path):
    def nvcc(name, src):
        path = tmp_path / name
        path.write_text(src)
        command = ["nvcc", "-arch=sm_75", "-ptx", STANDARD, *NVCC_DEFINES]
        command += ["--expt-relaxed-constexpr", str(path), "-o", str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True)
        return {int(line) for line in re.findall(r"\((\d+)\): error", done.stderr)}

    assert nvcc("right.cu", RIGHT) == set()
    found = nvcc("wrong.cu", WRONG)  # who calls whom it only looks at where all else is right
    rest = ["" if i in found else line for i, line in enumerate(WRONG.splitlines(), 1)]
    assert found | nvcc("rest.cu", "\n".join(rest)) == wrong_lines(WRONG)
