#include "plan/tuned.h"

#include <fmt/format.h>

#include <fstream>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include "cleave/names.h"
#include "jit/disk_cache.h"
#include "plan/tuned_tables.h"
#include "process/fork.h"

namespace cleave {
namespace {

std::string problem_key(const GemmProblem& p) {
  const char a = p.a.stride_col == 1 ? 't' : 'n', b = p.b.stride_row == 1 ? 'n' : 't';
  std::string key = fmt::format("{}x{}x{}x{} {}{} {} {}", p.m, p.n, p.k, p.batch, a, b,
                                to_string(p.a.dtype), to_string(p.d.dtype));
  if (p.scale_a.kind == Scaling::vector) key += " scaled";
  if (p.scale_a.kind == Scaling::block)
    key += fmt::format(" blocks {}x{}", p.scale_a.rows, p.scale_b.rows);
  if (p.fast_accumulation) key += " fast";
  if (p.precision == Precision::ieee) key += " ieee";
  if (p.conv.kind != Conv::none) {
    key += fmt::format(" {}", to_string(p.conv.kind));
    for (const ConvAxis& axis : p.conv.axes)
      key += fmt::format(" {}:{}/{}p{},{}d{}", axis.size, axis.filter, axis.stride, axis.pad_begin,
                         axis.pad_end, axis.dilation);
  }
  return key;
}

std::string key(const std::string& device, const GemmProblem& problem) {
  return device + " | " + problem_key(problem);
}

class Table {
 public:
  Table() : path_(DiskCache::user().directory() / "tuned.txt") {
    std::istringstream shipped{std::string(shipped_tuned_table())};
    read(shipped);
    if (std::ifstream own(path_); own) read(own);
  }

  std::optional<Spec> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto it = winners_.find(key);
    return it == winners_.end() ? std::nullopt : std::optional(it->second);
  }

  std::string store(const std::string& key, const Spec& spec) {
    const std::lock_guard lock(mutex_);
    winners_[key] = spec;
    std::error_code ignored;
    std::filesystem::create_directories(path_.parent_path(), ignored);
    std::ofstream file(path_, std::ios::app);  // later lines win
    file << key << " | " << to_string(spec) << '\n';
    file.flush();
    if (!file) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format(
              "the tuning file {} cannot be written; set CLEAVE_CACHE_DIR to a writable directory",
              path_.string()));
    }
    return path_.string();
  }

 private:
  void read(std::istream& in) {
    for (std::string line; std::getline(in, line);) {
      const size_t bar = line.rfind(" | ");
      if (line.starts_with('#') || bar == std::string::npos) continue;
      if (const auto spec = parse_spec(line.substr(bar + 3))) winners_[line.substr(0, bar)] = *spec;
    }
  }

  std::filesystem::path path_;
  ForkSharedMutex mutex_;
  std::unordered_map<std::string, Spec> winners_;
};

Table& table() {
  static constinit Lazy<Table> table;
  return table.get();
}

}  // namespace

std::optional<Spec> tuned(const GemmProblem& problem, const DeviceInfo& device) {
  if (problem.split_k_mode != SplitKMode::automatic || problem.split_k_slices != 0 ||
      problem.kernel != KernelFamily::automatic) {
    return std::nullopt;
  }
  if (auto spec = table().find(key(device.name, problem))) return spec;
  // Until it has been measured itself, a chip does what was best on another of its kind.
  if (device.compute_capability != 90 || device.multiprocessors != 132) return std::nullopt;
  for (const char* measured : {"NVIDIA H100 80GB HBM3", "NVIDIA H200"}) {
    if (auto spec = table().find(key(measured, problem))) return spec;
  }
  return std::nullopt;
}

std::string store_tuned(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  return table().store(key(device.name, problem), spec);
}

}  // namespace cleave
