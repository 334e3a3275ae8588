// FrontierSvg of frontier.h.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "engine/policy/frontier.h"
#include "engine/policy/quantity_text.h"

namespace nightshift {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 440;
constexpr double kLeft = 80;
constexpr double kRight = 20;
constexpr double kTop = 40;
constexpr double kBottom = 60;

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// A logarithmic axis from a tick below all values to one above.
class Axis {
 public:
  Axis(double least, double most, double at_least, double at_most)
      : low_(TickBelow(least)),
        high_(std::max(TickAbove(most), 2 * low_)),
        at_low_(at_least),
        at_high_(at_most) {}

  double At(double value) const {
    return at_low_ + (at_high_ - at_low_) * std::log(value / low_) / std::log(high_ / low_);
  }

  // 1, 2 and 5 times powers of ten; only the powers where there are many.
  std::vector<double> Ticks() const {
    const bool many = high_ / low_ > 2e3;
    std::vector<double> ticks;
    for (double decade = DecadeOf(low_); decade <= high_ * 1.001; decade *= 10) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double tick = decade * digit;
        const bool inside = tick >= low_ * 0.999 && tick <= high_ * 1.001;
        if (inside && (!many || digit == 1.0)) {
          ticks.push_back(tick);
        }
      }
    }
    return ticks;
  }

 private:
  static double DecadeOf(double value) { return std::pow(10, std::floor(std::log10(value))); }
  static double TickBelow(double value) {
    const double decade = DecadeOf(value);
    const double digit = value / decade;
    return decade * (digit >= 5 ? 5 : digit >= 2 ? 2 : 1);
  }
  static double TickAbove(double value) {
    const double decade = DecadeOf(value);
    const double digit = value / decade;
    return decade * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  }

  const double low_;
  const double high_;
  const double at_low_;
  const double at_high_;
};

void AppendText(std::string& svg, double x, double y, const char* anchor, const std::string& text) {
  absl::StrAppendFormat(&svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                        anchor, Escaped(text));
}

void AppendLine(std::string& svg, double x1, double y1, double x2, double y2) {
  absl::StrAppendFormat(&svg,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ccc\"/>\n",
                        x1, y1, x2, y2);
}

void AppendAxes(std::string& svg, const Axis& x, const Axis& y, const std::string& rate_name) {
  for (const double tick : x.Ticks()) {
    AppendLine(svg, x.At(tick), kTop, x.At(tick), kHeight - kBottom);
    AppendText(svg, x.At(tick), kHeight - kBottom + 18, "middle", absl::StrFormat("%g", tick));
  }
  for (const double tick : y.Ticks()) {
    AppendLine(svg, kLeft, y.At(tick), kWidth - kRight, y.At(tick));
    AppendText(svg, kLeft - 8, y.At(tick) + 4, "end", absl::StrFormat("%g", tick));
  }
  AppendText(svg, (kLeft + kWidth - kRight) / 2, kHeight - 16, "middle",
             "latency: time for which a request is held (s)");
  const double middle = (kTop + kHeight - kBottom) / 2;
  absl::StrAppendFormat(&svg,
                        "<text x=\"20\" y=\"%.1f\" text-anchor=\"middle\" "
                        "transform=\"rotate(-90 20 %.1f)\">throughput (%s)</text>\n",
                        middle, middle, Escaped(rate_name));
}

void AppendPoints(std::string& svg, const Frontier& frontier, const Axis& x, const Axis& y) {
  absl::StrAppend(&svg, "<polyline fill=\"none\" stroke=\"#06c\" stroke-width=\"2\" points=\"");
  for (const FrontierPoint& point : frontier.points) {
    absl::StrAppendFormat(&svg, "%.1f,%.1f ", x.At(point.held_seconds), y.At(point.tokens_per_s));
  }
  absl::StrAppend(&svg, "\"/>\n");
  for (const FrontierPoint& point : frontier.points) {
    absl::StrAppendFormat(
        &svg,
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#06c\"><title>%s, %.4g %s, block of %d in "
        "batches of %d</title></circle>\n",
        x.At(point.held_seconds), y.At(point.tokens_per_s), DurationText(point.held_seconds),
        point.tokens_per_s, Escaped(frontier.rate_name), point.choice.block_requests,
        point.choice.batch_requests);
  }
}

}  // namespace

std::string FrontierSvg(const Frontier& frontier, const std::string& title) {
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"white\"/>\n",
      kWidth, kHeight);
  AppendText(svg, kWidth / 2, 24, "middle", title);
  if (!frontier.points.empty()) {
    const FrontierPoint& first = frontier.points.front();
    const FrontierPoint& last = frontier.points.back();
    const Axis x(first.held_seconds, last.held_seconds, kLeft, kWidth - kRight);
    const Axis y(first.tokens_per_s, last.tokens_per_s, kHeight - kBottom, kTop);
    AppendAxes(svg, x, y, frontier.rate_name);
    AppendPoints(svg, frontier, x, y);
  }
  return svg + "</svg>\n";
}

}  // namespace nightshift
