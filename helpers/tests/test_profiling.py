"""PyTorch's profilers for real; NVIDIA's tools stood in for by scripts that answer as they do.

outputs/ holds what the tools of CUDA 13.0 printed on an H200, shortened.
"""

import ctypes
import gzip
import json
import os
import stat
import sys
from pathlib import Path

import pytest
import torch

from helpers import recorded
from helpers.base.machine import ROOT
from helpers.compiler import kernel_output, tools
from helpers.profiling import (
    autograd_profile,
    chrome_trace,
    ncu_counters,
    ncu_report,
    nvidia_reports,
    nvidia_tools,
    profile_table,
    sanitize,
    torch_profilers,
)
from helpers.profiling.tool_output import parse_ncu, parse_sanitizer, short_name

OUTPUTS = {path.name: path.read_text() for path in Path(__file__).with_name("outputs").iterdir()}

x = torch.linspace(1, 2, 1000)


def two_operators():
    return torch.sqrt(x * x)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch, records):
    for module in (recorded, torch_profilers, nvidia_reports):
        monkeypatch.setattr(module, "BACKEND", "cpu")


# ---- PyTorch's profilers


@pytest.mark.parametrize("profile", [profile_table, autograd_profile])
def test_operators_are_counted_and_timed(profile):
    table = profile(two_operators)
    found = {row["name"]: row for row in table.rows}
    for name in ("aten::sqrt", "aten::mul"):
        row = found[name]
        assert row["calls"] == 1 and row["on"] == "CPU" and row["cpu_us"] > 0
    assert sum(row["share"] for row in table.rows) == pytest.approx(1, abs=0.05)
    assert [row["share"] for row in table.rows] == sorted(
        (row["share"] for row in table.rows), reverse=True
    )
    assert "aten::sqrt" in str(table) and "GPU µs" not in str(table)
    assert "the CPU of this machine" in table.caption and "aten::mul" in table._repr_html_()


def test_at_most_the_rows_asked_for():
    assert len(profile_table(two_operators, rows=1).rows) == 1


def test_without_a_gpu_a_table_with_a_key_is_the_recorded_one(monkeypatch, pretend_gpu):
    calls = []
    table = profile_table(lambda: calls.append(1), "01_profile")
    assert calls == [1] and table.rows == [] and "Nothing is recorded" in str(table)

    with monkeypatch.context():
        pretend_gpu()  # records what the profiler of this machine's CPU sees
        monkeypatch.setenv("RECORD", "1")
        live = profile_table(two_operators, "01_profile")
    monkeypatch.setattr(recorded, "BACKEND", "cpu")
    table = profile_table(lambda: None, "01_profile")
    assert table.rows == live.rows != [] and "recorded on Pretended GPU" in str(table)


class Event:
    """A row of key_averages() as a GPU gives it."""

    def __init__(self, key, cpu_us, gpu_us, device=torch.autograd.DeviceType.CPU, annotation=False):
        self.key, self.count, self.device_type = key, 2, device
        self.self_cpu_time_total, self.self_device_time_total = cpu_us, gpu_us
        self.is_user_annotation = annotation


GPU = torch.autograd.DeviceType.CUDA


def test_a_kernels_time_is_counted_once(monkeypatch):
    monkeypatch.setattr(torch_profilers, "BACKEND", "cuda")
    rows = torch_profilers._profile_rows(
        [
            Event("my block", 5.0, 0.0),
            Event("my block", 0.0, 400.0, GPU, annotation=True),
            Event("aten::mul", 20.0, 300.0),
            Event("void at::native::elementwise_kernel<128, 4, F<f> >(int)", 0.0, 300.0, GPU),
            Event("softmax_kernel", 0.0, 100.0, GPU),
            Event("cudaLaunchKernel", 9.0, 0.0),
        ]
    )
    assert [(row["name"], row["on"], row["share"]) for row in rows] == [
        ("aten::mul", "CPU", 0.75),
        ("elementwise_kernel<…>", "GPU", 0.75),
        ("softmax_kernel", "GPU", 0.25),
        ("cudaLaunchKernel", "CPU", 0.0),
        ("my block", "CPU", 0.0),
    ]
    assert rows[1]["cpu_us"] is None and rows[1]["gpu_us"] == 300


