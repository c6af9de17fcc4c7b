// A communicator of NCCL's, as what carries texts between its ranks. The library is that of the process that made it,
// found at run time.
#pragma once

#include "cleave/group.h"

namespace cleave {

/// Good as long as the communicator, an ncclComm_t.
class NcclRanks {
 public:
  /// Throws Error(unsupported) where no libnccl.so.2 is loaded or found, Error(driver) for what it says.
  explicit NcclRanks(void* communicator);

  int rank() const { return rank_; }
  int size() const { return size_; }
  int device() const { return device_; }

  /// Every rank's text, of which it carries 1023 bytes: enqueued on the default stream, and waited for.
  std::vector<std::string> all_gather(const std::string& own) const;

 private:
  void* const communicator_;
  int rank_ = 0, size_ = 0, device_ = 0;
};

}  // namespace cleave
