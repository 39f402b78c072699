// Sums of the rows of a matrix in three versions: a right one, one with a race, and one that reads
// past the end. inp: (rows, columns), out: (rows), float32; a block sums a row.
#include <torch/types.h>

constexpr int BLOCK_SIZE = 128;  // threads per block

__device__ float sum_of_block(float mine) {
    __shared__ float sums[BLOCK_SIZE];
    sums[threadIdx.x] = mine;
    __syncthreads();  // before others read it
    for (int half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();  // before the next round reads it
    }
    return sums[0];
}

__global__ void right_kernel(float* out, const float* inp, int columns) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += BLOCK_SIZE) sum += inp[blockIdx.x * columns + i];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// Every thread adds to the same element, and nothing orders them.
__global__ void racy_kernel(float* out, const float* inp, int columns) {
    out[blockIdx.x] = 0.0f;
    for (int i = threadIdx.x; i < columns; i += BLOCK_SIZE) {
        out[blockIdx.x] += inp[blockIdx.x * columns + i];
    }
}

// <= where < is right: the last row is followed by nothing.
__global__ void long_kernel(float* out, const float* inp, int columns) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i <= columns; i += BLOCK_SIZE) sum += inp[blockIdx.x * columns + i];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

torch::Tensor right(torch::Tensor inp) {
    torch::Tensor out = torch::empty({inp.size(0)}, inp.options());
    right_kernel<<<inp.size(0), BLOCK_SIZE>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), inp.size(1));
    return out;
}

torch::Tensor racy(torch::Tensor inp) {
    torch::Tensor out = torch::empty({inp.size(0)}, inp.options());
    racy_kernel<<<inp.size(0), BLOCK_SIZE>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), inp.size(1));
    return out;
}

torch::Tensor too_long(torch::Tensor inp) {
    torch::Tensor out = torch::empty({inp.size(0)}, inp.options());
    long_kernel<<<inp.size(0), BLOCK_SIZE>>>(
        out.data_ptr<float>(), inp.data_ptr<float>(), inp.size(1));
    return out;
}
