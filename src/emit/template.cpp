#include "emit/template.h"

#include <stdexcept>

namespace cleave {
namespace {

template <class Value>
const Value& look_up(const std::map<std::string, Value, std::less<>>& map, std::string_view key) {
  const auto found = map.find(key);
  if (found == map.end()) throw std::logic_error("no template knows \"" + std::string(key) + "\"");
  return found->second;
}

bool holds(std::string_view condition, const Vocabulary& vocabulary) {
  const bool negated = condition.starts_with('!');
  if (negated) condition.remove_prefix(1);
  return look_up(vocabulary.flags, condition) != negated;
}

bool is_word(std::string_view text) {
  for (const char c : text) {
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_') return false;
  }
  return !text.empty();
}

void append_line(std::string_view line, const Vocabulary& vocabulary, std::string& out) {
  for (size_t at = 0; at < line.size();) {
    const size_t begin = line.find('@', at);
    if (begin == line.npos) {
      out += line.substr(at);
      return;
    }
    const size_t end = line.find('@', begin + 1);
    const std::string_view word = end == line.npos ? std::string_view() : line.substr(begin + 1, end - begin - 1);
    if (is_word(word)) {
      out += line.substr(at, begin - at);
      out += look_up(vocabulary.words, word);
      at = end + 1;
    } else {
      out += line.substr(at, begin + 1 - at);
      at = begin + 1;
    }
  }
}

/// Takes the first line of `text`, with its end.
std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end == text.npos ? text.size() : end + 1);
  text.remove_prefix(line.size());
  return line;
}

/// The line's directive and what follows it: "@if" and "!flag".
std::pair<std::string_view, std::string_view> split(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  const size_t space = line.find(' ');
  return {line.substr(0, space), space == line.npos ? std::string_view() : line.substr(space + 1)};
}

/// Takes the lines up to the @end of the section that they are in, without it.
std::string_view take_section(std::string_view& text) {
  const std::string_view all = text;
  for (int depth = 1; !text.empty();) {
    const size_t length = all.size() - text.size();
    const auto [directive, argument] = split(take_line(text));
    if (directive == "@for" || (directive == "@if" && argument.find(": ") == argument.npos)) ++depth;
    if (directive == "@end" && --depth == 0) return all.substr(0, length);
  }
  throw std::logic_error("a template has a @for without an @end");
}

}  // namespace

std::string expand(std::string_view text, const Vocabulary& vocabulary) {
  std::string out;
  struct Section {
    bool outside, taken;  // whether the lines around it are kept, and whether its first ones are
  };
  std::vector<Section> sections;
  bool kept = true;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const auto [directive, argument] = split(line);
    const size_t colon = argument.find(": ");
    if (directive == "@if" && colon != argument.npos) {
      if (kept && holds(argument.substr(0, colon), vocabulary))
        append_line(line.substr(line.find(": ") + 2), vocabulary, out);
    } else if (directive == "@if") {
      sections.push_back({kept, kept && holds(argument, vocabulary)});
      kept = sections.back().taken;
    } else if (directive == "@for") {
      const std::string_view section = take_section(text);
      for (const Vocabulary::Words& arch : vocabulary.archs) {
        Vocabulary own = {arch, vocabulary.flags};
        own.words.insert(vocabulary.words.begin(), vocabulary.words.end());
        if (kept) out += expand(section, own);
      }
    } else if (directive == "@else" || directive == "@end") {
      if (sections.empty()) throw std::logic_error("a template has an @else or @end without an @if");
      const Section section = sections.back();
      kept = section.outside && (directive == "@end" || !section.taken);
      if (directive == "@end") sections.pop_back();
    } else if (kept) {
      append_line(line, vocabulary, out);
    }
  }
  if (!sections.empty()) throw std::logic_error("a template has an @if without an @end");
  return out;
}

std::optional<std::string> expand_file(std::string_view text, const Vocabulary& vocabulary) {
  std::string_view rest = text;
  const auto [directive, flag] = split(take_line(rest));
  if (directive != "@only") return expand(text, vocabulary);
  if (!holds(flag, vocabulary)) return std::nullopt;
  return expand(rest, vocabulary);
}

}  // namespace cleave
