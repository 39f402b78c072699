"""What would end Python in a string's code for the host ends the call: the cell says where."""

import subprocess
import sys

import pytest
from jupyter_client.manager import start_new_kernel

from helpers.base.machine import ROOT
from helpers.cuda_on_cpu import translate
from helpers.device import BACKEND

pytestmark = [
    pytest.mark.skipif(BACKEND == "cuda", reason="it is the CPU backend that is tested"),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells all of it"),
]

SRC = r"""
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>
#define CHECK(call) do { if ((call) != cudaSuccess) std::exit(EXIT_FAILURE); } while (0)

__global__ void fill_kernel(float* out) { out[threadIdx.x] = 1; }
__global__ void broken_kernel(float* out) {
    char* own = (char*)malloc(1 << 22);
    own[0] = 1;
    if (threadIdx.x == 3) out[1000] = 1;
}

int first(int* numbers) {
    return numbers[0];                                        // line 17
}
int deeper(int n) {
    volatile int numbers[100];
    numbers[n % 100] = n;
    return deeper(n + 1) + numbers[3];                        // line 22
}
void throws() noexcept { throw std::runtime_error("of mine"); }  // line 24

int64_t null_pointer(torch::Tensor x) { return first(nullptr); }
void null_function(torch::Tensor x) {
    void (*volatile function)() = nullptr;
    function();                                               // line 29
}
void past_the_end(torch::Tensor x) {
    float* numbers = x.data_ptr<float>();
    for (int i = 0; i < 1000; i++) numbers[i] = 1;            // line 33
}
void recursion(torch::Tensor x) { deeper(0); }
void division(torch::Tensor x) {
    volatile int zero = 0;
    zero = 10 / zero;                                         // line 38
}
void ends(torch::Tensor x) {
    CHECK(cudaMemcpy(x.data_ptr<float>(), x.data_ptr<float>(), 4, cudaMemcpyKind(77)));
}
void ends_at_once(torch::Tensor x) { _exit(3); }
void aborts(torch::Tensor x) { abort(); }
void terminates(torch::Tensor x) { throws(); }
void frees_twice(torch::Tensor x) {
    void* volatile memory = malloc(100);
    free(memory);
    free(memory);                                             // line 49
}
void loops(torch::Tensor x) {
    volatile int n = 0;
    while (true) n = n + 1;                                   // line 53
}
void sleeps(torch::Tensor x) {
    while (true) usleep(1000);                                // line 56
}
void fine(torch::Tensor x) { fill_kernel<<<1, 4>>>(x.data_ptr<float>()); }
void leaks(torch::Tensor x) {
    float *kept, *freed;
    cudaMalloc(&kept, 64 << 20);
    cudaMalloc(&freed, 1 << 20);
    cudaFree(freed);
    torch::Tensor own = torch::empty({16 << 20});
    broken_kernel<<<1, 4>>>(x.data_ptr<float>());
    cudaFree(kept);
}
void in_another_thread(torch::Tensor x) {
    std::thread([] { *(volatile int*)nullptr = 1; }).join();  // line 69
}
void spoils(torch::Tensor x) {
    std::vector<char*> all(10);
    for (auto& one : all) one = (char*)malloc(3000);
    for (auto& one : all)
        for (int i = 0; i < 3100; i++) one[i] = 77;
    for (auto& one : all) free(one);                         // line 76
}
"""
SET_UP = """
import os, signal, sys, threading
import torch
from helpers.compiler import compile_cuda
from helpers.tests.test_cuda_on_cpu_alive import SRC

module, x = compile_cuda(SRC, check=CHECK), torch.zeros(4)
def call(name, interrupted=False):
    if interrupted:
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        getattr(module, name)(x)
    except BaseException as error:
        print(str(error) or repr(error))
"""
# name: what the error says first
DEATHS = {
    "null_pointer": "first, line 17: reads through a null pointer.",
    "null_function": "null_function, line 29: calls a function through a null pointer.",
    "past_the_end": "past_the_end, line 33: writes byte 16 of a tensor of 16 bytes",
    "recursion": "deeper, line ",  # its first, or one below
    "division": "division, line 38: integer division by zero.",
    "terminates": "throws, line 24: an exception cannot leave a noexcept function or a destructor: "
    "of mine",
    "frees_twice": "frees_twice, line 49: abort() is called",
}
REFUSED = {
    "ends": "ends, line 41: exit(1) would end the whole process",
    "ends_at_once": "ends_at_once, line 43: _exit(3) would end the whole process",
    "aborts": "aborts, line 44: abort() would end the whole process",
}
STOPPED = {"loops": "stopped in loops, line 53", "sleeps": "stopped in sleeps, line 56"}


