#include "plan/measured/shape_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "jit/private_directory.h"
#include "plan/problem_text.h"

namespace cleave {
namespace {

/// 0, or errno. A file that nobody reads (a FIFO) is not waited for.
int append_line(const std::filesystem::path& path, const std::string& line) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644));
  if (!file) return errno;
  ssize_t written = 0;
  do {
    written = write(file.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return errno;
  if (size_t(written) != line.size()) return ENOSPC;
  return file.close() ? 0 : EIO;
}

}  // namespace

bool ShapeLog::is_new(const std::string& text) {
  const std::lock_guard lock(mutex_);
  return known_.insert(text).second;
}

void ShapeLog::add(const GemmProblem& problem) {
  if (!is_kept_.load(std::memory_order_relaxed)) return;
  const std::string text = problem_text(problem);
  if (!is_new(text)) return;
  const int error = append_line(path_, text + '\n');
  if (error == 0 || !is_kept_.exchange(false)) return;
  fmt::print(stderr, "cleave: CLEAVE_LOG_SHAPES is {}, which cannot be written ({}): shapes are not logged\n",
             path_.string(), std::strerror(error));
}

ShapeLog& ShapeLog::user() {
  static constinit Lazy<ShapeLog> log;
  return log.get([] {
    const char* path = std::getenv("CLEAVE_LOG_SHAPES");
    std::error_code gone;  // the current directory: an empty path then
    return ShapeLog(path && *path ? std::filesystem::absolute(path, gone) : std::filesystem::path());
  });
}

}  // namespace cleave
