#include "server/http/readiness_page.h"

#include "absl/strings/str_cat.h"

#include "kernels/base/printable_text.h"

namespace nightshift {

HttpResponse ReadinessPage(const std::vector<ReadinessCheck>& checks) {
  constexpr int kReady = 200;
  constexpr int kNotReady = 503;
  HttpResponse page;
  page.status = IsReady(checks) ? kReady : kNotReady;
  for (const ReadinessCheck& check : checks) {
    absl::StrAppend(
        &page.body, check.name, ": ",
        check.status.ok() ? "ok" : PrintableText(check.status.message(), LineBreaks::kEscape),
        "\n");
  }
  return page;
}

}  // namespace nightshift
