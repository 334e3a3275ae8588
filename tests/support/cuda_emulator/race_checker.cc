#include "tests/support/cuda_emulator/race_checker.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace nightshift::cuda_emulator {
namespace {

uintptr_t FirstOf(const Access& access) {
  return reinterpret_cast<uintptr_t>(access.address);
}

bool Overlap(const Access& a, const Access& b) {
  return FirstOf(a) < FirstOf(b) + b.bytes && FirstOf(b) < FirstOf(a) + a.bytes;
}

std::string Describe(const Work& work, const Access& access) {
  return absl::StrCat("\"", work.name, "\" (work ", work.number, " of stream ", work.stream, ") ",
                      access.writes ? "writes " : "reads ", access.bytes, " bytes at 0x",
                      absl::Hex(FirstOf(access)));
}

}  // namespace

uint64_t VectorClock::of(uint64_t stream) const {
  const auto known = works_.find(stream);
  return known == works_.end() ? 0 : known->second;
}

void VectorClock::Join(const VectorClock& other) {
  for (const auto& [stream, works] : other.works_) {
    uint64_t& known = works_[stream];
    known = std::max(known, works);
  }
}

std::optional<std::string> RaceChecker::Add(const Work& work, const VectorClock& before,
                                            std::span<const Access> accesses) {
  std::optional<std::string> clash;
  for (const Access& access : accesses) {
    for (const Past& past : past_) {
      const bool is_ordered =
          past.work.stream == work.stream || past.work.number <= before.of(past.work.stream);
      if (!clash && !is_ordered && (access.writes || past.access.writes) &&
          Overlap(access, past.access)) {
        clash = absl::StrCat("no fence between ", Describe(past.work, past.access), " and ",
                             Describe(work, access));
      }
    }
  }
  for (const Access& access : accesses) {
    past_.push_back({work, access});
  }
  return clash;
}

void RaceChecker::ForgetBefore(const VectorClock& host) {
  std::erase_if(past_, [&](const Past& past) {
    return past.work.number <= host.of(past.work.stream);
  });
}

}  // namespace nightshift::cuda_emulator
