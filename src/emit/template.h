// Text with gaps. In a template
//
//   @word@            is replaced by that word's value
//   @if flag          (a line of its own) keeps the lines up to @else or @end if the flag is set
//   @if !flag         if it is not
//   @if flag: a line  keeps that line alone
//   @for arch         repeats the lines up to @end for each architecture, whose words they may use
//   @only flag        (the first line) makes the whole a file of operations with that flag
//
// Anything else with an @ is left as it is.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cleave {

struct Vocabulary {
  using Words = std::map<std::string, std::string, std::less<>>;

  Words words;
  std::map<std::string, bool, std::less<>> flags;
  std::vector<Words> archs = {};
};

/// Throws std::logic_error for a word or flag that the vocabulary lacks, and for an @if or @for without
/// its @end.
std::string expand(std::string_view text, const Vocabulary& vocabulary);

/// Nothing if the template's first line rules the file out.
std::optional<std::string> expand_file(std::string_view text, const Vocabulary& vocabulary);

}  // namespace cleave
