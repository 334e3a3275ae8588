// The layout and the style of the tree as a test: which folder may include which, one home for each
// library, includes that are named, words that do not belong here, every source file named in a
// README.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

namespace fs = std::filesystem;

// What starts with `start` (an include, or a banned word for a regex) belongs to paths that start
// with one of `homes`. The first rule that matches an include decides.
struct Rule {
  std::string start;
  std::vector<std::string> homes;
};

// proto <- client, proto <- server, kernels/base <- client, kernels <- engine <- server; inside the
// server: metrics, store, input <- scheduling <- rpc <- http; inside the engine: all <- execute <- the door.
std::vector<Rule> PackageRules() {
  return {
      {"kernels/base/", {"kernels/", "engine/", "server/", "client/", "tests/"}},
      {"kernels/cpu/", {"kernels/", "tests/"}},
      {"kernels/", {"kernels/", "engine/", "server/", "tests/"}},
      {"engine/execute/",
       {"engine/execute/", "engine/local_engine", "engine/memory_plan", "tests/"}},
      {"engine/", {"engine/", "server/", "tests/"}},
      {"server/metrics/",
       {"server/metrics/", "server/store/", "server/scheduling/", "server/rpc/", "server/http/",
        "server/server", "tests/"}},
      {"server/http/", {"server/http/", "server/server", "server/options", "tests/"}},
      {"server/store/",
       {"server/store/", "server/scheduling/", "server/rpc/", "server/http/", "server/server",
        "tests/"}},
      {"server/input/",
       {"server/input/", "server/scheduling/", "server/rpc/", "server/http/", "tests/"}},
      {"server/scheduling/",
       {"server/scheduling/", "server/rpc/", "server/http/", "server/server", "tests/"}},
      {"server/rpc/",
       {"server/rpc/", "server/http/", "server/server", "server/daemon", "tests/"}},
      {"server/", {"server/", "tests/"}},
      {"nightshift/v1/", {"server/", "client/", "tests/"}},
      {"proto/", {"server/", "client/", "tests/"}},
      {"client/", {"client/", "tests/"}},
      {"tests/", {"tests/"}},
  };
}

// One home for each library; Abseil and the standard library are at home everywhere.
std::vector<Rule> LibraryRules() {
  return {
      {"grpc", {"server/rpc/", "server/server", "client/", "tests/"}},
      {"google/rpc/", {"server/rpc/", "server/input/", "client/", "tests/"}},
      {"google/protobuf/", {"server/", "client/", "tests/"}},
      {"nlohmann/",
       {"kernels/base/log_format", "engine/model/", "engine/policy/", "engine/text/",
        "server/input/", "server/tools/", "client/", "tests/"}},
      {"pcre2", {"engine/text/"}},
      {"utf8proc", {"engine/text/"}},
      {"xxhash", {"kernels/base/"}},
      {"isa-l", {"kernels/base/"}},
      {"openssl/", {"server/security/", "client/", "tests/"}},
      {"sqlite3", {"server/store/", "tests/server/store/"}},
      {"CLI/", {"kernels/base/command_help", "server/options", "server/tools/", "client/", "tests/"}},
      {"systemd/", {"server/daemon"}},
      {"hwy/", {"kernels/cpu/", "tests/kernels/", "tests/bench/"}},
      {"oneapi/", {"tests/bench/"}},
      {"dnnl", {"tests/bench/"}},
      {"cblas", {"tests/bench/"}},
      {"liburing", {"engine/io/"}},
      {"coin/", {"engine/policy/"}},
      {"prometheus/", {"server/metrics/"}},
      {"httplib", {"server/http/", "tests/server/http/"}},
      {"cu", {"kernels/cuda/"}},
  };
}

// What the headers of precompile.cmake declare and what they drag in, by the header to include for
// it. Precompiled, they are there without an include.
struct Declarations {
  std::string header;
  std::vector<std::string> names;
};

