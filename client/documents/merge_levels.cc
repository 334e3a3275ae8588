#include "client/documents/merge_levels.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "client/documents/json_record.h"
#include "client/documents/request_rows.h"
#include "client/result_error.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// The document whose first part is `part`.
Document BeginDocument(const PartOfDocument& part) {
  Document document;
  document.id = part.document;
  document.first_parts = part.first_parts;
  document.last_parts = part.of;
  document.fields = {{kOutputField, ""}, {kIdField, part.document, /*is_own=*/false}};
  return document;
}

void AddPart(const PartOfDocument& part, const v1::Result& result, Document& document) {
  if (result.has_error()) {
    const ResultError error = ResultErrorOf(result.error());
    if (!document.error.has_value()) {
      document.error = {document_code::kFailedBefore,
                        absl::StrCat(part.document, ": part ", part.number, " of ", part.of,
                                     " failed with ", error.code, ": ", error.message)};
    }
    return;
  }
  std::string& output = document.fields.front().value;
  absl::StrAppend(&output, output.empty() ? "" : "\n\n",
                  absl::StripAsciiWhitespace(result.completion().text()));
}

}  // namespace

absl::Status MergeLevels::Begin() {
  ASSIGN_OR_RETURN(ResultSpool spool, ResultSpool::Create());
  spools_.push_back(std::move(spool));
  return absl::OkStatus();
}

absl::Status MergeLevels::Append(const v1::Result& result) {
  return spools_.back().Append(result);
}

absl::Status MergeLevels::ForEachSplit(const std::function<absl::Status(const Document&)>& take) {
  ResultSpool& spool = spools_.back();
  spool.Rewind();
  std::optional<Document> document;
  while (true) {
    const absl::StatusOr<v1::Result> result = spool.Next();
    if (absl::IsOutOfRange(result.status())) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(result.status());
    const std::optional<PartOfDocument> part = PartOf(*result);
    if (!part.has_value()) {
      continue;
    }
    if (part->number == 1) {
      document = BeginDocument(*part);
    }
    if (!document.has_value() || document->id != part->document) {
      return absl::InternalError(absl::StrCat("merge parts: part ", part->number, " of ",
                                              part->document, " comes before its first"));
    }
    AddPart(*part, *result, *document);
    if (part->number == part->of) {
      RETURN_IF_ERROR(take(*std::exchange(document, std::nullopt)));
    }
  }
}

// The next result of the level, or, of a document in parts, of the level that merges them.
absl::StatusOr<v1::Result> MergeLevels::NextFinal(size_t level) {
  if (level == spools_.size()) {
    return absl::InternalError("merge parts: parts of the last level are not merged");
  }
  while (true) {
    absl::StatusOr<v1::Result> result = spools_[level].Next();
    if (level > 0 && absl::IsOutOfRange(result.status())) {
      return absl::InternalError(absl::StrCat("merge parts: level ", level, " lacks a result"));
    }
    RETURN_IF_ERROR(result.status());
    const std::optional<PartOfDocument> part = PartOf(*result);
    if (!part.has_value()) {
      return result;
    }
    if (part->number == part->of) {
      return NextFinal(level + 1);
    }
  }
}

absl::Status MergeLevels::ForEachFinal(const std::function<absl::Status(const v1::Result&)>& take) {
  for (ResultSpool& spool : spools_) {
    spool.Rewind();
  }
  for (int64_t index = 0;; ++index) {
    absl::StatusOr<v1::Result> result = NextFinal(0);
    if (absl::IsOutOfRange(result.status())) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(result.status());
    result->set_index(index);
    RETURN_IF_ERROR(take(*result));
  }
}

}  // namespace nightshift
