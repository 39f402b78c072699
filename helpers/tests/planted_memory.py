"""Faults of memory planted in CUDA strings, each with its mended twin.

In a text `@good ~ bad@` is what the twin and what the faulty kernel says there, and the line that
the error names ends in `//!`. Every host function has the case's name and takes a float tensor.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One fault: its CUDA text, what the error says, and the numbers of elements to try."""

    name: str
    said: str  # a regular expression
    text: str
    sizes: tuple[int, ...] = (255,)
    where: str = r", thread \(\d+,\d+,\d+\), line {line}: "

    def source(self, bad: bool) -> str:
        """Return the text of the faulty version, or of its twin."""
        return re.sub("@(.*?) ~ (.*?)@", r"\2" if bad else r"\1", self.text)

    @property
    def line(self) -> int:
        """The line of the text, from 1, that the error names."""
        lines = self.text.splitlines()
        return next(i for i, line in enumerate(lines, 1) if line.endswith("//!"))


def _map(name, said, body, sizes=(1, 255, 1823), element="float", more=""):
    """Return a fault in a kernel of one thread per element: pointers x and out, n, and i."""
    return Fault(
        name,
        said,
        f"""{more}
__global__ void NAME_kernel(const {element}* x, {element}* out, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
{body}
}}
torch::Tensor NAME(torch::Tensor values) {{
    auto x = values.to(SCALAR_{element}), out = torch::zeros_like(x);
    int n = x.numel();
    NAME_kernel<<<n / 64 + 1, 64>>>(POINTER_{element}(x), POINTER_{element}(out), n);
    return out;
}}""",
        sizes,
    )


