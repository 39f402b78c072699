"""Inline PTX on the CPU backend: each instruction of the table against numpy, and under nvcc."""

import re
import shutil
import subprocess

import numpy as np
import pytest
import torch

from helpers.compiler import CompileError, compile_cuda
from helpers.cuda_on_cpu import TranslateError, translate
from helpers.tests.cuda_driver import compile_string

_WORDS = []  # (C++ of one instruction's result from a, b, c; Python's result), 32 bits each


def _case(instruction, operands, result):
    _WORDS.append((instruction, operands, result))


def _signed(x):
    return (x & 0xFFFFFFFF) - ((x & 0x80000000) << 1)


def _float(x):
    return np.uint32(x).view(np.float32)


def _bits(x):
    return int(np.float32(x).view(np.uint32))


_case("add.u32", "ab", lambda a, b: a + b)
_case("sub.s32", "ab", lambda a, b: a - b)
_case("mul.lo.s32", "ab", lambda a, b: a * b)
_case("mul.hi.u32", "ab", lambda a, b: a * b >> 32)
_case("mul.hi.s32", "ab", lambda a, b: _signed(a) * _signed(b) >> 32)
_case("mad.lo.u32", "abc", lambda a, b, c: a * b + c)
_case("min.s32", "ab", lambda a, b: min(_signed(a), _signed(b)))
_case("max.u32", "ab", max)
_case("and.b32", "ab", lambda a, b: a & b)
_case("xor.b32", "ab", lambda a, b: a ^ b)
_case("not.b32", "a", lambda a: ~a)
_case("shl.b32", "a7", lambda a: a << 7)
_case("shr.s32", "a40", lambda a: -1 if a >> 31 else 0)
_case("shf.l.wrap.b32", "ab5", lambda a, b: ((b << 32 | a) << 5) >> 32)
_case("shf.r.clamp.b32", "ab33", lambda a, b: b)
_case("popc.b32", "a", lambda a: bin(a).count("1"))
_case("clz.b32", "a", lambda a: 32 - a.bit_length())
_case("brev.b32", "a", lambda a: int(f"{a:032b}"[::-1], 2))
_case("bfind.u32", "a", lambda a: a.bit_length() - 1)
_case("bfe.u32", "a5 9", lambda a: a >> 5 & 0x1FF)
_case("bfe.s32", "a28 4", lambda a: _signed(a) >> 28)
_case("bfi.b32", "ab4 8", lambda a, b: (b & ~0xFF0) | (a & 0xFF) << 4)
_case(
    "prmt.b32",
    "ab0x7531",
    lambda a, b: int.from_bytes((b << 32 | a).to_bytes(8, "little")[1::2], "little"),
)
_case("lop3.b32", "abc0x96", lambda a, b, c: a ^ b ^ c)
_case("lop3.b32", "abc0xE8", lambda a, b, c: a & b | a & c | b & c)
_case("cvt.rna.tf32.f32", "f", lambda f: _bits(f) + 0x1000 & 0xFFFFE000)
_case("cvt.rzi.s32.f32", "f", lambda f: int(f))
_case("cvt.rni.s32.f32", "f", lambda f: round(float(f)))
_case("fma.rn.f32", "ff0f3F800000", lambda f: _bits(np.float64(f) * np.float64(f) + 1))
_case("cvt.rn.f16x2.f32", "f1.0", lambda f: int(np.float16(f).view(np.uint16)) << 16 | 0x3C00)
_case("ex2.approx.ftz.f32", "2.0", lambda: _bits(4))


def _operands(text):
    return re.findall(r"0[xf][0-9A-F]+|\d+\.\d+|\d+|[abcf]", text)


def _word_kernel():
    lines = []
    for i, (instruction, operands, _) in enumerate(_WORDS):
        given = _operands(operands)
        used = sorted({o for o in given if o in "abcf"})
        names = ["%0"] + [f"%{used.index(o) + 1}" if o in used else o for o in given]
        inputs = ", ".join(f'"{"f" if o == "f" else "r"}"({o})' for o in used)
        floating = instruction.startswith(("fma", "ex2"))
        target = '"=f"(x)' if floating else '"=r"(d)'
        after = "d = __float_as_uint(x);" if floating else ""
        lines.append(
            f'asm("{instruction} {", ".join(names)};" : {target} : {inputs}); {after}'
            f" out[i * {len(_WORDS)} + {i}] = d;"
        )
    return (
        "__global__ void words(const unsigned* as, const unsigned* bs, const unsigned* cs,"
        " const float* fs, unsigned* out) {\n"
        "int i = threadIdx.x; unsigned a = as[i], b = bs[i], c = cs[i], d; float f = fs[i], x;\n"
        + "\n".join(lines)
        + "\n}\n"
    )


# --- special numbers: PTX's words on NaN, infinities, zeros and subnormal numbers

_ONE_NAN = 0x7FFFFFFF
_SPECIAL = [0.0, -0.0, 1.0, -1.5, 0.5, 2.5, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -1e-40]
_SPECIAL += [1.1754944e-38, 3.4e38, -3.4e38, 2147483648.0, 2.2e9, -3e9, 4.3e9, 127.5, 300.0, -129.0]
_EDGES = [0, 1, -1, 31, 32, 33, 64, 2**31 - 1, -(2**31), 12345]


