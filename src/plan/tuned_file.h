// The user's tuning file, as text: which lines there are, and how one is put in its place.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/spec.h"

namespace cleave {

using TunedLine = std::pair<std::string, Spec>;  // the key, and the winner

/// A line of a table, shipped or not; nothing if it is a comment, or if the catalogue does not list
/// its spec.
std::optional<TunedLine> parse_tuned(const std::string& line);

/// A text file that begins with its version, and is only ever replaced as a whole.
class TunedFile {
 public:
  /// An empty path is no directory, and its file cannot be written.
  explicit TunedFile(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// Empty where there is no directory.
  std::filesystem::path path() const;

  struct Contents {
    std::vector<TunedLine> lines;
    std::string problem;  ///< why some, or all, are not believed
  };

  /// Nothing is waited for, whatever has the file's name.
  Contents read() const;

  /// In the place of an earlier line of this key. Throws Error(invalid_argument).
  void store(const TunedLine& line) const;

  /// Whether there was a file.
  bool remove() const;

 private:
  std::filesystem::path directory_;
};

}  // namespace cleave
