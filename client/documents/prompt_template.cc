#include "client/documents/prompt_template.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "client/documents/text_check.h"
#include "kernels/base/file_descriptor.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxTemplateBytes = 1 << 20;
constexpr char kSystem[] = "system";
constexpr char kUser[] = "user";
constexpr char kPrompt[] = "prompt";

// The part that the line begins; empty for none.
std::string PartOf(absl::string_view line) {
  line = absl::StripTrailingAsciiWhitespace(line);
  for (const char* role : {kSystem, kUser, kPrompt}) {
    if (line == absl::StrCat("[", role, "]")) {
      return role;
    }
  }
  return "";
}

const DocumentField* Find(const Document& document, absl::string_view name) {
  const auto found =
      std::find_if(document.fields.begin(), document.fields.end(),
                   [&](const DocumentField& field) { return field.name == name; });
  return found == document.fields.end() ? nullptr : &*found;
}

std::string FieldList(const Document& document) {
  std::string list;
  for (const DocumentField& field : document.fields) {
    absl::StrAppend(&list, list.empty() ? "" : ", ", field.name);
  }
  return list;
}

// Without blank lines at its ends; `line` becomes that of what is left.
absl::string_view WithoutBlankLines(absl::string_view text, int64_t& line) {
  while (true) {
    const size_t end = text.find('\n');
    if (end == absl::string_view::npos ||
        !absl::StripAsciiWhitespace(text.substr(0, end)).empty()) {
      break;
    }
    text.remove_prefix(end + 1);
    ++line;
  }
  return absl::StripTrailingAsciiWhitespace(text);
}

}  // namespace

absl::StatusOr<PromptTemplate> PromptTemplate::Load(const std::string& path) {
  const std::string name = ReadableName(path);
  absl::StatusOr<std::string> source = ReadSmallFile(path, kMaxTemplateBytes);
  if (!source.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("template ", name, ": ", source.status().message()));
  }
  if (const auto fault = CleanText(absl::StrCat("template ", name), *source)) {
    return absl::InvalidArgumentError(fault->message);
  }
  return Parse(name, *source);
}

absl::StatusOr<PromptTemplate> PromptTemplate::Parse(const std::string& name,
                                                     absl::string_view source) {
  PromptTemplate parsed(name);
  int64_t line = 1;
  source = WithoutBlankLines(source, line);
  std::string role = PartOf(source.substr(0, source.find('\n')));
  if (role.empty()) {
    RETURN_IF_ERROR(parsed.ParsePart(kUser, source, line));
    RETURN_IF_ERROR(parsed.CheckParts());
    return parsed;
  }
  std::string text;
  int64_t begin = line + 1;
  const std::vector<absl::string_view> lines = absl::StrSplit(source, '\n');
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::string next = PartOf(lines[i]);
    if (next.empty()) {
      absl::StrAppend(&text, lines[i], "\n");
      continue;
    }
    RETURN_IF_ERROR(parsed.ParsePart(role, text, begin));
    text.clear();
    role = next;
    begin = line + static_cast<int64_t>(i) + 1;
  }
  RETURN_IF_ERROR(parsed.ParsePart(role, text, begin));
  RETURN_IF_ERROR(parsed.CheckParts());
  return parsed;
}

absl::Status PromptTemplate::ParsePart(const std::string& role, absl::string_view text,
                                       int64_t line) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("template ", name_, ": line ", line, ": ", why));
  };
  Part part;
  part.role = role;
  text = WithoutBlankLines(text, line);
  if (text.empty()) {
    return refuse(absl::StrCat("the part ", role, " has no text"));
  }
  const auto add = [&](absl::string_view literal) {
    part.pieces.push_back({.is_field = false, .text = std::string(literal), .line = line});
    line += std::count(literal.begin(), literal.end(), '\n');
  };
  while (!text.empty()) {
    const size_t open = text.find("{{");
    add(text.substr(0, open));
    if (open == absl::string_view::npos) {
      break;
    }
    text.remove_prefix(open + 2);
    if (absl::StartsWith(text, "{{")) {
      add("{{");
      text.remove_prefix(2);
      continue;
    }
    const size_t close = text.find("}}");
    const absl::string_view inside = text.substr(0, close);
    const absl::string_view name = absl::StripAsciiWhitespace(inside);
    if (close == absl::string_view::npos || name.empty() ||
        inside.find_first_of("{\n") != absl::string_view::npos) {
      return refuse("{{ begins no {{field}}; {{{{ stands for {{ itself");
    }
    part.pieces.push_back({.is_field = true, .text = std::string(name), .line = line});
    text.remove_prefix(close + 2);
  }
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

absl::Status PromptTemplate::CheckParts() const {
  std::string roles;
  for (const Part& part : parts_) {
    absl::StrAppend(&roles, "[", part.role, "]");
  }
  if (roles == "[user]" || roles == "[system][user]" || roles == "[prompt]") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("template ", name_, ": has the parts ", roles,
                   "; must be [user], [system] and [user], or [prompt] alone"));
}

absl::Status PromptTemplate::Check(const Document& document) const {
  bool uses_own = false;
  for (const Part& part : parts_) {
    for (const Piece& piece : part.pieces) {
      if (!piece.is_field) {
        continue;
      }
      const DocumentField* field = Find(document, piece.text);
      if (field == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("template ", name_, ": line ", piece.line, ": ", document.id,
                         " has no field ", piece.text, "; there are ", FieldList(document)));
      }
      uses_own = uses_own || field->is_own;
    }
  }
  return uses_own ? absl::OkStatus()
                  : absl::InvalidArgumentError(absl::StrCat(
                        "template ", name_, ": uses no field of what is in ", document.id,
                        ", so all would get the same prompt; there are ", FieldList(document)));
}

std::vector<const DocumentField*> PromptTemplate::UsedFields(const Document& document) const {
  std::vector<const DocumentField*> used;
  for (const Part& part : parts_) {
    for (const Piece& piece : part.pieces) {
      if (piece.is_field) {
        used.push_back(Find(document, piece.text));
      }
    }
  }
  return used;
}

RenderedPrompt PromptTemplate::Render(const Document& document) const {
  const DocumentField* longest = nullptr;
  for (const DocumentField* field : UsedFields(document)) {
    if (field->is_own && (longest == nullptr || field->value.size() > longest->value.size())) {
      longest = field;
    }
  }
  RenderedPrompt rendered;
  for (const Part& part : parts_) {
    PromptMessage message;
    message.role = part.role == kPrompt ? "" : part.role;
    for (const Piece& piece : part.pieces) {
      const DocumentField* field = piece.is_field ? Find(document, piece.text) : nullptr;
      const std::string& text = field == nullptr ? piece.text : field->value;
      if (field != nullptr && field == longest) {
        rendered.longest_field.push_back({.message = rendered.messages.size(),
                                          .offset = message.content.size(),
                                          .length = text.size()});
      }
      message.content += text;
    }
    rendered.messages.push_back(std::move(message));
  }
  return rendered;
}

}  // namespace nightshift
