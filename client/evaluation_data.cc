#include "client/evaluation_data.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Of a text, in bytes.
struct Word {
  size_t begin = 0;
  size_t end = 0;
};

std::vector<Word> WordsOf(absl::string_view text) {
  std::vector<Word> words;
  size_t at = 0;
  while (at < text.size()) {
    while (at < text.size() && absl::ascii_isspace(static_cast<unsigned char>(text[at]))) {
      ++at;
    }
    const size_t begin = at;
    while (at < text.size() && !absl::ascii_isspace(static_cast<unsigned char>(text[at]))) {
      ++at;
    }
    if (at > begin) {
      words.push_back({begin, at});
    }
  }
  return words;
}

absl::StatusOr<std::string> TextOfLine(absl::string_view line, const std::string& name,
                                       size_t number) {
  const nlohmann::json object =
      nlohmann::json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("text") || !object["text"].is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("read ", name, ": line ", number, " is no JSON object with a \"text\""));
  }
  return object["text"].get<std::string>();
}

// From word `index` on, the first that one space separates from the word before it, if one comes
// soon.
size_t CutBefore(absl::string_view text, const std::vector<Word>& words, size_t index) {
  constexpr size_t kSoon = 32;
  for (size_t i = index; i < std::min(words.size(), index + kSoon); ++i) {
    if (words[i].begin == words[i - 1].end + 1 && text[words[i - 1].end] == ' ') {
      return i;
    }
  }
  return std::min(index, words.size());
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadDocuments(const std::string& name,
                                                       absl::string_view content,
                                                       EvaluationTask task) {
  std::vector<std::string> documents;
  const bool is_jsonl = absl::EndsWith(name, ".jsonl");
  if (!is_jsonl && task == EvaluationTask::kPerplexity) {
    documents.emplace_back(content);
  } else {
    size_t number = 0;
    for (const absl::string_view line : absl::StrSplit(content, '\n')) {
      ++number;
      if (absl::StripAsciiWhitespace(line).empty()) {
        continue;
      }
      if (!is_jsonl) {
        documents.emplace_back(line);
        continue;
      }
      ASSIGN_OR_RETURN(std::string text, TextOfLine(line, name, number));
      documents.push_back(std::move(text));
    }
  }
  if (documents.empty() || content.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("read ", name, ": it holds no text"));
  }
  return documents;
}

absl::StatusOr<EvaluationItem> NextWordItem(absl::string_view document) {
  const std::vector<Word> words = WordsOf(document);
  if (words.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", words.size(), " words, needs the last one and some before it"));
  }
  const size_t cut = words[words.size() - 2].end;
  const size_t begin = words.front().begin;
  return EvaluationItem{.prompt = std::string(document.substr(begin, cut - begin)),
                        .text = std::string(document.substr(cut, words.back().end - cut)),
                        .words = 1};
}

std::vector<EvaluationItem> PerplexityItems(absl::string_view document,
                                            const EvaluationWindows& windows) {
  const std::vector<Word> words = WordsOf(document);
  const auto stride = static_cast<size_t>(windows.stride_words);
  const auto context = static_cast<size_t>(windows.window_words - windows.stride_words);
  std::vector<EvaluationItem> items;
  for (size_t first = 1; first < words.size();) {
    const size_t end = CutBefore(document, words, first + stride);
    const size_t prompt_begin = words[first - std::min(first, context)].begin;
    const size_t cut = words[first - 1].end;
    items.push_back({.prompt = std::string(document.substr(prompt_begin, cut - prompt_begin)),
                     .text = std::string(document.substr(cut, words[end - 1].end - cut)),
                     .words = static_cast<int64_t>(end - first)});
    first = end;
  }
  return items;
}

absl::StatusOr<std::string> EvaluationRow(const EvaluationItem& item, int32_t top_logprobs) {
  using Json = nlohmann::ordered_json;
  const Json row = {{"prompt", item.prompt},
                    {"choices", {item.text}},
                    {"logprobs", true},
                    {"top_logprobs", top_logprobs}};
  const std::string line = row.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (line != row.dump(-1, ' ', false, Json::error_handler_t::ignore)) {
    return absl::InvalidArgumentError("is not UTF-8");
  }
  return line + "\n";
}

}  // namespace nightshift
