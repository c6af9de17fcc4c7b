#include "jit/kernel_packs.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "jit/compiler.h"
#include "process/fork.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

/// The file itself; of a directory its packs, by name.
void add_files(const fs::path& path, std::vector<fs::path>& files) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    files.push_back(path);
    return;
  }
  const auto first = files.size();
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".pack") files.push_back(entry.path());
  }
  std::sort(files.begin() + ptrdiff_t(first), files.end());
}

fs::path beside_the_library() {
  Dl_info info = {};
  const bool known = dladdr(reinterpret_cast<const void*>(&kernel_packs), &info) && info.dli_fname;
  return known ? fs::path(info.dli_fname).parent_path() / "packs" : fs::path();
}

std::vector<KernelPack> open_packs() {
  std::vector<fs::path> files;
  const char* const chosen = std::getenv("CLEAVE_PACKS");
  std::istringstream names(chosen ? chosen : "");
  std::error_code gone;  // the current directory
  for (std::string name; std::getline(names, name, ':');) {
    if (!name.empty()) add_files(fs::absolute(name, gone), files);
  }
  std::error_code missing;
  const fs::path own = beside_the_library();
  if (fs::is_directory(own, missing)) add_files(own, files);
  std::vector<KernelPack> packs;
  for (const fs::path& file : files) packs.emplace_back(file, library_key());
  return packs;
}

}  // namespace

const std::vector<KernelPack>& kernel_packs() {
  static constinit Lazy<const std::vector<KernelPack>> packs;
  return packs.get(open_packs);
}

std::optional<CompiledKernel> load_packed(const CacheKey& key) {
  for (const KernelPack& pack : kernel_packs()) {
    if (auto kernel = pack.load(key)) return kernel;
  }
  return std::nullopt;
}

}  // namespace cleave
