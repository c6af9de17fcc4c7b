// Memory of the host that several processes have.
#pragma once

#include "peers/block.h"

namespace cleave {

class HostBlock final : public Block {
 public:
  explicit HostBlock(size_t bytes);
  HostBlock(const Descriptor& from, size_t bytes);
  ~HostBlock() override;

  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }
  Descriptor exported() const override;

 private:
  void map(int descriptor);

  Descriptor file_;
  size_t bytes_;
  void* data_ = nullptr;
};

}  // namespace cleave