def run(script, check=False):
    set_up = SET_UP.replace("CHECK", str(check))
    command = [sys.executable, "-c", set_up + script]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def script_of_all(names, more=""):
    return "".join(f"print('~', end=''); call({name!r}{more})\n" for name in names)


@pytest.mark.parametrize("check", [False, True])
def test_the_call_ends_and_python_goes_on(check):
    script = script_of_all(DEATHS) + script_of_all(REFUSED)
    script += script_of_all(STOPPED, ", interrupted=True") + "call('fine')\nprint('~', x.tolist())"
    done = run(script, check)
    assert done.returncode == 0, done.stderr
    *told, last = done.stdout.split("~")[1:]
    assert last.split() == ["[1.0,", "1.0,", "1.0,", "1.0]"]
    expected = DEATHS | REFUSED | STOPPED
    for error, (name, sentence) in zip(told, expected.items(), strict=True):
        assert error.startswith(sentence), (name, error)
        assert ("This is code of the host" in error) == (name in DEATHS)
    assert "stack overflow: does this recursion never end" in told[list(DEATHS).index("recursion")]


def test_what_a_failed_call_had_is_freed():
    script = """
def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
call("leaks")
before = megabytes()
for _ in range(3): call("leaks")
print(megabytes() - before)
"""
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("broken_kernel (launched at line 65)") == 4
    assert int(done.stdout.splitlines()[-1]) < 16  # a call takes 64 + 64 + 16 MB


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("in_another_thread", "in another thread: line 69: writes through a null pointer."),
        ("spoils", "since it has spoiled the memory that is malloc's: spoils, line 76: abort()"),
    ],
)
def test_where_the_process_has_to_end_it_says_why(name, sentence):
    done = run(f"call({name!r})")
    assert done.returncode < 0
    assert f"A function of the host ends the process, {sentence}" in done.stderr


def test_a_fault_that_is_not_the_strings_ends_python_as_ever():
    done = run("call('fine'); import ctypes; ctypes.string_at(0)")
    assert done.returncode == -11 and "function of the host" not in done.stderr


def test_in_a_notebook():
    manager, client = start_new_kernel(cwd=str(ROOT))
    try:
        said = []

        def hook(message):
            content = message["content"]
            said.append(content.get("text") or "\n".join(content.get("traceback", [])))

        def execute(code):
            said.clear()
            client.execute_interactive(code, timeout=300, output_hook=hook)
            return "".join(said)

        execute(SET_UP.replace("CHECK", "False"))
        assert "first, line 17: reads through a null pointer." in execute("module.null_pointer(x)")
        assert "_exit(3) would end the whole process" in execute("module.ends_at_once(x)")
        assert "stack overflow" in execute("module.recursion(x)")
        stop = "threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        assert "stopped in loops, line 53" in execute(stop + "module.loops(x)")
        assert "[1.0, 1.0, 1.0, 1.0]" in execute("module.fine(x); print(x.tolist())")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_other_functions_of_such_names_stay():
    kept = "struct Room { void exit(int door); };\nvoid leave(Room& r) { r.exit(1); }\n"
    assert "EXIT" not in translate(kept)
    own = "void abort(int why) {}\nvoid f() { abort(3); }\n"
    assert "ABORT" not in translate(own)
