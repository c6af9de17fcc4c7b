#include "jit/kernel_pack.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "temporary_folder.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

class KernelPackTest : public testing::Test {
 protected:
  static CompiledKernel kernel(std::string cubin) {
    return {.cubin = std::move(cubin), .log = "ptxas info", .resources = {.registers = 168}};
  }

  static PackedKernel packed(const CacheKey& key, std::string cubin) {
    return {key, "sm_90a", kernel(std::move(cubin))};
  }

  std::string content() const { return pack_of({packed(one_, "1"), packed(two_, "22")}, library_, {12, 4}); }

  /// A file of this folder that holds `text`.
  fs::path write(const std::string& text) const {
    const fs::path path = folder_.path() / "kernels.pack";
    std::ofstream(path, std::ios::binary) << text;
    chmod(path.c_str(), 0644);
    return path;
  }

  std::string problem_of(const std::string& text) const { return KernelPack(write(text), library_).problem(); }

  const TemporaryFolder folder_;
  const CacheKey library_{{"0.1", "headers"}};
  const CacheKey one_{library_, {"one"}}, two_{library_, {"two"}}, three_{library_, {"three"}};
};

TEST_F(KernelPackTest, HasWhatWasPacked) {
  const KernelPack pack(write(content()), library_);
  EXPECT_EQ(pack.problem(), "");
  EXPECT_EQ(pack.kernels(), 2u);
  EXPECT_EQ(pack.bytes(), content().size());
  EXPECT_EQ(pack.compiler().major, 12);
  EXPECT_EQ(pack.compiler().minor, 4);
  EXPECT_EQ(pack.load(one_)->cubin, "1");
  EXPECT_EQ(pack.load(two_)->cubin, "22");
  EXPECT_EQ(pack.load(two_)->resources.registers, 168u);
  EXPECT_TRUE(pack.load(two_)->from_cache);
  EXPECT_FALSE(pack.load(three_));
}

TEST_F(KernelPackTest, AKernelThatIsGivenTwiceIsPackedOnce) {
  const auto text = pack_of({packed(two_, "22"), packed(one_, "1"), packed(two_, "22")}, library_, {12, 4});
  EXPECT_EQ(text, content());
}

TEST_F(KernelPackTest, MayBeEmpty) {
  const KernelPack pack(write(pack_of({}, library_, {12, 4})), library_);
  EXPECT_EQ(pack.problem(), "");
  EXPECT_FALSE(pack.load(one_));
}

TEST_F(KernelPackTest, AnotherBuildOfCleaveFindsNothing) {
  const KernelPack pack(write(content()), CacheKey({"0.2", "headers"}));
  EXPECT_NE(pack.problem().find("are of another build of Cleave"), std::string::npos);
  EXPECT_FALSE(pack.load(one_));
}

TEST_F(KernelPackTest, WhatIsNoPackIsSaidToBeNone) {
  EXPECT_NE(problem_of("").find("no pack of kernels"), std::string::npos);
  EXPECT_NE(problem_of(std::string(4096, 'x')).find("no pack of kernels"), std::string::npos);
  const KernelPack missing(folder_.path() / "none.pack", library_);
  EXPECT_EQ(missing.problem(), "it cannot be opened (No such file or directory)");
  EXPECT_FALSE(missing.load(one_));
}

/// Whatever byte is lost or changed: what is found is what was packed.
TEST_F(KernelPackTest, ADamagedOneGivesNoWrongKernel) {
  const std::string whole = content();
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = char(damaged[i] ^ 0x10);
    const KernelPack pack(write(damaged), library_);
    for (const CacheKey& key : {one_, two_}) {
      if (const auto found = pack.load(key)) {
        EXPECT_EQ(found->cubin, key.hex() == one_.hex() ? "1" : "22") << i;
      }
    }
    EXPECT_FALSE(pack.load(three_)) << i;
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    const KernelPack pack(write(whole.substr(0, size)), library_);
    EXPECT_FALSE(pack.load(one_) && pack.load(two_)) << size;
  }
}

TEST_F(KernelPackTest, WhatOthersMayWriteIsNotUsed) {
  const fs::path path = write(content());
  chmod(path.c_str(), 0664);
  EXPECT_NE(KernelPack(path, library_).problem().find("chmod go-w"), std::string::npos);
  chmod(path.c_str(), 0644);
  chmod(folder_.path().c_str(), 0777);
  EXPECT_NE(KernelPack(path, library_).problem().find("can be written by others"), std::string::npos);
}

TEST_F(KernelPackTest, ALinkThatTheUserNamedIsFollowed) {
  const fs::path link = folder_.path() / "latest.pack";
  fs::create_symlink(write(content()), link);
  EXPECT_EQ(KernelPack(link, library_).load(one_)->cubin, "1");
}

}  // namespace
}  // namespace cleave