def _flushed(x):
    return np.copysign(np.float32(0), x) if abs(x) < np.float32(2**-126) else x


def _one_nan(x):
    return _ONE_NAN if x != x else _bits(x)


def _below(x, y):
    return x < y or (x == y and np.signbit(x) and not np.signbit(y))


def _lesser(x, y):
    return y if x != x or _below(y, x) else x


def _greater(x, y):
    return y if x != x or _below(x, y) else x


def _from_0_to_1(x):
    return _bits(0 if not x > 0 else min(x, 1))


def _to_integer(how, low, high):
    def result(x, _):
        if not np.isfinite(x):
            return 0 if x != x else low if x < 0 else high
        return int(min(max(how(float(x)), low), high))

    return result


_INT, _UINT = (-(2**31), 2**31 - 1), (0, 2**32 - 1)
_OF_FLOATS = {  # what the instruction makes of two floats, or of the first
    "add.f32": lambda x, y: _one_nan(x + y),
    "add.ftz.f32": lambda x, y: _one_nan(_flushed(_flushed(x) + _flushed(y))),
    "sub.sat.f32": lambda x, y: _from_0_to_1(x - y),
    "mul.rn.f32": lambda x, y: _one_nan(x * y),
    "mul.ftz.sat.f32": lambda x, y: _from_0_to_1(_flushed(x) * _flushed(y)),
    "div.rn.f32": lambda x, y: _one_nan(x / y),
    "min.f32": lambda x, y: _one_nan(_lesser(x, y)),
    "max.f32": lambda x, y: _one_nan(_greater(x, y)),
    "max.ftz.f32": lambda x, y: _one_nan(_greater(_flushed(x), _flushed(y))),
    "min.NaN.f32": lambda x, y: _ONE_NAN if x != x or y != y else _bits(_lesser(x, y)),
    "max.NaN.f32": lambda x, y: _ONE_NAN if x != x or y != y else _bits(_greater(x, y)),
    "cvt.rzi.s32.f32": _to_integer(np.trunc, *_INT),
    "cvt.rni.s32.f32": _to_integer(np.rint, *_INT),
    "cvt.rmi.u32.f32": _to_integer(np.floor, *_UINT),
    "cvt.rpi.u32.f32": _to_integer(np.ceil, *_UINT),
    "cvt.rni.sat.s8.f32": _to_integer(np.rint, -128, 127),
    "cvt.rzi.u16.f32": _to_integer(np.trunc, 0, 65535),
}
_OF_INTEGERS = {
    "add.s32": lambda x, y: x + y,
    "add.sat.s32": lambda x, y: min(max(x + y, _INT[0]), _INT[1]),
    "sub.sat.s32": lambda x, y: min(max(x - y, _INT[0]), _INT[1]),
    "shl.b32": lambda x, y: x << y if 0 <= y < 32 else 0,
    "shr.s32": lambda x, y: x >> y if 0 <= y < 32 else -(x < 0),
    "shr.u32": lambda x, y: (x & 0xFFFFFFFF) >> y if 0 <= y < 32 else 0,
}
_SPECIAL_TABLES = {
    "floats": (_OF_FLOATS, _SPECIAL, "float", "f"),
    "integers": (_OF_INTEGERS, _EDGES, "int", "r"),
}


def _special_kernel(kind):
    table, _, cpp, register = _SPECIAL_TABLES[kind]
    lines = []
    for i, name in enumerate(table):
        is_cvt = name.startswith("cvt")
        out, text = ("f", "r") if register == "f" and not is_cvt else ("r", "d")
        code = f"{name} %0, %1;" if is_cvt else f"{name} %0, %1, %2;"
        if narrow := re.search(r"\.([su])(8|16)\.f32", name):  # in a register of 16 bits
            wide = f"cvt.{narrow[1]}32.{narrow[1]}{narrow[2]} %0, q;"
            code = f"{{ .reg .{narrow[1]}16 q; {name} q, %1; {wide} }}"
        given = f'"{register}"(x)' + ("" if is_cvt else f', "{register}"(y)')
        result = "__float_as_uint(r)" if text == "r" else "d"
        lines.append(
            f'{{ unsigned d = 0; float r = 0; asm("{code}" : "={out}"({text}) : {given});'
            f" o[{i} * blockDim.x + t] = {result}; }}"
        )
    return (
        f"__global__ void special_{kind}(const {cpp}* xs, const {cpp}* ys, unsigned* o) {{\n"
        f"int t = threadIdx.x; {cpp} x = xs[t], y = ys[t];\n" + "\n".join(lines) + "\n}\n"
    )


