#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "benchmarks.h"

int main(int argc, char** argv) {
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  steptape::bench::register_steps();
  steptape::bench::register_guards();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
