"""The scanner: what of a C++ source is code, and what it declares."""

import pytest

from helpers.compiler.source import host_functions
from helpers.cuda_on_cpu.scanner import Source, mask, mask_directives, split


@pytest.mark.parametrize(
    "source, code",
    [
        ("a /* b", "a     "),
        ("a // b \\\n c\nd", "a       \n  \nd"),
        ('a R"x(b)" )x" c', "a             c"),
        ('a R"(b', "a     "),
        ("1'000 + 0xFF'FFu + 'a' + '\\''", "1'000 + 0xFF'FFu +     +     "),
        ("case'a': u8'b' x", "case   : u8    x"),
        ("1e-5f + .5'5 '\"' b", "1e-5f + .5'5     b"),
        ('"a\\"b /*" c', "          c"),
        ("'unclosed\nb", "'unclosed\nb"),
        ("#error don't\nb // c", "#error don't\nb     "),
    ],
)
def test_mask(source, code):
    assert mask(source) == code


def test_directives_end_with_their_last_line():
    assert mask_directives("a\n # define X \\\n  {\nb") == "a\n             \n   \nb"


def test_split_leaves_brackets_and_templates_whole():
    assert split("a<b, c>, f(d, e), g < h, {i, j}") == ["a<b, c>", " f(d, e)", " g < h", " {i, j}"]


SOURCE = r"""
#define HD __host__ __device__
#define KERNEL(n) __global__ void __launch_bounds__(n)
template <class T = int, int N = (3 > 2)> __device__ __forceinline__ T f(T x, int n = 3) { ; }
namespace a { namespace b { __global__ void __launch_bounds__(256) k(float* a) { if (a) {} } } }
extern "C" { int c(void); void d() {} }
KERNEL(64) made(int a) {}
struct __align__(16) P : Base<int> {
    float x{3};
    HD P(float x) : x{x}, y(2) {}
  public:
    __device__ float operator()(int i) const { return x; }
    operator float() const { return x; }
    template <class U> static U g(U u) { return u; }
    ~P() {}
};
float P::norm() const { return x; }
int table[] = {1, 2}; P p{2}; enum class E { A, B };
auto lambda = [](int x) { return x; };
std::vector<torch::Tensor> host(torch::Tensor a, std::optional<int> b = {}) { return {a}; }
template <> float special<int>(int x) { return x; }
auto trailing(int x) -> decltype(x + 1) { return x; }
float (*pointer)(float) = nullptr;
bool operator==(int2 a, int2 b) noexcept(true) { return true; }
"""


def test_functions():
    def kind(f):
        if f.is_for_device and not f.is_kernel:
            return "both" if f.is_for_host else "device"
        return "kernel" if f.is_kernel else "host"

    functions = Source(SOURCE).functions
    found = {f"{f.qualifier}{f.name}": (kind(f), f.owner, f.returns) for f in functions}
    assert found == {
        "f": ("device", None, "__device__ __forceinline__ T"),
        "k": ("kernel", None, "__global__ void"),
        "c": ("host", None, "int"),
        "d": ("host", None, "void"),
        "made": ("kernel", None, "KERNEL(64)"),
        "P": ("both", "P", "HD"),
        "operator()": ("device", "P", "__device__ float"),
        "operator float": ("host", "P", ""),
        "g": ("host", "P", "static U"),
        "~P": ("host", "P", ""),
        "P::norm": ("host", None, "float"),
        "host": ("host", None, "std::vector<torch::Tensor>"),
        "special": ("host", None, "float"),
        "trailing": ("host", None, "auto"),
        "operator==": ("host", None, "bool"),
    }


def test_a_comparison_in_launch_bounds_begins_no_value():
    bounds = "template <int D> __global__ void __launch_bounds__(128, D == 64 ? 3 : 2) k(int* a)"
    for end in (" {}", ";"):
        assert [f.name for f in Source(f"{bounds}{end}\nint host() {{}}").functions] == [
            "k",
            "host",
        ]


def test_macros_that_are_whole_hide_no_function():
    source = """
#define MAKE(T) template __global__ void fill<T>(T* x, T v);
#define PREFIX(T) T
MAKE(float)
MAKE(double)
torch::Tensor go(torch::Tensor x) { return x; }
PREFIX(torch::Tensor) back(torch::Tensor x) { return x; }
"""
    assert "go" in [f.name for f in host_functions(source)]


def test_host_functions_made_by_macros():
    source = """
#define UNARY(name, op) \\
    __global__ void name##_kernel(float* x) { x[threadIdx.x] = op; } \\
    torch::Tensor name(const torch::Tensor& x, int64_t n = 3) { return x; }

UNARY(twice, 2 * x[0])
UNARY(half, x[0] / 2);
torch::Tensor last(torch::Tensor x) { return x; }
"""
    found = [(f.name, f.line, f.schema) for f in host_functions(source)]
    assert found == [
        ("twice", 6, "twice(Tensor x, int n) -> Tensor"),
        ("half", 7, "half(Tensor x, int n) -> Tensor"),
        ("last", 8, "last(Tensor x) -> Tensor"),
    ]
