"""What nvcc refuses and a C++ compiler would not: found before the compiler sees it.

What needs overloads or types to be decided is left to the compiler (see spaces.py).
"""

import re

from .launches import find_launches, kernel_start
from .scanner import Function, Source, blank, closing, closing_angle
from .unsupported import without_other_architectures

# Of the standard library, what has no constexpr functions that nvcc would take for device code.
_STD_TYPES = (
    "vector|string|map|unordered_map|set|unordered_set|multimap|list|deque|queue|priority_queue"
    "|stack|function|ostringstream|stringstream|ofstream|ifstream|thread|mutex|atomic|future"
    "|unique_ptr|shared_ptr|make_unique|make_shared|mt19937|random_device|uniform_real_distribution"
    "|normal_distribution|default_random_engine|valarray|complex|cout|cerr|cin|endl"
)
_STD_FUNCTIONS = (
    "sort|stable_sort|swap|to_string|stoi|stof|accumulate|reduce|fill|fill_n|copy|copy_n|iota|reverse"
    "|transform|for_each|find|count|count_if|max_element|min_element|partial_sum|inner_product"
    "|shuffle|getline|cout|cerr"
)
_C_FUNCTIONS = (
    "rand|srand|drand48|time|exit|abort|getenv|system|fprintf|sprintf|snprintf|fopen|fclose|puts"
    "|putchar|scanf|getchar|fflush|strlen|strcmp|strcpy|qsort|atoi|atof|sleep|usleep|gettimeofday"
)
# What of the runtime API a kernel may call; the rest is for the host.
_API_OF_KERNELS = (
    "cudaGetLastError|cudaPeekAtLastError|cudaGetErrorString|cudaGetErrorName|cudaMalloc|cudaFree"
    "|cudaMemcpyAsync|cudaMemsetAsync|cudaStreamCreateWithFlags|cudaStreamDestroy|cudaGetDevice"
    "|cudaStreamWaitEvent|cudaEventCreateWithFlags|cudaEventRecord|cudaEventDestroy|cudaLaunchDevice"
    "|cudaGetDeviceCount|cudaDeviceGetAttribute|cudaFuncGetAttributes|cudaRuntimeGetVersion"
    "|cudaOccupancy\\w+|cudaTrigger\\w+|cudaGridDependency\\w+|cudaGetParameterBuffer\\w*|cudaCG\\w+"
    "|cudaGraphLaunch|cudaGetCurrentGraphExec|cudaGraphSetConditional"
)
_ONLY_IN_KERNELS = (
    r"__syncthreads\w*|__syncwarp|__\w+_sync|__threadfence\w*|__ldg|atomic(?:Add|Sub|Exch|Min|Max"
    r"|Inc|Dec|CAS|And|Or|Xor)"
)


def find_refused(source: Source, lambdas: bool = False) -> tuple[int, str] | None:
    """Return (line, sentence) of the first thing that nvcc refuses, or None.

    `lambdas`: what it refuses with --extended-lambda.
    """
    live = without_other_architectures(source.bare)
    of_lambdas = _plain_lambdas if lambdas else _device_lambdas
    checks = (_kernels, _device_code, _host_code, _launches, _shared_variables, _dynamic_shared)
    checks = (*checks, of_lambdas)
    found = [place for check in checks for place in check(source, live)]
    found = [(at, sentence) for at, sentence in found if live[at : at + 1].strip()]
    if not found:
        return None
    at, sentence = min(found)
    return source.line_of(at), sentence


def _kernels(source, live):
    for kernel in source.functions:
        if not kernel.is_kernel:
            continue
        at, name = kernel.name_at, kernel.name
        first, last = kernel.parameters
        if not kernel.words & {"void", "auto"}:
            yield (
                at,
                (
                    f"a kernel returns nothing: write __global__ void {name}, and let it store its "
                    "result in an array."
                ),
            )
        if kernel.owner and "friend" not in kernel.words:
            yield at, f"a kernel is no method: declare {name} outside of {kernel.owner}."
        if re.search(r"(?:^|,)\s*\.\.\.\s*$", live[first + 1 : last]):
            yield at, f"a kernel takes a fixed number of arguments, and {name} ends with '...'."
        for found in re.finditer(_HOST_PARAMETER, live[first:last]):
            yield first + found.start(), _as_parameter(name, " ".join(found[1].split()))


_HOST_PARAMETER = (
    rf"(?:(?<=[(,\s])(?:const\s+)?)((?:torch|at)\s*::\s*Tensor|std\s*::\s*(?:{_STD_TYPES}))\b"
)


def _as_parameter(name, kind):
    if kind.endswith("Tensor"):
        return (
            f"{name} cannot take a {kind}: give it x.data_ptr<float>() and what it needs of sizes."
        )
    return (
        f"{name} cannot take a {kind}, which lives on the host: give it a pointer to device memory."
    )


