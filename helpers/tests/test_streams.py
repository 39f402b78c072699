"""The model of streams: what it overlaps, what it spoils, and which calls it finds unordered."""

import pytest
import torch

from helpers.compiler import compile_cuda
from helpers.device import DEVICE
from helpers.streams import (
    DEFAULT_STREAM,
    RECORDER,
    Stream,
    cudaDeviceSynchronize,
    cudaEventCreate,
    cudaEventRecord,
    cudaEventSynchronize,
    cudaMemcpyAsync,
    cudaMemcpyDeviceToHost,
    cudaMemcpyHostToDevice,
    cudaStreamCreate,
    cudaStreamCreateWithFlags,
    cudaStreamNonBlocking,
    cudaStreamSynchronize,
    cudaStreamWaitEvent,
    from_log,
    launch_async,
    model_gpu,
)

N = 1000  # floats of a copy: 100 µs at COPY_GBPS
COPY_GBPS = 0.04


def double(x):
    x.mul_(2)


def copy_in(device, inp, stream):
    cudaMemcpyAsync(device, inp, cudaMemcpyHostToDevice, stream)


def copy_out(out, device, stream):
    cudaMemcpyAsync(out, device, cudaMemcpyDeviceToHost, stream)


def batches(out, inp, device, streams):
    for i in range(len(inp)):
        stream = streams[i % len(streams)]
        copy_in(device[i], inp[i], stream)
        launch_async(double, 100, stream, device[i])
        copy_out(out[i], device[i], stream)


def arrays(rows):
    inp = torch.randn(rows, N)
    return torch.zeros_like(inp), inp, torch.zeros_like(inp)


def run(fn, *args):
    return model_gpu(fn, *args, pcie_gbps=COPY_GBPS, host_us=0)


@pytest.mark.parametrize(
    ("names", "total"), [("A", 1200), ("AB", 700), ("ABC", 600), ("ABCD", 600)]
)
def test_streams_overlap_as_far_as_the_engines_go(names, total):
    out, inp, device = arrays(4)
    schedule = run(batches, out, inp, device, [cudaStreamCreate(name) for name in names])
    assert schedule.total_us == pytest.approx(total) and not schedule.hazards
    assert torch.equal(out, 2 * inp)
    assert [e["kind"] for e in schedule.events].count("kernel") == 4
    assert str(schedule).endswith("Whatever touches the same memory is ordered.")


def test_the_host_asks_one_after_the_other():
    schedule = model_gpu(batches, *arrays(1), [cudaStreamCreate("A")], host_us=5)
    assert schedule.events[0]["ts"] == 5


def two_streams(order):
    def fn(out, inp, device, a, b):
        event = cudaEventCreate()
        if order == "wait first":
            cudaStreamWaitEvent(b, event)
        copy_in(device, inp, a)
        if order == "event":
            cudaEventRecord(event, a)
            cudaStreamWaitEvent(b, event)
        elif order == "event, host":
            cudaEventRecord(event, a)
            cudaEventSynchronize(event)
        elif order == "stream, host":
            cudaStreamSynchronize(a)
        elif order == "device, host":
            cudaDeviceSynchronize()
        elif order == "wait first":
            cudaEventRecord(event, a)
        copy_out(out, device, b)

    return fn


@pytest.mark.parametrize("order", ["event", "event, host", "stream, host", "device, host"])
def test_what_waits_is_right(order):
    out, inp, device = (row[0] for row in arrays(1))
    schedule = run(two_streams(order), out, inp, device, Stream("a"), Stream("b"))
    assert torch.equal(out, inp) and not schedule.hazards
    assert schedule.host_waits == order.endswith("host")


@pytest.mark.parametrize("order", ["none", "wait first"])
def test_what_nothing_orders_is_spoiled_and_named(order):
    out, inp, device = (row[0] for row in arrays(1))
    schedule = run(two_streams(order), out, inp, device, Stream("a"), Stream("b"))
    assert torch.equal(out, torch.zeros(N))
    sentence = "(copy to device, stream a) writes device, line 2 (copy to host, stream b) reads it"
    assert [h for h in schedule.hazards if sentence in h] == schedule.hazards != []


