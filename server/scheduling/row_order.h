// In which order rows of one job run: those whose prompts begin alike together, the longest first.
// Pure: values in, values out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nightshift {

// Hashes of the prompt's leading pages of kPrefixPageTokens tokens, at most kMaxPrefixPages, each
// of all tokens up to the page's end: equal where prompts are equal so far.
inline constexpr int64_t kPrefixPageTokens = 64;
inline constexpr int64_t kMaxPrefixPages = 32;
std::vector<uint64_t> HashPages(std::span<const int32_t> prompt);

// What the order goes by, of a prompt that is not at hand.
inline constexpr std::array<int64_t, 10> kShapePages = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
struct PromptShape {
  int64_t prompt_tokens = 0;
  int64_t max_output_tokens = 0;
  // The low bits of the hashes of its first kShapePages[i] pages; 0 behind its last whole page.
  std::array<uint32_t, kShapePages.size()> pages = {};

  friend bool operator==(const PromptShape&, const PromptShape&) = default;
};
PromptShape MakePromptShape(std::span<const int32_t> prompt, int64_t max_output_tokens);

struct OrderedRow {
  // Of the whole prompt and what is left of the completion, as far as known.
  int64_t predicted_tokens = 0;
  std::span<const uint64_t> pages = {};  // hashes; of all rows at the same places of the prompt
  int64_t index = 0;                     // within the job
  int64_t choice = 0;                    // of the row's completions
};

// Indices of `rows`: those that share a prefix beyond what all share go together, the group with the
// longest row first (so that the job's end is not left to a few long rows) and in it the longest
// first; equals in the order of their index and choice.
std::vector<size_t> LongestFirst(std::span<const OrderedRow> rows);

}  // namespace nightshift