def test_rows_of_the_profilers_own_and_rows_without_time_are_left_out(monkeypatch):
    monkeypatch.setattr(torch_profilers, "BACKEND", "cuda")
    rows = torch_profilers._profile_rows(  # torch.sqrt(x * x) on an H200, and a view
        [
            Event("aten::mul", 63.1, 188.9),
            Event("Activity Buffer Request", 2121.8, 188.9),
            Event("cudaLaunchKernel", 41.6, 0),
            Event("aten::view", 0.4, 0),
            Event("mul_kernel", 0, 188.9, GPU),
            Event("aten::sqrt", 25.3, 189.3),
            Event("sqrt_kernel", 0, 189.3, GPU),
            Event("cudaDeviceSynchronize", 290.5, 0),
        ]
    )
    assert [(row["name"], round(row["share"], 2)) for row in rows] == [
        ("aten::sqrt", 0.5),
        ("sqrt_kernel", 0.5),
        ("aten::mul", 0.5),
        ("mul_kernel", 0.5),
        ("cudaLaunchKernel", 0.0),
    ]


def test_without_kernel_rows_operators_share_the_gpus_time(monkeypatch):
    monkeypatch.setattr(torch_profilers, "BACKEND", "cuda")
    rows = torch_profilers._profile_rows(  # what torch.autograd.profiler sees of the same
        [
            Event("cudaDeviceSynchronize", 282.3, 0),
            Event("aten::mul", 38.4, 245.0),
            Event("cudaLaunchKernel", 27.5, 0),
            Event("cudaEventRecord", 16.2, 0),
            Event("aten::sqrt", 13.7, 192.0),
        ]
    )
    names_and_shares = [(row["name"], row["share"]) for row in rows]
    assert names_and_shares == [
        ("aten::mul", pytest.approx(245 / 437)),
        ("aten::sqrt", pytest.approx(192 / 437)),
        ("cudaLaunchKernel", 0.0),
    ]


@pytest.mark.parametrize(
    "name, short",
    [
        ("square_kernel(float*, float const*, int)", "square_kernel"),
        ("void at::native::(anonymous namespace)::max_pool_forward_nchw<float, int>(int, float "
         "const*, long, long, long, int, int, float*, long*)",
         "max_pool_forward_nchw<float, int>"),
        ("void tiled<32, true>(float*)", "tiled<32, true>"),
        ("void cutlass::Kernel2<cutlass_80_sgemm>(P::Params)", "Kernel2<cutlass_80_sgemm>"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
         "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, "
         "3ul>)",
         "vectorized_elementwise_kernel<CUDAFunctor_add>"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, "
         "float, float, at::native::(anonymous namespace)::threshold_kernel_impl<float>("
         "at::TensorIteratorBase&, float, float)::{lambda(float, float)#1}>, std::array<char*, "
         "3ul> >(int, at::native::BinaryFunctor<float, float, float, at::native::(anonymous "
         "namespace)::threshold_kernel_impl<float>(at::TensorIteratorBase&, float, float)::"
         "{lambda(float, float)#1}>, std::array<char*, 3ul>)",
         "vectorized_elementwise_kernel<threshold_kernel_impl>"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
         "launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar, at::native::detail"
         "::ClampLimits)::{lambda()#1}::operator()() const::{lambda()#7}::operator()() const::"
         "{lambda(float)#1}, std::array<char*, 2ul> >(int)",
         "vectorized_elementwise_kernel<launch_clamp_scalar>"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::"
         "func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator()("
         "at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4, 4> >(int)",
         "reduce_kernel<sum_functor>"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x64x8_stage3_warpsize1x2x1_ffma_aligna4_"
         "alignc4_execute_kernel__5x_cublas",
         "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x64x8…cublas"),
        ("void f<(bool)1, float>(float*)", "f<…>"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("triton_poi_fused_mul_0", "triton_poi_fused_mul_0"),
    ],
)  # fmt: skip
def test_kernel_names_are_cut_to_what_one_reads(name, short):
    assert short_name(name) == short and len(short) <= 60


def test_a_compiled_function_shows_under_its_own_name():
    library = torch.library.Library("cuda_" + "0" * 20, "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeExplicitAutograd")
    twice = getattr(torch.ops, "cuda_" + "0" * 20).twice
    names = [row["name"] for row in profile_table(lambda: twice(torch.ones(9))).rows]
    assert "twice" in names


@pytest.mark.parametrize("name, opener", [("t.json", open), ("t.json.gz", gzip.open)])
def test_a_chrome_trace_can_be_opened(tmp_path, name, opener, capsys):
    trace = chrome_trace(two_operators, tmp_path / name)
    with opener(trace.path, "rt") as file:
        events = json.load(file)["traceEvents"]
    names = [event["name"] for event in events if event.get("cat") == "cpu_op"]
    assert {"aten::mul", "aten::sqrt"} <= set(names)
    assert trace.events["cpu_op"] == len(names) and trace.span_ms > 0
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path / name}: open it at") and "perfetto" in said
    assert f"{len(names)} cpu_op" in str(trace) and "ms" in str(trace)


