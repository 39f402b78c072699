"""Local variables without a value, planted in device functions; and right ones that look like it.

Each function is given x, out, n = 50 and i = 0 ... 63, its thread. In its text `@good ~ bad@` is
what the twin and what the faulty function says there; the line of the error ends in `//`.
"""

import re


def _read(text):
    """Return {head: body} of paragraphs whose bodies are indented."""
    return dict(re.findall(r"^(\S.*)\n((?: .*\n)+)", text, re.MULTILINE))


HEAD = """#include <cuda_fp16.h>
#include <cub/cub.cuh>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
struct Hit { bool valid; float distance; int id; };
struct Padded { char kind; double value; };
struct Total {
    float sum;
    __device__ void add(float by) { sum += by; } //TOTAL
};
__device__ __noinline__ void store_one(float* at) { *at = 1; }
__device__ void store_to(float& to, float value) { to = value; }
__device__ bool load_if(const float* x, int i, int n, float& to) {
    if (i < n) to = x[i];
    return i < n;
}
__device__ __noinline__ float4 four(float a) { return make_float4(a, a + 1, a + 2, a + 3); }
__device__ __noinline__ Padded padded(double a) { Padded p; p.kind = 1; p.value = a; return p; }
__device__ __noinline__ float add_up(const float* v, int n) {
    float sum = 0;
    for (int k = 0; k < n; k++) sum += v[k]; //ADD_UP
    return sum;
}
template <class T> __device__ T pick(const T* x, int i, bool all) {
    T value;
    if (all) value = x[i];
    return value; //PICK
}
#define SET(v, to) v = to
#define DOUBLED(v) ((v) + (v))
"""

