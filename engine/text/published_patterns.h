// The split patterns that families publish.
#pragma once

namespace nightshift {

// GPT-2's encoder.py, which ByteLevel of Hugging Face applies unless told otherwise.
inline constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Llama-3's tokenizer.py.
inline constexpr char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// Qwen2: as Llama-3, but each digit stands alone.
inline constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// Mistral Nemo's tokenizer.json.
inline constexpr char kTekkenPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// o200k, which GPT-4o and Llama 4 use (tiktoken's openai_public.py).
inline constexpr char kGpt4oPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";

// DeepSeek V3's tokenizer.json: three splits.
inline constexpr char kUpTo3DigitsPattern[] = R"(\p{N}{1,3})";
inline constexpr char kDeepSeekCjkPattern[] = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+";
inline constexpr char kDeepSeekPattern[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
    R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";

// Digits of Hugging Face: every numeric character, alone or in runs.
inline constexpr char kEachDigitPattern[] = R"(\p{N})";
inline constexpr char kDigitRunPattern[] = R"(\p{N}+)";
// Digits behind ByteLevel: its alphabet writes the bytes of these as numeric characters.
inline constexpr char kEachDigitBytePattern[] = R"([0-9\xB2\xB3\xB9\xBC-\xBE])";
inline constexpr char kDigitByteRunPattern[] = R"([0-9\xB2\xB3\xB9\xBC-\xBE]+)";

// Punctuation of Hugging Face: the punctuation of ASCII and Unicode's as of version 7, so what came
// later is taken out. Compared with the tokenizers package on every code point.
inline constexpr char kPunctuationPattern[] =
    "(?!["
    "\u061D\u09FD\u0A76\u0C77\u0C84\u1B7D\u1B7E\u2E43-\u2E4F\u2E52-\u2E5D\U00010EAD"
    "\U00010F55-\U00010F59\U00010F86-\U00010F89\U0001144B-\U0001144F\U0001145A\U0001145B"
    "\U0001145D\U00011660-\U0001166C\U000116B9\U0001183B\U00011944-\U00011946\U000119E2"
    "\U00011A3F-\U00011A46\U00011A9A-\U00011A9C\U00011A9E-\U00011AA2\U00011C41-\U00011C45"
    "\U00011C70\U00011C71\U00011EF7\U00011EF8\U00011FFF\U00012FF1\U00012FF2"
    "\U00016E97-\U00016E9A\U00016FE2\U0001E95E\U0001E95F"
    "])[!-/:-@\\[-`{-~\\p{P}\u166D\U000111C9]";

}  // namespace nightshift
