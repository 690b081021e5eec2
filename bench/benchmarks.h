#pragma once

namespace steptape::bench {

/// Each registers a file's benchmarks with Google Benchmark.
void register_steps();
void register_guards();

}  // namespace steptape::bench
