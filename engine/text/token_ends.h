// Where in a text each of its tokens ends. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

#include "engine/text/tokenizer.h"

namespace nightshift {

// One offset a token of `ids`, which `text` was encoded to, ascending (several tokens of one
// character may end in it); the last is the text's size. From where the tokens no longer spell the
// text, because the tokenizer has normalized it, the rest is shared out evenly.
std::vector<size_t> TokenEnds(const Tokenizer& tokenizer, absl::string_view text,
                              const std::vector<int32_t>& ids);

}  // namespace nightshift