CUDA = r"""
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
WORDS

// All warps' lanes: shuffles, votes, predicates, branches, special registers.
__global__ void lanes(unsigned* out) {
    unsigned lane, warp, below, r;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("mov.u32 %0, %%warpid;\n\tmov.u32 %1, %%lanemask_lt;" : "=r"(warp), "=r"(below));
    asm volatile("{ .reg .pred p;\n"
                 "  setp.ge.u32 p, %1, 8;\n"
                 "  vote.sync.ballot.b32 %0, p, 0xffffffff;\n"
                 "  @!p add.u32 %0, %0, 1; }"
                 : "=r"(r) : "r"(lane));
    unsigned shuffled, inside;
    asm volatile("{ .reg .pred p; shfl.sync.down.b32 %0|p, %2, 3, 31, -1; selp.u32 %1, 1, 0, p; }"
                 : "=r"(shuffled), "=r"(inside) : "r"(lane * 10));
    unsigned steps = lane, time;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(time));
    asm volatile("{\n .reg .pred more;\n"
                 "AGAIN:\n add.u32 %0, %0, 7;\n setp.lt.u32 more, %0, 40;\n"
                 " @more bra AGAIN;\n bra DONE;\nDONE:\n}"
                 : "+r"(steps));
    unsigned* mine = out + (threadIdx.x * 8);
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" :: "l"(mine), "r"(lane), "r"(warp) : "memory");
    asm volatile("st.global.cs.u32 [%0+8], %1;" :: "l"(mine), "r"(below) : "memory");
    mine[3] = r;
    mine[4] = shuffled + inside;
    mine[5] = steps;
    asm volatile("red.global.add.u32 [%0], 1;" :: "l"(out + 6) : "memory");
}
__global__ void loads(const float4* a, float4* out, unsigned long long* wide, int* shared_out) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(a + threadIdx.x));
    out[threadIdx.x] = v;
    unsigned low, high;
    asm("{ .reg .b64 t; mul.wide.u32 t, %2, 3; mov.b64 {%0, %1}, t; }"
        : "=r"(low), "=r"(high) : "r"(0xfffffff0u + threadIdx.x));
    asm("mov.b64 %0, {%1, %2};" : "=l"(wide[threadIdx.x]) : "r"(low), "r"(high));
    __shared__ int cell[33];
    extern __shared__ int dynamic[];
    unsigned at;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(at) : "l"(cell));
    asm volatile("st.shared.u32 [%0], %1;"
                 :: "r"(at + 4 * threadIdx.x), "r"(threadIdx.x) : "memory");
    asm volatile("bar.sync 0;" ::: "memory");
    int other;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(other) : "r"(at + 4 * (31 - threadIdx.x)));
    dynamic[threadIdx.x] = other;
    __syncthreads();
    at = (unsigned)__cvta_generic_to_shared(dynamic);
    asm volatile("ld.shared.s32 %0, [%1+4];" : "=r"(other) : "r"(at + (threadIdx.x % 8) * 4));
    int old;
    __syncthreads();
    asm volatile("atom.shared.max.s32 %0, [%1], 100;" : "=r"(old) : "r"(at + 4 * threadIdx.x));
    shared_out[threadIdx.x] = other * 1000 + old;
    __syncthreads();
    if (threadIdx.x == 0) *static_cast<int*>(__cvta_shared_to_generic(at)) += 5;
    if (threadIdx.x == 0) shared_out[0] += dynamic[0] * 1000000;
}
// Producers (the first warp) and consumers meet at two barriers of their own.
__global__ void named_barriers(int* out) {
    __shared__ int box;
    for (int i = 0; i < 5; i++) {
        if (threadIdx.x < 32) {
            if (threadIdx.x == 0) box = i * i;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
            asm volatile("bar.sync %0, %1;" :: "n"(2), "r"(64) : "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            out[i * 32 + threadIdx.x - 32] = box;
            asm volatile("barrier.arrive 2, 64;" ::: "memory");
        }
    }
}
__global__ void mbarriers(int* out) {
    __shared__ uint64_t full;
    __shared__ int box;
    unsigned at = (unsigned)__cvta_generic_to_shared(&full);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at), "r"(32));
    __syncthreads();
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) box = 77;
        asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }"
                     :: "r"(at) : "memory");
    } else {
        asm volatile("{\n .reg .pred done;\n"
                     "WAIT:\n mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                     "@!done bra WAIT;\n}" :: "r"(at), "r"(0) : "memory");
        out[threadIdx.x - 32] = box;
    }
}
// Stages of a pipeline: with the wait left out, the copies are not there yet.
template <bool WAIT>
__global__ void copies(const float4* in, float* out) {
    __shared__ float4 stage[2][32];
    auto copy = [&](int s, int from, unsigned given) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&stage[s][threadIdx.x]);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;\n"
                     :: "r"(to), "l"(in + from + threadIdx.x), "r"(given) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    copy(0, 0, 16);
    copy(1, 32, threadIdx.x % 2 ? 8 : 0);
    if (WAIT) asm volatile("cp.async.wait_group 1;" ::: "memory");
    out[threadIdx.x] = stage[0][threadIdx.x].y;
    if (WAIT) asm volatile("cp.async.wait_all;" ::: "memory");
    out[32 + threadIdx.x] = stage[1][threadIdx.x].y + stage[1][threadIdx.x].z;
}
// Blocks write one after the other: each waits for its turn, and gives it to the next.
__global__ void turns(int* turn, int* log) {
    int now;
    do
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
    while (now != blockIdx.x);
    log[0] = log[0] * 3 + blockIdx.x;
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" :: "l"(turn) : "memory");
}
// Blocks hand on pairs of words: each half has a flag of its own beside its number.
__global__ void relays(ulonglong2* line, int* out) {
    unsigned long long a, b;
    do
        asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                     : "=l"(a), "=l"(b) : "l"(line) : "memory");
    while (a >> 32 != blockIdx.x || b >> 32 != blockIdx.x);
    out[blockIdx.x] = int(a) * 1000 + int(b);
    a += 1 + (1ull << 32), b += 2 + (1ull << 32);
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};"
                 :: "l"(line), "l"(a), "l"(b) : "memory");
}
__global__ void transposes(const half* in, half* out) {
    __shared__ __align__(16) half tile[8][8];
    for (int i = threadIdx.x; i < 64; i += 32) tile[i / 8][i % 8] = in[i];
    __syncwarp();
    uint32_t r, at = (uint32_t)__cvta_generic_to_shared(&tile[threadIdx.x % 8][0]);
    asm volatile("ldmatrix.sync.aligned.x1.trans.m8n8.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(at));
    reinterpret_cast<uint32_t*>(out)[threadIdx.x] = r;
}
"""


