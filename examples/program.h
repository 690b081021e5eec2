#pragma once

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

namespace examples {

/// What a program of the examples does with the path of a trace and of its data: true when all it
/// compared was equal.
using Main = bool (*)(const std::filesystem::path& trace, const std::filesystem::path& data);

/// Runs `main_of` on the arguments [TRACE [DATA]], by default `example`.tape and `data`. Gives the
/// exit status: 0 and 1 as `main_of` says, 2 when it could not run, with the reason on stderr.
inline int run_program(int argc, char** argv, const std::string& example, const char* data,
                       Main main_of) try {
  if (argc > 3 || (argc > 1 && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: %s [TRACE=%s.tape [DATA]]\n", argv[0], example.c_str());
    return 2;
  }
  const std::filesystem::path trace = argc > 1 ? argv[1] : example + ".tape";
  return main_of(trace, argc > 2 ? argv[2] : data) ? 0 : 1;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "%s: %s\n", argv[0], problem.what());
  return 2;
}

}  // namespace examples
