// Writing an emitted project: beside its place first, then renamed to it.
#include <stdlib.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/refuse.h"
#include "cleave/emit.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

/// A new folder of this user alone, with a name that nobody can guess: what another user could put in
/// or link to would become part of the project.
class PrivateFolder {
 public:
  explicit PrivateFolder(const fs::path& parent) {
    fs::create_directories(parent);
    std::string name = (parent / ".emitted.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw fs::filesystem_error("mkdtemp", name, std::error_code(errno, std::generic_category()));
    path_ = name;
  }
  ~PrivateFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const fs::path& path() const { return path_; }

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
  refuse_value(
      "sourcedir is \"{}\", which exists and is not an empty folder; pass a new folder, or remove what is there",
      folder.string());
}

void write_folder(const EmittedFiles& files, const fs::path& folder) {
  check_folder(folder);
  try {
    // Without a trailing slash: the folder itself must have a name.
    const fs::path place = fs::absolute(folder / "").lexically_normal().parent_path();
    const PrivateFolder around(place.parent_path());
    const fs::path made = around.path() / "project";  // with the modes that the umask gives
    for (const auto& [name, bytes] : files) write_file(made / name, bytes);
    fs::rename(made, place);  // replaces an empty folder, and follows no link
  } catch (const std::system_error& error) {
    refuse_value("sourcedir is \"{}\", which cannot be written: {}", folder.string(), error.what());
  }
}

}  // namespace cleave
