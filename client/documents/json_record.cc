#include "client/documents/json_record.h"

#include <algorithm>
#include <cstddef>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

using Json = nlohmann::ordered_json;

// The member at the end of the path, or null.
const Json& At(const Json& json, std::initializer_list<const char*> path) {
  static const Json kNull;
  const Json* at = &json;
  for (const char* name : path) {
    const auto found = at->is_object() ? at->find(name) : at->end();
    if (found == at->end()) {
      return kNull;
    }
    at = &*found;
  }
  return *at;
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

DocumentError FailedBefore(absl::string_view what, const Json& error) {
  constexpr size_t kMaxMessageBytes = 1024;
  std::string message = TextOf(At(error, {"message"}));
  message.resize(std::min(message.size(), kMaxMessageBytes));  // the daemon mends a cut character
  return {document_code::kFailedBefore,
          absl::StrCat(what, ": has no output: it failed with ", TextOf(At(error, {"code"})), ": ",
                       message)};
}

DocumentError HasNoText(absl::string_view what, absl::string_view why) {
  return {document_code::kMalformed, absl::StrCat(what, ": is a result ", why)};
}

// Texts of a completion, or scored choices.
void ReadChoices(absl::string_view what, const Json& choices, const Json& best,
                 JsonRecord& record) {
  const size_t index = best.is_number_unsigned() ? best.get<size_t>() : 0;
  if (!choices.is_array() || index >= choices.size()) {
    record.error = HasNoText(what, "without text");
    return;
  }
  if (!best.is_number_unsigned() && choices.size() > 1) {
    record.error = HasNoText(what, absl::StrCat("with ", choices.size(), " texts; use --n 1"));
    return;
  }
  const Json& choice = choices[index];
  const Json& content = At(choice, {"message", "content"});
  const Json& text = content.is_string() ? content : At(choice, {"text"});
  if (!text.is_string()) {
    record.error = HasNoText(what, "without text");
    return;
  }
  record.fields.push_back({kOutputField, text.get<std::string>()});
}

bool IsOpenAiResult(const Json& json) {
  return json.contains("custom_id") && json.contains("response") && json.contains("error");
}

bool IsPlainResult(const Json& json) {
  return At(json, {"index"}).is_number_integer() &&
         (At(json, {"error"}).is_object() || At(json, {"usage"}).is_object());
}

void ReadOpenAiResult(absl::string_view what, const Json& json, JsonRecord& record) {
  record.fields.push_back({kIdField, TextOf(json["custom_id"])});
  const Json& body = At(json, {"response", "body"});
  for (const Json* error : {&json["error"], &At(body, {"error"})}) {
    if (!error->is_null()) {
      record.error = FailedBefore(what, *error);
      return;
    }
  }
  ReadChoices(what, At(body, {"choices"}), nullptr, record);
}

void ReadPlainResult(absl::string_view what, const Json& json, JsonRecord& record) {
  if (json.contains("id")) {
    record.fields.push_back({kIdField, TextOf(json["id"])});
  }
  if (const Json& error = At(json, {"error"}); error.is_object()) {
    record.error = FailedBefore(what, error);
  } else if (const Json& text = At(json, {"text"}); text.is_string()) {
    record.fields.push_back({kOutputField, text.get<std::string>()});
  } else {
    ReadChoices(what, At(json, {"choices"}), At(json, {"best"}), record);
  }
}

}  // namespace

JsonRecord ReadJsonRecord(absl::string_view what, absl::string_view line) {
  JsonRecord record;
  const Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    record.error = {document_code::kMalformed, absl::StrCat(what, ": is no JSON object")};
  } else if (IsOpenAiResult(json)) {
    ReadOpenAiResult(what, json, record);
  } else if (IsPlainResult(json)) {
    ReadPlainResult(what, json, record);
  } else {
    for (const auto& member : json.items()) {
      if (!member.value().is_null()) {
        record.fields.push_back({member.key(), TextOf(member.value())});
      }
    }
  }
  return record;
}

}  // namespace nightshift
