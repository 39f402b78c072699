// cub::BlockLoad: each thread gets several neighbours of a tile, or with stripes every so many.
#pragma once
#include "../../cuda_runtime.h"

namespace cub {

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED,
};

template <class T, int X, int Items, BlockLoadAlgorithm Algorithm = BLOCK_LOAD_DIRECT, int Y = 1,
          int Z = 1>
class BlockLoad {
public:
    struct TempStorage {};
    BlockLoad() = default;
    explicit BlockLoad(TempStorage&) {}

    template <class Iterator>
    CUDA_ON_CPU_INLINE void Load(Iterator from, T (&items)[Items]) {
        for (int i = 0; i < Items; i++) items[i] = from[place(i)];
    }
    template <class Iterator>
    CUDA_ON_CPU_INLINE void Load(Iterator from, T (&items)[Items], int valid) {
        for (int i = 0; i < Items; i++)
            if (place(i) < valid) items[i] = from[place(i)];
    }
    template <class Iterator, class Default>
    CUDA_ON_CPU_INLINE void Load(Iterator from, T (&items)[Items], int valid, Default otherwise) {
        for (int i = 0; i < Items; i++) items[i] = place(i) < valid ? T(from[place(i)]) : T(otherwise);
    }

private:
    static int place(int i) {
        int thread = int(cuda_on_cpu::position.thread);
        return Algorithm == BLOCK_LOAD_STRIPED ? i * X * Y * Z + thread : thread * Items + i;
    }
};

}  // namespace cub
