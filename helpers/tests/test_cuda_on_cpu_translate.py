"""The translator: launches in every place and shape, and one sentence for what cannot be done."""

import re

import pytest

from helpers import cuda_on_cpu
from helpers.cuda_on_cpu import TranslateError
from helpers.cuda_on_cpu.checked import kernel_parameters
from helpers.cuda_on_cpu.scanner import Source


def translate(src: str, check: bool = False) -> str:
    """Return the translation without the marks of what is of the host, of what of the device."""
    new = cuda_on_cpu.translate(src, check)
    new = re.sub(r'CUDA_ON_CPU_NOT_FOR_DEVICE\(".*?"\) | CUDA_ON_CPU_DEVICE_(BEGIN|END) ?', "", new)
    assert "CUDA_ON_CPU_NOT" not in new and "CUDA_ON_CPU_DEVICE" not in new
    return new


def launch(src: str) -> str:
    """Return the call that a launch became, without its line number."""
    new = translate(src)
    assert new.count("\n") == src.count("\n")
    return re.sub(r"(CUDA_ON_CPU_TEXT\(.*?\)), (?:\d+|__LINE__), ", r"\1, @, ", new)


def call(kernel: str, configuration: str, arguments: str) -> str:
    given = f", {arguments}" if arguments else ""
    return (
        f"::cuda_on_cpu::configure(CUDA_ON_CPU_TEXT({kernel}), @, {configuration})"
        "([=](auto&... cuda_on_cpu_a) CUDA_ON_CPU_UNCHECKED "
        f"{{ {kernel}(cuda_on_cpu_a...); }}{given})"
    )


@pytest.mark.parametrize(
    "kernel",
    [
        "k",
        "k<float>",
        "k<float, 32>",
        "k<T, (N > 3)>",
        "k<std::vector<int>, sizeof(T) * 2>",
        "k<a->b>",
        "a::b::k<3>",
        "::k",
        "Outer<int>::k<3>",
        "self->kernel",
        "table[i + 1]",
        "choose(kind)",
        "choose<float>(kind, 3)",
        "(*pointer)",
        "object.member<2>",
    ],
)
def test_kernels(kernel):
    expected = f"{{ {call(kernel, 'g, b', 'x, n')}; }}"
    assert launch(f"{{ {kernel}<<<g, b>>>(x, n); }}") == expected


@pytest.mark.parametrize("space", ["", " ", "\n  "])
def test_blanks_around_the_brackets(space):
    new = launch(f"f();{space}k{space}<<<{space}g, b{space}>>>{space}(x);")
    assert "CUDA_ON_CPU_TEXT(k)" in new and "{ k(cuda_on_cpu_a...); }, x);" in new


@pytest.mark.parametrize(
    "configuration",
    [
        "(n + 255) / 256, 256",
        "dim3(2, 3), dim3(32, 32), 0, stream",
        "{1, 2}, {3, 4}",
        "grid<int>(n), block, bytes<T>",
        "g, b, sizeof(float) << 3",
        "g, n >> 1",
        "g, f([&] { return x; })",
    ],
)
def test_configurations(configuration):
    assert launch(f"k<<<{configuration}>>>(x);") == call("k", configuration, "x") + ";"


@pytest.mark.parametrize(
    "before, after",
    [
        ("if (x) ", "; else g();"),
        ("if (x) f(); else ", ";"),
        ("for (;;) ", ";"),
        ("do ", "; while (0);"),
        ("auto run = [&] { ", "; };"),
        ("x = 1 > 0; ", ";"),
        ("label: ", ";"),
        ("{", ";}"),
        ("return ", ";"),
        ("f(), ", ", g();"),
        ("/* k<<<1, 2>>>(x) */ ", "; // k<<<1, 2>>>(x)"),
        ('const char* s = "k<<<1, 2>>>(x)"; ', ";"),
        ('auto s = R"x(k<<<1, 2>>>("))x"; ', ";"),
        ("int million = 1'000'000; ", ";"),
        ("char c = '\"'; ", "; c = '\\'';"),
    ],
)
def test_places(before, after):
    assert launch(f"{before}k<<<g, b>>>(x){after}") == before + call("k", "g, b", "x") + after


def test_a_launch_without_arguments_and_one_with_null():
    assert launch("k<<<1, 2>>>();") == call("k", "1, 2", "") + ";"
    assert launch("k<<<1, 2>>>(NULL, n);") == call("k", "1, 2", "nullptr, n") + ";"


