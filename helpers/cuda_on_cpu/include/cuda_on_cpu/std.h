// cuda::std: the host's standard library serves a CPU as well.
#pragma once

namespace cuda::std {
using namespace ::std;
}
