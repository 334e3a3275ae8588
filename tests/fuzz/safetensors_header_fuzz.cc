// Input: two bytes that say how many bytes of data follow the header, and the header's text. The
// same bytes are also read as a whole file, length of the header included.
#include <vector>

#include "absl/status/statusor.h"

#include "engine/model/safetensors.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/safetensors_writer.h"

namespace nightshift {
namespace {

void ReadFile(const MemoryFile& memory) {
  const auto file = SourceFile::Open(memory.path());
  CHECK(file.ok());
  const auto tensors = ReadSafetensorsHeader(*file, 0);
  if (!tensors.ok()) {
    return;
  }
  for (const SourceTensor& tensor : *tensors) {
    CHECK_GE(tensor.offset, 8);
    CHECK_GT(tensor.rows, 0);
    CHECK_LE(tensor.rows, (file->bytes() - tensor.offset) / tensor.row_bytes);
    CHECK(!tensor.shape.empty() && tensor.shape.size() <= kMaxSourceDimensions);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ReadFile(MemoryFile(InputText(data, size)));
  if (size >= 2) {
    const size_t data_bytes = data[0] + 256U * data[1];
    const std::string file = SafetensorsBytes(std::string(InputText(data + 2, size - 2)), "");
    ReadFile(MemoryFile(file, file.size() + data_bytes));
  }
  return 0;
}

}  // namespace nightshift
