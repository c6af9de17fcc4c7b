// The user's tuning file, as text: which lines there are, and how some are put in their places.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/choice/spec.h"

namespace cleave {

struct TunedLine {
  std::string key;  ///< the GPU's name, and the problem's text
  Spec spec;        ///< the winner
};

/// A line of a table, shipped or not; nothing if it is a comment, if its problem is none, or if the catalogue
/// does not list its spec.
std::optional<TunedLine> parse_tuned(const std::string& line);

/// The key of lines of this GPU and of the problem with this text.
std::string tuned_key(const std::string& device, const std::string& problem);

struct TunedLines {
  std::vector<TunedLine> lines;
  std::string problem;  ///< why some, or all, are not believed: of a file, "is ..." or "has ..."
};

/// The lines of a file with this content.
TunedLines parse_tuned_file(const std::string& text);

/// A text file that begins with its version, and is only ever replaced as a whole.
class TunedFile {
 public:
  /// An empty path is no directory, and its file cannot be written.
  explicit TunedFile(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// Empty where there is no directory.
  std::filesystem::path path() const;

  /// Nothing is waited for, whatever has the file's name. A problem is a sentence here.
  TunedLines read() const;

  /// Adds lines. `replaces`: in the place of earlier ones of their keys, else those stay. Returns how many keys were
  /// there already. Throws Error(invalid_argument).
  size_t store(const std::vector<TunedLine>& lines, bool replaces) const;

  /// Whether there was a file.
  bool remove() const;

 private:
  std::filesystem::path directory_;
};

}  // namespace cleave
