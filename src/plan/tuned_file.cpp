#include "plan/tuned_file.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <sstream>

#include "base/refuse.h"
#include "cleave/error.h"
#include "jit/file_lock.h"
#include "jit/private_directory.h"
#include "plan/catalogue.h"

namespace cleave {
namespace {

constexpr const char* kName = "tuned.txt";
constexpr const char* kLock = "tuned.lock";
constexpr const char* kVersion = "# cleave tuned, version 1";  // of keys and specs
constexpr uint64_t kMostBytes = 16 << 20;

}  // namespace

std::optional<TunedLine> parse_tuned(const std::string& line) {
  const size_t bar = line.rfind(" | ");
  if (line.starts_with('#') || bar == std::string::npos) return std::nullopt;
  const auto spec = parse_spec(line.substr(bar + 3));
  if (!spec || !is_listed(*spec)) return std::nullopt;
  return TunedLine(line.substr(0, bar), *spec);
}

std::filesystem::path TunedFile::path() const {
  return directory_.empty() ? std::filesystem::path() : directory_ / kName;
}

TunedFile::Contents TunedFile::read() const {
  const PrivateDirectory directory(directory_);
  if (!directory) return {.problem = directory.problem()};
  if (!directory.status(kName)) return {};
  const auto text = directory.read_file(kName, kMostBytes);
  if (!text) {
    return {.problem =
                fmt::format("{} is no file of this user alone; run chmod go-w on it, or remove it", path().string())};
  }
  std::istringstream in(*text);
  std::string line;
  std::getline(in, line);
  if (line != kVersion) {
    return {.problem = fmt::format("{} is of another version; `cleave tune` writes it anew", path().string())};
  }
  Contents contents;
  size_t refused = 0;
  while (std::getline(in, line)) {
    const bool is_whole = !in.eof();  // it ends as a line does
    if (auto parsed = is_whole ? parse_tuned(line) : std::nullopt) {
      contents.lines.push_back(std::move(*parsed));
    } else {
      ++refused;
    }
  }
  if (refused > 0) {
    contents.problem = fmt::format("{} has {} lines that name no kernel; the next `cleave tune` leaves them out",
                                   path().string(), refused);
  }
  return contents;
}

void TunedFile::store(const TunedLine& line) const {
  const PrivateDirectory directory(directory_, PrivateDirectory::IfMissing::create);
  if (!directory) refuse_value("{}", directory.problem());
  // Two processes that tune at once take turns.
  const FileLock lock(directory, kLock, std::chrono::seconds(5));
  std::string text = std::string(kVersion) + '\n';
  const auto add = [&](const TunedLine& each) { text += fmt::format("{} | {}\n", each.first, to_string(each.second)); };
  for (const TunedLine& known : read().lines) {
    if (known.first != line.first) add(known);
  }
  add(line);
  if (const int error = directory.replace_file(kName, text)) {
    refuse_value("the tuning file {} cannot be written ({}); set CLEAVE_CACHE_DIR to a directory that you can write",
                 path().string(), std::strerror(error));
  }
}

bool TunedFile::remove() const {
  const PrivateDirectory directory(directory_);
  return directory && directory.remove_file(kName);
}

}  // namespace cleave
