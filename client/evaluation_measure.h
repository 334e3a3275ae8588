// What the scores of an evaluation's rows tell of a model, and of how far another one is from it.
// Pure.
#pragma once

#include <cstdint>

#include "client/evaluation_data.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// Of one model.
struct Measure {
  int64_t items = 0;
  int64_t correct = 0;  // whose tokens are all the best ones at their places
  int64_t tokens = 0;
  int64_t words = 0;
  int64_t bytes = 0;
  double logprob = 0;  // of all tokens: the sum

  double accuracy() const;         // correct items
  double perplexity() const;       // exp of the mean over tokens
  double word_perplexity() const;  // over words: comparable between tokenizers, as the next
  double bits_per_byte() const;
};
void AddScore(const EvaluationItem& item, const v1::ChoiceScore& score, Measure& measure);

// Of two models on the same rows.
struct Divergence {
  int64_t tokens = 0;
  double kl = 0;         // the sum of what tokens add, in nats
  double rest = 0;       // the sum of the reference's probability that was compared in one piece
  int64_t agreeing = 0;  // tokens for which both models' best one is the same
  int64_t unlike_items = 0;  // that the two tokenize differently: they are not compared
};

// Compares the distributions behind each token's predecessors. Of each the k best tokens and the
// scored one are known; those that are known of both are compared one by one, all others as one:
//   KL = sum p log(p / q) over the first + r log(r / s), r and s being what is left of p and q.
// Joining outcomes never raises a divergence, so this is a lower bound of KL(p || q), which is
// larger by r times the divergence among the joined ones.
// Source: Cover and Thomas, Elements of Information Theory, 2.7 (log sum inequality).
void AddDivergence(const v1::ChoiceScore& reference, const v1::ChoiceScore& model,
                   Divergence& divergence);

}  // namespace nightshift
