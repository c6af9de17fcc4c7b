// Writing an emitted project: beside its place first, then renamed to it.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

#include "cleave/emit.h"
#include "cleave/error.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

/// A folder that is removed again unless it has been kept.
class NewFolder {
 public:
  explicit NewFolder(fs::path path) : path_(std::move(path)) { fs::create_directories(path_); }
  ~NewFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const fs::path& path() const { return path_; }

  void keep_as(const fs::path& place) {
    fs::rename(path_, place);  // replaces an empty folder
    path_.clear();
  }

 private:
  fs::path path_;
};

void write_file(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file.write(bytes.data(), std::streamsize(bytes.size()));
  file.close();
}

}  // namespace

void check_folder(const fs::path& folder) {
  std::error_code unreadable;
  const fs::file_status status = fs::status(folder, unreadable);
  if (!fs::exists(status) && status.type() != fs::file_type::unknown) return;
  if (fs::is_directory(status) && fs::is_empty(folder, unreadable) && !unreadable) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("sourcedir is \"{}\", which exists and is not an empty folder; pass a new "
                  "folder, or remove what is there",
                  folder.string()));
}

void write_folder(const EmittedFiles& files, const fs::path& folder) {
  check_folder(folder);
  try {
    // Without a trailing slash: the folder itself must have a name.
    const fs::path place = fs::absolute(folder / "").lexically_normal().parent_path();
    NewFolder made(place.parent_path() /
                   fmt::format(".{}.{}", place.filename().string(), getpid()));
    for (const auto& [name, bytes] : files) write_file(made.path() / name, bytes);
    made.keep_as(place);
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("sourcedir is \"{}\", which cannot be written: {}", folder.string(),
                            error.what()));
  }
}

}  // namespace cleave
