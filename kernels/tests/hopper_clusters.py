"""Stand-ins for TMA, wgmma and clusters, so that the CPU backend runs a kernel made of them.

The backend knows none of the three. A kernel file that keeps each of their instructions in a
function of its own runs there with other bodies for these functions: what is around them, where
boxes begin, which stage and phase come next, who waits for whom, what a register holds, is the
file's own, and is checked access by access. A cluster is one block, of the threads of all of its
blocks; a block's memory lies behind that of the block before.
"""

import re
from dataclasses import dataclass

from helpers.cuda_on_cpu.scanner import Source


@dataclass(frozen=True)
class StandIns:
    """What stands for the instructions of a kernel file.

    `before`: CUDA that the rest uses, with a struct View, TMA's of a matrix. `bodies`: of
    functions, by their names: what an instruction does, at once. `elsewhere`: other lines, and
    what takes their place. `size`: the number of blocks of a cluster where one is launched.
    """

    before: str
    bodies: dict[str, str]
    elsewhere: dict[str, str]
    size: str


_BEFORE = r"""
constexpr int MOST_BLOCKS = 3;  // of a cluster: 1,024 threads
static __device__ int cluster_blocks;
#define RANK int(threadIdx.x / (blockDim.x / cluster_blocks))
#define APART (224 / cluster_blocks * 1024)
"""
_BODIES = {
    "arrive_and_expect": "",  # a full stage waits for what is loaded
    "arrive_in": """
        auto there = reinterpret_cast<uintptr_t>(this) +
                     (block - RANK) * 2 * 12 * int64_t(sizeof(Barrier));
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                     :: "r"(shared_at(reinterpret_cast<void*>(there))) : "memory");""",
    "cluster_sync": "__syncthreads();",
    "warpgroup_sync": """
        asm volatile("bar.sync %0, 128;" :: "r"(4 * RANK + 1 + threadIdx.x / WARPGROUP));""",
    **dict.fromkeys(["begin_wgmma", "end_wgmma", "wait_for_wgmma", "move_registers"], ""),
}
_ELSEWHERE = {
    "#ifdef __CUDACC_VER_MAJOR__": "#if 1",
    "#ifdef __CUDA_ARCH_FEAT_SM90_ALL": "#if 1",
    "built.sharedSizeBytes == 0": "false",  # the backend does not know how much there is
    "__shared__ Barrier full[C::STAGES], empty[C::STAGES];": (
        "__shared__ Barrier barriers[MOST_BLOCKS][2][12];"
        "Barrier *full = barriers[RANK][0], *empty = barriers[RANK][1];"
    ),
    # wgmma keeps the warps of a warpgroup together, so one thread tells that all have read a
    # stage; here each thread tells of what it has read itself
    "empty[s].init(CONSUMERS *": "empty[s].init(CONSUMERS * WARPGROUP *",
}
_OF_LINEAR = r"""
struct View {  // TMA's, of elements of 16 bits, the fastest dimension first
    uint16_t* data;
    int64_t sizes[4], strides[4];
    int box[4];
};
// eight numbers at byte `at` of shared memory, of rows of 128 bytes, swizzled
static __device__ uint4& eight(size_t at) {
    return *static_cast<uint4*>(__cvta_shared_to_generic(at ^ (at >> 7 & 7) << 4));
}
// the view's box from x, y, z, w on, zeros outside, to shared memory
static __device__ void load_box(char* to, const View& view, int x, int y, int z = 0,
                                int w = 0) {
    const int first[] = {x, y, z, w}, *b = view.box;
    for (int i = 0; i < b[0] * b[1] * b[2] * b[3]; i += 8) {
        int64_t left = i, at = 0;
        bool inside = true;
        for (int d = 0; d < 4; left /= b[d++]) {
            int64_t place = first[d] + left % b[d];
            inside = inside && place < view.sizes[d];
            at += place * view.strides[d];
        }
        uint4 zeros = {};
        eight(__cvta_generic_to_shared(to) + 2 * i) =
            inside ? *reinterpret_cast<const uint4*>(view.data + at) : zeros;
    }
}
// row `row` of an operand, 16 along k
template <typename T> struct Row {
    T at[16];
    __device__ Row(uint64_t operand, int row) {
        for (int i = 0; i < 2; i++)
            reinterpret_cast<uint4*>(at)[i] = eight(operand + row * 128 + i * 16);
    }
};
"""
_BODIES_OF_LINEAR = {
    "load_weight": "load_box(to, map, k, 0, 0, eight);",
    "load_inp": """
        for (int block = 0; block < cluster_blocks; block++)
            if (mask >> block & 1) {
                load_box(to + (block - RANK) * APART, map, k, row);
                full.arrive_in(block);
            }""",
    "load_of_block": """
        return *reinterpret_cast<const float4*>(reinterpret_cast<uintptr_t>(from) +
                                                (block - RANK) * int64_t(APART));""",
    "consumers_sync": """
        asm volatile("bar.sync %0, %1;" :: "r"(4 * RANK + 3), "n"(CONSUMERS * WARPGROUP));""",
    "describe": "return at;",
    "wgmma": """
        int warp = threadIdx.x % WARPGROUP / 32, lane = threadIdx.x % 32;
        Row<T> upper(a, 16 * warp + lane / 4), lower(a, 16 * warp + lane / 4 + 8);
        for (int i = 0; i < SIZE; i += i % 4 ? 3 : 1) {  // 0, 1, 4, 5 ...: and two behind
            Row<T> column(b, i / 4 * 8 + lane % 4 * 2 + i % 2);
            for (int h = 0; h < 2; h++) {
                float sum = add ? d[i + 2 * h] : 0.0f;
                for (int k = 0; k < 16; k++)
                    sum += float((h ? lower : upper).at[k]) * float(column.at[k]);
                d[i + 2 * h] = sum;
            }
        }""",
    "map_of": """
        View view = {static_cast<uint16_t*>(x.data_ptr()), {1, 1, 1, 1}, {1}, {1, 1, 1, 1}};
        for (size_t i = 0; i < box.size(); i++) {
            view.sizes[i] = sizes[i], view.box[i] = box[i];
            if (i > 0) view.strides[i] = strides[i - 1];
        }
        return view;""",
}
_ELSEWHERE_IN_LINEAR = {
    "#include <cuda.h>": "#include <vector>\n#include <cuda.h>",
    "full[s].init(1);": "full[s].init(deal.pair);",  # for the loads of each block
    "if (thread < deal.pair)": "for (int other = 0; other < deal.pair; other++)",
    "arrive_in(place.split * deal.pair + thread);": "arrive_in(place.split * deal.pair + other);",
    "char* stages = reinterpret_cast<char*>(memory);": (
        "char* stages = reinterpret_cast<char*>(memory) + RANK * APART;"
    ),
}
LINEAR = StandIns(_OF_LINEAR, _BODIES_OF_LINEAR, _ELSEWHERE_IN_LINEAR, "deal.size()")
_WORDS = {  # in what follows
    r"threadIdx\.x": "(threadIdx.x % (blockDim.x / cluster_blocks))",
    r"blockIdx\.x": "(blockIdx.x * cluster_blocks + RANK)",
    r"gridDim\.x": "(gridDim.x * cluster_blocks)",
    "CUtensorMap": "View",
    "cuuint64_t": "uint64_t",
    "cuuint32_t": "uint32_t",
    "wgmma": "multiply",
}
_LAUNCH = r"""int size = {size};
    C10_CUDA_CHECK(cudaMemcpyToSymbol(cluster_blocks, &size, sizeof size));
    kernel<<<clusters, C::THREADS * size, 225 * 1024, getCurrentCUDAStream()>>>("""