std::vector<Declarations> PrecompiledDeclarations() {
  return {
      {"algorithm", {"std::all_of",        "std::any_of",
                     "std::binary_search", "std::clamp",
                     "std::copy",          "std::copy_n",
                     "std::count",         "std::count_if",
                     "std::equal",         "std::fill",
                     "std::fill_n",        "std::find",
                     "std::find_if",       "std::generate",
                     "std::is_sorted",     "std::lower_bound",
                     "std::max",           "std::max_element",
                     "std::min",           "std::min_element",
                     "std::minmax",        "std::mismatch",
                     "std::none_of",       "std::nth_element",
                     "std::partial_sort",  "std::partition_point",
                     "std::ranges",        "std::remove_if",
                     "std::replace",       "std::reverse",
                     "std::rotate",        "std::search",
                     "std::shuffle",       "std::sort",
                     "std::stable_sort",   "std::transform",
                     "std::unique",        "std::upper_bound"}},
      {"array", {"std::array"}},
      {"atomic", {"std::atomic"}},
      {"chrono", {"std::chrono"}},
      {"cstdint",
       {"int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t"}},
      {"cstring",
       {"std::memchr", "std::memcmp", "std::memcpy", "std::memmove", "std::memset", "std::strcmp",
        "std::strerror", "std::strlen"}},
      {"deque", {"std::deque"}},
      {"filesystem", {"std::filesystem"}},
      {"fstream", {"std::fstream", "std::ifstream", "std::ofstream"}},
      {"functional", {"std::function", "std::greater", "std::hash", "std::less", "std::ref"}},
      {"limits", {"std::numeric_limits"}},
      {"map", {"std::map", "std::multimap"}},
      {"memory",
       {"std::make_shared", "std::make_unique", "std::shared_ptr", "std::unique_ptr",
        "std::weak_ptr"}},
      {"numeric",
       {"std::accumulate", "std::gcd", "std::inner_product", "std::iota", "std::reduce"}},
      {"optional", {"std::nullopt", "std::optional"}},
      {"set", {"std::multiset", "std::set"}},
      {"span", {"std::as_bytes", "std::as_writable_bytes", "std::span"}},
      {"sstream", {"std::istringstream", "std::ostringstream", "std::stringstream"}},
      {"string", {"std::getline", "std::string", "std::to_string"}},
      {"thread", {"std::this_thread", "std::thread"}},
      {"tuple", {"std::tie", "std::tuple"}},
      {"unordered_map", {"std::unordered_map"}},
      {"utility", {"std::exchange", "std::forward", "std::move", "std::pair", "std::swap"}},
      {"variant", {"std::get_if", "std::holds_alternative", "std::variant", "std::visit"}},
      {"vector", {"std::vector"}},
      {"absl/status/status.h",
       {"absl::AbortedError", "absl::CancelledError", "absl::DataLossError",
        "absl::DeadlineExceededError", "absl::FailedPreconditionError", "absl::InternalError",
        "absl::InvalidArgumentError", "absl::NotFoundError", "absl::OkStatus",
        "absl::ResourceExhaustedError", "absl::Status", "absl::StatusCode",
        "absl::UnavailableError"}},
      {"absl/status/statusor.h", {"absl::StatusOr"}},
      {"absl/strings/str_cat.h",
       {"absl::AlphaNum", "absl::Hex", "absl::StrAppend", "absl::StrCat"}},
      {"absl/strings/string_view.h", {"absl::string_view"}},
      {"nlohmann/json.hpp", {"nlohmann::json::parse", "nlohmann::ordered_json::parse"}},
      {"gmock/gmock.h",
       {"ASSERT_THAT", "EXPECT_CALL", "EXPECT_THAT", "MATCHER", "MATCHER_P", "MATCHER_P2",
        "MOCK_METHOD"}},
      {"gtest/gtest.h", {"INSTANTIATE_TEST_SUITE_P", "TEST", "TEST_F", "TEST_P"}},
  };
}

