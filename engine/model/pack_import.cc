#include "engine/model/pack_import.h"

#include <memory>
#include <utility>

#include "engine/model/pack_writer.h"
#include "engine/model/partial_folder.h"
#include "engine/model/tensor_map.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

int64_t TextBytes(const std::optional<std::string>& text) {
  return text ? static_cast<int64_t>(text->size()) : 0;
}

}  // namespace

absl::StatusOr<ImportedPack> ImportPack(const Checkpoint& checkpoint,
                                        const PackImportOptions& options) {
  ASSIGN_OR_RETURN(TensorMap map,
                   MapTensors(checkpoint.model, checkpoint.format, checkpoint.tensors->tensors()));
  RETURN_IF_ERROR(ChooseTypes(options.types, map));
  const int64_t extent_bytes = ExtentBytesOf(map);
  const int64_t manifest_bytes =
      ManifestRoom(static_cast<int64_t>(map.tensors.size()), extent_bytes);
  RETURN_IF_ERROR(CheckFreeDisk(options.output, extent_bytes + manifest_bytes +
                                                    TextBytes(options.tokenizer_json) +
                                                    TextBytes(options.chat_template)));
  ASSIGN_OR_RETURN(const std::unique_ptr<PackWriter> writer, PackWriter::Create(options.output));
  if (options.tokenizer_json) {
    RETURN_IF_ERROR(writer->WriteTokenizerJson(*options.tokenizer_json));
  }
  if (options.chat_template) {
    RETURN_IF_ERROR(writer->WriteChatTemplate(*options.chat_template));
  }
  RETURN_IF_ERROR(WriteTensors(map, *checkpoint.tensors, *writer, options.progress));
  PackManifest manifest;
  manifest.model_name = options.model_name.empty() ? checkpoint.name : options.model_name;
  manifest.source_format = SourceFormatName(checkpoint.format);
  manifest.config = std::move(map.config);
  ASSIGN_OR_RETURN(manifest.sources, DigestFiles(checkpoint.files));
  ASSIGN_OR_RETURN(manifest, writer->Finish(std::move(manifest)));
  return ImportedPack{std::move(manifest), std::move(map.notes)};
}

}  // namespace nightshift
