#include "plan/measured/tuned_file.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <sstream>
#include <unordered_map>

#include "base/refuse.h"
#include "cleave/error.h"
#include "jit/file_lock.h"
#include "jit/private_directory.h"
#include "plan/catalogue/listed.h"
#include "plan/problem_text.h"

namespace cleave {
namespace {

constexpr const char* kName = "tuned.txt";
constexpr const char* kLock = "tuned.lock";
constexpr const char* kVersion = "# cleave tuned, version 2";  // of keys and specs
constexpr uint64_t kMostBytes = 16 << 20;
constexpr const char* kBar = " | ";

}  // namespace

std::optional<TunedLine> parse_tuned(const std::string& line) {
  const size_t last = line.rfind(kBar);
  if (line.starts_with('#') || last == std::string::npos || last == 0) return std::nullopt;
  const size_t first = line.rfind(kBar, last - 1);
  const size_t problem = first + std::strlen(kBar);
  if (first == std::string::npos || problem > last) return std::nullopt;
  const auto spec = parse_spec(line.substr(last + std::strlen(kBar)));
  if (!spec || !is_listed(*spec) || !parse_problem(line.substr(problem, last - problem))) return std::nullopt;
  return TunedLine{line.substr(0, last), *spec};
}

std::string tuned_key(const std::string& device, const std::string& problem) {
  return device + kBar + problem;
}

TunedLines parse_tuned_file(const std::string& text) {
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  if (line != kVersion) return {.problem = "is no tuning file of this version"};
  TunedLines contents;
  size_t refused = 0;
  while (std::getline(in, line)) {
    const bool is_whole = !in.eof();  // it ends as a line does
    if (auto parsed = is_whole ? parse_tuned(line) : std::nullopt) {
      contents.lines.push_back(std::move(*parsed));
    } else {
      ++refused;
    }
  }
  if (refused > 0) contents.problem = fmt::format("has {} lines that name no problem or no kernel", refused);
  return contents;
}

std::filesystem::path TunedFile::path() const {
  return directory_.empty() ? std::filesystem::path() : directory_ / kName;
}

TunedLines TunedFile::read() const {
  const PrivateDirectory directory(directory_);
  if (!directory) return {.problem = directory.problem()};
  if (!directory.status(kName)) return {};
  const auto text = directory.read_file(kName, kMostBytes);
  if (!text) {
    return {.problem =
                fmt::format("{} is no file of this user alone; run chmod go-w on it, or remove it", path().string())};
  }
  TunedLines contents = parse_tuned_file(*text);
  if (!contents.problem.empty()) {
    contents.problem = fmt::format("{} {}; the next `cleave tune` leaves that out", path().string(), contents.problem);
  }
  return contents;
}

size_t TunedFile::store(const std::vector<TunedLine>& lines, bool replaces) const {
  const PrivateDirectory directory(directory_, PrivateDirectory::IfMissing::create);
  if (!directory) refuse_value("{}", directory.problem());
  // Two processes that tune at once take turns.
  const FileLock lock(directory, kLock, std::chrono::seconds(5));
  std::vector<TunedLine> all;
  std::unordered_map<std::string, size_t> places;
  const auto put = [&](const TunedLine& line, bool replaces_known) {
    const auto [place, is_new] = places.emplace(line.key, all.size());
    if (is_new) {
      all.push_back(line);
    } else if (replaces_known) {
      all[place->second] = line;
    }
    return !is_new;
  };
  for (const TunedLine& line : read().lines) put(line, true);
  size_t known = 0;
  for (const TunedLine& line : lines) known += put(line, replaces);
  std::string text = std::string(kVersion) + '\n';
  for (const TunedLine& line : all) text += fmt::format("{}{}{}\n", line.key, kBar, to_string(line.spec));
  if (const int error = directory.replace_file(kName, text)) {
    refuse_value("the tuning file {} cannot be written ({}); set CLEAVE_CACHE_DIR to a directory that you can write",
                 path().string(), std::strerror(error));
  }
  return known;
}

bool TunedFile::remove() const {
  const PrivateDirectory directory(directory_);
  return directory && directory.remove_file(kName);
}

}  // namespace cleave