RANGE = [
    _map("less_or_equal", r"x\[{n}\], but x ends at", "    if (i @ < ~ <= @ n) out[i] = x[i]; //!"),
    _map("no_guard", r"x\[{n}\], but x ends", "    @if (i < n) ~ @out[i] = x[i]; //!"),
    _map(
        "left_neighbour",
        r"reads x\[-1\], but x begins at x\[0\]",
        "    if (i < n) out[i] = @i ? x[i - 1] : 0 ~ x[i - 1]@; //!",
    ),
    _map(
        "right_neighbour",
        r"reads x\[{n}\], but x ends",
        "    if (i < n) out[i] = x[@min(i + 1, n - 1) ~ i + 1@] - x[i]; //!",
        element="double",
    ),
    _map(
        "bytes",
        r"writes out\[{n}\], but out ends",
        "    if (i < n) out[i + @0 ~ 1@] = x[i] / 2; //!",
        element="uint8_t",
    ),
    _map(
        "shorts",
        r"writes out\[-1\], but out begins",
        "    if (i < n) out[@i ~ i - 1@] = x[i]; //!",
        element="int16_t",
    ),
    _map(
        "longs",
        r"reads x\[{n}\]",
        "    if (i < n) out[i] = x[@n - 1 - i ~ n - i@]; //!",
        element="int64_t",
    ),
    _map(
        "helper",
        r"reads x\[{n}\]",
        "    if (i < n) out[i] = difference_NAME(x, i, n);",
        more="""__device__ float difference_NAME(const float* values, int i, int n) {
    int next = @i + 1 < n ? i + 1 : i ~ i + 1@;
    return values[next] - values[i]; //!
}""",
    ),
    _map(
        "template_",
        r"writes out\[{n}\]",
        "    shift_NAME<@0 ~ 1@>(x, out, i, n);",
        more="""template <int BY>
__device__ void shift_NAME(const float* x, float* out, int i, int n) {
    if (i < n) out[i + BY] = x[i]; //!
}""",
    ),
    _map(
        "grid_stride",
        r"x\[{n}\]",
        "    for (; i @ < ~ <= @ n; i += gridDim.x * blockDim.x) out[i] = 2 * x[i]; //!",
    ),
    _map(
        "window",
        r"reads x\[({n}|-\d)\]",
        """    float sum = 0;
    for (int k = -1; k <= 1; k++)
        if (@i + k >= 0 && i + k < n ~ true@ && i < n) sum += x[i + k]; //!
    if (i < n) out[i] = sum;""",
    ),
    _map(
        "do_while",
        r"reads x\[{n}\]",
        """    int k = i;
    float sum = 0;
    if (i < n) do sum += x[k]; while (@++k ~ k++@ < n); //!
    if (i < n) out[i] = sum;""",
    ),
    _map(
        "vector_tail",
        r"writes out\[252\] to out\[255\], but out ends",
        "    if (i == 0) vectors_NAME(x, out, n);",
        (255,),
        more="""__device__ void vectors_NAME(const float* x, float* out, int n) {
    for (int i = 0; i < @n / 4 ~ (n + 3) / 4@; i++)
        reinterpret_cast<float4*>(out)[i] = reinterpret_cast<const float4*>(x)[i]; //!
}""",
    ),
    Fault(
        "columns_for_rows",
        r"writes out\[\d+\], but out ends",
        """__global__ void NAME_kernel(const float* x, float* out, int rows, int cols) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows && col < cols)
        out[col * @rows ~ cols@ + row] = x[row * cols + col]; //!
}
torch::Tensor NAME(torch::Tensor x) {
    auto out = torch::zeros({35, 17}, x.options()), in = torch::zeros({17, 35}, x.options());
    NAME_kernel<<<dim3(3, 2), dim3(16, 16)>>>(in.data_ptr<float>(), out.data_ptr<float>(), 17, 35);
    return out;
}""",
    ),
    Fault(
        "one_guard_of_two",
        r"out\[\d+\], but out ends",
        """__global__ void NAME_kernel(float* out, int rows, int cols) {
    int row = threadIdx.y, col = threadIdx.x;
    if (@row < rows && ~ @ col < cols) out[row * cols + col] = 1; //!
}
torch::Tensor NAME(torch::Tensor x) {
    auto out = torch::zeros({5, 15}, x.options());
    NAME_kernel<<<1, dim3(16, 16)>>>(out.data_ptr<float>(), 5, 15);
    return out;
}""",
    ),
    Fault(
        "member",
        r"\[255\], but \w+ ends",
        """struct View_NAME {
    const float* data;
    int size;
    __device__ float at(int i) const { return data[i]; } //!
};
__global__ void NAME_kernel(View_NAME view, float* out) {
    float sum = 0;
    for (int i = 0; i @ < ~ <= @ view.size; i++) sum += view.at(i);
    *out = sum;
}
torch::Tensor NAME(torch::Tensor x) {
    auto out = torch::zeros({1}, x.options());
    NAME_kernel<<<1, 1>>>(View_NAME{x.data_ptr<float>(), int(x.numel())}, out.data_ptr<float>());
    return out;
}""",
    ),
    Fault(
        "inner_loop",
        r"reads B\[\d+\], but B ends",
        """__global__ void NAME_kernel(const float* A, const float* B, float* C, int N, int K) {
    int row = threadIdx.y, col = threadIdx.x;
    float sum = 0;
    for (int k = 0; k @ < ~ <= @ K; k++)
        sum += A[row * K + min(k, K - 1)] * B[k * N + col]; //!
    C[row * N + col] = sum;
}
torch::Tensor NAME(torch::Tensor x) {
    auto A = torch::ones({7, 5}, x.options()), B = torch::ones({5, 9}, x.options());
    auto C = torch::zeros({7, 9}, x.options());
    NAME_kernel<<<1, dim3(9, 7)>>>(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(),
                                   9, 5);
    return C;
}""",
    ),
    Fault(
        "view",
        r"writes x\[\d+\], but x ends",
        """__global__ void NAME_kernel(float* x, int n) {
    if (threadIdx.x < n) x[threadIdx.x] = 0; //!
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 256>>>(x.data_ptr<float>() + 10, x.numel() @- 10 ~ @);
    return x;
}""",
    ),
    Fault(
        "strides",
        r"reads x\[\d+\], but x ends",
        """__global__ void NAME_kernel(const float* x, float* out, int rows, int cols, int s0,
                            int s1) {
    int i = threadIdx.x;
    if (i < rows * cols) out[i] = x[i / cols * s0 + i % cols * s1]; //!
}
torch::Tensor NAME(torch::Tensor values) {
    auto x = torch::zeros({9, 11}, values.options()).transpose(0, 1);
    auto out = torch::zeros({11, 9}, values.options());
    NAME_kernel<<<1, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), 11, 9,
                            x.stride(@0 ~ 1@), x.stride(1));
    return out;
}""",
    ),
    Fault(
        "bins",
        r"atomically changes bins\[\d+\], but bins ends",
        """__global__ void NAME_kernel(int* bins, int n) {
    atomicAdd(&bins[threadIdx.x % (n + @0 ~ 1@)], 1); //!
}
torch::Tensor NAME(torch::Tensor x) {
    auto bins = torch::zeros({51}, torch::kInt);
    NAME_kernel<<<1, 256>>>(bins.data_ptr<int>(), 51);
    return bins;
}""",
    ),
    Fault(
        "from_cuda_malloc",
        r"writes data\[255\], but data ends",
        """__global__ void NAME_kernel(float* data, int n) {
    for (int i = threadIdx.x; i @ < ~ <= @ n; i += blockDim.x) data[i] = i; //!
}
torch::Tensor NAME(torch::Tensor x) {
    float* data;
    cudaMalloc(&data, x.numel() * sizeof(float));
    NAME_kernel<<<1, 64>>>(data, x.numel());
    cudaFree(data);
    return x;
}""",
    ),
    Fault(
        "table",
        r"writes array\[255\], but array ends",
        """__global__ void NAME_kernel(const int64_t* table, int n) {
    auto* x = reinterpret_cast<float*>(table[0]);
    if (threadIdx.x < n + @0 ~ 1@) x[threadIdx.x] = 1; //!
}
torch::Tensor NAME(torch::Tensor x) {
    auto table = torch::full({1}, 0, torch::kLong);
    *table.data_ptr<int64_t>() = reinterpret_cast<int64_t>(x.data_ptr<float>());
    NAME_kernel<<<1, 256>>>(table.data_ptr<int64_t>(), x.numel());
    return x;
}""",
    ),
    Fault(
        "static_shared",
        r"tile\[64\]",
        """__global__ void NAME_kernel(float* x) {
    __shared__ float tile[64];
    float* last = tile;
    last[threadIdx.x + @0 ~ 1@] = x[threadIdx.x]; //!
    __syncthreads();
    x[threadIdx.x] = tile[0];
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>());
    return x;
}""",
    ),
    Fault(
        "fixed_index",
        r"index 17 is outside tile, whose type is float \[16\]\[17\]|index 17 is outside",
        """__global__ void NAME_kernel(float* x, int n) {
    __shared__ float tile[16][17];
    tile[threadIdx.y][threadIdx.x + @0 ~ n@] = 1; //!
    __syncthreads();
    if (threadIdx.x == 0) x[threadIdx.y] = tile[0][0];
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, dim3(16, 2)>>>(x.data_ptr<float>(), 2);
    return x;
}""",
    ),
    Fault(
        "dynamic_shared",
        r"writes cache\[63\], but cache ends",
        """__global__ void NAME_kernel(float* x) {
    extern __shared__ float cache[];
    cache[threadIdx.x] = x[threadIdx.x]; //!
    __syncthreads();
    x[threadIdx.x] = cache[0];
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64, @64 ~ 63@ * sizeof(float)>>>(x.data_ptr<float>());
    return x;
}""",
    ),
    Fault(
        "device_variable",
        r"writes rows\[4\]\[0\], but rows ends",
        """__global__ void NAME_kernel(int n) {
    float* flat = &rows[0][0];
    if (threadIdx.x < n) flat[threadIdx.x] = 1; //!
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(@32 ~ 33@);
    return x;
}""",
    ),
    Fault(
        "local_array_in_a_short_loop",
        r"index 4 is outside an array of type float \[4\]",
        """__global__ void NAME_kernel(float* x) {
    float sums[4] = {};
    for (int k = 0; k @ < ~ <= @ 4; k++)
        sums[k] += x[threadIdx.x]; //!
    x[threadIdx.x] = sums[0] + sums[3];
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>());
    return x;
}""",
    ),
    Fault(
        "shared_array_in_a_short_loop",
        r"writes sums\[4\], but sums ends at sums\[3\]",
        """__global__ void NAME_kernel(float* x) {
    __shared__ float sums[4];
    float* sum = sums;
    for (int k = 0; k @ < ~ <= @ 4; k++)
        sum[k] = x[k]; //!
    x[0] = sums[3];
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 1>>>(x.data_ptr<float>());
    return x;
}""",
    ),
    Fault(
        "local_array",
        r"index 4 is outside an array of type float \[4\]",
        """__global__ void NAME_kernel(float* x, int n) {
    float sums[4] = {};
    for (int k = 0; k @ < ~ <= @ n; k++)
        sums[k] += x[threadIdx.x]; //!
    x[threadIdx.x] = sums[0] + sums[n - 1];
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>(), 4);
    return x;
}""",
    ),
    Fault(
        "from_new",
        r"writes array\[8\], but array ends",
        """__global__ void NAME_kernel(float* x, int n) {
    float* mine = new float[n];
    for (int k = 0; k @ < ~ <= @ n; k++)
        mine[k] = k; //!
    x[threadIdx.x] = mine[n - 1];
    delete[] mine;
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>(), 8);
    return x;
}""",
    ),
    Fault(
        "far",
        r"writes x\[30000000\], but x ends",
        """__global__ void NAME_kernel(float* x, int step) {
    x[threadIdx.x * step] = 1; //!
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 4>>>(x.data_ptr<float>(), @3 ~ 30000000@);
    return x;
}""",
    ),
]


