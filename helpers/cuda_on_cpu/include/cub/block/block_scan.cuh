// cub::BlockScan: thread i gets the combination of the threads before it, or up to it.
#pragma once
#include "../warp/warp_scan.cuh"

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1>
class BlockScan {
    static constexpr int THREADS = X * Y * Z, WARPS = (THREADS + 31) / 32;

public:
    struct TempStorage {
        T of_warp[WARPS];
    };
    explicit BlockScan(TempStorage& storage) : storage_(storage) {}

    template <class Combine>
    void InclusiveScan(T value, T& result, Combine combine, T& total, Line line = Line(__builtin_LINE())) {
        result = with_warps_before(value, combine, line);
        total = storage_.of_warp[0];
        for (unsigned w = 1; w < WARPS; w++) total = combine(total, storage_.of_warp[w]);
    }
    template <class Combine>
    void InclusiveScan(T value, T& result, Combine combine, Line line = Line(__builtin_LINE())) {
        result = with_warps_before(value, combine, line);
    }
    template <class Combine>
    void ExclusiveScan(T value, T& result, T initial, Combine combine, T& total,
                       Line line = Line(__builtin_LINE())) {
        unsigned lane = cuda_on_cpu::lane(), warp = cuda_on_cpu::position.thread / 32;
        T inclusive, of_warp;
        typename WarpScan<T>::TempStorage none;
        WarpScan<T>(none).InclusiveScan(value, inclusive, combine, of_warp, line);
        unsigned mask = detail::lanes_mask(0, detail::existing_lanes());
        T before = cuda_on_cpu::shuffle_any(mask, inclusive, int(lane ? lane - 1 : 0), line.number);
        share(of_warp, line);
        result = initial;
        for (unsigned w = 0; w < warp; w++) result = combine(result, storage_.of_warp[w]);
        if (lane) result = combine(result, before);
        total = storage_.of_warp[0];
        for (unsigned w = 1; w < WARPS; w++) total = combine(total, storage_.of_warp[w]);
    }
    template <class Combine>
    void ExclusiveScan(T value, T& result, T initial, Combine combine, Line line = Line(__builtin_LINE())) {
        T total;
        ExclusiveScan(value, result, initial, combine, total, line);
    }
    void InclusiveSum(T value, T& result, Line line = Line(__builtin_LINE())) {
        InclusiveScan(value, result, detail::Plus(), line);
    }
    void InclusiveSum(T value, T& result, T& total, Line line = Line(__builtin_LINE())) {
        InclusiveScan(value, result, detail::Plus(), total, line);
    }
    void ExclusiveSum(T value, T& result, Line line = Line(__builtin_LINE())) {
        ExclusiveScan(value, result, T{}, detail::Plus(), line);
    }
    void ExclusiveSum(T value, T& result, T& total, Line line = Line(__builtin_LINE())) {
        ExclusiveScan(value, result, T{}, detail::Plus(), total, line);
    }
    // Each thread has several values, one after the other.
    template <int Items>
    void InclusiveSum(T (&values)[Items], T (&results)[Items], Line line = Line(__builtin_LINE())) {
        T total;
        sum_items(values, results, total, true, line);
    }
    template <int Items>
    void InclusiveSum(T (&values)[Items], T (&results)[Items], T& total, Line line = Line(__builtin_LINE())) {
        sum_items(values, results, total, true, line);
    }
    template <int Items>
    void ExclusiveSum(T (&values)[Items], T (&results)[Items], Line line = Line(__builtin_LINE())) {
        T total;
        sum_items(values, results, total, false, line);
    }
    template <int Items>
    void ExclusiveSum(T (&values)[Items], T (&results)[Items], T& total, Line line = Line(__builtin_LINE())) {
        sum_items(values, results, total, false, line);
    }

private:
    template <int Items>
    void sum_items(T (&values)[Items], T (&results)[Items], T& total, bool inclusive, Line line) {
        T own = values[0], before;
        for (int i = 1; i < Items; i++) own = own + values[i];
        ExclusiveSum(own, before, total, line);
        for (int i = 0; i < Items; i++) {
            T value = values[i];
            results[i] = inclusive ? before + value : before;
            before = before + value;
        }
    }
    template <class Combine>
    T with_warps_before(T value, Combine combine, Line line) {
        T inclusive, of_warp;
        typename WarpScan<T>::TempStorage none;
        WarpScan<T>(none).InclusiveScan(value, inclusive, combine, of_warp, line);
        share(of_warp, line);
        unsigned warp = cuda_on_cpu::position.thread / 32;
        if (!warp) return inclusive;
        T before = storage_.of_warp[0];
        for (unsigned w = 1; w < warp; w++) before = combine(before, storage_.of_warp[w]);
        return combine(before, inclusive);
    }
    void share(T of_warp, Line line) {
        if (!cuda_on_cpu::lane()) storage_.of_warp[cuda_on_cpu::position.thread / 32] = of_warp;
        __syncthreads(line.number);
    }

    TempStorage& storage_;
};

}  // namespace cub
