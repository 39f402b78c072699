// Linked into a program that command.py builds with --check: at its end it says what Python would
// have asked for, and where a kernel was at fault the program fails, whatever main() returned.
#include <cstdio>
#include <cstdlib>

extern "C" {
bool cuda_on_cpu_told_of_fault();
const char* cuda_on_cpu_late_fault();
const char* cuda_on_cpu_take_remarks();
}

namespace {

struct End {
    ~End() {
        std::fputs(cuda_on_cpu_take_remarks(), stderr);
        const char* late = cuda_on_cpu_late_fault();
        if (*late) std::fprintf(stderr, "%s\n", late);
        if (!*late && !cuda_on_cpu_told_of_fault()) return;
        std::fflush(nullptr);
        std::_Exit(1);
    }
} end;  // made before what main() makes, and gone after it

}  // namespace