def _cast(name, said, statement, element="float"):
    """Return a misaligned access by one thread: x, out, and `by` elements that are 0 or 1."""
    return Fault(
        name,
        said + ", but at an address that is no multiple of",
        f"""__global__ void NAME_kernel({element}* x, {element}* out, int by) {{
    {statement} //!
}}
torch::Tensor NAME(torch::Tensor values) {{
    auto x = values.to(SCALAR_{element}), out = torch::zeros_like(x);
    NAME_kernel<<<1, 1>>>(POINTER_{element}(x), POINTER_{element}(out), @0 ~ 1@);
    return out;
}}""",
    )


_DOUBLES = "struct STRUCT { double a, b; };"
_INTEGERS = "struct STRUCT { long long a, b; };"
_ALIGNED = "struct __align__(16) STRUCT { float a, b, c, d; };"
_NESTED = "struct STRUCT_in { double a; }; struct STRUCT { STRUCT_in a, b; };"
_VECTOR = "struct STRUCT { float4 a; };"

MISALIGNED = [
    _cast(
        "float4_load",
        r"reads 16 bytes at once from x\[1\] on",
        "*(float4*)out = *(float4*)(x + by);",
    ),
    _cast(
        "float4_store",
        r"writes 16 bytes at once from out\[1\] on",
        "*(float4*)(out + by) = *(float4*)x;",
    ),
    _cast(
        "float2_load",
        r"reads 8 bytes at once from x\[1\] on",
        "*(float2*)out = *(float2*)(x + by);",
    ),
    _cast(
        "double_load",
        r"reads 8 bytes at once from x\[1\] on",
        "out[0] = float(*(double*)(x + by));",
    ),
    _cast("long_store", r"writes 8 bytes at once from out\[1\] on", "*(long long*)(out + by) = 7;"),
    _cast(
        "int_of_bytes",
        r"reads 4 bytes at once from x\[1\] on",
        "*(int*)out = *(const int*)(x + by);",
        "uint8_t",
    ),
    _cast(
        "half2_load",
        r"reads 4 bytes at once from x\[1\] on",
        "out[0] = ((__half2*)(x + by))->x; __half2 two = *(__half2*)(x + by); out[1] = two.y;",
        "__half",
    ),
    Fault(  # the twin copies a structure of two doubles, which lies at a multiple of 8
        "double2_load",
        r"reads 16 bytes at once from from\[0\] on, but at an address",
        """struct NAME_Pair { double first, second; };
using NAME_T = @NAME_Pair ~ double2@;
__global__ void NAME_kernel(const NAME_T* from, NAME_T* to) {
    to[0] = from[0]; //!
}
torch::Tensor NAME(torch::Tensor values) {
    auto x = torch::ones({9}, values.options().dtype(torch::kDouble)), out = torch::zeros_like(x);
    NAME_kernel<<<1, 1>>>((NAME_T*)(x.data_ptr<double>() + 1), (NAME_T*)out.data_ptr<double>());
    return out;
}""",
    ),
    *(
        Fault(
            name,
            rf"\w+ {bytes_} bytes at once from bytes\[{at}\] on, but at an address",
            f"""{structure.replace("STRUCT", "NAME_S")}
__global__ void NAME_kernel({pointer} bytes, int from) {{
    auto* all = reinterpret_cast<NAME_S*>(reinterpret_cast<char*>(bytes) + from);
    all[1] = all[0]; //!
}}
torch::Tensor NAME(torch::Tensor values) {{
    auto x = torch::ones({{96}}, values.options().dtype(torch::kUInt8));
    NAME_kernel<<<1, 1>>>(({pointer})x.data_ptr(), @{right} ~ {wrong}@);
    return x;
}}""",
        )
        for name, pointer, structure, bytes_, right, wrong, at in [
            ("doubles_in_chars", "char*", _DOUBLES, 8, 8, 12, 12),
            ("doubles_in_nothing", "void*", _DOUBLES, 8, 24, 9, 9),
            ("integers_in_bytes", "unsigned char*", _INTEGERS, 8, 8, 4, 4),
            ("floats_in_chars", "char*", "struct STRUCT { float a, b, c, d; };", 4, 4, 1, 1),
            ("aligned_floats_in_chars", "char*", _ALIGNED, 16, 16, 8, 8),
            ("nested_in_nothing", "void*", _NESTED, 8, 8, 4, 4),
            ("nested_vector_in_bytes", "uint8_t*", _VECTOR, 16, 16, 8, 8),
        ]
    ),
    Fault(  # the twin's structures begin behind a double
        "shared_doubles",
        r"reads 8 bytes at once from s\[20\] on, but at an address",
        """struct NAME_Pair { double first, second; };
__global__ void NAME_kernel(double* x) {
    __shared__ __align__(16) char s[64];
    for (int i = 0; i < 64; i++) s[i] = i;
    NAME_Pair* to = (NAME_Pair*)x;
    to[0] = *(NAME_Pair*)(s + @24 ~ 20@); //!
}
torch::Tensor NAME(torch::Tensor values) {
    auto x = torch::ones({9}, values.options().dtype(torch::kDouble));
    NAME_kernel<<<1, 1>>>(x.data_ptr<double>() + 1);
    return x;
}""",
    ),
    Fault(
        "shared_float4",
        r"reads 16 bytes at once from s\[1\] on, but at an address",
        """__global__ void NAME_kernel(float* x, int by) {
    __shared__ __align__(16) float s[64];
    for (int i = 0; i < 64; i++) s[i] = i;
    *(float4*)x = *(float4*)(s + by); //!
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 1>>>(x.data_ptr<float>(), @4 ~ 1@);
    return x;
}""",
    ),
]


