#include "peers/mailbox.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/refuse.h"

namespace cleave {
namespace {

[[noreturn]] void fail(const char* call) {
  refuse(ErrorCode::unsupported, "{} of a socket between the ranks failed: {}", call, std::strerror(errno));
}

/// A name that begins with a zero is in no file system, and goes with its socket.
struct Address {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t bytes = sizeof(sa_family_t);

  Address() = default;
  explicit Address(const std::string& name) {
    const size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), length);
    bytes += socklen_t(1 + length);
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
};

/// A message of one number and at most one descriptor.
class Message {
 public:
  explicit Message(int& number) : part_{&number, sizeof(number)} {
    header_.msg_iov = &part_;
    header_.msg_iovlen = 1;
    header_.msg_control = control_;
    header_.msg_controllen = sizeof(control_);
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  msghdr* get() { return &header_; }

  void enclose(int descriptor) {
    cmsghdr* const control = CMSG_FIRSTHDR(&header_);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(descriptor));
    std::memcpy(CMSG_DATA(control), &descriptor, sizeof(descriptor));
  }
  int enclosed() {
    const cmsghdr* const control = CMSG_FIRSTHDR(&header_);
    int descriptor = -1;
    if (control != nullptr && control->cmsg_type == SCM_RIGHTS)
      std::memcpy(&descriptor, CMSG_DATA(control), sizeof(descriptor));
    return descriptor;
  }

 private:
  iovec part_;
  msghdr header_ = {};
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int))] = {};
};

}  // namespace

Mailbox::Mailbox() : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  if (socket_.get() < 0) fail("socket()");
  Address any;  // the kernel finds a name
  if (bind(socket_.get(), any.get(), any.bytes) != 0) fail("bind()");
  Address own;
  own.bytes = sizeof(own.address);
  if (getsockname(socket_.get(), own.get(), &own.bytes) != 0) fail("getsockname()");
  name_.assign(own.address.sun_path + 1, own.bytes - sizeof(sa_family_t) - 1);
}

void Mailbox::post(const std::string& name, int from, const Descriptor& descriptor) const {
  Address to(name);
  Message message(from);
  message.enclose(descriptor.get());
  message.get()->msg_name = to.get();
  message.get()->msg_namelen = to.bytes;
  if (sendmsg(socket_.get(), message.get(), 0) < 0) fail("sendmsg()");
}

Mailbox::Letter Mailbox::receive(double seconds) const {
  pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  int found;
  do found = poll(&waiting, 1, int(seconds * 1e3));
  while (found < 0 && errno == EINTR);
  if (found < 0) fail("poll()");
  if (found == 0) refuse(ErrorCode::peer, "no peer's memory came within {} s; is a rank lost?", seconds);
  Letter letter;
  Message message(letter.from);
  if (recvmsg(socket_.get(), message.get(), MSG_CMSG_CLOEXEC) < 0) fail("recvmsg()");
  letter.descriptor = Descriptor(message.enclosed());
  return letter;
}

}  // namespace cleave
