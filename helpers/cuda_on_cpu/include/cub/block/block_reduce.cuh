// cub::BlockReduce: thread 0 gets the combination of what all threads of the block bring.
#pragma once
#include "../warp/warp_reduce.cuh"

namespace cub {

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS,
    BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC,
};

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1>
class BlockReduce {
    static constexpr int THREADS = X * Y * Z, WARPS = (THREADS + 31) / 32;

public:
    struct TempStorage {
        T of_warp[WARPS];
    };
    explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

    // Of the first `valid` threads.
    template <class Combine>
    T Reduce(T value, Combine combine, int valid = THREADS, Line line = Line(__builtin_LINE())) {
        unsigned thread = cuda_on_cpu::position.thread, warp = thread / 32;
        int of_warp = valid - int(warp) * 32;
        typename WarpReduce<T>::TempStorage none;
        value = WarpReduce<T>(none).Reduce(value, combine, of_warp < 0 ? 0 : of_warp, line);
        if (thread % 32 == 0) storage_.of_warp[warp] = value;
        __syncthreads(line.number);
        if (thread == 0)
            for (int w = 1; w < WARPS && w * 32 < valid; w++)
                value = combine(value, storage_.of_warp[w]);
        return value;
    }
    template <int Items, class Combine>
    T Reduce(T (&values)[Items], Combine combine, Line line = Line(__builtin_LINE())) {
        T value = values[0];
        for (int i = 1; i < Items; i++) value = combine(value, values[i]);
        return Reduce(value, combine, THREADS, line);
    }
    T Sum(T value, int valid = THREADS, Line line = Line(__builtin_LINE())) {
        return Reduce(value, detail::Plus(), valid, line);
    }
    template <int Items>
    T Sum(T (&values)[Items], Line line = Line(__builtin_LINE())) {
        return Reduce(values, detail::Plus(), line);
    }

private:
    TempStorage& storage_;
};

}  // namespace cub
