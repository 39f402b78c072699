// cub::BlockRadixSort: a block's keys in order, each thread with several neighbours; stable. Here
// each key's place is counted, which takes as long as there are keys.
#pragma once
#include "../../cuda_runtime.h"
#include "../detail.cuh"

namespace cub {

struct NullType {};

template <class Key, int X, int Items, class Value = NullType>
class BlockRadixSort {
    static constexpr int ALL = X * Items;

public:
    struct TempStorage {
        Key keys[ALL], sorted_keys[ALL];
        Value values[ALL];
    };
    explicit BlockRadixSort(TempStorage& storage) : storage_(storage) {}

    void Sort(Key (&keys)[Items], int = 0, int = sizeof(Key) * 8,
              Line line = Line(__builtin_LINE())) {
        sort(keys, [](const Key& a, const Key& b) { return a < b; }, line);
    }
    void SortDescending(Key (&keys)[Items], int = 0, int = sizeof(Key) * 8,
                        Line line = Line(__builtin_LINE())) {
        sort(keys, [](const Key& a, const Key& b) { return b < a; }, line);
    }
    void Sort(Key (&keys)[Items], Value (&values)[Items], int = 0, int = sizeof(Key) * 8,
              Line line = Line(__builtin_LINE())) {
        sort(keys, values, [](const Key& a, const Key& b) { return a < b; }, line);
    }
    void SortDescending(Key (&keys)[Items], Value (&values)[Items], int = 0,
                        int = sizeof(Key) * 8, Line line = Line(__builtin_LINE())) {
        sort(keys, values, [](const Key& a, const Key& b) { return b < a; }, line);
    }

private:
    template <class Before>
    void sort(Key (&keys)[Items], Before before, Line line) {
        int places[Items];
        find_places(keys, places, before, line);
        take(storage_.sorted_keys, keys, places, line);
    }
    template <class Before>
    void sort(Key (&keys)[Items], Value (&values)[Items], Before before, Line line) {
        int places[Items];
        find_places(keys, places, before, line);
        take(storage_.sorted_keys, keys, places, line);
        take(storage_.values, values, places, line);
    }
    template <class Before>
    void find_places(Key (&keys)[Items], int (&places)[Items], Before before, Line line) {
        int first = int(cuda_on_cpu::position.thread) * Items;
        for (int i = 0; i < Items; i++) storage_.keys[first + i] = keys[i];
        __syncthreads(line.number);  // all keys are there before they are counted
        for (int i = 0; i < Items; i++) {
            places[i] = 0;
            for (int other = 0; other < ALL; other++)
                places[i] += before(storage_.keys[other], keys[i]) ||
                             (other < first + i && !before(keys[i], storage_.keys[other]));
        }
    }
    template <class T>
    void take(T* sorted, T (&mine)[Items], const int (&places)[Items], Line line) {
        for (int i = 0; i < Items; i++) sorted[places[i]] = mine[i];
        __syncthreads(line.number);  // all are in their places before they are taken
        int first = int(cuda_on_cpu::position.thread) * Items;
        for (int i = 0; i < Items; i++) mine[i] = sorted[first + i];
    }

    TempStorage& storage_;
};

}  // namespace cub
