#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

/// Each adds its subcommand to `app`; when it was asked for, parsing runs it and sets `exit_code`.
/// Results go to the standard output, everything else to the standard error. Both arguments must
/// outlive the parsing.
namespace steptape::tools {

void add_info(CLI::App& app, int& exit_code);
void add_dump(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_diff(CLI::App& app, int& exit_code);
void add_bisect(CLI::App& app, int& exit_code);
void add_record(CLI::App& app, int& exit_code);
void add_try(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);
void add_ledger(CLI::App& app, int& exit_code);
void add_export(CLI::App& app, int& exit_code);
void add_extract(CLI::App& app, int& exit_code);
void add_completions(CLI::App& app, int& exit_code);
void add_manual(CLI::App& app, int& exit_code);
void add_merge(CLI::App& app, int& exit_code);

/// Becomes another program, by its words. Throws Error (io) where it cannot be run.
[[noreturn]] void become(const std::vector<std::string>& words);

/// What every subcommand tells the shell.
inline constexpr int kGood = 0;     ///< equal, whole, done
inline constexpr int kDiffers = 1;  ///< different, damaged
inline constexpr int kTrouble = 2;  ///< a missing file, wrong arguments, no memory

}  // namespace steptape::tools