def _given(name, said, good, bad, more=""):
    """Return a kernel that reads an array of 64 floats; good and bad make `float* array`."""
    return Fault(
        name,
        said,
        f"""__global__ void NAME_kernel(const float* array, float* out) {{
    out[threadIdx.x] = array[threadIdx.x]; //!
}}
torch::Tensor NAME(torch::Tensor x) {{
    auto out = torch::zeros({{64}}, x.options()), zeros = torch::zeros({{64}}, x.options());
    {more}
    @{good} ~ {bad}@
    NAME_kernel<<<1, 64>>>(array, out.data_ptr<float>());
    return out;
}}""",
    )


_TENSOR = "float* array = zeros.data_ptr<float>();"
_NOWHERE = r"reads array\[0\], but array points to no memory of the device"
_FREED = r"reads array\[0\], but array points to memory that has been freed"
NOWHERE = [
    _given("host_array", _NOWHERE, _TENSOR, "float array[64] = {};"),
    _given("host_new", _NOWHERE, _TENSOR, "float* array = new float[64]();"),
    _given(
        "host_vector", _NOWHERE, _TENSOR, "float* array = v.data();", "std::vector<float> v(64);"
    ),
    _given(
        "host_malloc",
        _NOWHERE,
        "cudaHostRegister(host, 256, 0); float* array = host;",
        "float* array = host;",
        "static float* host = (float*)calloc(64, 4);",
    ),
    _given(
        "freed",
        _FREED,
        "float* array = data;",
        "cudaFree(data); float* array = data;",
        "float* data; cudaMalloc(&data, 256); cudaMemset(data, 0, 256);",
    ),
    _given("temporary", _FREED, _TENSOR, "float* array = torch::zeros({64}).data_ptr<float>();"),
    Fault(
        "host_scalar",
        r"reads n\[0\], but n points to no memory of the device",
        """__global__ void NAME_kernel(float* x, const int* n) {
    if (threadIdx.x < *n) x[threadIdx.x] = 1; //!
}
torch::Tensor NAME(torch::Tensor x) {
    int count = 10, *n;
    cudaMallocManaged(&n, sizeof(int));
    *n = count;
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>(), @n ~ &count@);
    cudaFree(n);
    return x;
}""",
    ),
    Fault(
        "host_pointer_in_struct",
        r"reads through a pointer that points to no memory of the device",
        """struct Pair_NAME { const float *a, *b; };
__global__ void NAME_kernel(Pair_NAME pair, float* out) {
    out[threadIdx.x] = pair.b[threadIdx.x]; //!
}
torch::Tensor NAME(torch::Tensor x) {
    auto out = torch::zeros_like(x);
    std::vector<float> host(64);
    Pair_NAME pair = {x.data_ptr<float>(), @x.data_ptr<float>() ~ host.data()@};
    NAME_kernel<<<1, 64>>>(pair, out.data_ptr<float>());
    return out;
}""",
    ),
    Fault(
        "local_of_another",
        "reads a local variable of another thread",
        """__global__ void NAME_kernel(float* x) {
    __shared__ float* shared;
    __shared__ float value;
    float mine = x[threadIdx.x];
    if (threadIdx.x == 0) {
        value = mine;
        shared = @&value ~ &mine@;
    }
    __syncthreads();
    x[threadIdx.x] = *shared + 1; //!
    __syncthreads();
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>());
    return x;
}""",
    ),
    Fault(
        "deleted",
        "freed",
        """__global__ void NAME_kernel(float* x) {
    float* mine = new float[4]();
    @ ~ delete[] mine;@
    x[threadIdx.x] = mine[2]; //!
    @delete[] mine; ~ @
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>());
    return x;
}""",
    ),
    Fault(
        "deleted_twice",
        r"delete of memory that has been freed already",
        """__global__ void NAME_kernel(float* x) {
    float *one = new float(1), *other = new float(2);
    x[threadIdx.x] = *one + *other;
    delete one;
    delete @other ~ one@; //!
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>());
    return x;
}""",
    ),
    Fault(
        "freed_in_kernel",
        r"free of memory that no kernel has allocated",
        """__global__ void NAME_kernel(float* x) {
    float* mine = (float*)malloc(16);
    mine[0] = 3;
    x[threadIdx.x] = mine[0];
    free(@mine ~ x@); //!
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>());
    return x;
}""",
    ),
]