def _mma_kernel(name, shape, types, registers):
    """Return a kernel that multiplies with one mma.sync, from registers that tests fill."""
    a, b, c, d = registers
    accumulator = "d" if types[0] == "f64" else "f" if types[0] == "f32" else "r"
    cpp = {"d": "double", "f": "float", "r": "unsigned"}[accumulator]
    inputs = "d" if types[1] == "f64" else "r"
    element = "double" if inputs == "d" else "unsigned"
    number = iter(range(100))

    def operands(count):
        return "{" + ", ".join(f"%{next(number)}" for _ in range(count)) + "}"

    text = f"mma.sync.aligned.{shape}.row.col.{'.'.join(types)} "
    text += ", ".join(operands(count) for count in (d, a, b, c))
    outs = ", ".join(f'"={accumulator}"(d[{i}])' for i in range(d))
    ins = [f'"{inputs}"(a[{i}])' for i in range(a)] + [f'"{inputs}"(b[{i}])' for i in range(b)]
    ins += [f'"{accumulator}"(c[{i}])' for i in range(c)]
    return f"""
__global__ void {name}(const {element}* as, const {element}* bs, const {cpp}* cs, {cpp}* ds) {{
    const {element} *a = as + threadIdx.x * {a}, *b = bs + threadIdx.x * {b};
    const {cpp}* c = cs + threadIdx.x * {c};
    {cpp}* d = ds + threadIdx.x * {d};
    asm volatile("{text};"
        : {outs}
        : {", ".join(ins)});
}}
"""


_SHAPES = {  # name: shape, types of D A B C, registers of A B C D
    "half_16": ("m16n8k16", ("f32", "f16", "f16", "f32"), (4, 2, 4, 4)),
    "half_8": ("m16n8k8", ("f32", "f16", "f16", "f32"), (2, 1, 4, 4)),
    "half_half": ("m16n8k16", ("f16", "f16", "f16", "f16"), (4, 2, 2, 2)),
    "bfloat": ("m16n8k16", ("f32", "bf16", "bf16", "f32"), (4, 2, 4, 4)),
    "bfloat_8": ("m16n8k8", ("f32", "bf16", "bf16", "f32"), (2, 1, 4, 4)),
    "tf32_8": ("m16n8k8", ("f32", "tf32", "tf32", "f32"), (4, 2, 4, 4)),
    "tf32_4": ("m16n8k4", ("f32", "tf32", "tf32", "f32"), (2, 1, 4, 4)),
    "byte_32": ("m16n8k32", ("s32", "s8", "s8", "s32"), (4, 2, 4, 4)),
    "byte_16": ("m8n8k16", ("s32", "u8", "s8", "s32"), (1, 1, 2, 2)),
    "float_64": ("m8n8k4", ("f64", "f64", "f64", "f64"), (1, 1, 2, 2)),
}


def _source():
    special = map(_special_kernel, _SPECIAL_TABLES)
    words = CUDA.replace("WORDS", "".join([_word_kernel(), *special]))
    return words + "".join(_mma_kernel(name, *shape) for name, shape in _SHAPES.items())


def _launch(kernel, config, *types):
    arguments = ", ".join(f"a.at<{cpp}>({i})" for i, cpp in enumerate(types))
    name = re.sub(r"\W", "_", kernel)
    return f"EXPORT run_{name}(const Arrays& a) {{ {kernel}<<<{config}>>>({arguments}); }}\n"


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "check"])
def lib(request, tmp_path_factory):
    u32, u64 = "unsigned", "unsigned long long"
    launches = [
        _launch("words", "1, 64", u32, u32, u32, "float", u32),
        _launch("special_floats", f"1, {len(_SPECIAL) ** 2}", "float", "float", u32),
        _launch("special_integers", f"1, {len(_EDGES) ** 2}", "int", "int", u32),
        _launch("lanes", "1, 64", u32),
        _launch("loads", "1, 32, 256", "float4", "float4", u64, "int"),
        _launch("named_barriers", "1, 64", "int"),
        _launch("mbarriers", "1, 64", "int"),
        _launch("copies<true>", "1, 32", "float4", "float"),
        _launch("copies<false>", "1, 32", "float4", "float"),
        _launch("turns", "6, 1", "int", "int"),
        _launch("relays", "5, 1", "ulonglong2", "int"),
        _launch("transposes", "1, 32", "half", "half"),
    ]
    for name, (_, types, _) in _SHAPES.items():
        element = "double" if name == "float_64" else u32
        sums = {"f32": "float", "f64": "double"}.get(types[0], u32)
        launches.append(_launch(name, "1, 32", element, element, sums, sums))
    return compile_string(
        _source() + "".join(launches), tmp_path_factory.mktemp("ptx"), check=request.param
    )


