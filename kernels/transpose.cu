// kernels/transpose.cu
// SPDX-License-Identifier: MIT
// Transposes a matrix: out[col, row] = inp[row, col], bit by bit.
// inp: (M, N), out: (N, M), any M and N; float32, float16 or bfloat16, contiguous.
// Moves 8 bytes an element, 4 of the half types; no scratch memory. The gradient of a
// transposition is the transposition of the gradient.
// Notebook: 08_performance_checklist. Own code; tiles through shared memory are from
// NVIDIA's "An Efficient Matrix Transpose in CUDA C/C++" (M. Harris, 2013).
//
// from pathlib import Path
// from torch.utils.cpp_extension import load_inline
// transpose = load_inline("transpose", functions=["transpose"],
//     cpp_sources="torch::Tensor transpose(torch::Tensor inp);",
//     cuda_sources=Path("transpose.cu").read_text())
#include <c10/cuda/CUDAGuard.h>  // and with it streams, and checks of launches
#include <torch/types.h>
#include <cuda/annotated_ptr>
using c10::cuda::CUDAGuard, c10::cuda::getCurrentCUDAStream, torch::Tensor;

constexpr int TILE = 32;  // elements per side of a tile
constexpr int ROWS = 8;   // of them are threads; each takes TILE / ROWS elements

// out: (N, M), inp: (M, N), a tile per block, counted along the rows of inp
template <typename T>
__global__ void transpose_kernel(T* out, const T* inp, int64_t M, int64_t N) {
    __shared__ T tile[TILE][TILE];
    unsigned tiles_n = (N + TILE - 1) / TILE;
    int64_t row0 = int64_t(blockIdx.x / tiles_n) * TILE;
    int64_t col0 = int64_t(blockIdx.x % tiles_n) * TILE;
    int x = threadIdx.x;
#pragma unroll
    for (int y = threadIdx.y; y < TILE; y += ROWS)
        if (row0 + y < M && col0 + x < N)
            tile[y][x ^ y] = inp[(row0 + y) * N + col0 + x];
    __syncthreads();  // the tile is complete
#pragma unroll
    for (int y = threadIdx.y; y < TILE; y += ROWS)
        if (col0 + y < N && row0 + x < M)
            out[(col0 + y) * M + row0 + x] = tile[x][y ^ x];
}

constexpr int SIDE = 16;        // threads, and packs, per side of a tile
constexpr int PITCH = 1 << 17;  // bytes: rows so far apart share parts of the memory

template <typename T> struct alignas(16) Pack {  // neighbours, moved by one instruction
    static constexpr int WIDTH = 16 / sizeof(T);
    T at[WIDTH];
};

// The same by packs: M, N are multiples of WIDTH, inp starts at a multiple of 16 bytes
template <typename T>
__global__ void transpose_packs_kernel(T* out, const T* inp, int64_t M, int64_t N) {
    constexpr int WIDTH = Pack<T>::WIDTH, TALL = SIDE * WIDTH;  // elements per side
    __shared__ Pack<T> tile[TALL][SIDE];  // rows of out
    unsigned tiles_m = (M + TALL - 1) / TALL;
    unsigned column = blockIdx.x / tiles_m;  // of tiles: blocks go down them
    if (N * sizeof(T) % PITCH == 0)          // 0, 64, 1, 65 … of each 128
        column = column / 128 * 128 + column % 2 * 64 + column % 128 / 2;
    int64_t row0 = int64_t(blockIdx.x % tiles_m) * TALL;
    int64_t col0 = int64_t(column) * TALL;
    int x = threadIdx.x, y = threadIdx.y;
    const T* mine = cuda::associate_access_property(  // L2 shall keep what it reads
        inp + (row0 + y * WIDTH) * N + col0 + x * WIDTH,
        cuda::access_property::persisting());
    if (row0 + y * WIDTH < M && col0 + x * WIDTH < N) {
        Pack<T> rows[WIDTH], turned;  // WIDTH x WIDTH elements in registers
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            rows[i] = *reinterpret_cast<const Pack<T>*>(mine + i * N);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
#pragma unroll
            for (int i = 0; i < WIDTH; i++) turned.at[i] = rows[i].at[j];
            tile[x * WIDTH + j][y ^ x] = turned;
        }
    }
    __syncthreads();  // the tile is complete
#pragma unroll
    for (int i = y; i < TALL; i += SIDE)
        if (col0 + i < N && row0 + x * WIDTH < M)
            *reinterpret_cast<Pack<T>*>(out + (col0 + i) * M + row0 + x * WIDTH) =
                tile[i][x ^ i / WIDTH];
}

static unsigned cdiv(int64_t a, int64_t b) { return unsigned((a + b - 1) / b); }

template <typename T> static void launch_transpose(Tensor out, Tensor inp) {
    int64_t M = inp.size(0), N = inp.size(1), WIDTH = Pack<T>::WIDTH;
    T* to = static_cast<T*>(out.data_ptr());
    const T* from = static_cast<const T*>(inp.data_ptr());
    auto stream = getCurrentCUDAStream();
    bool is_aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0;
    if (M % WIDTH == 0 && N % WIDTH == 0 && is_aligned) {
        unsigned grid = cdiv(M, SIDE * WIDTH) * cdiv(N, SIDE * WIDTH);
        transpose_packs_kernel<<<grid, dim3(SIDE, SIDE), 0, stream>>>(to, from, M, N);
    } else {
        unsigned grid = cdiv(M, TILE) * cdiv(N, TILE);
        transpose_kernel<<<grid, dim3(TILE, ROWS), 0, stream>>>(to, from, M, N);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor transpose(Tensor inp) {
    auto type = inp.scalar_type();
    bool known = type == torch::kFloat32 || type == torch::kFloat16 ||
                 type == torch::kBFloat16;
    TORCH_CHECK(known && inp.dim() == 2 && inp.is_contiguous() && inp.is_cuda(),
                "inp: expected contiguous float32, float16 or bfloat16 on a CUDA "
                "device, a matrix, got ", type, " on ", inp.device(), ", shape ",
                inp.sizes(), ", strides ", inp.strides());
    CUDAGuard guard(inp.device());
    Tensor out = torch::empty({inp.size(1), inp.size(0)}, inp.options());
    if (inp.numel() == 0) return out;
    if (type == torch::kFloat32) launch_transpose<uint32_t>(out, inp);
    else launch_transpose<uint16_t>(out, inp);
    return out;
}