def _new(name, body, good, bad, element="float", said="to which nothing has been written"):
    """Return a kernel that uses `array`, new memory of 64 elements; good and bad make it."""
    return Fault(
        name,
        rf"reads array\[\d+\], {said}",
        f"""__global__ void NAME_kernel({element}* array, float* out) {{
    int i = threadIdx.x;
    {body} //!
}}
torch::Tensor NAME(torch::Tensor x) {{
    auto out = torch::zeros({{64}}, x.options());
    @{good} ~ {bad}@
    NAME_kernel<<<1, 64>>>(POINTER_{element}(array), out.data_ptr<float>());
    return out;
}}""",
    )


def _tensors(element):
    return tuple(
        f"auto array = torch::{kind}({{64}}, SCALAR_{element});" for kind in ("zeros", "empty")
    )


UNWRITTEN = [
    _new("accumulates", "array[i] += i;", *_tensors("float")),
    _new("accumulates_double", "array[i] += i;", *_tensors("double"), "double"),
    _new("accumulates_atomically", "atomicAdd(&array[i / 2], 1.0f);", *_tensors("float")),
    _new("counts", "array[i]++;", *_tensors("int"), "int"),
    _new("flags", "if (array[i]) out[i] = 1;", *_tensors("uint8_t"), "uint8_t"),
    _new("halves", "out[i] = __half2float(array[i]);", *_tensors("__half"), "__half"),
    _new("vectors", "if (i < 16) ((float4*)out)[i] = ((float4*)array)[i];", *_tensors("float")),
    Fault(
        "cuda_malloc_not_set",
        r"reads data\[0\], to which nothing has been written",
        """__global__ void NAME_kernel(const float* data, float* out) {
    out[threadIdx.x] = data[threadIdx.x]; //!
}
torch::Tensor NAME(torch::Tensor x) {
    float* data;
    cudaMalloc(&data, 256);
    @cudaMemset(data, 0, 256); ~ @
    NAME_kernel<<<1, 64>>>(data, x.data_ptr<float>());
    cudaFree(data);
    return x;
}""",
    ),
    Fault(
        "written_in_part",
        r"reads tmp\[99\], to which nothing has been written",
        """__global__ void NAME_first(float* tmp, int n) {
    if (threadIdx.x < n) tmp[threadIdx.x] = threadIdx.x;
}
__global__ void NAME_kernel(const float* tmp, float* out) {
    out[threadIdx.x] = tmp[99 - threadIdx.x]; //!
}
torch::Tensor NAME(torch::Tensor x) {
    auto tmp = torch::empty({100}, x.options()), out = torch::empty({100}, x.options());
    NAME_first<<<1, 128>>>(tmp.data_ptr<float>(), @100 ~ 99@);
    NAME_kernel<<<1, 100>>>(tmp.data_ptr<float>(), out.data_ptr<float>());
    return out;
}""",
    ),
    Fault(
        "new_not_set",
        r"reads array\[0\], to which nothing has been written",
        """__global__ void NAME_kernel(float* x) {
    int* counts = new int[4]@() ~ @;
    counts[threadIdx.x % 4]++; //!
    x[threadIdx.x] = counts[0];
    delete[] counts;
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>());
    return x;
}""",
    ),
    Fault(
        "shared_not_set",
        r"reads s\[0\] before any thread of the block has written it",
        """__global__ void NAME_kernel(float* x) {
    __shared__ float s[64];
    @s[threadIdx.x] = 0; ~ @
    s[threadIdx.x] += x[threadIdx.x]; //!
    __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x];
}
torch::Tensor NAME(torch::Tensor x) {
    NAME_kernel<<<1, 64>>>(x.data_ptr<float>());
    return x;
}""",
    ),
]