def with_bodies(text: str, bodies: dict[str, str]) -> str:
    """Return the text with other bodies for functions; raises KeyError where one is missing."""
    functions = {f.name: f.body for f in Source(text).functions if f.body}
    for name in sorted(bodies, key=lambda name: functions[name], reverse=True):
        start, end = functions[name]
        text = f"{text[: start + 1]}{bodies[name]}\n{text[end - 1 :]}"
    return text


def replaced(text: str, instead: dict[str, str]) -> str:
    """Return the text with each of these strings replaced; raises ValueError where one is not."""
    for old, new in instead.items():
        if old not in text:
            raise ValueError(f"expected {old!r} in the kernel file's text")
        text = text.replace(old, new)
    return text


def on_cpu(text: str, stand_ins: StandIns) -> str:
    """Return a kernel file's text with stand-ins.

    Clusters of up to three blocks. Raises KeyError or ValueError where a stand-in has no place.
    """
    text = with_bodies(text, _BODIES | stand_ins.bodies)
    text = replaced(replaced(text, stand_ins.elsewhere), _ELSEWHERE)
    text = re.sub(r"(MaxDynamicSharedMemorySize, )C::SHARED", r"\g<1>225 * 1024", text)
    text = re.sub(r"cudaLaunchAttribute cluster.*?&cluster,[^;]*;", "", text, flags=re.DOTALL)
    launch = _LAUNCH.replace("{size}", stand_ins.size)
    text = re.sub(r"C10_CUDA_CHECK\(cudaLaunchKernelEx\(\s*&config, kernel, (.*?)\)\);",
                  lambda found: f"{launch}{found[1]});", text, flags=re.DOTALL)  # fmt: skip
    text = re.sub(r"__launch_bounds__\(C(ut<|::)[^)]*\)", "", text)
    before, after = text.split("#include <cuda.h>\n")
    for word, instead in _WORDS.items():
        after = re.sub(rf"\b{word}\b", instead, after)
    return before + _BEFORE + stand_ins.before + after