LONG = r"""
// Numbers of 128 bits in four words each: a + b, a - b, the low 128 bits of a * b; by separate
// statements, as programs have them.
__global__ void long_kernel(uint4* out, const uint4* a, const uint4* b) {
    int t = threadIdx.x;
    uint4 x = a[t], y = b[t], s, d, p;
    asm volatile("add.cc.u32 %0, %1, %2;" : "=r"(s.x) : "r"(x.x), "r"(y.x));
    asm volatile("addc.cc.u32 %0, %1, %2;" : "=r"(s.y) : "r"(x.y), "r"(y.y));
    asm volatile("addc.cc.u32 %0, %1, %2;" : "=r"(s.z) : "r"(x.z), "r"(y.z));
    asm volatile("addc.u32 %0, %1, %2;" : "=r"(s.w) : "r"(x.w), "r"(y.w));
    asm volatile("sub.cc.u32 %0, %4, %8; subc.cc.u32 %1, %5, %9;\n\t"
                 "subc.cc.u32 %2, %6, %10; subc.u32 %3, %7, %11;"
                 : "=&r"(d.x), "=&r"(d.y), "=&r"(d.z), "=r"(d.w)
                 : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(y.x), "r"(y.y), "r"(y.z), "r"(y.w));
    asm volatile("mul.lo.u32 %0, %4, %8; mul.hi.u32 %1, %4, %8;\n\t"
                 "mad.lo.cc.u32 %1, %4, %9, %1; madc.hi.u32 %2, %4, %9, 0;\n\t"
                 "mad.lo.cc.u32 %1, %5, %8, %1; madc.hi.cc.u32 %2, %5, %8, %2;\n\t"
                 "madc.hi.u32 %3, %4, %10, 0;\n\t"
                 "mad.lo.cc.u32 %2, %4, %10, %2; madc.lo.u32 %3, %4, %11, %3;\n\t"
                 "mad.lo.cc.u32 %2, %5, %9, %2; madc.hi.u32 %3, %5, %9, %3;\n\t"
                 "mad.lo.cc.u32 %2, %6, %8, %2; madc.hi.u32 %3, %6, %8, %3;\n\t"
                 "mad.lo.u32 %3, %5, %10, %3; mad.lo.u32 %3, %6, %9, %3; mad.lo.u32 %3, %7, %8, %3;"
                 : "=&r"(p.x), "=&r"(p.y), "=&r"(p.z), "=&r"(p.w)
                 : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(y.x), "r"(y.y), "r"(y.z), "r"(y.w));
    out[3 * t] = s, out[3 * t + 1] = d, out[3 * t + 2] = p;
}
// A policy for the L2 cache changes no value, also of a copy, whose size stands before it.
__global__ void policy_kernel(float4* out, const float4* in) {
    __shared__ float4 tile[32];
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    float4 v;
    asm volatile("ld.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(in + threadIdx.x), "l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2; cp.async.wait_all;"
                 :: "r"((unsigned)__cvta_generic_to_shared(&tile[threadIdx.x])),
                    "l"(in + threadIdx.x), "l"(policy) : "memory");
    v.w += tile[threadIdx.x].w;
    asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;"
                 :: "l"(out + threadIdx.x), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "l"(policy)
                 : "memory");
}
struct __builtin_align__(16) Four { float at[3]; };
static_assert(alignof(Four) == 16);
"""
CALL_LONG = """
void run_long(torch::Tensor out, torch::Tensor a, torch::Tensor b) {
    auto at = [](const torch::Tensor& x) { return (uint4*)x.data_ptr<int>(); };
    long_kernel<<<1, a.size(0)>>>(at(out), at(a), at(b));
}
void run_policy(torch::Tensor out, torch::Tensor inp) {
    policy_kernel<<<1, 32>>>((float4*)out.data_ptr<float>(), (float4*)inp.data_ptr<float>());
}
"""


@pytest.mark.parametrize("check", [False, True])
def test_carries_go_on_and_policies_change_nothing(check):
    cu = compile_cuda(LONG + CALL_LONG, check=check)
    a, b = torch.randint(-(2**31), 2**31, (2, 64, 4)).int()
    a[0], a[1, :3], b[1, :3] = -1, -1, torch.tensor([1, 0, 0])  # carries through all words
    out = torch.zeros(64, 3, 4, dtype=torch.int32)
    cu.run_long(out, a, b)

    def number(words):
        return sum((int(word) & 0xFFFFFFFF) << 32 * i for i, word in enumerate(words))

    for x, y, made in zip(a, b, out, strict=True):
        x, y = number(x), number(y)
        assert [number(each) for each in made] == [n % 2**128 for n in (x + y, x - y, x * y)]
    inp, out = torch.randn(32, 4), torch.zeros(32, 4)
    cu.run_policy(out, inp)
    assert torch.equal(out, inp * torch.tensor([1.0, 1.0, 1.0, 2.0]))


