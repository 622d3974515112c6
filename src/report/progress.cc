#include "report/progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBetweenLines = std::chrono::seconds(10);
constexpr auto kBetweenFrames = std::chrono::milliseconds(100);

std::string Bar(double share, int width) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(share * width * 8);
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths[eighths % 8];
  const int drawn = eighths / 8 + (eighths % 8 > 0 ? 1 : 0);
  return bar + std::string(static_cast<size_t>(width - drawn), ' ');
}

}  // namespace

std::string DurationText(double seconds) {
  const auto s = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
}

ProgressBar::ProgressBar(std::FILE* out, bool terminal, int64_t steps, int64_t done)
    : out_(out), terminal_(terminal), steps_(steps), done_(done), begin_(Clock::now()) {}

void ProgressBar::Update(int64_t step, double loss, double tokens_per_s, std::optional<double> valid_loss) {
  const auto now = Clock::now();
  const bool last = step == steps_;
  if (!last && !valid_loss &&
      now - shown_ < (terminal_ ? Clock::duration(kBetweenFrames) : Clock::duration(kBetweenLines)))
    return;
  shown_ = now;
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  const double left =
      elapsed / static_cast<double>(std::max<int64_t>(1, step - done_)) * static_cast<double>(steps_ - step);
  const std::string state = fmt::format("step {:>{}}/{}  loss {:.4f}  {:>8.0f} tokens/s  {} left", step,
                                        std::to_string(steps_).size(), steps_, loss, tokens_per_s, DurationText(left));
  const std::string valid = valid_loss ? fmt::format("  validation loss {:.4f}", *valid_loss) : "";
  if (terminal_) {
    const double share = static_cast<double>(step) / static_cast<double>(steps_);
    fmt::print(out_, "\r\x1b[K{:>4.0f}% ▕{}▏ {}{}{}", 100 * share, Bar(share, 24), state, valid,
               valid_loss ? "\n" : "");
  } else {
    fmt::print(out_, "{}{}\n", state, valid);
  }
  std::fflush(out_);
}

void ProgressBar::Finish() {
  if (terminal_) fmt::print(out_, "\n");
}

}  // namespace trireme