def test_the_default_stream_waits_for_blocking_streams_only():
    def fn(out, inp, device, stream):
        copy_in(device, inp, stream)
        launch_async(double, 100, DEFAULT_STREAM, device)
        copy_out(out, device, stream)

    out, inp, device = (row[0] for row in arrays(1))
    schedule = run(fn, out, inp, device, cudaStreamCreate("A"))
    assert torch.equal(out, 2 * inp) and not schedule.hazards and schedule.total_us == 300
    apart = cudaStreamCreateWithFlags("A", cudaStreamNonBlocking)
    schedule = run(fn, out, inp, torch.zeros(N), apart)
    assert not torch.equal(out, 2 * inp) and len(schedule.hazards) == 2
    assert "device[0]" not in schedule.hazards[0]  # it has no rows


def test_rows_are_named_and_lines_counted_from_the_def():
    def fn(device, a, b):
        launch_async(double, 10, a, device[1])
        launch_async(double, 10, b, device[1, 10:20])

    schedule = run(fn, torch.zeros(3, N), Stream("a"), Stream("b"))
    assert schedule.hazards == [
        "line 2 (kernel, stream a) writes device[1], line 3 (kernel, stream b) writes it: "
        "nothing orders them"
    ]


def test_misuse_is_an_error():
    with pytest.raises(RuntimeError, match="inside model_gpu"):
        cudaDeviceSynchronize()
    with pytest.raises(ValueError, match="contiguous"):
        run(lambda x: launch_async(double, 10, DEFAULT_STREAM, x.t()), torch.zeros(3, 2))
    with pytest.raises(RuntimeError, match="inside model_gpu"):  # also after an error
        cudaDeviceSynchronize()


PIPELINE = (
    RECORDER
    + r"""
std::vector<int64_t> both(torch::Tensor out, torch::Tensor inp, torch::Tensor device,
                          bool ordered) {
    cudaStream_t a, b;
    cudaEvent_t event;
    size_t bytes = inp.nbytes();
    float *o = out.data_ptr<float>(), *i = inp.data_ptr<float>(), *d = device.data_ptr<float>();
    cudaStreamCreate(&a), cudaStreamCreate(&b), cudaEventCreate(&event);
    cudaMemcpyAsync(d, i, bytes, cudaMemcpyHostToDevice, a);
    note_call(2, __LINE__, a, d, d, bytes);
    if (ordered) cudaEventRecord(event, a), cudaStreamWaitEvent(b, event, 0);
    cudaMemcpyAsync(o, d, bytes, cudaMemcpyDeviceToHost, b);
    cudaDeviceSynchronize();
    return take_log();
}
"""
)


def test_a_strings_calls_are_noted():
    both = compile_cuda(PIPELINE, ["both"]).both
    out, inp, device = arrays(1)
    device = device.to(DEVICE)
    names = {"out": out, "inp": inp, "device": device}
    given = {"pcie_gbps": COPY_GBPS, "host_us": 0, "first_line": RECORDER.count("\n") + 1}
    schedule = from_log(both(out, inp, device, True), names, 50, **given)
    assert torch.equal(out, inp) and not schedule.hazards
    assert schedule.total_us == pytest.approx(250)
    schedule = from_log(both(out, inp, device, False), names, 50, **given)
    assert schedule.hazards == [
        f"line {line} ({what}, stream A) writes device[0], line 12 (copy to host, stream B) reads "
        "it: nothing orders them"
        for line, what in ((9, "copy to device"), (10, "kernel"))
    ]


def test_a_noted_kernel_may_write_both_of_its_arrays():
    log = [2, 5, 100, 4000, 8000, 40, 2, 6, 200, 6000, 8000, 40]
    assert from_log(log, {}, kernel_us=50).hazards == [
        "line 5 (kernel, stream A) writes the same memory, line 6 (kernel, stream B) writes it: "
        "nothing orders them"
    ]