# Name, what the error says is read, and the function.
PLANTED = {
    tuple(head.split(": ")): body
    for head, body in _read("""\
constant_branch: v
    float v; if (@true ~ i < n@) v = 1; out[i] = v; //!
int_sum: s
    int s@ = 0 ~ @; for (int k = 0; k < 5; k++) s += k; //!
    out[i] = s;
int_count: s
    int s; if (@true ~ n > 99@) s = 0; s++; //!
    out[i] = s;
float_product: p
    float p@ = 1 ~ @; for (int k = 0; k < 5; k++) p *= x[k]; //!
    out[i] = p;
double_mean: m
    double m@ = 0 ~ @; for (int k = 0; k < n; k++) m += x[k] / n; //!
    out[i] = m;
double_to_float: d
    double d; if (@true ~ i < n@) d = x[i]; out[i] = float(d) * 2; //!
float_to_int: f
    float f; if (i @< 64 ~ < n@) f = 3; int a = f; out[i] = a; //!
half_set: h
    half h; if (@true ~ i < n@) h = __float2half(1.f); out[i] = __half2float(h); //!
half_sum: h
    half h@ = __float2half(0) ~ @; h = __hadd(h, __float2half(x[i])); //!
    out[i] = __half2float(h);
half_pair: p
    half2 p; @p.x = p.y ~ p.x@ = __float2half(x[i]); out[i] = __high2float(p); //!
bool_flag: found
    bool found@ = false ~ @; for (int k = 0; k < n; k++) if (x[k] > 90) found = true;
    out[i] = found; //!
bool_branch: any
    bool any; if (i @< 64 ~ < n@) any = x[i] > 3; if (any) out[i] = 1; //!
byte: b
    unsigned char b; if (i @< 64 ~ < n@) b = 254; out[i] = b; //!
short_: s
    short s; if (i @< 64 ~ < n@) s = -258; out[i] = s; //!
long_: s
    long long s@ = 0 ~ @; s += n; //!
    out[i] = s;
unsigned_mask: m
    unsigned m; if (@true ~ i < n@) m = 7; out[i] = __popc(m); //!
pointer: p
    const float* p; if (@true ~ i < n@) p = x; out[i] = p[i % n]; //!
enum_: c
    enum Color { RED, BLUE }; Color c; if (@true ~ i < n@) c = BLUE; out[i] = c; //!
partly_set: v[3]
    float v[4]; for (int k = 0; k < @4 ~ 3@; k++) v[k] = x[k]; out[i] = v[i % 4]; //!
sums: s[0]
    float s[4]@ = {} ~ @; for (int k = 0; k < n; k++) s[k % 4] += x[k]; //!
    out[i] = s[i % 4];
matrix: a[1][2]
    float a[2][3]; for (int r = 0; r < 2; r++) for (int c = 0; c < @3 ~ 2@; c++) a[r][c] = x[c];
    out[i] = a[1][2]; //!
int_table: t[1]
    int t[8]; for (int k = 0; k < 8; k@++ ~ += 2@) t[k] = k; out[i] = t[i % 8]; //!
by_pointer: v[2]
    float v[3]; v[0] = v[1] = 1; @v[2] = 1; ~ @const float* p = v; out[i] = p[0] + p[2]; //!
half_array: h[1]
    half h[2]; h[0] = __float2half(1.f); @h[1] = h[0]; ~ @out[i] = __half2float(h[1]); //!
bool_array: seen[50]
    bool seen[64]; for (int k = 0; k < n; k++) seen[k] = false; out[i] = seen[i@ % n ~ @]; //!
one_off: v[0]
    float v[4]; for (int k = @0 ~ 1@; k < 4; k++) v[k] = x[k]; float s = 0;
    for (int k = 0; k < 4; k++) s += v[k]; //!
    out[i] = s;
vector_part: v
    float4 v; v.x = v.y = v.z = x[i]; @v.w = 1; ~ @out[i] = v.x + v.w; //!
vector_copied: v
    float4 v; v.x = v.y = v.z = x[i];
    @v.w = 1; ~ @if (i == 0) *reinterpret_cast<float4*>(out) = v; //!
array_as_vector: v
    alignas(16) float v[4]; for (int k = 0; k < @4 ~ 3@; k++) v[k] = 1;
    if (i == 0) *reinterpret_cast<float4*>(out) = *reinterpret_cast<float4*>(v); //!
vector_as_array: v[2]
    alignas(16) float v[4]; if (i < @64 ~ n@) *reinterpret_cast<float4*>(v) = four(x[i]);
    out[i] = v[2]; //!
member: hit
    Hit hit; hit.valid = x[i] > 3; if (@true ~ hit.valid@) hit.distance = 2;
    out[i] = hit.distance; //!
method: total
    Total total; @total.sum = 0; ~ @total.add(x[i]); out[i] = total.sum;
padding: p
    Padded p; if (i < @64 ~ n@) p = padded(x[i]); out[i] = p.value; //!
maximum: m
    float m@ = -1 ~ @; for (int k = 0; k < n; k++) m = fmaxf(m, x[k]); //!
    out[i] = m;
shuffled: v of another lane
    float v; if (i < @64 ~ 9@) v = x[i]; v = __shfl_sync(~0u, v, 20); out[i] = v; //!
shuffled_sum: the variable of another lane
    float v; if (i < @64 ~ 9@) v = x[i]; float s = 0; s += __shfl_xor_sync(~0u, v, 16); //!
    out[i] = s;
shuffled_copy: w of another lane
    int v; if (i < @64 ~ 9@) v = i; int w = __shfl_down_sync(~0u, v, 1);
    out[i] = w + 1; //!
shuffled_tile: v of another lane
    auto tile = cg::tiled_partition<32>(cg::this_thread_block()); int v;
    if (i < @64 ~ 9@) v = i; v = tile.shfl(v, 31);
    out[i] = v; //!
atomic: v
    float v; if (i < @64 ~ n@) v = x[i]; atomicAdd(&out[i], v); //!
atomic_index: bin
    int bin; if (i < @64 ~ n@) bin = i % 4; atomicAdd(&out[bin & 63], 1.f); //!
shared: v
    __shared__ float tile[64]; float v; if (i < @64 ~ n@) v = x[i]; tile[i] = v; //!
    __syncthreads(); out[i] = tile[63 - i];
copied: cur, a copy of next
    float next, cur = 0; for (int k = 0; k < 3; k++) { if (k > @-1 ~ 5@) next = x[k];
    cur = next; }
    out[i] = cur; //!
to_function: v
    float v@ = 0 ~ @; out[i] = load_if(x, i, n, v) + v; //!
through_pointer: v[3]
    float v[4]; v[0] = v[1] = v[2] = 1; @v[3] = 1; ~ @out[i] = add_up(v, 4);
by_reference: v
    float v@ = -1 ~ @; load_if(x, i, n, v); out[i] = v; //!
template_: value
    out[i] = pick(x, i, @true ~ i < n@);
template_int: value
    int all[2] = {3, 4}; out[i] = pick<int>(all, i % 2, @true ~ false@);
lambda_inside: v
    auto f = [&](int k) { float v; if (k < @64 ~ n@) v = x[k]; return v; //!
    }; out[i] = f(i);
lambda_around: v
    float v@ = 0 ~ @; auto add = [&](float by) { v += by; }; //!
    add(x[i]); out[i] = v;
macro_argument: v
    float v; if (i < @64 ~ n@) SET(v, 2); out[i] = DOUBLED(v); //!
ternary: v
    float v; if (i < @64 ~ n@) v = 2; out[i] = i > 3 ? v : 0; //!
short_circuit: v
    int v; if (i < @64 ~ n@) v = 2; out[i] = i > 3 && v > 1; //!
index: k
    int k; if (i < @64 ~ n@) k = i; out[k & 63] = 1; //!
loop_bound: last
    int last; if (i < @64 ~ n@) last = 3; float s = 0;
    for (int k = 0; k < last; k++) s += 1; //!
    out[i] = s;
switch_: v
    float v; switch (i % 3) { case 0: v = 0; break; case 1: v = 1; break; @default: v = 2; ~ @ }
    out[i] = v; //!
no_break: v
    float v; for (int k = 0; k < n; k++) if (x[k] > @3 ~ 99@) { v = k; break; }
    out[i] = v; //!
first_round: before
    float before, s = 0; for (int k = 0; k < n; k++) { @if (k > 0) ~ @s += before; //!
    before = x[k]; } out[i] = s;
continue_: v
    float s = 0, v; for (int k = 0; k < 4; k++) { if (k < @0 ~ 9@) continue; v = x[k]; s += v; }
    out[i] = s + v; //!
else_if: v
    int v; if (i < 20) v = 1; else if (i < 40) v = 2; @else v = 3; ~ @out[i] = v; //!
while_: v
    int v, k = 0; while (k < @4 ~ 0@) v = k++; out[i] = v; //!
zero_rounds: v
    float v; for (int k = n; k < n + @1 ~ 0@; k++) v = k; out[i] = v; //!
inner_shadow: v
    float v@ = 1 ~ @; { float v = 2; out[i] = v; }
    out[i] += v; //!
wrong_twin: b
    float a, b; a = 1; @b ~ a@ = 2; out[i] = a + b; //!
each_round: s
    float t = 0; for (int k = 0; k < 3; k++) { float s@ = 0 ~ @; s += k; //!
    t += s; } out[i] = t;
min_index: best
    int best@ = 0 ~ @; float low = 99; for (int k = 1; k < n; k++) if (x[k] > 99) { low = x[k];
    best = k; }
    out[i] = best + low; //!
one_of_two: hi
    float lo, hi; if (i < n) { lo = 1; hi = 2; } else { lo = 3; @hi = 4; ~ @ }
    out[i] = lo + hi; //!
""").items()
}

