"""What profilers and NVIDIA's tools print, read into rows and shortened to what one reads."""

import csv
import math
import re

NAME_WIDTH = 60  # of kernels in tables
# in the template of a kernel of PyTorch's, what it computes: CUDAFunctor_add, sqrt_kernel_cuda
OPERATION = r"::(\w*(?:[Ff]unctor|kernel|launch|Ops)\w*)"
# "at square_kernel(float *, int)+0x90 in square.cu:12", the file where there is line information
PLACE = r"\bat (\S.*?)[+:]0x[0-9a-f]+(?: in .*?:(\d+))?(?: \[.*\])?$"


def short_name(kernel: str) -> str:
    """Cut a kernel's name: no return type, namespaces and arguments; of templates what tells.

    That is plain arguments, or the operation that one of PyTorch's general kernels was made for.
    """
    if kernel.startswith(("Memcpy", "Memset")):
        return kernel
    full = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
    name, bracket, template = full.split("(")[0].strip().partition("<")
    name = name.split("::")[-1]
    template = template.rstrip("> ")
    if bracket and not re.fullmatch(r"[\w ,]{1,60}", template):
        operations = re.findall(OPERATION, full.partition("<")[2])
        template = operations[-1] if operations else "…"
    name = f"{name}<{template}>" if bracket else name
    end = 6  # there libraries sign: cublas, cudnn
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - end - 1]}…{name[-end:]}"


def parse_ncu(text: str) -> dict:
    """Return the metrics and hints in the CSV of `ncu --page details`."""
    lines = text.splitlines(keepends=True)
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows, hints = [], []
    for line in csv.DictReader(lines[begin:]):
        where = {"kernel": line["Kernel Name"], "section": line["Section Name"]}
        if line["Metric Name"]:
            value = _ncu_number(line["Metric Value"])
            metric = {"metric": line["Metric Name"], "unit": line["Metric Unit"], "value": value}
            rows.append(where | metric)
        if line.get("Rule Name"):
            hint = {"rule": line["Rule Name"], "kind": line["Rule Type"]}
            hint["text"] = line["Rule Description"]
            hint["speedup"] = _ncu_number(line.get("Estimated Speedup") or "") or None
            hints.append(where | hint)
    return {"rows": rows, "hints": hints}


def _ncu_number(text: str) -> float | str:
    """Read "1,048,576" or "87.5"; other values, such as names, stay texts."""
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def parse_sanitizer(text: str) -> dict | None:
    """Return compute-sanitizer's count of errors, how many it printed, and these in groups.

    None if the output has no summary.
    """
    count = re.search(r"={9} (?:ERROR|RACECHECK) SUMMARY: (\d+) ", text)
    if count is None:
        return None
    groups: dict[tuple, dict] = {}
    reports = _sanitizer_reports(text)
    for report in reports:
        place = re.search(PLACE, report, re.MULTILINE)
        kernel, line = place.groups() if place else ("unknown", None)
        thread = re.search(r"by thread (\(.*?\)) in block (\(.*?\))", report)
        hazards = re.findall(r"\[(\d+) hazards?\]", report)
        row = {
            "error": _sanitizer_headline(report),
            "kernel": short_name(kernel),
            "line": int(line) if line else None,
            "thread": thread[1] if thread else "",
            "block": thread[2] if thread else "",
            "times": 0,
        }
        key = (row["error"], row["kernel"], row["line"])
        groups.setdefault(key, row)["times"] += sum(map(int, hazards)) or 1
    return {"count": int(count[1]), "shown": len(reports), "rows": list(groups.values())}


def _sanitizer_reports(text: str) -> list[str]:
    """Return the reports in the output: a headline and the indented lines that belong to it.

    What the tool says about itself and its process is no report: it stands alone.
    """
    reports: list[list[str]] = []
    for indent, words in re.findall(r"^={9}( *)(.*?) *$", text, re.MULTILINE):
        if len(indent) > 1 and reports:
            reports[-1].append(words)
        elif words:
            reports.append([words])
    return ["\n".join(lines) for lines in reports if len(lines) > 1]


def _sanitizer_headline(report: str) -> str:
    """Return the first line without its place; for a race, with the accesses on the other side."""
    first = re.sub(PLACE, "", report.split("\n")[0]).removeprefix("Error: ").strip()
    others = re.findall(r"^(and \w+ access) at .*?:(\d+)(?: \[.*)?$", report, re.MULTILINE)
    return " ".join([first, *(f"{access}, line {line}" for access, line in others)])
