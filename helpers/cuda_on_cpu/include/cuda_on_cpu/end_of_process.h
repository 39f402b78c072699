// exit(), abort() and their like would end the notebook: the translator lets them throw.
#pragma once
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace cuda_on_cpu {

struct EndOfProcess {
    const char *name, *function;
    int line;
    void (*end)(int);

    [[noreturn]] void operator()(int code = 0) const {
#if defined(__PIE__)  // the code of a program, not of a library
        end(code);
#endif
        std::string given = end == abort_with ? "" : std::to_string(code);
        std::string call = std::string(name) + "(" + given + ")";
        throw std::runtime_error(std::string(function) + ", line " + std::to_string(line) + ": " +
                                 call + " would end the whole process, and with it the notebook. "
                                 "TORCH_CHECK(condition, message) ends the call alone.");
    }
    [[noreturn]] static void abort_with(int) { std::abort(); }
};

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_EXIT(name) (::cuda_on_cpu::EndOfProcess{#name, __func__, __LINE__, &::name})
#define CUDA_ON_CPU_ABORT                                     \
    (::cuda_on_cpu::EndOfProcess{"abort", __func__, __LINE__, \
                                 &::cuda_on_cpu::EndOfProcess::abort_with})
