// Between the processes of one host: file descriptors, by a socket that has a name but no file.
#pragma once

#include <string>

#include "peers/block.h"

namespace cleave {

class Mailbox {
 public:
  Mailbox();

  /// What others post to.
  const std::string& name() const { return name_; }

  /// To the mailbox of that name: a descriptor, and the rank that it is from.
  void post(const std::string& name, int from, const Descriptor& descriptor) const;

  struct Letter {
    int from = -1;
    Descriptor descriptor;
  };
  /// The next one. Throws Error(peer) if none comes within `seconds`.
  Letter receive(double seconds) const;

 private:
  Descriptor socket_;
  std::string name_;
};

}  // namespace cleave
