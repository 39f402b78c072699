// cub::BlockStore: the reverse of BlockLoad.
#pragma once
#include "../../cuda_runtime.h"

namespace cub {

enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED,
};

template <class T, int X, int Items, BlockStoreAlgorithm Algorithm = BLOCK_STORE_DIRECT, int Y = 1,
          int Z = 1>
class BlockStore {
public:
    struct TempStorage {};
    BlockStore() = default;
    explicit BlockStore(TempStorage&) {}

    template <class Iterator>
    CUDA_ON_CPU_INLINE void Store(Iterator to, T (&items)[Items]) {
        for (int i = 0; i < Items; i++) to[place(i)] = items[i];
    }
    template <class Iterator>
    CUDA_ON_CPU_INLINE void Store(Iterator to, T (&items)[Items], int valid) {
        for (int i = 0; i < Items; i++)
            if (place(i) < valid) to[place(i)] = items[i];
    }

private:
    static int place(int i) {
        int thread = int(cuda_on_cpu::position.thread);
        return Algorithm == BLOCK_STORE_STRIPED ? i * X * Y * Z + thread : thread * Items + i;
    }
};

}  // namespace cub