@pytest.mark.parametrize("profile", [profile_table, autograd_profile])
def test_a_default_device_changes_nothing(profile):
    with torch.device("meta"):  # as set_default_device("cuda") does for real
        assert "aten::sqrt" in [row["name"] for row in profile(two_operators).rows]


def test_a_profile_leaves_the_environment_as_it_was(monkeypatch):
    seen = []
    for value in (None, "3"):
        monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
        if value:
            monkeypatch.setenv("KINETO_LOG_LEVEL", value)
        profile_table(lambda: seen.append(os.environ["KINETO_LOG_LEVEL"]))
        assert os.environ.get("KINETO_LOG_LEVEL") == value
    assert set(seen[:2]) == {"99"} and set(seen[2:]) == {"3"}


# ---- what C code prints


def test_output_of_c_code_reaches_python(capfd):
    with kernel_output() as output:
        ctypes.CDLL(None).printf(b"hello from block %d\n", 3)
    assert output.text == "hello from block 3\n"
    assert capfd.readouterr().out == "hello from block 3\n"


def test_output_is_kept_when_the_block_fails(capfd):
    with pytest.raises(ZeroDivisionError), kernel_output() as output:
        ctypes.CDLL(None).printf(b"last words\n")
        raise ZeroDivisionError
    assert output.text == "last words\n"
    os.write(1, b"stdout is back\n")
    assert capfd.readouterr().out.endswith("stdout is back\n")


# ---- parsing


def test_ncu_metrics_are_read():
    rows = parse_ncu(OUTPUTS["ncu_details.csv"])["rows"]
    found = {(row["section"], row["metric"]): (row["value"], row["unit"]) for row in rows}
    assert len(found) == len(rows) == 14
    assert {row["kernel"] for row in rows} == {"square_kernel(float *, const float *, int)"}
    light, launch = "GPU Speed Of Light Throughput", "Launch Statistics"
    assert found[light, "Duration"] == (302.14, "us")
    assert found[light, "Elapsed Cycles"] == (597824, "cycle")
    assert found["Memory Workload Analysis", "Memory Throughput"] == (2.59, "Tbyte/s")
    assert found[launch, "Function Cache Configuration"] == ("CachePreferNone", "")
    assert found[launch, "Threads"] == (10**8, "thread")


def test_ncu_hints_are_read():
    hints = parse_ncu("==PROF== Connected to process 1124\n" + OUTPUTS["ncu_details.csv"])["hints"]
    assert [(hint["rule"], hint["kind"], hint["speedup"]) for hint in hints] == [
        ("SOLBottleneck", "OPT", None),
        ("HighPipeUtilization", "OPT", 94.05),
        ("IssueSlotUtilization", "OPT", 46.27),
        ("CPIStall", "OPT", 46.27),
        ("CPIStall", "INF", None),
        ("FPInstructions", "OPT", 2.975),
        ("AchievedOccupancy", "OPT", 28.41),
    ]
    assert hints[0]["section"] == "SpeedOfLight"
    assert "an instruction every 5.9 cycles." in hints[2]["text"]


def test_ncu_counters_are_read_without_hints():
    found = parse_ncu(OUTPUTS["ncu_counters.csv"])
    assert found["hints"] == []
    assert [(row["metric"], row["value"], row["unit"]) for row in found["rows"]] == [
        ("dram__bytes_read.sum", 400_054_784, "byte"),
        ("gpu__time_duration.sum", 302_304, "ns"),
        ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", 3_125_000, ""),
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 12_500_000, "sector"),
    ]


def test_thousands_may_have_commas():
    counters = OUTPUTS["ncu_counters.csv"].replace('"3125000"', '"3,125,000"')
    assert parse_ncu(counters)["rows"][2]["value"] == 3_125_000


def test_ncu_output_without_a_table_is_empty():
    assert parse_ncu("==WARNING== No kernels were profiled.\n") == {"rows": [], "hints": []}


def test_an_overrun_is_read_and_grouped():
    assert parse_sanitizer(OUTPUTS["overrun.txt"]) == {
        "count": 24,
        "shown": 4,
        "rows": [
            {"error": "Invalid __global__ read of size 4 bytes", "kernel": "bug_kernel", "line": 4,
             "thread": "(232,0,0)", "block": "(3,0,0)", "times": 4}
        ],
    }  # fmt: skip