def test_nvcc_takes_the_same_text(tmp_path):
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not installed")
    (tmp_path / "ptx.cu").write_text(_source() + LONG)
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-cubin", "-o", "/dev/null", "ptx.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_instructions_of_one_lane(lib):
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(1, 2**32, (3, 64), dtype=np.uint32)
    f = rng.uniform(-1000, 1000, 64).astype(np.float32)
    out = np.zeros((64, len(_WORDS)), np.uint32)
    lib.run("run_words", a, b, c, f, out)
    for i, (instruction, operands, result) in enumerate(_WORDS):
        used = sorted({o for o in _operands(operands) if o in "abcf"})
        for t in range(64):
            values = {"a": int(a[t]), "b": int(b[t]), "c": int(c[t]), "f": f[t]}
            expected = result(*(values[name] for name in used)) & 0xFFFFFFFF
            assert out[t, i] == expected, (instruction, operands, values)


@pytest.mark.parametrize("kind", _SPECIAL_TABLES)
@np.errstate(all="ignore")
def test_special_numbers(lib, kind):
    table, values, *_ = _SPECIAL_TABLES[kind]
    pairs = [(x, y) for x in values for y in values]
    x, y = np.array(pairs, np.float32 if kind == "floats" else np.int32).T.copy()
    out = np.zeros((len(table), len(pairs)), np.uint32)
    lib.run(f"run_special_{kind}", x, y, out)
    for (name, result), row in zip(table.items(), out, strict=True):
        for a, b, got in zip(x, y, row, strict=True):
            given = (a, b) if kind == "floats" else (int(a), int(b))
            want = int(result(*given)) & 0xFFFFFFFF
            assert got == want, (name, a, b, hex(got), hex(want))


def test_lanes(lib):
    out = np.zeros((64, 8), np.uint32)
    lib.run("run_lanes", out)
    lane = np.arange(64) % 32
    inside = lane + 3 < 32
    np.testing.assert_array_equal(out[:, 0], lane)
    np.testing.assert_array_equal(out[:, 1], np.arange(64) // 32)
    np.testing.assert_array_equal(out[:, 2], (1 << lane) - 1)
    np.testing.assert_array_equal(out[:, 3], 0xFFFFFF00 + (lane < 8))
    np.testing.assert_array_equal(out[:, 4], np.where(inside, lane + 3, lane) * 10 + inside)
    np.testing.assert_array_equal(out[:, 5], lane + 7 * np.maximum(1, np.ceil((40 - lane) / 7)))
    assert out[0, 6] == 64


def test_loads_and_stores(lib):
    a = np.random.default_rng(1).standard_normal((32, 4)).astype(np.float32)
    out, wide, shared = np.zeros_like(a), np.zeros(32, np.uint64), np.zeros(32, np.int32)
    lib.run("run_loads", a, out, wide, shared)
    np.testing.assert_array_equal(out, a)
    thread = np.arange(32)
    np.testing.assert_array_equal(
        wide, (0xFFFFFFF0 + thread).astype(np.uint32).astype(np.uint64) * 3
    )
    expected = (30 - thread % 8) * 1000 + 31 - thread
    expected[0] += 105_000_000
    np.testing.assert_array_equal(shared, expected)


@pytest.mark.parametrize("kernel, expected", [
    ("run_named_barriers", np.repeat(np.arange(5) ** 2, 32)), ("run_mbarriers", np.full(32, 77)),
])  # fmt: skip
def test_barriers_of_some_threads(lib, kernel, expected):
    out = np.zeros(expected.size, np.int32)
    lib.run(kernel, out)
    np.testing.assert_array_equal(out, expected)


def test_a_copy_is_there_after_the_wait(lib):
    a = np.random.default_rng(2).standard_normal((64, 4)).astype(np.float32)
    out = np.zeros((2, 32), np.float32)
    lib.run("run_copies_true_", a, out)
    odd = np.arange(32) % 2
    np.testing.assert_array_equal(out[0], a[:32, 1])
    np.testing.assert_array_equal(out[1], np.where(odd, a[32:, 1], 0))
    if lib.check:
        with pytest.raises(RuntimeError, match="to which an asynchronous copy of thread"):
            lib.run("run_copies_false_", a, out)
        return
    lib.run("run_copies_false_", a, out)
    assert np.isnan(out).all()


def test_blocks_take_turns(lib):
    turn, log = np.zeros(1, np.int32), np.zeros(1, np.int32)
    lib.run("run_turns", turn, log)
    assert turn[0] == 6 and log[0] == sum(i * 3 ** (5 - i) for i in range(6))


def test_pairs_of_words_come_with_their_flags(lib):
    line, out = np.zeros(2, np.uint64), np.zeros(5, np.int32)
    lib.run("run_relays", line, out)
    assert (line & 0xFFFFFFFF).tolist() == [5, 10] and (line >> 32).tolist() == [5, 5]
    assert out.tolist() == [i * 1000 + 2 * i for i in range(5)]


def test_ldmatrix_transposes(lib):
    a = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float16)
    out = np.zeros((8, 8), np.float16)
    lib.run("run_transposes", a, out)
    np.testing.assert_array_equal(out, a.T)