def _device_code(source, live):
    own = {function.name for function in source.functions} | {m.name for m in source.macros}
    std = rf"(?<!\bcuda::)\bstd\s*::\s*(?:{_STD_TYPES}|{_STD_FUNCTIONS})\b"
    if re.search(r"\busing\s+namespace\s+std\s*;", live):
        std += rf"|(?<![\w.>:])(?:(?:{_STD_TYPES})\s*(?=<)|(?:cout|cerr|endl)\b)"
    patterns = [
        (std, _of_the_host_library),
        (rf"(?<![\w.>:])(?:std\s*::\s*)?(?:{_C_FUNCTIONS})\s*(?=\()", _of_the_host_library),
        (rf"\b(?!(?:{_API_OF_KERNELS})\b)cuda[A-Z]\w*\s*(?=\()", _of_the_api),
        (r"\b(?:throw|try)\b", _of_exceptions),
        (r"(?:\.|->)\s*(?:data_ptr|mutable_data_ptr|const_data_ptr)\s*(?=[<(])", _of_tensors),
        (r"\b(?:dynamic_cast|typeid)\b", _of_types_at_run_time),
        (_WRITTEN_BUILT_IN, _of_built_ins),
    ]
    for function in source.functions:
        if not function.body or not function.is_for_device or function.is_for_host:
            continue
        body = live[slice(*function.body)]
        if body.count("(") != body.count(")"):
            continue  # where it ends is for the compiler to say
        for pattern, sentence in patterns:
            for found in re.finditer(pattern, body):
                name = re.sub(r"\s", "", found[0])
                if name not in own and not _is_declared(name, function, live):
                    yield function.body[0] + found.start(), sentence(name)


_BUILT_IN = r"(?:threadIdx|blockIdx|blockDim|gridDim)\s*\.\s*[xyz]"
_WRITTEN_BUILT_IN = (
    rf"(?:\+\+|--)\s*{_BUILT_IN}\b|\b{_BUILT_IN}\s*(?:=(?!=)|(?:[-+*/%&|^]|<<|>>)=|\+\+|--)"
)


def _of_tensors(name):
    called = name.lstrip(".->")
    return (
        f"{called} is a function of the host: call it there, and pass the pointer to the kernel: "
        "k<<<grid, block>>>(x.data_ptr<float>())."
    )


def _of_types_at_run_time(name):
    return f"device code knows no types at run time, and here stands '{name}'."


def _of_built_ins(name):
    variable = re.search(_BUILT_IN, name)[0]
    return f"{variable} says where a thread is; nobody can change it: use a variable of your own."


def _of_the_host_library(name):
    if re.search(r"\bvector$", name):
        return (
            f"{name} lives on the host: a kernel has arrays of a fixed size, in registers or in "
            "__shared__ memory."
        )
    return f"{name} is a part of the host's library: a kernel cannot use it."


def _of_the_api(name):
    if name in ("cudaDeviceSynchronize", "cudaThreadSynchronize"):
        return (
            f"{name} is for the host: in a kernel, the threads of a block wait for each other "
            "with __syncthreads()."
        )
    return f"{name} is for the host: a kernel cannot call it."


def _of_exceptions(name):
    return f"a kernel has no exceptions, and here stands '{name}'."


def _host_code(source, live):
    spaces = _spaces(source)
    words = rf"(?<![\w.>])(?:{_ONLY_IN_KERNELS})\s*(?=\()|\b__shared__\b"
    call = r"(?<![\w.>:~])([A-Za-z_]\w*)\s*(?=[<(])"
    for function in source.functions:
        if not function.body:
            continue
        body = _without_device_lambdas(live[slice(*function.body)])
        in_host = not function.is_for_device
        for found in re.finditer(words, body) if in_host else ():
            name = found[0].strip()
            if name not in spaces:
                yield (
                    function.body[0] + found.start(),
                    f"{name} is for kernels, and {function.name} is a function of the host "
                    "(no __global__ or __device__ stands before it).",
                )
        for found in re.finditer(call, body):
            space = spaces.get(found[1])
            if space not in ("kernel", "device") or (space == "device" and not in_host):
                continue
            after = found.end()
            if body[after] == "<":
                end = closing_angle(body, after)
                if (
                    body.startswith("<<<", after)
                    or end is None
                    or body[end + 1 :].lstrip()[:1] != "("
                ):
                    continue
            before = body[: found.start()]
            if _is_declared(found[1], function, live) or re.search(r"(?:decltype|new)\W*$", before):
                continue
            if space == "kernel":
                sentence = (
                    f"{found[1]} is a kernel and starts with its grid and block: "
                    f"{found[1]}<<<grid, block>>>(...)."
                )
            else:
                sentence = (
                    f"{found[1]} is a __device__ function: {function.name}, a function of the "
                    "host, cannot call it unless it is __host__ __device__."
                )
            yield function.body[0] + found.start(), sentence


