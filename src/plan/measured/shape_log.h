// The problems that an application plans, for `cleave tune --from`: CLEAVE_LOG_SHAPES names the file.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <unordered_set>
#include <utility>

#include "cleave/gemm.h"
#include "process/fork.h"

namespace cleave {

/// A file of lines, each a problem_text. Several processes may append to it: a line is one write.
class ShapeLog {
 public:
  /// An empty path is no log.
  explicit ShapeLog(std::filesystem::path path) : path_(std::move(path)), is_kept_(!path_.empty()) {}

  /// Appends the problem's line, once for each text. Where that is not possible, says why on standard error, once,
  /// and does nothing from then on.
  void add(const GemmProblem& problem);

  /// The one of this process; the environment is read at its first use.
  static ShapeLog& user();

 private:
  bool is_new(const std::string& text);

  const std::filesystem::path path_;
  std::atomic<bool> is_kept_;
  ForkSharedMutex mutex_;
  std::unordered_set<std::string> known_;
};

}  // namespace cleave
