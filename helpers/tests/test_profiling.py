"""PyTorch's profilers for real; NVIDIA's tools stood in for by scripts that answer as they do.

The tools' outputs below have the form that ncu 2025 and compute-sanitizer 2025 (CUDA 13) print.
"""

import ctypes
import gzip
import json
import os
import stat
import sys

import pytest
import torch

from helpers import profiling, recorded
from helpers.kernel_output import kernel_output
from helpers.profiling import (
    autograd_profile,
    chrome_trace,
    ncu_counters,
    ncu_report,
    parse_ncu,
    parse_sanitizer,
    profile_table,
    sanitize,
    short_name,
)

x = torch.linspace(1, 2, 1000)


def two_operators():
    return torch.sqrt(x * x)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch, records):
    for module in (recorded, profiling):
        monkeypatch.setattr(module, "BACKEND", "cpu")


# ---- PyTorch's profilers


@pytest.mark.parametrize("profile", [profile_table, autograd_profile])
def test_operators_are_counted_and_timed(profile):
    table = profile(two_operators)
    found = {row["name"]: row for row in table.rows}
    for name in ("aten::sqrt", "aten::mul"):
        row = found[name]
        assert row["calls"] == 1 and row["on"] == "CPU" and row["cpu_us"] > 0
    assert sum(row["share"] for row in table.rows) == pytest.approx(1)
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