def test_a_race_is_read_with_both_lines():
    found = parse_sanitizer(OUTPUTS["race.txt"])
    (row,) = found["rows"]
    assert found["count"] == found["shown"] == 1
    assert (row["kernel"], row["line"], row["times"]) == ("bug_kernel", 4, 4096)
    assert row["error"] == "Race reported between Write access and Read access, line 4"


def test_what_the_sanitizer_says_of_itself_is_no_error():
    found = parse_sanitizer(OUTPUTS["uninitialised.txt"])
    (row,) = found["rows"]
    assert (found["count"], found["shown"], row["times"]) == (257, 2, 2)
    assert row["error"] == "Uninitialized __global__ memory read of size 4 bytes"


@pytest.mark.parametrize("place, line", [(" in cell:4", 4), ("", None)])
def test_a_barrier_is_read_with_and_without_line_information(place, line):
    output = OUTPUTS["barrier.txt"].replace(" in cell:4", place)
    (row,) = parse_sanitizer(output)["rows"]
    assert row["error"] == "Barrier error detected. Divergent thread(s) in warp."
    assert (row["kernel"], row["line"], row["block"]) == ("bug_kernel", line, "(0,0,0)")


def test_clean_and_cut_off_runs_are_told_apart():
    assert parse_sanitizer(OUTPUTS["clean.txt"]) == {"count": 0, "shown": 0, "rows": []}
    assert parse_sanitizer(OUTPUTS["failing.txt"]) is None


# ---- running the tools


@pytest.fixture
def tool(monkeypatch, tmp_path, pretend_gpu):
    """Pretend a GPU and return a function that puts a tool, written in Python, on the PATH."""
    pretend_gpu(nvidia_reports)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_cuda_homes", lambda: [])

    def install(name, source):
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\nimport os, subprocess, sys\n{source}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return install


# runs the script as ncu does, keeps what it printed as the report, and prints a page of it
FAKE_NCU = f"""
args = sys.argv[1:]
if args[0] == "--import":
    print({OUTPUTS["ncu_details.csv"]!r})
    print("arguments:", args[2:], file=sys.stderr)
else:
    done = subprocess.run(args[args.index(sys.executable):], capture_output=True, text=True)
    print(done.stdout, done.stderr, args)
    if done.returncode == 0:
        open(args[args.index("--export") + 1], "w").write(done.stdout)
"""

SCRIPT = "import helpers\nprint('script ran')\n"


def test_ncu_runs_the_script_and_reports(monkeypatch, tool):
    tool("ncu", FAKE_NCU)
    monkeypatch.setenv("RECORD", "1")
    report = ncu_report(SCRIPT, "01_ncu", kernel="square", show=["Duration"])
    assert report.value("Duration") == 302.14 and len(report.rows) == 14
    assert len(report.hints) == 7
    assert "Duration" in str(report) and "DRAM Throughput" not in str(report)
    with pytest.raises(KeyError, match="Elapsed Cycles"):
        report.value("No Such Metric")

    monkeypatch.setattr(recorded, "BACKEND", "cpu")
    again = ncu_report(SCRIPT, "01_ncu", kernel="square")
    assert again.rows == report.rows and again.hints == report.hints
    assert "recorded on Pretended GPU" in str(again)
    other = ncu_report(SCRIPT + "#", "01_ncu", kernel="square")
    assert "recorded for an earlier version of this cell on" in str(other)


def test_a_script_is_known_by_its_kernels(monkeypatch, tmp_path):
    kernel = "__global__ void k(float* x) { x[0] = 1; }"
    monkeypatch.chdir(tmp_path)

    def known(kernel, file="", size=1):
        (tmp_path / "sum.cu").write_text(f"__global__ void s() {{ {file} }}")
        script = f"compile_cuda({kernel!r}).k({size}); compile_cuda(Path('sum.cu')).s()"
        return nvidia_reports._without_kernels(script)

    first = known(kernel)
    assert first[0] == "compile_cuda(the string).k(1); compile_cuda(Path('sum.cu')).s()"
    assert sorted(version.split()[0] for version in first[1]) == ["k", "s"]
    assert known("// sets\n" + kernel, "/* nothing */") == first
    assert known(kernel, size=2)[0] != first[0]
    for other in known(kernel.replace("1;", "2;")), known(kernel, "int i;"):
        assert other[0] == first[0] and len(other[1] & first[1]) == 1