# Tiles come by cp.async, and go by ldmatrix to the other warp.
_RING = """
template <int STAGES, bool WAITS, bool MEETS>
__global__ void ring(const uint4* in, unsigned* out) {
    __shared__ uint4 tile[STAGES][64];
    unsigned at = (unsigned)__cvta_generic_to_shared(tile), sum = 0;
    auto copy = [&](int t) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :: "r"(at + (t % STAGES * 64 + threadIdx.x) * 16),
                        "l"(in + t * 64 + threadIdx.x));
    };
    copy(0);
    for (int t = 0; t < 5; t++) {
        if (WAITS) asm volatile("cp.async.wait_all;" ::: "memory");
        if (MEETS) __syncthreads();
        if (t + 1 < 5) copy(t + 1);
        unsigned r[4], row = at + (t % STAGES * 64 + (threadIdx.x + 32) % 64) * 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row));
        for (int i = 0; i < 4; i++) sum += r[i] * (t + 1) * (i + 1);
    }
    out[threadIdx.x] = sum;
}
"""


@pytest.mark.parametrize("kind, said", [
    ("2, true, true", None),
    ("1, true, true", "line 7: writes tile[0][32], read by thread (0,0,0)"),
    ("2, true, false", "line 17: reads tile[0][32] before any thread of the block has written it"),
    ("2, false, true", "line 17: reads tile[0][32], to which an asynchronous copy of"),
])  # fmt: skip
def test_a_ring_of_tiles_needs_a_wait_a_barrier_and_a_second_tile(tmp_path, kind, said):
    launch = f"EXPORT run(const Arrays& a) {{ ring<{kind}><<<1, 64>>>(a.at<uint4>(0), "
    lib = compile_string(_RING + launch + "a.at<unsigned>(1)); }\n", tmp_path, check=True)
    tiles = np.random.default_rng(5).integers(0, 2**32, (5, 2, 4, 8, 4), dtype=np.uint32)
    out = np.zeros((2, 8, 4), np.uint32)
    if said:
        with pytest.raises(RuntimeError, match=re.escape(said)):
            lib.run("run", tiles, out)
        return
    lib.run("run", tiles, out)
    t, i = np.arange(1, 6, dtype=np.uint32), np.arange(1, 5, dtype=np.uint32)
    expected = np.einsum("twirc,t,i->wrc", tiles, t, i)[::-1]  # lane 4 r + c has pair c of row r
    assert np.array_equal(out, expected)


_UNDER_A_COPY = """
#include <cuda_pipeline_primitives.h>
__global__ void use(const float* in, float* out) {
    __shared__ float a[2][64];
    float* mine = &a[0][threadIdx.x];
    __pipeline_memcpy_async(mine, in + threadIdx.x, 4);
    __pipeline_commit();
    __pipeline_memcpy_async(mine + 64, in + 64 + threadIdx.x, 4);
    __pipeline_commit();
    WAIT
    __syncthreads();
    USE
    __syncthreads();
    out[threadIdx.x] = a[0][63 - threadIdx.x];
    __pipeline_wait_prior(0);
}
EXPORT run(const Arrays& a) { use<<<1, 64>>>(a.at<float>(0), a.at<float>(1)); }
"""


@pytest.mark.parametrize("wait, use, said", [
    ("__pipeline_wait_prior(0);", "*mine = 1;", ""),
    ("__pipeline_wait_prior(1);", "*mine = 1;", ""),
    ("__pipeline_wait_prior(1);", "mine[64] = 1;", "line 12: writes a[1][0], to which an async"),
    ("__pipeline_wait_prior(1);", "*mine = mine[64];", "line 12: reads a[1][0], to which an async"),
    ("", "*mine = 1;", "thread (0,0,0), line 12: writes a[0][0], to which an asynchronous copy of "
                       "thread (0,0,0) is still under way"),
    ("", "", "line 14: reads a[0]["),
])  # fmt: skip
def test_nobody_uses_memory_that_a_copy_is_under_way_to(tmp_path, wait, use, said):
    source = _UNDER_A_COPY.replace("WAIT", wait).replace("USE", use)
    lib = compile_string(source, tmp_path, check=True)
    arrays = np.ones(128, np.float32), np.ones(64, np.float32)
    if not said:
        return lib.run("run", *arrays)
    with pytest.raises(RuntimeError, match=re.escape(said)):
        lib.run("run", *arrays)


_NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32, "s8": np.int8,
          "u8": np.uint8, "bf16": np.uint16, "tf32": np.float32}  # fmt: skip


def _fragments(matrix, place, count):
    """Return what each lane holds of a matrix; place(lane, i) is (row, column)."""
    return np.array([[matrix[place(lane, i)] for i in range(count)] for lane in range(32)])


