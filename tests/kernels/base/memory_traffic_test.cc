#include "kernels/base/memory_traffic.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

// Several parts, the last one not whole.
constexpr size_t kWords = (size_t{5} << 20) / sizeof(uint64_t) + 512;

std::vector<uint64_t> Words() {
  std::vector<uint64_t> words(kWords);
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = i * 0x9e3779b97f4a7c15ULL;
  }
  return words;
}

int64_t BytesOf(const std::vector<uint64_t>& words) {
  return static_cast<int64_t>(words.size() * sizeof(uint64_t));
}

TEST(MemoryTrafficTest, ReadsEachWordOnce) {
  std::vector<uint64_t> words = Words();
  WorkerPool pool(2);
  uint64_t sum = 0;
  for (const uint64_t word : words) {
    sum ^= word;
  }
  const auto* memory = reinterpret_cast<const std::byte*>(words.data());
  EXPECT_EQ(ReadMemory(memory, BytesOf(words), pool), sum);
  words.back() ^= 1;
  EXPECT_EQ(ReadMemory(memory, BytesOf(words), pool), sum ^ 1);
}

TEST(MemoryTrafficTest, CopiesAllAndNoMore) {
  const std::vector<uint64_t> words = Words();
  std::vector<uint64_t> copy(words.size() + 1, 7);
  WorkerPool pool(2);
  CopyMemory(reinterpret_cast<const std::byte*>(words.data()), BytesOf(words),
             reinterpret_cast<std::byte*>(copy.data()), pool);
  EXPECT_EQ(copy.back(), 7U);
  copy.pop_back();
  EXPECT_EQ(copy, words);
}

}  // namespace
}  // namespace nightshift
