// nvcuda::wmma: matrices spread over the registers of a warp, and products of them. Element i of a
// lane's fragment lies where matrix_places.h says, as on GPUs since Ampere.
#pragma once
#include <type_traits>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_on_cpu/ptx/conversions.h"  // tf32
#include "cuda_on_cpu/ptx/memory.h"       // Chunk
#include "cuda_on_cpu/tensor_core.h"

namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}

namespace detail {
using namespace cuda_on_cpu;

template <class T> struct Kind;
template <> struct Kind<__half> { using Element = F16; };
template <> struct Kind<__nv_bfloat16> { using Element = BF16; };
template <> struct Kind<precision::tf32> { using Element = TF32; };
template <> struct Kind<signed char> { using Element = S8; };
template <> struct Kind<unsigned char> { using Element = U8; };
template <> struct Kind<float> { using Element = F32; };
template <> struct Kind<int> { using Element = S32; };
template <> struct Kind<double> { using Element = F64; };

template <class T>
using Stored = std::conditional_t<std::is_same_v<T, precision::tf32>, float, T>;

// How many elements a lane holds, and where each belongs. CUDA's fragments of half have room for
// 16, the number that Volta needs; the ones that are too many repeat the others.
template <class Use, int M, int N, int K, class T>
struct Places;
template <int M, int N, int K, class T>
struct Places<matrix_a, M, N, K, T> {
    static constexpr int COUNT = M * K / 32, ROOM = std::is_same_v<T, __half> ? 16 : COUNT;
    static constexpr int PACKED = Kind<T>::Element::PACKED;
    static constexpr bool ALONG_ROWS = true;  // neighbours in a register are so in a row
    static constexpr Place of(int lane, int i) { return place_in_A<M, K, PACKED>(lane, i); }
};
template <int M, int N, int K, class T>
struct Places<matrix_b, M, N, K, T> {
    static constexpr int COUNT = K * N / 32, ROOM = std::is_same_v<T, __half> ? 16 : COUNT;
    static constexpr int PACKED = Kind<T>::Element::PACKED;
    static constexpr bool ALONG_ROWS = false;
    static constexpr Place of(int lane, int i) { return place_in_B<K, PACKED>(lane, i); }
};
template <int M, int N, int K, class T>
struct Places<accumulator, M, N, K, T> {
    static constexpr int COUNT = M * N / 32, ROOM = COUNT, PACKED = 2;
    static constexpr bool ALONG_ROWS = true;
    static constexpr Place of(int lane, int i) { return place_in_C<M, N>(lane, i); }
};

inline std::size_t index(Place at, unsigned ldm, bool rows) {
    return rows ? std::size_t(at.row) * ldm + at.col : std::size_t(at.col) * ldm + at.row;
}
}  // namespace detail

template <class Use, int M, int N, int K, class T, class Layout = void>
class fragment {
public:
    using element_type = T;
    using storage_element_type = detail::Stored<T>;
    using Places = detail::Places<Use, M, N, K, T>;
    enum { num_elements = Places::ROOM, num_storage_elements = Places::ROOM };
    alignas(8) storage_element_type x[num_elements];
};

template <class Use, int M, int N, int K, class T, class Layout>
inline void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const detail::Stored<T>& value) {
    for (auto& element : f.x) element = value;
}

namespace detail {
// What lies side by side in a register and in memory is one access.
template <class Fragment, class T>
CUDA_ON_CPU_INLINE void load(Fragment& f, const T* from, unsigned ldm, bool rows) {
    using Places = typename Fragment::Places;
    using Several = ptx::Chunk<sizeof(T) * Places::PACKED>;
    const bool together = Places::ALONG_ROWS == rows;
    for (int i = 0; i < Places::COUNT; i += together ? Places::PACKED : 1) {
        const T* place = from + index(Places::of(int(lane()), i), ldm, rows);
        if (together) {
            Several several = *reinterpret_cast<const Several*>(place);
            std::memcpy(static_cast<void*>(&f.x[i]), &several, sizeof several);
        } else {
            f.x[i] = *place;
        }
    }
    for (int i = Places::COUNT; i < Places::ROOM; i++) f.x[i] = f.x[i % Places::COUNT];
}
template <class Fragment, class T>
CUDA_ON_CPU_INLINE void store(T* to, const Fragment& f, unsigned ldm, bool rows) {
    using Places = typename Fragment::Places;
    using Several = ptx::Chunk<sizeof(T) * Places::PACKED>;
    const bool together = Places::ALONG_ROWS == rows;
    for (int i = 0; i < Places::COUNT; i += together ? Places::PACKED : 1) {
        T* place = to + index(Places::of(int(lane()), i), ldm, rows);
        if (together) {
            Several several;
            std::memcpy(&several, &f.x[i], sizeof several);
            *reinterpret_cast<Several*>(place) = several;
        } else {
            *place = f.x[i];
        }
    }
}
}  // namespace detail

template <class Use, int M, int N, int K, class T, class Layout>
CUDA_ON_CPU_INLINE void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f,
                                         const detail::Stored<T>* from, unsigned ldm) {
    static_assert(!std::is_void_v<Layout>, "an accumulator's load needs a layout");
    detail::load(f, from, ldm, std::is_same_v<Layout, row_major>);
}
template <int M, int N, int K, class T>
CUDA_ON_CPU_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* from,
                                         unsigned ldm, layout_t layout) {
    detail::load(f, from, ldm, layout == mem_row_major);
}
template <int M, int N, int K, class T>
CUDA_ON_CPU_INLINE void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& f,
                                          unsigned ldm, layout_t layout) {
    detail::store(to, f, ldm, layout == mem_row_major);
}

// d = a * b + c. Integers wrap around.
template <int M, int N, int K, class A, class B, class C, class D, class LayoutA, class LayoutB>
inline void mma_sync(fragment<accumulator, M, N, K, D>& d,
                     const fragment<matrix_a, M, N, K, A, LayoutA>& a,
                     const fragment<matrix_b, M, N, K, B, LayoutB>& b,
                     const fragment<accumulator, M, N, K, C>& c, int line = __builtin_LINE()) {
    using detail::Kind;
    static_assert(std::is_same_v<A, B>, "wmma multiplies matrices of one type");
    cuda_on_cpu::mma<M, N, K, typename Kind<A>::Element, typename Kind<B>::Element,
                     typename Kind<C>::Element, typename Kind<D>::Element>("mma_sync", a.x, b.x, c.x,
                                                                           d.x, line);
}

inline float __float_to_tf32(float x) {
    return cuda_on_cpu::ptx::as<float>(cuda_on_cpu::ptx::tf32(x));
}

}  // namespace nvcuda::wmma
