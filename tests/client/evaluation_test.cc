// What `nightshift evaluate` asks, and what it makes of the answers.
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/evaluation_data.h"
#include "client/evaluation_measure.h"
#include "client/evaluation_text.h"
#include "client/result_spool.h"

namespace nightshift {
namespace {

using nlohmann::json;

std::vector<std::string> Documents(const std::string& name, const std::string& content,
                                   EvaluationTask task) {
  const auto documents = ReadDocuments(name, content, task);
  EXPECT_TRUE(documents.ok()) << documents.status();
  return documents.value_or(std::vector<std::string>());
}

std::string Refusal(const std::string& name, const std::string& content, EvaluationTask task) {
  return std::string(ReadDocuments(name, content, task).status().message());
}

TEST(EvaluationDataTest, AFileIsOneDocumentOrOneALine) {
  const std::string text = "one two\n\n three\n";
  EXPECT_EQ(Documents("a.txt", text, EvaluationTask::kPerplexity), std::vector<std::string>{text});
  EXPECT_EQ(Documents("a.txt", text, EvaluationTask::kNextWord),
            (std::vector<std::string>{"one two", " three"}));
  EXPECT_EQ(Documents("a.jsonl", "{\"text\": \"x\\ny\", \"id\": 1}\n\n{\"text\": \"z\"}",
                      EvaluationTask::kPerplexity),
            (std::vector<std::string>{"x\ny", "z"}));
}

TEST(EvaluationDataTest, RefusesWhatItCannotRead) {
  for (const std::string line : {"x", "[]", "{\"text\": 1}", "{\"txt\": \"a\"}"}) {
    EXPECT_NE(Refusal("a.jsonl", "{\"text\": \"x\"}\n" + line, EvaluationTask::kNextWord)
                  .find("a.jsonl: line 2 is no JSON object with a \"text\""),
              std::string::npos)
        << line;
  }
  EXPECT_NE(Refusal("a.txt", " \n", EvaluationTask::kNextWord).find("no text"), std::string::npos);
  EXPECT_FALSE(NextWordItem("alone ").ok());
  EXPECT_FALSE(EvaluationRow({.prompt = "a\xFF", .text = " b", .words = 1}, 1).ok());
}

TEST(EvaluationDataTest, TheLastWordIsScoredWithTheSpaceBeforeIt) {
  const auto item = NextWordItem("  He said\n so. ");
  ASSERT_TRUE(item.ok());
  EXPECT_EQ(item->prompt, "He said");
  EXPECT_EQ(item->text, "\n so.");
  EXPECT_EQ(json::parse(EvaluationRow(*item, 1).value()),
            json::parse(R"({"prompt": "He said", "choices": ["\n so."], "logprobs": true,
                            "top_logprobs": 1})"));
}

// Random texts in random windows.
TEST(EvaluationDataTest, EachWordButTheFirstIsScoredOnceBehindItsWindow) {
  std::mt19937 random(3);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 50; ++round) {
    std::string text;
    int64_t words = 0;
    for (const int64_t count = draw(2, 400); words < count; ++words) {
      text += words == 0 ? "" : draw(0, 5) == 0 ? "\n\n" : " ";
      text += std::string(static_cast<size_t>(draw(1, 4)), 'w');
    }
    const int64_t window = draw(2, 60);
    const EvaluationWindows windows = {.window_words = window, .stride_words = draw(1, window - 1)};
    std::string joined = text.substr(0, text.find_first_of(" \n"));
    int64_t scored = 0;
    for (const EvaluationItem& item : PerplexityItems(text, windows)) {
      ASSERT_LE(item.prompt.size(), joined.size());
      EXPECT_EQ(joined.substr(joined.size() - item.prompt.size()), item.prompt);
      joined += item.text;
      scored += item.words;
    }
    EXPECT_EQ(joined, text);
    EXPECT_EQ(scored, words - 1);
  }
}

TEST(EvaluationDataTest, WindowsHaveTheirWordsAndAreCutAtSpaces) {
  const std::string text = "a b c d\n\ne f g h";
  const std::vector<EvaluationItem> items =
      PerplexityItems(text, {.window_words = 5, .stride_words = 3});
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0].prompt, "a");
  EXPECT_EQ(items[0].text, " b c d\n\ne");  // not before e
  EXPECT_EQ(items[1].prompt, "d\n\ne");
  EXPECT_EQ(items[1].text, " f g h");
  EXPECT_TRUE(PerplexityItems("one", {}).empty());
}

v1::ChoiceScore Score(const std::vector<std::vector<double>>& distributions,
                      const std::vector<int32_t>& tokens, size_t top) {
  v1::ChoiceScore score;
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<double>& p = distributions[i];
    std::vector<int32_t> order(p.size());
    for (size_t t = 0; t < p.size(); ++t) {
      order[t] = static_cast<int32_t>(t);
    }
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return p[static_cast<size_t>(a)] > p[static_cast<size_t>(b)];
    });
    score.add_token_ids(tokens[i]);
    v1::TokenLogprob& token = *score.add_logprobs();
    token.set_token(tokens[i]);
    token.set_logprob(static_cast<float>(std::log(p[static_cast<size_t>(tokens[i])])));
    sum += std::log(p[static_cast<size_t>(tokens[i])]);
    for (size_t k = 0; k < top; ++k) {
      token.add_top()->set_token(order[k]);
      token.mutable_top(static_cast<int>(k))
          ->set_logprob(static_cast<float>(std::log(p[static_cast<size_t>(order[k])])));
    }
  }
  score.set_logprob(sum);
  return score;
}