RIGHT = _read("""\
by_pointer
    float v; store_one(&v); out[i] = v;
by_reference
    float v; store_to(v, x[i]); out[i] = v;
by_call
    float4 v; v = four(x[i]); out[i] = v.x + v.w; Padded p, q; p = padded(2); q = p;
    out[i] += q.value;
by_call_in_array
    float4 v[3]; for (int k = 0; k < 3; k++) v[k] = four(k); out[i] = v[i % 3].w;
sine
    float s, c; sincosf(x[i], &s, &c); double e, f; sincos(1.0, &e, &f); out[i] = s + c + e + f;
split
    int e; float m = frexpf(x[i], &e), w; m += modff(x[i], &w); int q;
    m += remquof(x[i], 3.f, &q); out[i] = m + e + w + q;
as_vector
    alignas(16) float v[4]; *(float4*)v = four(x[i]); out[i] = v[0] + v[3];
from_vector
    float4 v; for (int k = 0; k < 4; k++) reinterpret_cast<float*>(&v)[k] = k;
    out[i] = v.x + v.w;
copied_bytes
    float v; int a = 3; memcpy(&v, &x[i], sizeof v); int b[2]; memset(b, 0, sizeof b);
    out[i] = v + a + b[1];
bits
    union { float f; unsigned u; } a; a.f = x[i]; unsigned u = a.u; union B { int i[2];
    long long l; }; B b; b.l = 3; out[i] = u + b.i[0];
assembly
    unsigned lane, sum; asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("add.u32 %0, %1, 3;" : "=r"(sum) : "r"(lane)); out[i] = sum;
lambda
    float v; int w[2]; auto set = [&] { v = 1; w[0] = w[1] = 2; }; set(); out[i] = v + w[1];
lambda_copy
    float v[2]; v[0] = v[1] = 3; auto sum = [=] { return v[0] + v[1]; }; out[i] = sum();
do_while
    int v; do { v = n; } while (v < 0); out[i] = v;
correlated
    float v; bool ok = i < n; if (ok) v = x[i]; float s = 1; if (ok) s += v; out[i] = s;
guarded
    float v; if (load_if(x, i, n, v)) out[i] = v; else out[i] = 0;
short_circuit
    int k; bool ok = i < n; if (ok) k = i; out[i] = ok && k > 3 ? k : 0;
ternary
    float v; if (i < n) v = 2; out[i] = i < n ? v : 0;
every_case
    float v; switch (i % 2) { case 0: v = 0; break; default: v = 1; } out[i] = v;
in_case
    switch (i % 3) { case 0: float v; v = 1; out[i] = v; break; case 1: v = 2; out[i] = v;
    break; default: int w; w = 4; out[i] = w; }
fall_through
    int v; switch (i % 3) { case 0: v = 1; case 1: v = 2; break; case 2: v = 3; } out[i] = v;
goto_
    float v; int k = 0; again: v = k; if (++k < 3) goto again; out[i] = v;
loop_carried
    float before, s = 0; for (int k = 0; k < n; k++) { if (k) s += before; before = x[k]; }
    out[i] = s;
invariant
    float v; if (i < n) v = 2; float s = 0;
    for (int k = 0; k < n; k++) if (i < n) s += v * x[k]; out[i] = s;
found_later
    int at; bool found = false; for (int k = 0; k < n; k++) if (x[k] == 7) { at = k;
    found = true; } out[i] = found ? at : -1;
prefetch
    float4 cur = four(0), next; float s = 0; for (int k = 0; k < 1; k++) {
    if (k + 1 < 1) next = four(k); s += cur.x; cur = next; } out[i] = s;
prefetch_array
    float cur[2] = {1, 2}, next[2]; float s = 0; for (int k = 0; k < 1; k++) {
    if (k) next[0] = next[1] = 1; s += cur[1];
    #pragma unroll
    for (int j = 0; j < 2; j++) cur[j] = next[j]; } out[i] = s;
prefetch_members
    float4 a; if (i < n) a = four(i); float4 b; b = a; if (i < n) out[i] = b.y;
leader
    int base; if (i % 32 == 5) base = i; base = __shfl_sync(~0u, base, 5); out[i] = base;
leader_tile
    auto tile = cg::tiled_partition<32>(cg::this_thread_block()); int v;
    if (tile.thread_rank() == 0) v = i; int w = tile.shfl(v, 0); out[i] = w;
leader_half
    half v; if (i % 32 == 0) v = __float2half(2.f); v = __shfl_sync(~0u, v, 0);
    out[i] = __half2float(v);
guarded_shuffle
    float v; if (i < 9) v = x[i]; for (int o = 4; o > 0; o /= 2) {
    float other = __shfl_down_sync(~0u, v, o); if (i + o < 9) v += other; }
    if (i == 0) out[i] = v;
upward_scan
    int v = i; for (int o = 1; o < 32; o *= 2) { int u = __shfl_up_sync(~0u, v, o);
    if (i % 32 >= o) v += u; } out[i] = v;
block_sum
    using Reduce = cub::BlockReduce<int, 64>; __shared__ typename Reduce::TempStorage temp;
    int v; if (i < n) v = i; int s = Reduce(temp).Sum(v, n); if (i == 0) out[0] = s;
block_load
    using Load = cub::BlockLoad<float, 64, 2>; __shared__ typename Load::TempStorage temp;
    float items[2]; Load(temp).Load(x, items, n); float s = items[0] + items[1];
    if (2 * i + 1 < n) out[i] = s;
block_scan
    using Scan = cub::BlockScan<int, 64>; __shared__ typename Scan::TempStorage temp;
    int v = i, before, all; Scan(temp).ExclusiveSum(v, before, all); out[i] = before + all;
half_vector
    half2 h; h.x = __float2half(1.f); h.y = h.x; half2 g; g = __hadd2(h, h);
    out[i] = __low2float(g);
optional
    Hit hit; hit.valid = i < n; if (hit.valid) { hit.distance = 2; hit.id = 3; }
    Hit other = hit; out[i] = other.valid ? other.distance : 0;
own_swap
    float a, b; a = 1; b = 2; float t = a; a = b; b = t; out[i] = a - b;
backwards
    float v[4]; for (int k = 3; k >= 0; k--) v[k] = k < 3 ? v[k + 1] + 1 : 0; out[i] = v[0];
filled_up_to
    float v[8]; int used = i % 8; for (int k = 0; k < used; k++) v[k] = x[k]; float s = 0;
    for (int k = 0; k < used; k++) s += v[k]; out[i] = s;
stack
    int stack[16], top = 0; stack[top++] = i; float s = 0; while (top) { int k = stack[--top];
    s += k; if (k > 1) { stack[top++] = k / 2; stack[top++] = k / 4; } } out[i] = s;
bytes_of_254
    alignas(4) unsigned char b[4]; for (int k = 0; k < 4; k++) b[k] = 254; uchar4 v;
    v.x = v.y = v.z = v.w = 254; short s; s = -258; out[i] = b[3] + v.w + s + *(unsigned*)b;
reused_stack
    float s = 0; for (int k = 0; k < 3; k++) { { float a[4]; if (k) a[1] = 3; } {
    float b[4] = {1, 2}; s += add_up(b, 4); } } out[i] = s;
pair
    float v[2], *p = v, *q; q = p + 1; *p = 1; *q = 2; out[i] = v[0] + v[1];
tuple
    struct Two { float a; int b; }; Two t; t.a = 1; t.b = 2; auto [a, b] = t; out[i] = a + b;
many
    int a = 1, b, c[2] = {1, 2}, *d, e; b = a; d = &e; *d = b; out[i] = a + b + c[1] + e;
for_two
    float s = 0; for (int k, j = 0; j < 3; j++) { k = j; s += k; } out[i] = s;
volatile_
    volatile float v; v = x[i]; out[i] = v;
sizes
    float v[4]; decltype(1.f) w; w = 3; out[i] = sizeof(v) / sizeof(v[0]) + w;
assigned_in_condition
    int k; float s = 0; if ((k = i) < n) s += k; while ((k = k - 1) > 0) s += k; out[i] = s + k;
comma
    int k, j; for (k = 0, j = 4; k < j; k++, j--) out[i] = k + j;
template_
    out[i] = pick(x, i, true) + pick<float>(x, 0, true);
macro
    float v; SET(v, x[i]); out[i] = DOUBLED(v);
match_all
    int all; unsigned m = __match_all_sync(~0u, n, &all); out[i] = m ? all : 0;
compare_and_swap
    unsigned* at = (unsigned*)&out[i]; unsigned old = *at, assumed; do { assumed = old;
    old = atomicCAS(at, assumed, 7u); } while (assumed != old);
nested_struct
    struct { float a[2]; int n; } s; s.n = 0; s.a[s.n++] = x[i]; out[i] = s.a[0];
clocked
    long long start; start = clock64(); out[i] = clock64() >= start;
""")


def source() -> tuple[str, dict[str, int]]:
    """Return one CUDA string whose run(x, out, number) calls a function, and their numbers."""
    bodies = {f"{name}_right": text for name, text in RIGHT.items()}
    for (name, _), text in PLANTED.items():
        for kind, part in (("good", r"\1"), ("bad", r"\2")):
            bodies[f"{name}_{kind}"] = re.sub("@(.*?) ~ (.*?)@", part, text, flags=re.DOTALL)
    numbers = {name: number for number, name in enumerate(bodies)}
    functions = [
        f"__device__ void {name}(const float* x, float* out, int n, int i) {{\n{body}}}"
        for name, body in bodies.items()
    ]
    calls = [f"case {number}: {name}(x, out, n, i); break;" for name, number in numbers.items()]
    return "\n".join([HEAD, *functions, _RUN.format("\n".join(calls))]), numbers


_RUN = """__global__ void run_kernel(const float* x, float* out, int n, int number) {{
    int i = threadIdx.x;
    switch (number) {{
{}
    }}
}}
void run(torch::Tensor x, torch::Tensor out, int64_t number) {{
    run_kernel<<<1, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), 50, number);
}}"""
