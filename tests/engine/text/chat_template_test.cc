// Origin of text through templates, limits, and messages of errors.
#include "engine/text/chat_template.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using json = nlohmann::ordered_json;

absl::StatusOr<RenderedText> Render(const std::string& source, const std::string& content = "c",
                                    ChatTemplateLimits limits = {}) {
  auto parsed = ChatTemplate::Parse(source, limits);
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render({{{"role", "user"}, {"content", content}}},
                           {.add_generation_prompt = true,
                            .bos_token = "<s>",
                            .eos_token = "</s>",
                            .arguments = {{"given", "<argument>"}},
                            .now_us = 1'000'000'000'000'000});
}

// The text with what the template wrote in capitals' place: "T" for trusted bytes, "." for others.
std::string Origin(const RenderedText& rendered) {
  std::string origin(rendered.text.size(), '.');
  for (const TextRange& range : rendered.trusted) {
    origin.replace(range.first, range.length, range.length, 'T');
  }
  return origin;
}

struct OriginCase {
  const char* source;
  const char* text;
  const char* origin;
};

TEST(ChatTemplateTest, KnowsWhichBytesTheTemplateWrote) {
  const std::vector<OriginCase> cases = {
      {"ab{{ messages[0].content }}cd", "ab<x> ycd", "TT.....TT"},
      {"{{ '<' + messages[0].content + '>' }}", "<<x> y>", "T.....T"},
      {"{{ '<' ~ messages[0].content ~ 1 ~ '>' }}", "<<x> y1>", "T......T"},
      {"{{ bos_token }}{{ given }}{{ eos_token }}", "<s><argument></s>", "TTT..........TTTT"},
      {"{{ ('ab' + messages[0].content)[1:4] }}", "b<x", "T.."},
      {"{{ (' ' + messages[0].content + ' ') | trim | upper }}", "<X> Y", "....."},
      {"{{ ('a' + messages[0].content) | upper }}", "A<X> Y", "T....."},
      {"{{ messages[0].content | replace('x', '<|im_end|>') }}", "<<|im_end|>> y",
       ".TTTTTTTTTT..."},
      {"{{ ['a', messages[0].content, 'b'] | join('-') }}", "a-<x> y-b", "TT.....TT"},
      {"{{ ('k ' + messages[0].content).split()[0] }}{{ messages[0].content.split()[0] }}", "k<x>",
       "T..."},
      {"{% set t %}a{{ messages[0].content }}{% endset %}{{ t }}", "a<x> y", "T....."},
      {"{% for c in 'a' ~ messages[0].content[:1] %}{{ c }}{% endfor %}", "a<", "T."},
      {"{% set ns = namespace(t='a') %}{% set ns.t = ns.t + messages[0].content %}{{ ns.t }}",
       "a<x> y", "T....."},
      {"{% macro m(x, y='|') %}<{{ x ~ y }}>{% endmacro %}{{ m(messages[0].content) }}", "<<x> y|>",
       "T.....TT"},
      {"{% macro w() %}[{{ caller() }}]{% endmacro %}"
       "{% call w() %}{{ messages[0].content }}{% endcall %}",
       "[<x> y]", "T.....T"},
      {"{% for t in [messages[0].content, ['a']] recursive %}"
       "{{ t if t is string else loop(t) }}{% endfor %}",
       "<x> ya", ".....T"},
      {"{% filter upper %}a{{ messages[0].content }}{% endfilter %}", "A<X> Y", "T....."},
      {"{% set t | trim %} a{{ messages[0].content }} {% endset %}{{ t }}", "a<x> y", "T....."},
      {"{{ ('a\n' ~ messages[0].content) | indent(2) }}", "a\n  <x> y", "T........"},
      {"{{ '<%s>' % messages[0].content }}", "<<x> y>", "T.....T"},
      {"{{ '%s%3s' | format(messages[0].content, 'a') }}", "<x> y  a", ".......T"},
      {"{{ '%(k)s!' % {'k': messages[0].content} }}", "<x> y!", ".....T"},
      {"{{ [messages[0].content, 'a'] | map('upper') | join('|') }}", "<X> Y|A", ".....TT"},
      {"{{ [messages[0].content, 'a'] | sort | join | reverse }}", "ay >x<", "T....."},
      {"{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}",
       "role=user;content=<x> y;", "....T....T.......T.....T"},
      {"{{ messages[0].content.partition(' ')[2].center(3, '*') | title }}", "*y*", "T.T"},
      {"{{ messages[0].content | truncate(4, true, '!', 0) }}", "<x>!", "...T"},
      {"{{ ([messages[0].content, 'a'] | batch(1) | list)[0][0] }}", "<x> y", "....."},
      {"{% set n = dict(a=messages[0].content) %}{{ n.a }}{% for k in n %}{{ k }}{% endfor %}",
       "<x> ya", ".....T"},
      {"{% macro m() %}{{ kwargs.t }}{{ varargs[0] }}{% endmacro %}{{ m('a', t=given) }}",
       "<argument>a", "..........T"},
      {"{{ strftime_now('%Y') }}{{ strftime_now(messages[0].content) }}", "2001<x> y", "TTTT....."},
      {"{{ messages[0].role }}{{ messages[0] | tojson }}", nullptr, nullptr},
      {"{{ given | default('t') }}{{ other | default('t') }}", "<argument>t", "..........T"},
  };
  for (const OriginCase& example : cases) {
    ASSERT_OK_AND_ASSIGN(const RenderedText rendered, Render(example.source, "<x> y"));
    if (example.text == nullptr) {
      EXPECT_TRUE(rendered.trusted.empty()) << example.source;
      continue;
    }
    EXPECT_EQ(rendered.text, example.text) << example.source;
    EXPECT_EQ(Origin(rendered), example.origin) << example.source;
  }
}

TEST(ChatTemplateTest, RefusesArgumentsThatWouldReplaceWhatTheServerGives) {
  ASSERT_OK_AND_ASSIGN(const auto parsed, ChatTemplate::Parse("{{ messages | length }}"));
  for (const char* name : {"messages", "add_generation_prompt", "bos_token", "eos_token",
                           "strftime_now", "raise_exception"}) {
    RenderOptions options;
    options.arguments[name] = "evil";
    EXPECT_THAT(parsed->Render(json::array({{{"role", "user"}}}), options),
                StatusIs(absl::StatusCode::kInvalidArgument, name));
  }
}

TEST(ChatTemplateTest, StopsTemplatesThatRunLongOrGrowLarge) {
  const std::string nest =
      "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}";
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"{% for i in range(1000000000000) %}{% endfor %}", "range"},
      {"{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}", "steps"},
      {"{% for i in range(90000) %}{{ messages[0].content * 1000 }}{% endfor %}", "bytes"},
      {"{{ 'x' * 10000000000 }}", "bytes"},
      {"{{ ('x' * 100000) * 100000 }}", "bytes"},
      {"{{ [1] * 100000000 }}", "steps"},
      {"{{ ([1] * 1000) * 100000 }}", "steps"},
      {"{% set ns = namespace(t='xx') %}{% for i in range(64) %}{% set ns.t = ns.t + ns.t %}"
       "{% endfor %}",
       "bytes"},
      {"{% set ns = namespace(t='xx') %}{% for i in range(64) %}"
       "{% set ns.t = ns.t | replace('x', 'xx') %}{% endfor %}",
       "than"},
      {"{% set ns = namespace(t=[1]) %}{% for i in range(64) %}{% set ns.t = ns.t + ns.t %}"
       "{% endfor %}",
       "steps"},
      {nest, "deep"},
      {"{% set big = 'a' * 900000 %}{% for i in range(90000) %}{% if big == big ~ '' %}{% endif %}"
       "{% endfor %}",
       "bytes"},
      {"{% set big = 'a' * 900000 %}{% for i in range(90000) %}{{ big[i] }}{% endfor %}", "bytes"},
      {"{{ ('\\x01' * 900000) | list | tojson(indent=64) | length }}", "than"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"},
      {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
       "deep"},
      {"{% macro m(x=m()) %}{% endmacro %}{{ m() }}", "deep"},
      {"{% macro m() %}{% call m() %}{% endcall %}{{ caller }}{% endmacro %}{{ m() }}", "deep"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deep"},
      {"{% macro m(n) %}{{ m(n + 1) ~ m(n + 1) if n < 30 else 'x' }}{% endmacro %}{{ m(0) }}",
       "than"},
      {"{% macro m(t) %}{{ t }}{{ t }}{% endmacro %}{% set ns = namespace(t='xx') %}"
       "{% for i in range(64) %}{% set ns.t = m(ns.t) %}{% endfor %}",
       "bytes"},
      {"{% set big = 'a' * 900000 %}{% for i in range(90000) %}{% set t %}{{ big }}{% endset %}"
       "{% endfor %}",
       "bytes"},
      {"{{ '%1000000000s' % 'x' }}", "width"},
      {"{{ '%.1000000000f' % 1.5 }}", "precision"},
      {"{{ 'x' | center(10000000000) }}", "bytes"},
      {"{{ 'x'.zfill(10000000000) }}", "bytes"},
      {"{{ 'x' | indent(10000000000) }}", "bytes"},
      {"{{ ('\\n' * 100000) | indent('x' * 100000) | length }}", "bytes"},
      {"{{ [1] | batch(10000000000, 0) | list }}", "steps"},
      {"{{ [1] | slice(10000000000) | list }}", "steps"},
      {"{% for i in range(90000) %}{{ range(90000) | sort | first }}{% endfor %}", "steps"},
      {"{% for i in range(90000) %}{{ range(90000) | sum }}{% endfor %}", "steps"},
      {"{% for i in range(90000) %}{{ range(90000) | map('string') | list | length }}{% endfor %}",
       "steps"},
      {"{% for i in range(90000) %}{{ range(90000) | unique | list | length }}{% endfor %}",
       "steps"},
      {"{% set ns = namespace(x=0) %}{% for i in range(90000) %}{% for j in [1] recursive %}"
       "{% set ns.x = loop %}{% set keep = ns.x %}{% endfor %}{% set keep = ns.x %}"
       "{% macro m() %}{{ keep }}{% endmacro %}{% set ns.x = m %}{% endfor %}",
       "steps"},
  };
  for (const auto& [source, limit] : cases) {
    EXPECT_THAT(Render(source), StatusIs(absl::StatusCode::kResourceExhausted, limit)) << source;
  }
  EXPECT_THAT(Render("{% for i in range(100) %}{{ messages[0].content }}{% endfor %}", "0123456789",
                     {.max_output_bytes = 999}),
              StatusIs(absl::StatusCode::kResourceExhausted, "999 bytes of output"));
}

std::string Repeated(const std::string& text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i)
    repeated += text;
  return repeated;
}

TEST(ChatTemplateTest, RefusesDeepNestingBeforeTheStackEnds) {
  const int many = 40'000;
  const std::vector<std::string> sources = {
      "{{ " + Repeated("(", many) + "1" + Repeated(")", many) + " }}",
      "{{ " + Repeated("[", many) + Repeated("]", many) + " }}",
      "{{ " + Repeated("not ", many) + "1 }}",
      "{{ " + Repeated("- ", many) + "1 }}",
      "{{ a" + Repeated(".b", many) + " }}",
      "{{ a" + Repeated("[0]", many) + " }}",
      "{{ a" + Repeated("()", many) + " }}",
      "{{ 1" + Repeated(" | string", many) + " }}",
      "{{ 1" + Repeated(" if 1", many) + " }}",
      "{{ " + Repeated("1 if 1 else ", many) + "1 }}",
      "{{ " + Repeated("{'a':", many) + "1" + Repeated("}", many) + " }}",
      Repeated("{% if 1 %}", many) + Repeated("{% endif %}", many),
      Repeated("{% for i in [1] %}", many) + Repeated("{% endfor %}", many),
  };
  for (const std::string& source : sources) {
    EXPECT_THAT(Render(source, "c", {.max_source_bytes = 8 << 20}),
                StatusIs(absl::StatusCode::kInvalidArgument, "nested more than"))
        << source.substr(0, 20);
  }
}

TEST(ChatTemplateTest, RunsMacrosAsDeepAsPublishedTemplatesDoButNotDeeper) {
  const std::string nested =
      "{% macro m(n) %}{% if n %}{% for i in [1] %}[{{ m(n - 1) | trim }}]{% endfor %}{% endif %}"
      "{% endmacro %}{{ m(";
  ASSERT_OK_AND_ASSIGN(const RenderedText rendered, Render(nested + "40) }}"));
  EXPECT_EQ(rendered.text, Repeated("[", 40) + Repeated("]", 40));
  EXPECT_THAT(Render(nested + "1000) }}"),
              StatusIs(absl::StatusCode::kResourceExhausted, "runs nested more than"));
}

TEST(ChatTemplateTest, HandsAnErrorInsideAMacroOutWithItsOwnLine) {
  EXPECT_THAT(Render("{% macro m(a) %}\n{{ a + 1 }}\n{% endmacro %}\n\n{{ m('x') | upper }}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "line 2: `a + 1`: unsupported"));
  EXPECT_THAT(Render("{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "macro m: 2 arguments, takes 1"));
}

TEST(ChatTemplateTest, WritesJsonInTheOrderOfTheCaller) {
  ASSERT_OK_AND_ASSIGN(const auto parsed,
                       ChatTemplate::Parse("{{ messages | tojson }}{{ t | tojson }}"));
  RenderOptions options;
  options.arguments =
      json::parse(R"({"t": {"z": 1, "a": {"y": 2, "b": 3}, "m": 9007199254740993}})");
  ASSERT_OK_AND_ASSIGN(
      const RenderedText rendered,
      parsed->Render(json::parse(R"([{"role": "user", "content": "c", "again": 1.0}])"), options));
  EXPECT_EQ(rendered.text, R"([{"role": "user", "content": "c", "again": 1.0}])"
                           R"({"z": 1, "a": {"y": 2, "b": 3}, "m": 9007199254740993})");
}

TEST(ChatTemplateTest, TellsTheTimeThatItIsGivenOrDoesNotKnowIt) {
  ASSERT_OK_AND_ASSIGN(const auto parsed,
                       ChatTemplate::Parse("{% if strftime_now is defined %}"
                                           "{{ strftime_now('%Y-%m-%d %H:%M:%S.%f%z') }}"
                                           "{% else %}no time{% endif %}"));
  RenderOptions options;
  ASSERT_OK_AND_ASSIGN(RenderedText rendered, parsed->Render(json::array(), options));
  EXPECT_EQ(rendered.text, "no time");
  options.now_us = 951'827'696'789'012;
  ASSERT_OK_AND_ASSIGN(rendered, parsed->Render(json::array(), options));
  EXPECT_EQ(rendered.text, "2000-02-29 12:34:56.789012");
}

// Under the sanitizers this finds values that own themselves.
TEST(ChatTemplateTest, LetsLoopsMacrosAndNamespacesHoldThemselves) {
  ASSERT_OK_AND_ASSIGN(
      const RenderedText rendered,
      Render("{% set ns = namespace() %}{% set ns.self = [ns] %}"
             "{% for x in [1, 2] recursive %}{% set ns.loop = loop %}"
             "{{ loop.changed(loop, [ns]) }}{% macro m() %}{{ m }}{% endmacro %}"
             "{% set ns.macro = [m, loop.cycle] %}{% endfor %}{{ ns.loop.changed(ns.loop) }}"));
  EXPECT_EQ(rendered.text, "TrueFalseTrue");
}

TEST(ChatTemplateTest, TakesLongChainsOfOneLevel) {
  EXPECT_OK(Render("{{ 1" + Repeated(" + 1", 5000) + " }}"));
  EXPECT_OK(Render("{{ 'a'" + Repeated(" ~ 'a'", 5000) + " }}"));
  EXPECT_OK(Render("{{ 1" + Repeated(" and 1", 5000) + " }}"));
  EXPECT_OK(Render("{% if 0 %}" + Repeated("{% elif 0 %}", 5000) + "{% endif %}"));
}

TEST(ChatTemplateTest, NamesLineAndExpressionOfAnError) {
  EXPECT_THAT(Render("a\n\n{{ messages[0].content + 1 }}"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "line 3: `messages[0].content + 1`: unsupported operand types"));
  EXPECT_THAT(Render("\n{{ unknown.field }}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "line 2: `unknown.field`: 'unknown'"));
  EXPECT_THAT(Render("{{ raise_exception('only user') }}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "only user"));
  EXPECT_THAT(Render("{{ 1 | urlize }}"),
              StatusIs(absl::StatusCode::kInvalidArgument, "filter urlize is not supported"));
  EXPECT_THAT(
      Render("\n{% include 'x' %}"),
      StatusIs(absl::StatusCode::kInvalidArgument, "line 2: statement include is not supported"));
}

TEST(ChatTemplateTest, RefusesBrokenTemplatesWithTheLine) {
  for (const char* source : {"{{",
                             "{%",
                             "{#",
                             "{{ 'a",
                             "{{ a b }}",
                             "{% if %}{% endif %}",
                             "{% for %}",
                             "{% for i on x %}",
                             "{% set %}",
                             "{% set a.b.c = 1 %}",
                             "{{ }}",
                             "{{ a[ }}",
                             "{{ a[1:2:3:4] }}",
                             "{{ {1} }}",
                             "{{ 'a' 'b }}",
                             "{% raw %}",
                             "{{ a? }}",
                             "{% break %}",
                             "{{ 99999999999999999999 }}",
                             "{{ '\\ud800' }}",
                             "{{ '\\xZZ' }}",
                             "{{ ) }}",
                             "{% else %}",
                             "{% if 1 %}{% else %}{% else %}",
                             "{{ f(a=1, 2) }}",
                             "{{ a. }}",
                             "{{ a | }}",
                             "{{ a is }}",
                             "{{ 1 + }}"}) {
    EXPECT_THAT(Render(source), StatusIs(absl::StatusCode::kInvalidArgument, "line 1")) << source;
  }
  EXPECT_THAT(Render("\xFF"), StatusIs(absl::StatusCode::kInvalidArgument, "UTF-8"));
  EXPECT_THAT(Render(std::string(2 << 20, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument, "at most"));
}

TEST(ChatTemplateTest, RefusesArithmeticBeyond64Bits) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 64 }}", "{{ 3037000500 * 3037000500 }}",
        "{{ -9223372036854775807 - 2 }}", "{{ (-9223372036854775807 - 1) // -1 }}", "{{ 1 % 0 }}",
        "{{ 1 // 0 }}", "{{ 0 ** -1 }}", "{{ 1.5 % 0 }}"}) {
    EXPECT_THAT(Render(source), StatusIs(absl::StatusCode::kInvalidArgument, "line 1")) << source;
  }
}

TEST(ChatTemplateTest, NamesTheMessageThatIsNotUtf8) {
  EXPECT_THAT(Render("{{ messages[0].content }}", "ab\xFF"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "messages[0].content is not valid UTF-8 at byte 2"));
}

}  // namespace
}  // namespace nightshift
