#include "server/tools/model_verify.h"

#include <memory>

#include <nlohmann/json.hpp>

#include "engine/model/pack.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

void Note(const absl::Status& status, VerifyReport& report) {
  if (status.ok()) {
    return;
  }
  ++report.num_problems;
  if (report.problems.size() < kMaxVerifyProblems) {
    report.problems.push_back(std::string(status.message()));
  }
}

absl::Status CheckTokenizer(const Pack& pack) {
  ASSIGN_OR_RETURN(const std::string json, pack.ReadTokenizerJson());
  return TokenizerSpecFromJson(json).status();
}

}  // namespace

std::string VerifyJson(const std::string& path, const VerifyReport& report) {
  using Json = nlohmann::ordered_json;
  const Json json = {{"pack", path},
                     {"good", report.ok()},
                     {"shards", report.shards},
                     {"bytes", report.bytes},
                     {"num_problems", report.num_problems},
                     {"problems", report.problems}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<VerifyReport> VerifyModel(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Pack> pack, Pack::Open(path));
  VerifyReport report;
  std::vector<std::byte> shard;
  for (const TensorEntry& tensor : pack->manifest().tensors) {
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      shard.resize(static_cast<size_t>(tensor.shards[i].bytes));
      Note(pack->ReadShard(tensor, i, shard), report);
      ++report.shards;
      report.bytes += tensor.shards[i].bytes;
    }
  }
  if (pack->manifest().has_tokenizer) {
    Note(CheckTokenizer(*pack), report);
  }
  if (pack->manifest().has_chat_template) {
    Note(pack->ReadChatTemplate().status(), report);
  }
  return report;
}

}  // namespace nightshift
