// Which memory an address is of, and shared memory's in 32 bits, as PTX has them:
// __cvta_generic_to_shared and back.
#pragma once
#include "runtime.h"

namespace cuda_on_cpu {

// Dynamic shared memory begins at DYNAMIC; static arrays lie around STATIC as they lie around
// `anchor` here. Both keep an address's last bits, which swizzles look at.
namespace shared_address {
constexpr std::uint32_t DYNAMIC = 1024, STATIC = 0x10000000, PAGE = 4096;
static thread_local char anchor;
inline char* page_of_anchor() {
    return reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(&anchor) & ~std::uintptr_t{PAGE - 1});
}
}  // namespace shared_address

inline std::uint32_t to_shared(const void* pointer) {
    using namespace shared_address;
    auto* at = static_cast<const char*>(pointer);
    auto* dynamic = static_cast<const char*>(position.dynamic_shared);
    if (dynamic && at >= dynamic && at <= dynamic + MAX_SHARED_ON_REQUEST)
        return DYNAMIC + std::uint32_t(at - dynamic);
    return STATIC + std::uint32_t(at - page_of_anchor());
}

inline void* from_shared(std::uint32_t address) {
    using namespace shared_address;
    if (address < STATIC / 2)
        return static_cast<char*>(position.dynamic_shared) + std::int32_t(address - DYNAMIC);
    return page_of_anchor() + std::int32_t(address - STATIC);
}

}  // namespace cuda_on_cpu

inline std::size_t __cvta_generic_to_shared(const void* pointer) {
    return cuda_on_cpu::to_shared(pointer);
}
inline void* __cvta_shared_to_generic(std::size_t address) {
    return cuda_on_cpu::from_shared(std::uint32_t(address));
}
inline std::size_t __cvta_generic_to_global(const void* pointer) {
    return reinterpret_cast<std::size_t>(pointer);
}
inline void* __cvta_global_to_generic(std::size_t address) {
    return reinterpret_cast<void*>(address);
}
// The other spaces have the generic addresses.
inline std::size_t __cvta_generic_to_local(const void* pointer) {
    return reinterpret_cast<std::size_t>(pointer);
}
inline void* __cvta_local_to_generic(std::size_t address) {
    return reinterpret_cast<void*>(address);
}
inline std::size_t __cvta_generic_to_constant(const void* pointer) {
    return reinterpret_cast<std::size_t>(pointer);
}
inline void* __cvta_constant_to_generic(std::size_t address) {
    return reinterpret_cast<void*>(address);
}

namespace cuda_on_cpu {
enum class Space { global, shared, local, constant };
CUDA_ON_CPU_API Space space_of(const void*);  // asked by a thread of a kernel
}  // namespace cuda_on_cpu

inline unsigned __isGlobal(const void* pointer) {
    return cuda_on_cpu::space_of(pointer) == cuda_on_cpu::Space::global;
}
inline unsigned __isShared(const void* pointer) {
    return cuda_on_cpu::space_of(pointer) == cuda_on_cpu::Space::shared;
}
inline unsigned __isLocal(const void* pointer) {
    return cuda_on_cpu::space_of(pointer) == cuda_on_cpu::Space::local;
}
inline unsigned __isConstant(const void* pointer) {
    return cuda_on_cpu::space_of(pointer) == cuda_on_cpu::Space::constant;
}
