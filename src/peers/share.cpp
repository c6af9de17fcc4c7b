// Groups whose memory is made here: every rank makes a block, and maps those of the others.
#include <fstream>
#include <utility>

#include "base/refuse.h"
#include "cleave/problem.h"
#include "peers/mailbox.h"
#include "peers/mapped_group.h"
#include "peers/peer_access.h"

namespace cleave {
namespace {

/// One per boot of a machine; containers of one host have the same.
std::string host_name() {
  std::string name;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, name);
  return name;
}

/// Steps that any rank may fail in: the others learn of it, so that all go on or none.
class Agreement {
 public:
  Agreement(int size, const Group::AllGather& all_gather) : size_(size), all_gather_(all_gather) {}

  /// Runs `step` here, which returns a text for the others; theirs. Throws the same Error on every rank if one of them
  /// has thrown.
  template <class Step>
  std::vector<std::string> all(const Step& step) const {
    std::string own;
    try {
      own = "+" + step();
    } catch (const Error& error) {
      own = std::string("-") + error.what();
    }
    std::vector<std::string> said = all_gather_(own);
    if (said.size() != size_t(size_))
      refuse_value("all_gather gave {} texts for a group of {} ranks; it must give each rank's", said.size(), size_);
    for (int r = 0; r < size_; ++r) {
      std::string& text = said[size_t(r)];
      if (!text.starts_with('+'))
        refuse(ErrorCode::unsupported, "rank {} cannot share memory with the others: {}", r, text.erase(0, 1));
      text.erase(0, 1);
    }
    return said;
  }

 private:
  const int size_;
  const Group::AllGather& all_gather_;
};

void check_sizes(int rank, int size, size_t block_bytes) {
  if (size < 1 || size > int(kMostRanks)) refuse_value("size is {}; a group has 1 to {} ranks", size, kMostRanks);
  if (rank < 0 || rank >= size) refuse_value("rank is {}; it must be from 0 to {}", rank, size - 1);
  if (const size_t reserved = Group::reserved(size); block_bytes <= reserved)
    refuse_value("a rank's block has {} bytes; the first {} are the group's, and staging takes more", block_bytes,
                 reserved);
}

}  // namespace

size_t Group::reserved(int size) {
  return reserved_bytes(uint32_t(size));
}

std::shared_ptr<Group> Group::share(int rank, int size, int device, size_t bytes, const AllGather& all_gather) {
  const size_t block_bytes = reserved(size) + bytes;
  check_sizes(rank, size, block_bytes);
  const Agreement agreement(size, all_gather);
  MappedGroup::Memory memory{.block_bytes = block_bytes, .blocks = {}};
  memory.blocks.resize(size_t(size));
  std::unique_ptr<Block>& own = memory.blocks[size_t(rank)];
  std::unique_ptr<Mailbox> mailbox;
  std::shared_ptr<Group> group;

  const auto names = agreement.all([&] {
    mailbox = std::make_unique<Mailbox>();
    return mailbox->name();
  });
  const auto places = agreement.all([&] {
    own = make_block(device, block_bytes);
    return fmt::format("{} {} {}", host_name(), device == kCpu ? "cpu" : uuid_of(device), own->bytes());
  });
  agreement.all([&] {
    for (int r = 0; r < size; ++r) check_access(device, places[size_t(rank)], places[size_t(r)], r);
    return std::string();
  });
  agreement.all([&] {
    for (int r = 0; r < size; ++r)
      if (r != rank) mailbox->post(names[size_t(r)], rank, own->exported());
    return std::string();
  });
  agreement.all([&] {
    for (int i = 1; i < size; ++i) {
      const Mailbox::Letter letter = mailbox->receive(peer_timeout());
      if (letter.from < 0 || letter.from >= size || memory.blocks[size_t(letter.from)])
        refuse(ErrorCode::peer, "memory came from rank {}, which was not expected", letter.from);
      memory.blocks[size_t(letter.from)] = map_block(device, letter.descriptor, own->bytes());
    }
    for (const auto& block : memory.blocks) memory.addresses.push_back(block->data());
    group = make_group(rank, device, std::move(memory));
    return std::string();
  });
  return group;
}

std::shared_ptr<Group> Group::from_pointers(int rank, int device, std::span<void* const> blocks, size_t block_bytes) {
  check_sizes(rank, int(blocks.size()), block_bytes);
  for (size_t r = 0; r < blocks.size(); ++r) {
    if (reinterpret_cast<uintptr_t>(blocks[r]) % 16 != 0 || blocks[r] == nullptr)
      refuse_value("blocks[{}] is {}; it must be a multiple of 16 bytes", r, fmt::ptr(blocks[r]));
  }
  return make_group(rank, device,
                    {.addresses = {blocks.begin(), blocks.end()}, .block_bytes = block_bytes, .blocks = {}});
}

}  // namespace cleave