@pytest.mark.parametrize(
    "apart", ["k << <1, 2> >> (x);", "k <<  <1, 2>> > (x);", "k<< <1, 2>> >(x);"]
)
def test_brackets_that_a_formatter_took_apart(apart):
    new, expected = launch(apart), call("k", "1, 2", "x") + ";"
    assert "".join(new.split()) == "".join(expected.split())


def test_arguments_whose_type_the_parameter_alone_says():
    kernel = "__global__ void k(const float* __restrict__ p, int n, float2 v, A<int> = {}) {}\n"
    new = launch(f"{kernel}{{ k<<<1, 2>>>(0, 0, {{1, 2}}, {{}}); }}")
    assert new.endswith(", nullptr, 0, float2{1, 2}, A<int>{}); }")
    assert launch("k<<<1, 2>>>(0, {1});").endswith(", 0, {1});")  # of which nothing is known
    two = "__global__ void k(int* p) {}\n__global__ void k(int n) {}\n"
    assert launch(f"{two}{{ k<<<1, 2>>>(0); }}").endswith(", 0); }")


def test_a_launch_in_an_argument_of_a_launch():
    new = launch("k<<<1, 2>>>([&] { inner<<<3, 4>>>(y); return x; }());")
    assert new.count("::cuda_on_cpu::configure") == 2 and "<<<" not in new


def test_lines_are_kept_and_told():
    src = "\n\nk<float,\n  3>\n  <<<g,\n b>>>\n (x,\n  y);\nlast<<<1, 1>>>();"
    new = translate(src)
    assert new.count("\n") == src.count("\n")
    assert "CUDA_ON_CPU_TEXT(k<float, 3>), 5," in new
    assert new.splitlines()[-1].startswith("::cuda_on_cpu::configure(CUDA_ON_CPU_TEXT(last), 9,")


def test_a_launch_in_a_macro_keeps_its_continuation_lines():
    src = "#define RUN(k, ...) \\\n  k<<<1, \\\n 2>>>( \\\n __VA_ARGS__)\nint x;"
    new = translate(src)
    assert new.count("\\\n") == src.count("\\\n") and new.endswith("\nint x;")
    assert "CUDA_ON_CPU_TEXT(k), __LINE__," in new


@pytest.mark.parametrize(
    "declaration, new",
    [
        ("extern __shared__ float s[];", "auto* s = ::cuda_on_cpu::dynamic_shared<float>();"),
        (
            "extern __shared__ __align__(16) unsigned char raw[];",
            "auto* raw = ::cuda_on_cpu::dynamic_shared<unsigned char>();",
        ),
        (
            "extern volatile __shared__ int s[ ];",
            "auto* s = ::cuda_on_cpu::dynamic_shared<::cuda_on_cpu::Volatile<int>>();",
        ),
        (
            "extern __shared__ T s[][32];",
            "auto* s = ::cuda_on_cpu::dynamic_shared<T[32]>();",
        ),
        (
            "extern __shared__ alignas(sizeof(float4)) std::pair<int, T> s[];",
            "auto* s = ::cuda_on_cpu::dynamic_shared<std::pair<int, T>>();",
        ),
    ],
)
def test_dynamic_shared_memory(declaration, new):
    head = "__global__ void k()"
    assert translate(f"{head} {{ {declaration} }}") == f"{head} {{ {new} }}"
    at_file_scope = translate(f"namespace a {{\n{declaration}\n}} {head} {{}}")
    element = re.search(r"<(.*)>\(\)", new)[1]
    assert f"static ::cuda_on_cpu::DynamicShared<{element}> " in at_file_scope


@pytest.mark.parametrize(
    "declaration, names",
    [
        ("__device__ unsigned count;", ["count"]),
        ("static __device__ __align__(16) float4 a[2][3], b = {1, f(2)}, c{};", ["a", "b", "c"]),
        ("namespace n { alignas(32) __device__ volatile double d[N * (2 + 1)]; }", ["d"]),
        ("__device__ int2 pair = make_int2(1, 2);", ["pair"]),
        ("__device__ constexpr int K = 3;", []),
        ("__device__ __constant__ float filter[9];", ["filter"]),
        ("__constant__ float filter[9];", ["filter"]),
        ("template <class T> __device__ T any;", []),
        ("extern __device__ int elsewhere;", []),
        ("__device__ float square(float x = 1);", []),
        ("__device__ float square(float x) { int y = 3; return x * y; }", []),
        ("__device__ bool operator==(int2 a, int2 b);", []),
        ("__device__ auto twice = [](int x) { return 2 * x; };", []),
        ("struct P { __device__ int get() const { return a; } int a; };", []),
        ("#define COUNT __device__ int count;", []),
    ],
)
def test_variables_of_the_device_are_named(declaration, names):
    assert "NamedVariable" not in translate(declaration)
    told = re.findall(
        r'NamedVariable \w+\("(\w+)", (\w+), \w+\);', translate(declaration, check=True)
    )
    assert told == [(name, name) for name in names]