def test_a_kernels_time_is_counted_once(monkeypatch):
    monkeypatch.setattr(profiling, "BACKEND", "cuda")
    gpu = torch.autograd.DeviceType.CUDA
    rows = profiling._profile_rows(
        [
            Event("my block", 5.0, 0.0),
            Event("my block", 0.0, 400.0, gpu, annotation=True),
            Event("aten::mul", 20.0, 300.0),
            Event("void at::native::elementwise_kernel<128, 4, F<f> >(int)", 0.0, 300.0, gpu),
            Event("softmax_kernel", 0.0, 100.0, gpu),
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


@pytest.mark.parametrize(
    "name, short",
    [
        ("square_kernel(float*, float const*, int)", "square_kernel"),
        ("void at::native::(anonymous namespace)::max_pool<float>(float)", "max_pool<float>"),
        ("void tiled<32, true>(float*)", "tiled<32, true>"),
        ("void cutlass::Kernel2<cutlass_80_sgemm>(P::Params)", "Kernel2<cutlass_80_sgemm>"),
        ("void a::vectorized_elementwise_kernel<4, a::F<float>, std::array<char*, 2ul> >(int)",
         "vectorized_elementwise_kernel<…>"),
        ("void f<(bool)1, float>(float*)", "f<…>"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD"),
        ("triton_poi_fused_mul_0", "triton_poi_fused_mul_0"),
    ],
)  # fmt: skip
def test_kernel_names_are_cut_to_what_one_reads(name, short):
    assert short_name(name) == short


@pytest.mark.parametrize("name, opener", [("t.json", open), ("t.json.gz", gzip.open)])
def test_a_chrome_trace_can_be_opened(tmp_path, name, opener):
    trace = chrome_trace(two_operators, tmp_path / name)
    with opener(trace.path, "rt") as file:
        events = json.load(file)["traceEvents"]
    names = [event["name"] for event in events if event.get("cat") == "cpu_op"]
    assert {"aten::mul", "aten::sqrt"} <= set(names)
    assert trace.events["cpu_op"] == len(names) and trace.span_ms > 0
    assert "perfetto" in str(trace) and str(trace.path) in str(trace)


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

NCU_HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value",'
    '"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"\n'
)


def ncu_line(*cells):
    start = '"0","4711","python3.12","127.0.0.1","square_kernel(float *, const float *, int)",'
    start += '"1","7","(256, 1, 1)","(390625, 1, 1)","0","9.0",'
    return start + ",".join(f'"{cell}"' for cell in cells) + "\n"


NCU_CSV = "".join(
    [
        NCU_HEADER,
        ncu_line("GPU Speed Of Light Throughput", "Duration", "us", "213.44", *[""] * 5),
        ncu_line("GPU Speed Of Light Throughput", "DRAM Throughput", "%", "81.95", *[""] * 5),
        ncu_line("GPU Speed Of Light Throughput", "Elapsed Cycles", "cycle", "361,245", *[""] * 5),
        ncu_line("Launch Statistics", "Function Cache Configuration", "", "CachePreferNone",
                 *[""] * 5),
        ncu_line("SpeedOfLight", "", "", "", "SOLBottleneck", "INF",
                 "This workload is utilizing greater than 80.0% of the available compute or memory "
                 "performance of this device. See the @section:MemoryWorkloadAnalysis:Memory "
                 "Workload Analysis@ section.", "", ""),
        ncu_line("Occupancy", "", "", "", "AchievedOccupancy", "OPT",
                 "The difference between theoretical (100.0%) and measured occupancy (82.3%), see "
                 "the @url:Best Practices:https://docs.nvidia.com/cuda/#occupancy@.", "global",
                 "17.7"),
    ]
)  # fmt: skip


def test_ncu_metrics_and_hints_are_read():
    found = parse_ncu("==PROF== Connected to process 4711\nhello\n" + NCU_CSV)
    assert [(row["metric"], row["value"], row["unit"]) for row in found["rows"]] == [
        ("Duration", 213.44, "us"),
        ("DRAM Throughput", 81.95, "%"),
        ("Elapsed Cycles", 361245, "cycle"),
        ("Function Cache Configuration", "CachePreferNone", ""),
    ]
    limit, occupancy = found["hints"]
    assert (limit["kind"], limit["section"], limit["speedup"]) == ("INF", "SpeedOfLight", None)
    assert limit["text"].endswith("See the Memory Workload Analysis section.")
    assert (occupancy["rule"], occupancy["speedup"]) == ("AchievedOccupancy", 17.7)
    assert occupancy["text"].endswith("see the Best Practices.")


def test_older_ncu_without_speedups_is_read():
    old = NCU_HEADER.replace(',"Estimated Speedup Type","Estimated Speedup"', "")
    found = parse_ncu(old + ncu_line("Occupancy", "", "", "", "Rule", "WRN", "Text."))
    assert found["hints"][0]["speedup"] is None and found["rows"] == []


def test_ncu_output_without_a_table_is_empty():
    assert parse_ncu("==WARNING== No kernels were profiled.\n") == {"rows": [], "hints": []}


OVERRUN = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at bug_kernel(float *, const float *, int)+0x90 in cell:12
=========     by thread (232,0,0) in block (3,0,0)
=========     Access at 0x7f35e5200fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f35e5200000 of size 4,000 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at bug_kernel(float *, const float *, int)+0x90 in cell:12
=========     by thread (233,0,0) in block (3,0,0)
=========     Access at 0x7f35e5200fa4 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f35e5200000 of size 4,000 bytes
=========
Traceback (most recent call last):
torch.AcceleratorError: CUDA error: unspecified launch failure
========= Target application returned an error
========= ERROR SUMMARY: 24 errors
========= ERROR SUMMARY: 22 errors were not printed. Use --print-limit option to adjust.
"""

RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum_kernel(int *, int *)+0x90 in cell:6
=========     and Read access at sum_kernel(int *, int *)+0x100 in cell:8 [508 hazards]
=========     and Write access at sum_kernel(int *, int *)+0x90 in cell:6 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""

BARRIER = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in warp.
=========     at void tile_kernel<32>(float *)+0xa0
=========     by thread (19,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""

CLEAN = "========= COMPUTE-SANITIZER\nall good\n========= ERROR SUMMARY: 0 errors\n"


def test_an_overrun_is_read_and_grouped():
    found = parse_sanitizer(OVERRUN)
    assert found["count"] == 24
    assert found["rows"] == [
        {"error": "Invalid __global__ write of size 4 bytes", "kernel": "bug_kernel", "line": 12,
         "thread": "(232,0,0)", "block": "(3,0,0)", "times": 2}
    ]  # fmt: skip


def test_a_race_is_read_with_both_lines():
    found = parse_sanitizer(RACE)
    (row,) = found["rows"]
    assert found["count"] == 1 and (row["kernel"], row["line"]) == ("sum_kernel", 6)
    assert row["error"] == (
        "Race reported between Write access and Read access, line 8 and Write access, line 6"
    )


def test_an_error_without_line_information_is_read():
    (row,) = parse_sanitizer(BARRIER)["rows"]
    assert (row["kernel"], row["line"], row["thread"]) == ("tile_kernel<32>", None, "(19,0,0)")
    assert row["error"] == "Barrier error detected. Divergent thread(s) in warp."


def test_clean_and_cut_off_runs_are_told_apart():
    assert parse_sanitizer(CLEAN) == {"count": 0, "rows": []}
    assert parse_sanitizer("========= COMPUTE-SANITIZER\nKilled\n") is None


# ---- running the tools


@pytest.fixture
def tool(monkeypatch, tmp_path, pretend_gpu):
    """Pretend a GPU and return a function that puts a tool, written in Python, on the PATH."""
    pretend_gpu(profiling)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "none"))

    def install(name, source):
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\nimport os, subprocess, sys\n{source}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return install


# runs the script as ncu does, keeps what it printed as the report, and prints a page of it
FAKE_NCU = f"""
args = sys.argv[1:]
if args[0] == "--import":
    print({NCU_CSV!r})
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
    assert report.value("Duration") == 213.44 and len(report.rows) == 4
    assert [hint["kind"] for hint in report.hints] == ["INF", "OPT"]
    assert "Duration" in str(report) and "DRAM Throughput" not in str(report)
    with pytest.raises(KeyError, match="Elapsed Cycles"):
        report.value("No Such Metric")

    monkeypatch.setattr(recorded, "BACKEND", "cpu")
    again = ncu_report(SCRIPT, "01_ncu", kernel="square")
    assert again.rows == report.rows and again.hints == report.hints
    assert "recorded on Pretended GPU" in str(again) and "older version" not in str(again)
    assert "older version" in str(ncu_report(SCRIPT + "#", "01_ncu", kernel="square"))


def test_ncu_is_told_to_leave_the_clocks_alone(monkeypatch, tool):
    commands = []
    run = profiling._run
    monkeypatch.setattr(profiling, "_run", lambda args: commands.append(args) or run(args))
    tool("ncu", FAKE_NCU)
    ncu_counters(SCRIPT, ["dram__bytes_read.sum", "gpu__time_duration.sum"], "01_ncu", "square")
    measure, page = (" ".join(command) for command in commands)
    assert "--clock-control none" in measure and "--kernel-name regex:square" in measure
    assert "--metrics dram__bytes_read.sum,gpu__time_duration.sum" in measure
    assert "--print-units base" in page


def test_a_missing_tool_gives_a_sentence_and_the_record(monkeypatch, tool):
    monkeypatch.setattr(profiling.shutil, "which", lambda name, path: None)
    report = ncu_report(SCRIPT, "01_ncu")
    assert report.rows == [] and "ncu is not on this machine" in str(report)
    assert "apt-get install nsight-compute" in str(report)
    found = sanitize(SCRIPT)
    assert found.count is None and "compute-sanitizer is not on this machine" in str(found)


def test_forbidden_counters_give_the_line_that_allows_them(tool):
    error = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU"
    tool("ncu", f"print({error!r}); sys.exit(1)")
    report = ncu_report(SCRIPT, "01_ncu")
    assert report.rows == [] and "NVreg_RestrictProfilingToAdminUsers=0" in str(report)


def test_a_script_that_fails_under_ncu_is_an_error(tool):
    tool("ncu", FAKE_NCU)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        ncu_report("1 / 0", "01_ncu")


def test_a_tool_that_hangs_is_ended(monkeypatch, tool):
    monkeypatch.setattr(profiling, "TIME_LIMIT_S", 0.5)
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
    tool("compute-sanitizer", fake_sanitizer(OVERRUN))
    monkeypatch.setenv("RECORD", "1")
    found = sanitize(SCRIPT, "memcheck", key="01_overrun")
    assert found.count == 24 and found.rows[0]["line"] == 12
    assert "memcheck: 24 errors" in str(found) and "bug_kernel, line 12" in str(found)

    monkeypatch.setattr(recorded, "BACKEND", "cpu")
    again = sanitize(SCRIPT, "memcheck", key="01_overrun")
    assert again.rows == found.rows and "recorded on Pretended GPU" in str(again)


def test_a_clean_run_says_so(tool):
    tool("compute-sanitizer", fake_sanitizer(CLEAN))
    found = sanitize(SCRIPT, "initcheck")
    assert found.count == 0 and str(found).startswith("initcheck: no errors\nmeasured on")


def test_a_script_that_fails_under_the_sanitizer_is_an_error(tool):
    tool("compute-sanitizer", fake_sanitizer(CLEAN))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        sanitize("1 / 0")


def test_unknown_tools_are_refused():
    with pytest.raises(ValueError, match="racecheck"):
        sanitize(SCRIPT, "leakcheck")


def test_without_a_gpu_the_sanitizer_says_so():
    found = sanitize(SCRIPT)
    assert found.count is None and found.rows == [] and "NVIDIA GPU" in str(found)
