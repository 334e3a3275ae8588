#include "server/scheduling/row_order.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "kernels/base/checksum.h"

namespace nightshift {
namespace {

// How many leading hashes all rows share.
size_t CommonPages(std::span<const OrderedRow> rows) {
  const std::span<const uint64_t> first = rows[0].pages;
  size_t common = first.size();
  for (const OrderedRow& row : rows) {
    common = std::min(common, row.pages.size());
    while (common > 0 && row.pages[common - 1] != first[common - 1]) {
      --common;
    }
  }
  return common;
}

}  // namespace

std::vector<uint64_t> HashPages(std::span<const int32_t> prompt) {
  std::vector<uint64_t> hashes;
  constexpr size_t kPage = static_cast<size_t>(kPrefixPageTokens);
  for (size_t end = kPage; end <= prompt.size() && hashes.size() < kMaxPrefixPages; end += kPage) {
    const uint64_t page = Xxh3(std::as_bytes(prompt.subspan(end - kPage, kPage)));
    const std::array<uint64_t, 2> chain = {hashes.empty() ? 0 : hashes.back(), page};
    hashes.push_back(Xxh3(std::as_bytes(std::span(chain))));
  }
  return hashes;
}

PromptShape MakePromptShape(std::span<const int32_t> prompt, int64_t max_output_tokens) {
  PromptShape shape = {.prompt_tokens = static_cast<int64_t>(prompt.size()),
                       .max_output_tokens = max_output_tokens};
  const std::vector<uint64_t> hashes = HashPages(prompt);
  for (size_t i = 0; i < kShapePages.size(); ++i) {
    const size_t pages = static_cast<size_t>(kShapePages[i]);
    if (pages <= hashes.size()) {
      shape.pages[i] = static_cast<uint32_t>(hashes[pages - 1]) | 1U;  // never 0
    }
  }
  return shape;
}

std::vector<size_t> LongestFirst(std::span<const OrderedRow> rows) {
  std::vector<size_t> order;
  if (rows.empty()) {
    return order;
  }
  const size_t common = CommonPages(rows);
  const auto has_group = [&](const OrderedRow& row) { return row.pages.size() > common; };
  std::map<uint64_t, int64_t> longest;  // of a group
  for (const OrderedRow& row : rows) {
    if (has_group(row)) {
      int64_t& tokens = longest[row.pages[common]];
      tokens = std::max(tokens, row.predicted_tokens);
    }
  }
  // A group's longest, the group, the row's tokens, its place.
  std::vector<std::tuple<int64_t, uint64_t, int64_t, int64_t, int64_t, size_t>> keys;
  keys.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const OrderedRow& row = rows[i];
    const uint64_t group = has_group(row) ? row.pages[common] : 0;
    const int64_t tokens = has_group(row) ? longest[group] : row.predicted_tokens;
    keys.emplace_back(-tokens, group, -row.predicted_tokens, row.index, row.choice, i);
  }
  std::sort(keys.begin(), keys.end());
  order.reserve(rows.size());
  for (const auto& key : keys) {
    order.push_back(std::get<5>(key));
  }
  return order;
}

}  // namespace nightshift