def _host(name, said, good, bad, before=""):
    """Return a fault in a call of the host; `d` is an array of 64 floats of the device."""
    return Fault(
        name,
        said,
        f"""torch::Tensor NAME(torch::Tensor x) {{
    float* d;
    cudaMalloc(&d, 256); cudaMemset(d, 0, 256);
    {before}
    @{good} ~ {bad}@ //!
    return x;
}}""",
        where="",
    )


_PAST = (
    r"{call} in line {line} (writes|reads) 1020 bytes of an array from cudaMalloc of 256 bytes: 764"
)
HOST = [
    _host(
        "copy_to_device",
        _PAST.replace("{call}", "cudaMemcpy"),
        "cudaMemcpy(d, x.data_ptr<float>(), 256, cudaMemcpyHostToDevice);",
        "cudaMemcpy(d, x.data_ptr<float>(), x.numel() * 4, cudaMemcpyHostToDevice);",
    ),
    _host(
        "copy_from_device",
        _PAST.replace("{call}", "cudaMemcpyAsync"),
        "cudaMemcpyAsync(x.data_ptr<float>(), d, 256, cudaMemcpyDeviceToHost);",
        "cudaMemcpyAsync(x.data_ptr<float>(), d, x.numel() * 4, cudaMemcpyDeviceToHost);",
    ),
    _host(
        "copy_to_middle",
        r"cudaMemcpy in line {line} writes 256 bytes from byte 4 of an array from cudaMalloc of",
        "cudaMemcpy(d, x.data_ptr<float>(), 256, cudaMemcpyHostToDevice);",
        "cudaMemcpy(d + 1, x.data_ptr<float>(), 256, cudaMemcpyHostToDevice);",
    ),
    _host(
        "copy_to_host_array",
        r"cudaMemcpy in line {line} writes 256 bytes of an array of the host that ends after 128",
        "cudaMemcpy(h, d, sizeof(h), cudaMemcpyDeviceToHost);",
        "cudaMemcpy(h, d, 64 * sizeof(float), cudaMemcpyDeviceToHost);",
        "float h[32];",
    ),
    _host(
        "set",
        _PAST.replace("{call}", "cudaMemset"),
        "cudaMemset(d, 0, 256);",
        "cudaMemset(d, 0, x.numel() * 4);",
    ),
    _host(
        "set_async",
        "cudaMemsetAsync in line {line} writes 260 bytes",
        "cudaMemsetAsync(d, 0, 256);",
        "cudaMemsetAsync(d, 0, 260);",
    ),
    _host(
        "copy_2d",
        "cudaMemcpy2D in line {line} writes 288 bytes",
        "cudaMemcpy2D(d, 32, x.data_ptr<float>(), 40, 32, 8, cudaMemcpyHostToDevice);",
        "cudaMemcpy2D(d, 32, x.data_ptr<float>(), 40, 32, 9, cudaMemcpyHostToDevice);",
    ),
    _host(
        "copy_of_freed",
        "cudaMemcpy in line {line} reads 256 bytes of an array that has been freed",
        "cudaMemcpy(x.data_ptr<float>(), d, 256, cudaMemcpyDeviceToHost);",
        "cudaFree(d); cudaMemcpy(x.data_ptr<float>(), d, 256, cudaMemcpyDeviceToHost);",
    ),
    _host(
        "direction",
        "cudaMemcpy in line {line} reads 128 bytes, as its direction says, of the device",
        "cudaMemcpy(d, h, 128, cudaMemcpyHostToDevice);",
        "cudaMemcpy(d, h, 128, cudaMemcpyDeviceToDevice);",
        "float h[32] = {};",
    ),
    _host(
        "freed_twice",
        "cudaFree frees an array that has been freed already",
        "cudaFree(d);",
        "cudaFree(d); cudaFree(d);",
    ),
    _host(
        "freed_tensor",
        "cudaFree frees a tensor, which frees its memory itself",
        "cudaFree(d);",
        "cudaFree(d); cudaFree(x.data_ptr<float>());",
    ),
    _host(
        "freed_middle",
        "cudaFree frees a pointer into the middle of an array",
        "cudaFree(d);",
        "cudaFree(d + 4);",
    ),
]