def _without_device_lambdas(body):
    """Blank the bodies of lambdas that are for the device: [=] __device__ (int i) { ... }."""
    for found in re.finditer(r"\b__device__\b[^{;]*", body):
        end = closing(body, found.end())
        body = body[: found.end()] + blank(body[found.end() : end]) + body[end:]
    return body


def _device_lambdas(source, live):
    """Yield the lambdas of which the string says where they run: [=] __device__ (int i) { }."""
    for found in re.finditer(r"(?<!\])\]\s*(\w+)", live):
        if source.words(found[1]) & {"__device__", "__host__"}:
            yield (
                found.start(1),
                f"nvcc takes {found[1]} at a lambda only if it is told so: write a struct with "
                "operator(), or compile_cuda(src, flags=['--extended-lambda']).",
            )


def _plain_lambdas(source, live):
    """Yield the lambdas that stand in a launch and do not say that they are for the device."""
    for at in find_launches(live):
        given = live.find("(", live.find(">>>", at))
        arguments = live[given : closing(live, given)]
        for found in re.finditer(r"(?<=[(,])\s*\[[^\][]*\]\s*(\w*)", arguments):
            if "__device__" not in source.words(found[1]):
                yield (
                    given + found.end() - len(found[0].lstrip()),
                    "a lambda that a kernel gets is for the device: write __device__ after its [].",
                )


def _spaces(source: Source) -> dict[str, str]:
    """Return what every name of functions at file scope is, where all of that name are the same."""
    spaces = {}
    for f in source.functions:
        space = "kernel" if f.is_kernel else "device" if f.is_for_device else "host"
        if f.owner or f.qualifier or f.words & {"constexpr", "friend"}:
            space = "mixed"
        elif f.is_for_device and f.is_for_host:
            space = "mixed"
        spaces[f.name] = space if spaces.get(f.name, space) == space else "mixed"
    for macro in source.macros:
        spaces.pop(macro.name, None)
    return spaces


def _is_declared(name: str, function: Function, live: str) -> bool:
    """Whether the function has a parameter or a variable of its own by that name."""
    first, last = function.parameters
    inside = live[first : last + 1] + live[slice(*function.body)]
    return bool(re.search(rf"(?:\w\s|[&*>])\s*{re.escape(name)}\s*(?:[,)\[;]|=(?!=)|{{)", inside))


def _launches(source, live):
    spaces = _spaces(source)
    for at in find_launches(live):
        start = kernel_start(live, at, source.line_of(at))
        name = re.match(r"\s*(?:::)?([A-Za-z_]\w*)\s*(?:<[^;{}]*>)?\s*$", live[start:at])
        around = [f for f in source.functions if f.body and f.body[0] < at < f.body[1]]
        if not name or not around or _is_declared(name[1], around[0], live):
            continue
        if spaces.get(name[1]) in ("host", "device"):
            yield start, f"{name[1]} is launched, but it is no kernel: write __global__ before it."


def _shared_variables(source, live):
    for found in re.finditer(r"\b__shared__\b[^;{}=()]*?(?:\[[^;{}]*?\])*\s*(?==(?!=)|\{)", live):
        name = re.search(r"(\w+)\s*(?:\[.*\]\s*)?$", found[0], re.DOTALL)
        is_type = re.search(r"\b(?:union|struct|class)\s*\w*\s*$", found[0])
        if name and len(found[0].split()) > 1 and not is_type:
            yield (
                found.start(),
                f"a __shared__ variable has no first value: let one thread store it in {name[1]}, "
                "then __syncthreads().",
            )


def _dynamic_shared(source, live):
    """extern __shared__ T name[] declares one variable of the file, wherever it stands."""
    first = {}
    pattern = (
        r"(?:\bextern\b[^;{}=]*?\b__shared__\b|\b__shared__\s+extern\b)(?P<type>[^;{}=]*?)"
        r"\b(?P<name>\w+)\s*\[\s*\]\s*;"
    )
    templates = [f for f in source.functions if re.match(r"template\s*<", f.header) and f.body]
    for found in re.finditer(pattern, live):
        kind = re.sub(
            r"\b(?:__align__|alignas|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)", "", found["type"]
        )
        kind = " ".join(kind.split())
        around = [f for f in templates if f.body[0] < found.start() < f.body[1]]
        if around and re.search(rf"\b(?:class|typename)\s+{re.escape(kind)}\b", around[0].header):
            continue  # of a type that the template is given: the compiler sees whether it differs
        earlier, at = first.setdefault(found["name"], (kind, found.start()))
        if earlier != kind:
            yield (
                found.start(),
                f"{found['name']} is one array for the whole file, of {earlier} in line "
                f"{source.line_of(at)} and of {kind} here: give it another name.",
            )
