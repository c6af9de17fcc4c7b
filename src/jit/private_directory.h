// A directory whose files are believed, since nobody else can have written them.
//
// As sshd asks of a user's keys: the directory and each file belong to this user (or to root), and
// neither the group nor others may write. What is checked is what was opened, never a name that
// could mean another file a moment later, and no symbolic link inside is followed.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "process/descriptor.h"

namespace cleave {

class PrivateDirectory {
 public:
  enum class IfMissing { leave, create };

  /// Opens `path`, an absolute one or an empty one, which is no directory. What it creates, parents
  /// included, nobody else may enter. `variable`: of the environment, by which another can be chosen.
  explicit PrivateDirectory(const std::filesystem::path& path, IfMissing if_missing = IfMissing::leave,
                            const char* variable = "CLEAVE_CACHE_DIR");

  /// Whether the directory is open and nobody else can have written there.
  explicit operator bool() const { return bool(descriptor_); }

  /// Why not, and the remedy; empty if it is. A directory that is merely missing is no problem.
  const std::string& problem() const { return problem_; }

  /// A regular file of this user's or root's that nobody else may write; nothing else is waited for
  /// or read.
  Descriptor open_file(const std::string& name) const;

  /// The same, whole; nothing where it is larger than `limit` bytes.
  std::optional<std::string> read_file(const std::string& name, uint64_t limit) const;

  /// Puts a complete file in the place of what had the name, or changes nothing. 0, or errno.
  int replace_file(const std::string& name, std::string_view text) const;

  /// Whether a file of so many bytes could be written now: 0, or errno.
  int try_to_write(size_t bytes) const;

  bool remove_file(const std::string& name) const;

  /// What the name itself is, were it a link. Nothing where it has gone.
  std::optional<struct stat> status(const std::string& name) const;

  void for_each_name(const std::function<void(const std::string&)>& visit) const;

  int descriptor() const { return descriptor_.get(); }

 private:
  /// Calls finish(name) with the name of a file of this text. 0, or errno.
  template <class Finish>
  int with_temporary(std::string_view text, Finish&& finish) const;

  Descriptor descriptor_;
  std::string problem_;
};

/// The suffix of files that are being written.
inline constexpr std::string_view temporary_suffix = ".tmp";

}  // namespace cleave