TEST(EvaluationMeasureTest, CountsWordsWhoseTokensAreAllTheBest) {
  Measure measure;
  AddScore({.prompt = "", .text = " ab", .words = 1}, Score({{0.5, 0.5}, {0.25, 0.75}}, {0, 1}, 1),
           measure);
  AddScore({.prompt = "", .text = " cdef", .words = 1}, Score({{0.25, 0.75}}, {0}, 1), measure);
  EXPECT_EQ(measure.accuracy(), 0.5);
  EXPECT_NEAR(measure.perplexity(), std::pow(0.5 * 0.75 * 0.25, -1.0 / 3), 1e-6);
  EXPECT_NEAR(measure.word_perplexity(), std::pow(0.5 * 0.75 * 0.25, -1.0 / 2), 1e-6);
  EXPECT_NEAR(measure.bits_per_byte(), -std::log2(0.5 * 0.75 * 0.25) / 8, 1e-6);
}

double ExactKl(const std::vector<double>& p, const std::vector<double>& q) {
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    kl += p[i] * std::log(p[i] / q[i]);
  }
  return kl;
}

// Over random distributions: never above the divergence, equal to it where all tokens are known,
// nothing between a distribution and itself.
TEST(EvaluationMeasureTest, TheDivergenceIsALowerBoundThatGrowsWithWhatIsKnown) {
  std::mt19937 random(5);
  std::normal_distribution<double> draw(0.0, 2.0);
  const auto distribution = [&](const std::vector<double>& near) {
    std::vector<double> p(40);
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] = std::exp((near.empty() ? 0 : std::log(near[i])) +
                      (near.empty() ? 1 : 0.2) * draw(random));
      sum += p[i];
    }
    for (double& value : p) {
      value /= sum;
    }
    return p;
  };
  double told = 0;
  double exact = 0;
  for (int round = 0; round < 200; ++round) {
    const std::vector<double> p = distribution({});
    const std::vector<double> q = distribution(p);
    const auto token = static_cast<int32_t>(random() % p.size());
    const auto kl = [&](size_t top, const std::vector<double>& other) {
      Divergence divergence;
      AddDivergence(Score({p}, {token}, top), Score({other}, {token}, top), divergence);
      EXPECT_EQ(divergence.tokens, 1);
      return divergence.kl;
    };
    EXPECT_NEAR(kl(40, q), ExactKl(p, q), 1e-4);
    EXPECT_LE(kl(20, q), ExactKl(p, q) + 1e-5);
    EXPECT_NEAR(kl(20, p), 0.0, 1e-5);
    told += kl(20, q);
    exact += ExactKl(p, q);
  }
  EXPECT_GT(told, 0.8 * exact);
}

TEST(EvaluationMeasureTest, CountsWhereBothModelsSayTheSame) {
  Divergence divergence;
  AddDivergence(Score({{0.6, 0.4}, {0.3, 0.7}}, {0, 0}, 2),
                Score({{0.7, 0.3}, {0.6, 0.4}}, {0, 0}, 2), divergence);
  EXPECT_EQ(divergence.tokens, 2);
  EXPECT_EQ(divergence.agreeing, 1);
  AddDivergence(Score({{0.6, 0.4}}, {0}, 2), Score({{0.6, 0.4}}, {1}, 2), divergence);
  EXPECT_EQ(divergence.unlike_items, 1);
  EXPECT_EQ(divergence.tokens, 2);
}

TEST(EvaluationTextTest, TellsBothModelsAndHowFarTheyAre) {
  EvaluationReport report;
  report.task = EvaluationTask::kNextWord;
  report.data = "words.jsonl";
  report.rows = 3;
  report.failed_rows = 1;
  report.model = {
      .model = "small",
      .model_digest = "aa",
      .numeric_mode = "bf16/device",
      .job = "jobs/x",
      .measure = {.items = 2, .correct = 1, .tokens = 4, .words = 2, .bytes = 9, .logprob = -8}};
  report.reference = report.model;
  report.reference->model = "large";
  report.divergence = {.tokens = 4, .kl = 1, .rest = 0.5, .agreeing = 3, .unlike_items = 1};
  const std::string text = EvaluationText(report);
  for (const char* part : {"2 rows, 2 words, 4 tokens", "1 of 3 rows", "small, bf16/device",
                           "50.00 % (1 of 2)", "7.389 a token", "0.25 nats a token at least",
                           "(12.5 %)", "75.00 % the same", "1 rows have other tokens"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  const json parsed = json::parse(EvaluationJson(report));
  EXPECT_EQ(parsed["kl"], 0.25);
  EXPECT_EQ(parsed["top1_agreement"], 0.75);
  EXPECT_EQ(parsed["against"]["model"], "large");
  EXPECT_EQ(parsed["model"]["accuracy"], 0.5);
}

TEST(ResultSpoolTest, GivesResultsBackInTheirOrder) {
  auto spool = ResultSpool::Create();
  ASSERT_TRUE(spool.ok());
  for (int64_t index = 0; index < 100; ++index) {
    v1::Result result;
    result.set_index(index);
    result.mutable_completion()->set_text(std::string(static_cast<size_t>(index * 37), 'x'));
    ASSERT_TRUE(spool->Append(result).ok());
  }
  for (int64_t index = 0; index < 100; ++index) {
    const auto result = spool->Next();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->index(), index);
    EXPECT_EQ(static_cast<int64_t>(result->completion().text().size()), index * 37);
  }
  EXPECT_FALSE(spool->Next().ok());
}

}  // namespace
}  // namespace nightshift
