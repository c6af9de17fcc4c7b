#include "emit/closure.h"

#include <sstream>
#include <vector>

#include "base/embedded.h"

namespace cleave {
namespace {

/// The names in `#include "..."` lines.
std::vector<std::string> included(const std::string& text) {
  constexpr std::string_view kBefore = "#include \"";
  std::vector<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kBefore) && line.ends_with('"'))
      names.push_back(line.substr(kBefore.size(), line.size() - kBefore.size() - 1));
  }
  return names;
}

/// The text of one of `list`, or nullptr.
template <class List>
const char* find(const List& list, const std::string& name) {
  for (const auto& file : list) {
    if (file.name == name) return file.text;
  }
  return nullptr;
}

}  // namespace

void add_included_headers(EmittedFiles& files) {
  std::vector<std::string> texts;
  for (const auto& [path, text] : files) texts.push_back(text);
  const auto add = [&](const std::string& path, const char* text) {
    if (text != nullptr && files.emplace(path, text).second) texts.push_back(text);
  };
  while (!texts.empty()) {
    const std::vector<std::string> names = included(texts.back());
    texts.pop_back();
    for (const std::string& name : names) {
      add("kernels/" + name, find(embedded_headers(), name));
      for (const auto& of : {embedded_host_headers(), embedded_public_headers(), embedded_torch_headers()})
        add("src/" + name, find(of, name));
    }
  }
}

}  // namespace cleave