// Regular expressions over code without comments and strings, and the paths that may use them.
// A Create function may hand `new` of a private constructor straight to its unique_ptr.
std::vector<Rule> BannedWords() {
  return {
      {R"(\busing\s+namespace\b)", {}},
      {R"(\bstd::cout\b)", {"client/", "server/tools/", "tests/"}},
      {R"((^|[^\w.>])_?exit\s*\()", {}},
      {R"(^(?!.*unique_ptr<).*\bnew\s+[\w:<(])", {}},
      {R"(\bcatch\s*\(|\bthrow\b)", {"client/", "server/options", "server/tools/"}},
  };
}

// A test that waits for a time asserts about the machine it runs on.
const char kSleep[] = R"(\b(sleep_for|sleep_until|SleepFor|nanosleep|usleep|sleep)\s*\()";

bool IsAtHome(const std::string& path, const Rule& rule) {
  return std::any_of(rule.homes.begin(), rule.homes.end(),
                     [&](const std::string& home) { return path.rfind(home, 0) == 0; });
}

fs::path Root() {
  return fs::path(TEST_DATA_DIR).parent_path().parent_path();
}

std::vector<std::string> LinesOf(const fs::path& file) {
  std::ifstream stream(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

// Paths, relative to the root, of the files with one of these extensions.
std::vector<std::string> FilesOf(const std::vector<std::string>& folders,
                                 const std::vector<std::string>& extensions) {
  std::vector<std::string> files;
  for (const std::string& folder : folders) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(Root() / folder)) {
      const std::string extension = entry.path().extension().string();
      if (entry.is_regular_file() &&
          std::find(extensions.begin(), extensions.end(), extension) != extensions.end()) {
        files.push_back(fs::relative(entry.path(), Root()).generic_string());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> SourcesOf(const std::vector<std::string>& folders) {
  return FilesOf(folders, {".h", ".cc", ".cu", ".cuh"});
}

std::vector<std::string> AllSources() {
  return SourcesOf({"kernels", "engine", "server", "client", "tests"});
}

// A line without string literals and without what follows //.
std::string CodeOf(const std::string& line) {
  static const std::regex kLiteral(R"re("(\\.|[^"\\])*"|'(\\.|[^'\\])')re");
  const std::string code = std::regex_replace(line, kLiteral, "\"\"");
  return code.substr(0, code.find("//"));
}

std::vector<std::string> IncludesOf(const std::string& path) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*[<"]([^>"]+)[>"])re");
  std::vector<std::string> includes;
  for (const std::string& line : LinesOf(Root() / path)) {
    std::smatch match;
    if (std::regex_search(line, match, kInclude)) {
      includes.push_back(match[1]);
    }
  }
  return includes;
}

// The names in a file's code, `a::b` as one; of a longer one also each beginning, `a::b` of
// `a::b::c`.
std::set<std::string> NamesIn(const std::string& path) {
  std::set<std::string> names;
  for (const std::string& line : LinesOf(Root() / path)) {
    std::string name;
    for (const char character : CodeOf(line) + " ") {
      const bool goes_on = std::isalnum(static_cast<unsigned char>(character)) != 0 ||
                           character == '_' || character == ':';
      if (character == ':' && !name.ends_with(':')) {
        names.insert(name);
      }
      if (goes_on) {
        name += character;
      } else {
        names.insert(name);
        name.clear();
      }
    }
  }
  return names;
}

// Adds what `path` includes, itself and through headers of ours.
void AddIncludes(const std::map<std::string, std::vector<std::string>>& includes,
                 const std::string& path, std::set<std::string>& reached) {
  const auto ours = includes.find(path);
  for (const std::string& included :
       ours == includes.end() ? std::vector<std::string>() : ours->second) {
    if (reached.insert(included).second) {
      AddIncludes(includes, included, reached);
    }
  }
}

void ExpectIncludesAtHome(const std::vector<Rule>& rules) {
  for (const std::string& path : AllSources()) {
    for (const std::string& included : IncludesOf(path)) {
      const auto rule = std::find_if(rules.begin(), rules.end(), [&](const Rule& candidate) {
        return included.rfind(candidate.start, 0) == 0;
      });
      EXPECT_TRUE(rule == rules.end() || IsAtHome(path, *rule))
          << path << " includes " << included << ", which is not for this folder";
    }
  }
}

void ExpectNowhere(const std::string& pattern, const std::vector<std::string>& paths) {
  const std::regex word(pattern);
  for (const std::string& path : paths) {
    const std::vector<std::string> lines = LinesOf(Root() / path);
    std::string code;
    for (size_t i = 0; i < lines.size(); ++i) {
      // A call that goes on from the line before is one piece of code.
      const bool goes_on = !code.empty() && code.back() == '(';
      code = (goes_on ? code : "") + CodeOf(lines[i]);
      EXPECT_FALSE(std::regex_search(code, word))
          << path << ":" << i + 1 << " has " << pattern << ": " << lines[i];
    }
  }
}

TEST(TidyTest, FoldersIncludeOnlyWhatIsBelowThem) {
  ExpectIncludesAtHome(PackageRules());
}

TEST(TidyTest, EachLibraryHasOneHome) {
  ExpectIncludesAtHome(LibraryRules());
}

TEST(TidyTest, EachFileIncludesWhatItUsesOfPrecompiledHeaders) {
  std::map<std::string, std::vector<std::string>> includes;
  for (const std::string& path : AllSources()) {
    includes[path] = IncludesOf(path);
  }
  const std::vector<Declarations> declarations = PrecompiledDeclarations();
  for (const auto& [path, direct] : includes) {
    std::set<std::string> reached;
    AddIncludes(includes, path, reached);
    const std::set<std::string> used = NamesIn(path);
    for (const Declarations& declared : declarations) {
      for (const std::string& name : declared.names) {
        EXPECT_TRUE(!used.contains(name) || reached.contains(declared.header))
            << path << " uses " << name << " and does not include " << declared.header;
      }
    }
  }
}

TEST(TidyTest, NoFileHasABannedWord) {
  for (const Rule& banned : BannedWords()) {
    std::vector<std::string> paths = AllSources();
    std::erase_if(paths, [&](const std::string& path) { return IsAtHome(path, banned); });
    ExpectNowhere(banned.start, paths);
  }
}

TEST(TidyTest, NoTestSleeps) {
  ExpectNowhere(kSleep, FilesOf({"tests"}, {".h", ".cc", ".py"}));
}

// The nearest README, in the file's own folder or above it, is its map.
TEST(TidyTest, EachSourceIsNamedInTheReadmeOfItsFolder) {
  std::string unnamed;
  for (const std::string& path : SourcesOf({"kernels", "engine", "server", "client"})) {
    fs::path folder = (Root() / path).parent_path();
    while (!fs::exists(folder / "README.md")) {
      folder = folder.parent_path();
    }
    const std::string stem = fs::path(path).stem().string();
    const std::vector<std::string> map = LinesOf(folder / "README.md");
    if (std::none_of(map.begin(), map.end(), [&](const std::string& line) {
          return line.find(stem) != std::string::npos;
        })) {
      unnamed += path + "\n";
    }
  }
  EXPECT_EQ(unnamed, "");
}

TEST(TidyTest, ReadmesAreShort) {
  EXPECT_LE(LinesOf(Root() / "README.md").size(), 150U);
  for (const std::string& path :
       FilesOf({"kernels", "engine", "server", "client", "deploy", "tests"}, {".md"})) {
    EXPECT_TRUE(fs::path(path).filename() != "README.md" || LinesOf(Root() / path).size() <= 200)
        << path << " has " << LinesOf(Root() / path).size() << " lines";
  }
}

}  // namespace
}  // namespace nightshift