def test_ncu_is_told_to_leave_the_clocks_alone(monkeypatch, tool):
    commands = []
    run = nvidia_tools.run
    monkeypatch.setattr(nvidia_tools, "run", lambda args: commands.append(args) or run(args))
    tool("ncu", FAKE_NCU)
    ncu_counters(SCRIPT, ["dram__bytes_read.sum", "gpu__time_duration.sum"], "01_ncu", "square")
    measure, page = (" ".join(command) for command in commands)
    assert "--clock-control none" in measure and "--kernel-name regex:square" in measure
    assert "--metrics dram__bytes_read.sum,gpu__time_duration.sum" in measure
    assert "--print-units base" in page


def test_a_missing_tool_gives_a_sentence_and_the_record(monkeypatch, tool):
    monkeypatch.setattr(tools.shutil, "which", lambda name, path=None: None)
    report = ncu_report(SCRIPT, "01_ncu")
    assert report.rows == [] and "There is no ncu.\n" in str(report)
    assert "apt install nsight-compute" in str(report)
    found = sanitize(SCRIPT)
    assert found.count is None and "There is no compute-sanitizer.\n" in str(found)


def test_forbidden_counters_give_the_line_that_allows_them(tool):
    error = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"
    tool("ncu", f"print({error!r}); sys.exit(1)")
    report = ncu_report(SCRIPT, "01_ncu")
    assert report.rows == [] and "NVreg_RestrictProfilingToAdminUsers=0" in str(report)


def test_a_script_that_fails_under_ncu_is_an_error(tool):
    tool("ncu", FAKE_NCU)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        ncu_report("1 / 0", "01_ncu")


def test_scripts_find_helpers_and_what_pythonpath_names(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    show = [sys.executable, "-c", "import helpers, os; print(os.environ['PYTHONPATH'])"]
    assert nvidia_tools.run(show).output == f"{ROOT}{os.pathsep}/elsewhere\n"


def test_a_tool_that_hangs_is_ended(monkeypatch, tool):
    monkeypatch.setattr(nvidia_tools, "TIME_LIMIT_S", 0.5)
    tool("ncu", "import time; time.sleep(60)")
    with pytest.raises(RuntimeError, match="ncu ran past 0.5 s"):
        ncu_report(SCRIPT, "01_ncu")


def fake_sanitizer(output):
    return f"""
script = sys.argv[sys.argv.index(sys.executable):]
done = subprocess.run(script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(done.stdout, {output!r})
assert os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
"""


def test_the_sanitizer_runs_the_script_and_reports(monkeypatch, tool):
    tool("compute-sanitizer", fake_sanitizer(OUTPUTS["overrun.txt"]))
    monkeypatch.setenv("RECORD", "1")
    found = sanitize(SCRIPT, "memcheck", key="01_overrun")
    assert found.count == 24 and found.rows[0]["line"] == 4
    assert "memcheck: 24 errors, the first 4 of them above\n" in str(found)
    assert "bug_kernel, line 4  (232,0,0)  (3,0,0)      4\n" in str(found)

    monkeypatch.setattr(recorded, "BACKEND", "cpu")
    again = sanitize(SCRIPT, "memcheck", key="01_overrun")
    assert again.rows == found.rows and "recorded on Pretended GPU" in str(again)


def test_a_race_has_no_column_for_threads(tool):
    tool("compute-sanitizer", fake_sanitizer(OUTPUTS["race.txt"]))
    text = str(sanitize(SCRIPT, "racecheck"))
    assert "thread" not in text and "bug_kernel, line 4  4,096\nracecheck: 1 error\n" in text


def test_a_clean_run_says_so(tool):
    tool("compute-sanitizer", fake_sanitizer(OUTPUTS["clean.txt"]))
    found = sanitize(SCRIPT, "initcheck")
    assert found.count == 0 and str(found).startswith("initcheck: no errors\nmeasured on")


def test_a_script_that_fails_under_the_sanitizer_is_an_error(tool):
    tool("compute-sanitizer", fake_sanitizer(OUTPUTS["clean.txt"]))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        sanitize("1 / 0")
    tool("compute-sanitizer", f"print({OUTPUTS['failing.txt']!r})")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        sanitize("1 / 0")


def test_unknown_tools_are_refused():
    with pytest.raises(ValueError, match="racecheck"):
        sanitize(SCRIPT, "leakcheck")


def test_without_a_gpu_the_sanitizer_says_so():
    found = sanitize(SCRIPT)
    assert found.count is None and found.rows == [] and "NVIDIA GPU" in str(found)
