// nightshiftd: the daemon, its engine process, and the tools that need the engine's file formats.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "engine/engine.h"
#include "engine/policy/hardware_file.h"
#include "engine/process/engine_process.h"
#include "engine/process/serve_engine.h"
#include "engine/schedule/timeline.h"
#include "kernels/base/clock.h"
#include "kernels/base/exit_code.h"
#include "kernels/base/file_descriptor.h"
#include "kernels/base/new_file.h"
#include "kernels/base/printable_text.h"
#include "kernels/base/status_macros.h"
#include "server/daemon.h"
#include "server/device_choice.h"
#include "server/memory_limit.h"
#include "server/options.h"
#include "server/server.h"
#include "server/tools/bench.h"
#include "server/tools/calibrate.h"
#include "server/tools/import.h"
#include "server/tools/make_token.h"
#include "server/tools/model_show.h"
#include "server/tools/model_verify.h"
#include "server/tools/plan_model.h"
#include "server/tools/random_import.h"

namespace nightshift {
namespace {

// For people: one line on stderr.
ExitCode Fail(const char* what, const absl::Status& status, ExitCode exit_code) {
  const std::string message =
      PrintableText(absl::StrCat(what, ": ", status.message()), LineBreaks::kEscape);
  std::fprintf(stderr, "nightshiftd: %s\n", message.c_str());
  return exit_code;
}
ExitCode Fail(const char* what, const absl::Status& status) {
  return Fail(what, status, ExitCodeOf(status));
}

void Note(const std::string& text) {
  std::fprintf(stderr, "%s\n", PrintableText(text, LineBreaks::kEscape).c_str());
}

// Names of models and machines come from files: they must not steer the terminal.
ExitCode Print(const std::string& text) {
  const std::string printable = PrintableText(text, LineBreaks::kKeep);
  const bool written = std::fputs(printable.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? ExitCode::kOk : Fail("output", ErrnoStatus("write", "standard output"));
}

ExitCode ShowPack(const std::string& path, ShowFormat format) {
  const auto text = ShowModel(path, format);
  return text.ok() ? Print(*text) : Fail("model show", text.status());
}

ExitCode PrintImported(const absl::StatusOr<ImportSummary>& summary, const std::string& source,
                       const std::string& output, bool json) {
  if (!summary.ok()) {
    return Fail("import", summary.status());
  }
  for (const std::string& note : summary->notes) {
    Note(note);
  }
  return json ? ShowPack(output, ShowFormat::kJson)
              : Print("imported " + source + " to " + output + "\n");
}

ExitCode Import(const CommandLine& line) {
  const ImportOptions options = {.source = line.source,
                                 .output = line.output,
                                 .name = line.name,
                                 .without_tokenizer = line.without_tokenizer,
                                 .without_template = line.without_template,
                                 .chat_template_file = line.chat_template_file,
                                 .types = line.types};
  return PrintImported(ImportModel(options), line.source, line.output, line.json);
}

absl::StatusOr<std::string> MeasureEngine(const CommandLine& line) {
  const bool has_timeline = !line.timeline_path.empty();
  if (has_timeline) {
    RETURN_IF_ERROR(CheckNoFile(line.timeline_path));
    RETURN_IF_ERROR(CheckWritable(line.timeline_path));
  }
  BenchOptions bench = line.bench;
  RETURN_IF_ERROR(ChooseDevice(bench.device, bench.engine.compute_type,
                               bench.engine.sparse_attention, bench.engine.tiers)
                      .status());
  const RealClock clock;
  const int64_t start_us = clock.MonotonicMicros();
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(bench.engine));
  const double load_s = static_cast<double>(clock.MonotonicMicros() - start_us) * 1e-6;
  ASSIGN_OR_RETURN(const BenchReport report, RunBench(bench, *engine, clock, load_s));
  if (has_timeline) {
    RETURN_IF_ERROR(WriteNewFile(line.timeline_path, ChromeTrace(report.steps)));
  }
  return line.json ? BenchJson(bench, report) : BenchText(bench, report);
}

ExitCode Bench(const CommandLine& line) {
  const auto text = MeasureEngine(line);
  return text.ok() ? Print(*text) : Fail("bench", text.status());
}

ExitCode MeasureMachine(const CommandLine& line) {
  const auto calibration = RunCalibrate(line.calibrate, RealClock());
  if (!calibration.ok()) {
    return Fail("calibrate", calibration.status());
  }
  for (const std::string& note : calibration->notes) {
    Note(note);
  }
  return Print(line.json ? HardwareProfileToJson(calibration->profile)
                         : CalibrationText(line.calibrate, *calibration));
}

ExitCode PrintPlan(const PlanModelOptions& options) {
  const auto profile = options.hardware.empty() ? LoadHardwareProfile(DefaultHardwarePath())
                                                : FindHardwareProfile(options.hardware);
  // That a plan by published figures is for another machine is what was asked for.
  if (profile.ok() && !profile->fingerprint.empty()) {
    std::error_code error;
    const bool is_pack = std::filesystem::is_directory(options.model, error);
    const std::string folder =
        is_pack ? options.model
                : std::filesystem::path(DefaultHardwarePath()).parent_path().string();
    const std::string note = ProfileNote(options.hardware, *profile, folder, MemoryLimitBytes());
    if (!note.empty()) {
      Note(note);
    }
  }
  const auto text = PlanModel(options);
  return text.ok() ? Print(*text) : Fail("plan", text.status());
}

// What the parser cannot see: whether packs, hardware profile and folders are as the options say.
ExitCode CheckConfig(const Options& options) {
  const absl::Status status = Server::Check(options);
  return status.ok() ? Print("options are valid\n") : Fail("options", status, ExitCode::kConfig);
}

absl::Status DamagedPack(const std::string& path, const VerifyReport& report) {
  return absl::DataLossError(absl::StrCat(report.num_problems, " problems in ", path));
}

ExitCode VerifyPack(const CommandLine& line) {
  const auto report = VerifyModel(line.pack);
  if (!report.ok()) {
    return Fail("model verify", report.status());
  }
  if (line.json) {
    const ExitCode printed = Print(VerifyJson(line.pack, *report));
    return printed == ExitCode::kOk && !report->ok() ? ExitCodeOf(DamagedPack(line.pack, *report))
                                                     : printed;
  }
  for (const std::string& problem : report->problems) {
    Note(problem);
  }
  if (!report->ok()) {
    return Fail("model verify", DamagedPack(line.pack, *report));
  }
  return Print(
      absl::StrCat("verified ", report->shards, " shards, ", report->bytes, " bytes: good\n"));
}

ExitCode PrintToken(const CommandLine& line) {
  const absl::StatusOr<NewToken> made = CreateToken(line.make_token, RealClock().WallMicros());
  if (!made.ok()) {
    return Fail("make-token", made.status(), ExitCode::kUsage);
  }
  if (line.json) {
    return Print(TokenJson(*made));
  }
  Note(made->access_line);
  return Print(made->token + "\n");
}

ExitCode Run(int argc, const char* const* argv) {
  const auto line = ReadCommandLine(argc, argv);
  if (!line.ok()) {
    const bool is_tool = argc > 1 && argv[1][0] != '-';
    return Fail("options", line.status(), is_tool ? ExitCode::kUsage : ExitCode::kConfig);
  }
  if (line->command != Command::kServe) {
    EndOnSignals();
  }
  switch (line->command) {
    case Command::kServe:
      return RunDaemon(*line, EngineProcess::Create);
    case Command::kCheckConfig:
      return CheckConfig(line->options);
    case Command::kPrintConfig:
      return Print(absl::StrJoin(line->effective, "\n") + "\n");
    case Command::kPrintText:
      return Print(line->text);
    case Command::kImport:
      return Import(*line);
    case Command::kImportRandom:
      return PrintImported(ImportRandom(line->random),
                           "random weights of shape " + line->random.shape, line->random.output,
                           line->json);
    case Command::kBench:
      return Bench(*line);
    case Command::kCalibrate:
      return MeasureMachine(*line);
    case Command::kPlan:
      return PrintPlan(line->plan);
    case Command::kModelShow:
      return ShowPack(line->pack, line->json ? ShowFormat::kJson : ShowFormat::kText);
    case Command::kModelVerify:
      return VerifyPack(*line);
    case Command::kMakeToken:
      return PrintToken(*line);
  }
  return ExitCode::kOther;
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  nightshift::PrepareProcess();
  return nightshift::IsEngineProcess(argc, argv)
             ? nightshift::RunEngineProcess(nightshift::Engine::Create)
             : static_cast<int>(nightshift::Run(argc, argv));
}
