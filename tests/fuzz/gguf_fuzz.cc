// Input: the head of a GGUF file; zeros follow it, so that tensors have their bytes. Goes on to the
// model's configuration, the table of tensors, the tokenizer and the template.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/model/checkpoint.h"
#include "engine/model/tensor_map.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "server/tools/source_texts.h"
#include "tests/fuzz/fuzz_input.h"

namespace nightshift {
namespace {

constexpr size_t kDataBytes = 1 << 18;

void ReadTensors(const Checkpoint& checkpoint) {
  for (const SourceTensor& tensor : checkpoint.tensors->tensors()) {
    std::vector<std::byte> row(static_cast<size_t>(tensor.row_bytes));
    CHECK(checkpoint.tensors->ReadRows(tensor, tensor.rows - 1, row).ok());
  }
}

void ReadTexts(const Checkpoint& checkpoint, const std::string& path) {
  const auto spec = ReadTokenizer(checkpoint, path);
  if (spec.ok() && spec->value) {
    const auto tokenizer = Tokenizer::Create(*spec->value);
    if (tokenizer.ok()) {
      const auto ids = (*tokenizer)->Encode("Hello, world", {});
      CHECK(ids.ok());
      (*tokenizer)->Decode(*ids, /*skip_special=*/false);
    }
  }
  const auto source = ReadChatTemplate(checkpoint, path);
  if (source.ok() && source->value) {
    (void)ChatTemplate::Parse(*source->value);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile memory(InputText(data, size), size + kDataBytes);
  const auto checkpoint = OpenCheckpoint(memory.path());
  if (checkpoint.ok()) {
    ReadTensors(*checkpoint);
    (void)MapTensors(checkpoint->model, checkpoint->format, checkpoint->tensors->tensors());
    ReadTexts(*checkpoint, memory.path());
  }
  return 0;
}

}  // namespace nightshift
