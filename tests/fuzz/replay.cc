// The main of a fuzzer's smoke where there is no libFuzzer: replay FOLDER RUNS gives each file of the
// folder to the target, then RUNS small changes of them, always the same ones.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace nightshift {
namespace {

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

std::string Change(std::string input, std::mt19937& random) {
  const size_t place = input.empty() ? 0 : random() % input.size();
  switch (random() % 3) {
    case 0:
      input.insert(place, 1, static_cast<char>(random()));
      break;
    case 1:
      input.resize(place);
      break;
    default:
      if (!input.empty()) {
        input[place] = static_cast<char>(random());
      }
  }
  return input;
}

int Replay(const std::string& folder, int runs) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    Run(inputs.back());
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "replay: no seeds in %s\n", folder.c_str());
    return EXIT_FAILURE;
  }
  std::mt19937 random(1);
  for (int i = 0; i < runs; ++i) {
    std::string input = inputs[random() % inputs.size()];
    for (size_t changes = 1 + random() % 4; changes > 0; --changes) {
      input = Change(std::move(input), random);
    }
    Run(input);
  }
  std::printf("%zu seeds, %d changed ones\n", inputs.size(), runs);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: replay FOLDER RUNS\n");
    return EXIT_FAILURE;
  }
  return nightshift::Replay(argv[1], std::atoi(argv[2]));
}