def test_single_shared_variables_and_comments_stay():
    src = "__global__ void k() { __shared__ float s; /* extern __shared__ float x[]; */ }"
    assert translate(src) == src


def test_shared_arrays_are_counted():
    new = translate("__global__ void k() { __shared__ int a[3], b[N][(N) + 1];\n"
                    "{ __shared__ T c[2]; }\n"
                    "__shared__ T d[2]; }\n#define M() { __shared__ int e[9]; }\n")  # fmt: skip
    counted = re.findall(r"static_assert\((.*?) <= ", new)
    assert counted == [
        "sizeof(a) + sizeof(b)",
        "sizeof(a) + sizeof(b) + sizeof(c)",
        "sizeof(a) + sizeof(b) + sizeof(d)",
    ]


@pytest.mark.parametrize(
    "declaration, new",
    [
        ("void k(volatile float *p)", "void k(VolatilePointer<float> p)"),
        ("void k(const volatile float* p)", "void k(VolatilePointer<const float> p)"),
        ("f(unsigned long long volatile* p)", "f(VolatilePointer<unsigned long long> p)"),
        ("x = *(volatile T<4>*)p;", "x = *(VolatilePointer<T<4>> )p;"),
        ("x = *reinterpret_cast<volatile int*>(p);", "x = *VolatilePointer<int> (p);"),
        ("static __shared__ volatile int s;", " __shared__ Volatile<int> s;"),
        ("__device__ volatile int flag = 0;", "__device__ Volatile<int> flag = 0;"),
        ("volatile int i = 3; /* volatile int* */", "volatile int i = 3; /* volatile int* */"),
        ("__device__ volatile int f(int);", "__device__ volatile int f(int);"),
    ],
)
def test_volatile(declaration, new):
    assert translate(declaration).replace("::cuda_on_cpu::", "") == new


@pytest.mark.parametrize("body, is_data", [
    ("volatile float* s = x; s[i] += s[i + 32];", True),
    ("__shared__ volatile float s[64]; float v = s[3]; x[i] = v; if (i < 32) x[i] = 1;", True),
    ("volatile float* s = (volatile float*)p; s[i] = s[i + 1];", True),
    ("volatile unsigned int* s = p; int y = s[1]; if (i < 3) s[i] = y + 1; if (y) {}", False),
    ("volatile __shared__ int turn; while (turn != 3 - i) {}", False),
    ("volatile int* flag = p; do { int v = flag[i]; if (v) break; } while (1);", False),
    ("volatile int* flag = p; int ok = *flag == 3;", False),
    ("volatile int* flag = p; int ok = *flag ? 1 : 2;", False),
    ("volatile bool* stop = p; for (; i < 9 && !*stop; i++) {}", False),
    ("while (*(volatile int*)p == 0);", False),
])  # fmt: skip
def test_volatile_memory_that_no_condition_looks_at_is_data_to_the_checks(body, is_data):
    kernel = f"__global__ void k(float* x, void* p, int i) {{ {body} }}\n"
    assert ("VolatileData" in translate(kernel, check=True)) == is_data
    assert "VolatileData" not in translate(kernel)
    other = "__global__ void look(float* s) { if (s[0] > s[1]) s[0] = 1; }\n"
    assert ("VolatileData" in translate(other + kernel, check=True)) == is_data


@pytest.mark.parametrize(
    ("call", "new"),
    [
        ("memcpy(a, b, n);", "::cuda_on_cpu::memcpy(a, b, n);"),
        ("std::memmove (a, b, n);", "::cuda_on_cpu::memmove (a, b, n);"),
        ("x = ::memset(a, 0, 4); // memset(", "x = ::cuda_on_cpu::memset(a, 0, 4); // memset("),
        ("my_memcpy(a, b, n), s.memset(0), my::memcpy(a), memcpys(a);", None),
        ("}\n__device__ void memset(float* a) {", None),  # the string's own
    ],
)
def test_copies_of_bytes_are_told_in_checked_code(call, new):
    src = f"__device__ void f(int* a, int* b, int n) {{ {call} }}"
    assert translate(src, check=True) == translate(src).replace(call, new or call)


