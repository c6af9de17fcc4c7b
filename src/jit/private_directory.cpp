#include "jit/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace cleave {
namespace {

namespace fs = std::filesystem;

bool is_trusted(uid_t owner) {
  return owner == geteuid() || owner == 0;
}

bool others_may_write(const struct stat& status) {
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

std::string quoted(const fs::path& path) {
  return fmt::format("\"{}\"", path.string());
}

/// As mkdir -p, but for this user alone: with a mask of 0 the usual mode would let anyone in.
/// False, and errno, where one cannot be made.
bool make_directories(const fs::path& path) {
  fs::path made;
  for (const fs::path& part : path) {
    made /= part;
    if (mkdir(made.c_str(), 0700) == 0 || errno == EEXIST) continue;
    const int error = errno;  // on a read-only file system also for a directory that exists
    struct stat status;
    if (stat(made.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) continue;
    errno = error;
    return false;
  }
  return true;
}

/// Why the files of an open directory cannot be believed; empty if they can.
std::string distrust(int descriptor, const fs::path& path, const char* variable) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return std::strerror(errno);
  if (!is_trusted(status.st_uid)) {
    return fmt::format(
        "{} belongs to user {}, who could put kernels there; set {} to a directory of your own (user {})", quoted(path),
        status.st_uid, variable, geteuid());
  }
  if (others_may_write(status)) {
    const bool is_shared = (status.st_mode & S_ISVTX) != 0;  // as /tmp is, and has to be
    const std::string remedy = is_shared ? fmt::format("set {} to a directory of your own", variable)
                                         : fmt::format("run chmod go-w {}", quoted(path));
    return fmt::format("{} can be written by others (mode {:o}), who could put kernels there; {}", quoted(path),
                       status.st_mode & 07777, remedy);
  }
  return "";
}

std::string temporary_name() {
  uint64_t random[2];
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) return "";
  return fmt::format("{:016x}{:016x}{}", random[0], random[1], temporary_suffix);
}

/// 0, or errno. On success the file is complete on the disk, not only in the page cache.
int write_out(Descriptor file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    text.remove_prefix(size_t(written));
  }
  if (fsync(file.get()) != 0) return errno;
  return file.close() ? 0 : errno;
}

}  // namespace

PrivateDirectory::PrivateDirectory(const fs::path& path, IfMissing if_missing, const char* variable) {
  if (path.empty()) {
    problem_ = fmt::format("no home directory is known; set {} to a directory of your own", variable);
    return;
  }
  const auto open_it = [&] { return Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); };
  Descriptor opened = open_it();
  const char* refused = "opened";
  if (!opened && errno == ENOENT) {
    if (if_missing == IfMissing::leave) return;
    refused = "made";
    if (make_directories(path)) opened = open_it();
  }
  if (!opened) {
    problem_ = fmt::format("{} cannot be {} ({}); set {} to a directory that you can write", quoted(path), refused,
                           std::strerror(errno), variable);
    return;
  }
  problem_ = distrust(opened.get(), path, variable);
  if (problem_.empty()) descriptor_ = std::move(opened);
}

Descriptor PrivateDirectory::open_file(const std::string& name) const {
  // O_NONBLOCK: a FIFO is opened, and then refused, instead of waited for.
  Descriptor file(openat(descriptor_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status;
  const bool believed = file && fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                        is_trusted(status.st_uid) && !others_may_write(status);
  return believed ? std::move(file) : Descriptor();
}

std::optional<std::string> PrivateDirectory::read_file(const std::string& name, uint64_t limit) const {
  const Descriptor file = open_file(name);
  struct stat status;
  if (!file || fstat(file.get(), &status) != 0 || uint64_t(status.st_size) > limit) return {};
  std::string text(size_t(status.st_size), '\0');
  for (size_t have = 0; have < text.size();) {
    const ssize_t count = read(file.get(), text.data() + have, text.size() - have);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {};  // cut short meanwhile
    have += size_t(count);
  }
  return text;
}

template <class Finish>
int PrivateDirectory::with_temporary(std::string_view text, Finish&& finish) const {
  // Random, since process ids are the same in two containers, or on two hosts with one home.
  const std::string name = temporary_name();
  Descriptor file(openat(descriptor_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return errno;  // whoever has this name keeps the file
  int error = write_out(std::move(file), text);
  if (error == 0 && !finish(name)) error = errno;
  if (error != 0) remove_file(name);
  return error;
}

int PrivateDirectory::replace_file(const std::string& name, std::string_view text) const {
  return with_temporary(text, [&](const std::string& temporary) {
    return renameat(descriptor_.get(), temporary.c_str(), descriptor_.get(), name.c_str()) == 0;
  });
}

int PrivateDirectory::try_to_write(size_t bytes) const {
  return with_temporary(std::string(bytes, '\0'), [&](const std::string& temporary) { return remove_file(temporary); });
}

bool PrivateDirectory::remove_file(const std::string& name) const {
  return unlinkat(descriptor_.get(), name.c_str(), 0) == 0;
}

std::optional<struct stat> PrivateDirectory::status(const std::string& name) const {
  struct stat status;
  if (fstatat(descriptor_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return {};
  return status;
}

void PrivateDirectory::for_each_name(const std::function<void(const std::string&)>& visit) const {
  if (!descriptor_) return;
  // A new description, with a position of its own; closedir closes it.
  const int listed = openat(descriptor_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const directory = listed < 0 ? nullptr : fdopendir(listed);
  if (!directory) {
    if (listed >= 0) ::close(listed);
    return;
  }
  while (const dirent* entry = readdir(directory)) visit(entry->d_name);
  closedir(directory);
}

}  // namespace cleave