@pytest.mark.parametrize("name", _SHAPES)
def test_mma(lib, name):
    """The places are spelt out as the PTX manual has them, in terms of 8-row groups."""
    shape, types, _ = _SHAPES[name]
    M, N, K = map(int, re.findall(r"\d+", shape))
    rng = np.random.default_rng(4)
    kinds = [_NUMPY[kind] for kind in types]
    draw = [rng.integers(-8, 9, size) for size in ((M, K), (K, N), (M, N))]
    if types[1] == "u8":
        draw[0] = abs(draw[0])
    packed = max(1, 4 // np.dtype(kinds[1]).itemsize)

    def place_a(lane, i):
        register, within = divmod(i, packed)
        low = register % 2 if M == 16 else 0
        right = register // 2 if M == 16 else register
        return lane // 4 + 8 * low, lane % 4 * packed + within + 4 * packed * right

    def place_b(lane, i):
        return lane % 4 * packed + i % packed + 4 * packed * (i // packed), lane // 4

    def place_c(lane, i):
        return lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2

    def stored(values, kind):
        if kind == "bf16":
            return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return values.astype(_NUMPY[kind])

    a = stored(_fragments(draw[0], place_a, M * K // 32), types[1])
    b = stored(_fragments(draw[1], place_b, K * N // 32), types[2])
    c = stored(_fragments(draw[2], place_c, M * N // 32), types[3])
    d = np.zeros_like(c, dtype=kinds[0])
    lib.run(f"run_{name}", a, b, c, d)
    product = draw[0] @ draw[1] + draw[2]
    np.testing.assert_array_equal(d, _fragments(product, place_c, M * N // 32))


def test_what_a_macro_may_leave_out_is_for_the_compiler(tmp_path):
    wgmma = '#ifdef HOPPER\n__global__ void f() { asm("wgmma.fence.sync.aligned;"); }\n#endif\n'
    compile_string(wgmma, tmp_path)
    with pytest.raises(AssertionError, match="inline PTX 'wgmma.fence.sync.aligned' runs on a GPU"):
        compile_string(
            "#define HOPPER\n" + wgmma + "EXPORT run(const Arrays&) { f<<<1, 1>>>(); }", tmp_path
        )


UNUSED = r"""
#define FENCE(x) asm volatile("cp.async.bulk.commit_group;" ::"r"(x))
template <int N> __device__ void wait() { asm volatile("tcgen05.fence::before_thread_sync;"); }
__device__ void plain(int a) { asm volatile("tcgen05.fence::after_thread_sync;"); }
__device__ void outer(int a) { plain(a); }
struct Methods { __device__ void wait() { asm("griddepcontrol.never;"); } };
template <int N> __global__ void twin(float* x) { asm volatile("wgmma.fence.sync.aligned;"); }
__global__ void k(float* x) { x[threadIdx.x] = 2; DEVICE }
torch::Tensor f(torch::Tensor x) { k<<<1, 4>>>(x.data_ptr<float>()); HOST return x; }
"""


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(("device", "host", "line", "opcode"), [
    ("", "", 0, ""),
    ("FENCE(1);", "", 2, "cp.async.bulk.commit_group"),
    ("wait<2>();", "", 3, "tcgen05.fence::before_thread_sync"),
    ("outer(1);", "", 4, "tcgen05.fence::after_thread_sync"),
    ("Methods().wait();", "", 6, "griddepcontrol.never"),
    ("", "twin<1><<<1, 1>>>(x.data_ptr<float>());", 7, "wgmma.fence.sync.aligned"),
])  # fmt: skip
def test_what_is_not_known_is_refused_where_it_is_used(check, device, host, line, opcode):
    src = UNUSED.replace("DEVICE", device).replace("HOST", host)
    if not opcode:
        assert compile_cuda(src, check=check).f(torch.zeros(4)).tolist() == [2, 2, 2, 2]
        return
    with pytest.raises(CompileError) as raised:
        compile_cuda(src, check=check)
    said = f"inline PTX '{opcode}' runs on a GPU only"
    found = re.match(rf"line (\d+): {re.escape(said)}", str(raised.value))
    assert found and int(found[1]) in (line, 8)  # g++ names a macro's line, clang where it is used


@pytest.mark.parametrize("text, sentence", [
    ('asm("wgmma.fence.sync.aligned;");', "line 1: inline PTX 'wgmma.fence.sync"),
    ('asm("st.async.shared::cluster.b32 [%0], %1, [%0];" :: "r"(a), "r"(a));', "'st.async"),
    ("asm(TEXT);", "the text of this asm is not all in quotes (TEXT)"),
    ('asm("add.u32 %0, %1, %1;" : "=r"(a) : "Q"(a));', 'this operand of asm is none'),
    ('asm("add.u32 %0, %3, %1;" : "=r"(a) : "r"(a));', "this asm has no operand %3."),
])  # fmt: skip
def test_what_is_not_known_is_refused_by_name(text, sentence):
    with pytest.raises(TranslateError) as error:
        translate(f"__global__ void k(unsigned a) {{ {text} }}")
    assert sentence in str(error.value)