def test_casts_of_kernels_and_noinline():
    new = "Kernel(::cuda_on_cpu::named_kernel(CUDA_ON_CPU_TEXT(k<2, T>), k<2, T>), g);"
    assert translate("cudaLaunchCooperativeKernel((void*)k<2, T>, g);").endswith(new)
    new = "cudaLaunchKernel(::cuda_on_cpu::named_kernel(CUDA_ON_CPU_TEXT(a::k), {}), g, b);"
    for cast in ("reinterpret_cast<const void*>(a::k)", "(void *)&a::k", "(const void*)(a::k)"):
        kernel = cast[cast.index("(a") :] if "(a" in cast else "&a::k"
        assert translate(f"cudaLaunchKernel({cast}, g, b);") == new.format(kernel)
    assert translate("__noinline__ int f();") == "__attribute__((noinline)) int f();"


@pytest.mark.parametrize(
    "src, sentence",
    [
        ('__global__ void k() { asm volatile("wgmma.fence;"); }', "inline PTX 'wgmma.fence'"),
        ("wgmma_async();", "wgmma"),
        ("const __grid_constant__ CUtensorMap map;", "TMA"),
        ("__global__ void __cluster_dims__(2) k() {}", "clusters"),
        ("texture<float, 2> t;", "texture and surface references are gone since CUDA 12"),
        ("static texture<unsigned char, 2, cudaReadModeNormalizedFloat> t;", "references are gone"),
        ("surface<void, 2> s;", "references are gone"),
        ("cudaBindTextureToArray(t, a);", "cudaTextureObject_t"),
        ("float x = texCubemap<float>(t, 0, 0, 0);", "array of six layers"),
        ("cudaMallocMipmappedArray(&a, &d, e, 4);", "mipmapped arrays, the CPU backend does not"),
        ("cudaGraphAddMemAllocNode(&n, g, 0, 0, &p);", "allocate with cudaMalloc before the graph"),
        ("cudaMemAllocNodeParams p = {};", "nodes of graphs that allocate"),
        ("cudaGraphConditionalHandleCreate(&h, g, 0, 0);", "let the host look at the condition"),
        ("__device__ void f() { cudaGraphSetConditional(h, 1); }", "conditional nodes of graphs"),
        ("cudaGraphNodeParams p = { cudaGraphNodeTypeConditional };", "does not yet"),
        ("cudaGraphAddNode(&n, g, 0, 0, &p);", "cudaGraphAddKernelNode, cudaGraphAddMemcpyNode"),
        ("cudaGraphLaunch(cudaGetCurrentGraphExec(), s);", "launch the graph from the host"),
        ("cusparseHandle_t handle;", "of CUDA's libraries, the CPU backend has cuBLAS"),
        ("ncclComm_t all;", "the others run on a GPU only"),
        ("cutlass::gemm::device::Gemm<float> gemm;", "CUTLASS runs on a GPU only"),
        ("cuda::ptx::mbarrier_arrive(a);", "cuda::ptx"),
        ("cub::DeviceMergeSort::SortKeys(a, b, c);", "write a kernel"),
        ("#include <cub/device/device_for.cuh>\ncub::Sum a;", "device_for.cuh> is for a GPU"),
        ("#include <cuda/ptx>\nusing namespace cuda::ptx;", "<cuda/ptx> is for a GPU"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(src, sentence):
    with pytest.raises(TranslateError) as raised:
        translate(f"// a\n/* asm() */\n{src}\n")
    assert raised.value.line == 3 and sentence in raised.value.message
    assert str(raised.value).startswith("line 3: ") and raised.value.message.endswith(".")


@pytest.mark.parametrize(
    "src",
    [
        "bool f(int texture, int width) { return texture < width && texture < 3; }",
        "cudaMipmappedArray_t none = nullptr; cudaGraphAddKernelNode(&n, g, 0, 0, &p);",
        "float g(cudaTextureObject_t t) { return tex2D<float>(t, 0, 0); }",
        "cudaMallocAsync(&p, 4, s); cudaGraphNodeGetType(n, &t);",
    ],
)
def test_names_that_only_look_like_those(src):
    assert len(translate(src)) >= len(src)


def test_headers_that_are_included_and_not_used():
    src = "#include <cusparse.h>\n  # include <thrust/merge.h> // a\n#include <cuda_fp16.h>\n"
    assert [line.strip() for line in translate(src).split("\n")] == ["", "", src.split("\n")[2], ""]


@pytest.mark.parametrize(
    "condition, left_out",
    [
        ("#if __CUDA_ARCH__ >= 900", True),
        ("#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 900)", True),
        ("#if __CUDA_ARCH__ < 700", True),
        ("#if 0", True),
        ("#ifndef __CUDA_ARCH__", True),
        ("#ifdef __CUDACC_VER_MAJOR__", True),
        ("#if defined(__CUDA_ARCH_FEAT_SM90_ALL)", True),
        ("#if __CUDA_ARCH__ >= 800", False),
        ("#if __CUDA_ARCH__ >= 700\n#else", True),
        ("#if __CUDA_ARCH__ >= 900\n#elif __CUDA_ARCH__ >= 700", False),
        ("#if __CUDA_ARCH__ >= 900\n#if 1\n#endif", True),
    ],
)
def test_code_for_other_architectures_may_contain_anything(condition, left_out):
    src = f'{condition}\nasm("wgmma;");\n#endif\nint x;'
    if left_out:
        assert translate(src) == src
    else:
        assert "ptx_refused" in translate(src)
        with pytest.raises(TranslateError):
            translate(src.replace("asm", "__global__ void k() { asm").replace(");", "); }"))


@pytest.mark.parametrize(
    "src, line, sentence",
    [
        ("\nk<<<g, b>>>;", 2, "a launch needs arguments"),
        ("k<<<g, b(x);\n}", 1, "this <<< has no >>>"),
        ("k<<<>>>(x);", 1, "a launch needs grid and block"),
        ("k<<<g, b>>>(x;", 1, "is never closed"),
        ("{ <<<g, b>>>(x); }", 1, "no kernel's name"),
    ],
)
def test_broken_launches(src, line, sentence):
    with pytest.raises(TranslateError) as raised:
        translate(src)
    assert raised.value.line == line and sentence in raised.value.message


READS = [
    "b[i] = a[i];",
    "b[i] = 2 * a[i] + a[i + 1];",
    "b[i] += a[i];",
    "float x = a[i]; b[i] = x;",
    "a += 8; b[i] = -a [0];",
    "b[i] = i < 8 ? a[i] : 0.0f;",
    "while (a[i] >= b[i]) i++;",
    "float x = s.a[0] = 1, y = s->a[0]++;",
]
PERHAPS_WRITES = [
    "a[i] = 1;",
    "a[i] += 1;",
    "a[b[0] == a[0]] >>= 1;",
    "b[i] = 1 + a[i]++;",
    "b[i] = 2 * --a[i];",
    "*a = 1;",
    "i[a] = 1;",
    "(a[i]) = 1;",
    "(a + 1)[i] = 1;",
    "float* p = a; *p = 1;",
    "float* p = b; b = a; *b = *p;",
    "float* p = &a[i]; *p = 1;",
    "float* p = &a[i] + 1; *p = 1;",
    "float& r = a[i]; r = 1;",
    "auto&& r = a[i]; r = 1;",
    "auto x = 1.f, &r = a[i]; r = 1;",
    "decltype(auto) r = a[i]; r = 1;",
    "Reference r = a[i]; r = 1;",
    "float& r{a[i]}; r = 1;",
    "float& r = i ? a[i] : b[i]; r = 1;",
    "std::swap(a[i], b[i]);",
    "atomicAdd(&a[i], 1);",
    "[&]() -> float& { return a[i]; }() = 1;",
    "[a](int k) { a[k] = 1; }(i);",
    "reinterpret_cast<float4*>(a)[0] = {};",
    "WRITE(a);",
    "WRITE_A;",
]


@pytest.mark.parametrize("body", READS + PERHAPS_WRITES)
def test_which_pointers_are_only_read_from(body):
    macro = "#define WRITE_A a[i] = 1\n" if "WRITE_A" in body else ""
    kernel = f"__global__ void k(float* __restrict__ a, float* b, int i, S* s) {{ {body} }}"
    parameters = dict(kernel_parameters(Source(macro + kernel))["k"])
    assert parameters == {"a": body in READS, "b": parameters["b"], "i": False, "s": False}
    assert dict(kernel_parameters(Source("__global__ void k(const float* a);"))["k"]) == {"a": True}


def test_what_stands_close_to_a_bodys_brackets_stays_apart():
    translated = cuda_on_cpu.translate("__global__ void k(int* a) {int i = 0; a[i] = 1;}")
    assert re.search(r"\bint i = 0; a\[i\] = 1;", translated), translated