FAULTS = [*RANGE, *MISALIGNED, *NOWHERE, *UNWRITTEN, *HOST]

_PRELUDE = """#include <cuda_fp16.h>
#include <vector>
__device__ float rows[4][8];
#define SCALAR_float torch::kFloat
#define SCALAR_double torch::kDouble
#define SCALAR_int torch::kInt
#define SCALAR_uint8_t torch::kByte
#define SCALAR_int16_t torch::kShort
#define SCALAR_int64_t torch::kLong
#define SCALAR___half torch::kHalf
#define POINTER_float(x) (x).data_ptr<float>()
#define POINTER_double(x) (x).data_ptr<double>()
#define POINTER_int(x) (x).data_ptr<int>()
#define POINTER_uint8_t(x) (x).data_ptr<uint8_t>()
#define POINTER_int16_t(x) (x).data_ptr<int16_t>()
#define POINTER_int64_t(x) (x).data_ptr<int64_t>()
#define POINTER___half(x) reinterpret_cast<__half*>((x).data_ptr<at::Half>())
"""


def source(faults=FAULTS) -> tuple[str, dict[str, int]]:
    """Return one CUDA string with all of them, NAME_bad and NAME_good, and the lines of errors."""
    text, lines = _PRELUDE, {}
    for fault in faults:
        for kind in ("good", "bad"):
            name = f"{fault.name}_{kind}"
            lines[name] = text.count("\n") + fault.line
            text += fault.source(kind == "bad").replace("NAME", name) + "\n"
    return text, lines
