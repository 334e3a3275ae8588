// Chat templates against renderings made by Jinja itself, in the environment of transformers.
#include <string>

#include <gtest/gtest.h>

#include "engine/text/chat_template.h"
#include "tests/engine/text/golden_files.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using json = nlohmann::ordered_json;

// Both render the same text, or both refuse.
void ExpectAsJinja(const std::string& source, const json& messages, const RenderOptions& options,
                   const json& golden) {
  SCOPED_TRACE(golden["name"]);
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) {
    EXPECT_TRUE(golden.contains("error")) << parsed.status();
    return;
  }
  const auto rendered = (*parsed)->Render(messages, options);
  EXPECT_EQ(!rendered.ok(), golden.contains("error")) << rendered.status();
  if (rendered.ok() && golden.contains("text")) {
    EXPECT_EQ(rendered->text, golden["text"]);
  }
}

TEST(ChatTemplateGoldenTest, RendersTemplatesOfTheFamiliesAsJinja) {
  const json document = ReadDataOrderedJson("templates/chats.json");
  ASSERT_EQ(document["cases"].size(), 432u);
  for (const json& golden : document["cases"]) {
    ExpectAsJinja(document["templates"][golden["template"].get<std::string>()], golden["messages"],
                  {.add_generation_prompt = golden["add_generation_prompt"],
                   .bos_token = "<s>",
                   .eos_token = "</s>",
                   .arguments = golden["arguments"],
                   .now_us = std::nullopt},
                  golden);
  }
}

// 2025-03-15 11:04:05.123456 UTC, as make_template_oracles.py has it.
constexpr int64_t kNowUs = 1'742'036'645'123'456;

TEST(ChatTemplateGoldenTest, RendersPublishedStylesAsJinja) {
  const json document = ReadDataOrderedJson("templates/styles.json");
  ASSERT_EQ(document["templates"].size(), 15u);
  ASSERT_EQ(document["cases"].size(), 648u);
  for (const json& golden : document["cases"]) {
    json arguments = json::object();
    for (const json& name : golden["arguments"])
      arguments[name.get<std::string>()] = document["arguments"][name.get<std::string>()];
    ExpectAsJinja(document["templates"][golden["template"].get<std::string>()],
                  document["chats"][golden["chat"].get<std::string>()],
                  {.add_generation_prompt = golden["add_generation_prompt"],
                   .bos_token = "<s>",
                   .eos_token = "</s>",
                   .arguments = arguments,
                   .now_us = kNowUs},
                  golden);
  }
}

TEST(ChatTemplateGoldenTest, RendersGeneratedTemplatesAsJinja) {
  const json document = ReadDataOrderedJson("templates/generated.json");
  ASSERT_EQ(document["cases"].size(), 400u);
  RenderOptions options;
  options.arguments = document["context"];
  options.now_us = kNowUs;
  for (const json& golden : document["cases"])
    ExpectAsJinja(golden["source"], json::array(), options, golden);
}

TEST(ChatTemplateGoldenTest, EvaluatesSingleFeaturesAsJinja) {
  const json document = ReadDataOrderedJson("templates/snippets.json");
  ASSERT_EQ(document["cases"].size(), 52u);
  for (const json& golden : document["cases"]) {
    RenderOptions options;
    options.arguments = golden["context"];
    ExpectAsJinja(golden["source"], json::array(), options, golden);
  }
}

TEST(ChatTemplateGoldenTest, RendersSmolLm2AsTransformers) {
  const json document = ReadDataOrderedJson("smollm2/chat.json");
  ASSERT_OK_AND_ASSIGN(const auto chat_template, ChatTemplate::Parse(document["template"]));
  ASSERT_EQ(document["cases"].size(), 12u);
  for (const json& golden : document["cases"]) {
    for (const bool prompt : {true, false}) {
      ASSERT_OK_AND_ASSIGN(
          const RenderedText rendered,
          chat_template->Render(golden["messages"], {.add_generation_prompt = prompt,
                                                     .bos_token = "<|im_start|>",
                                                     .eos_token = "<|im_end|>",
                                                     .arguments = nullptr,
                                                     .now_us = std::nullopt}));
      EXPECT_EQ(rendered.text,
                golden[prompt ? "with_generation_prompt" : "without_generation_prompt"]["text"])
          << golden["name"];
    }
  }
}

}  // namespace
}  // namespace nightshift
