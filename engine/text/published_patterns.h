// The split patterns that byte-level families publish.
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

// Digits of Hugging Face: every numeric character, alone or in runs.
inline constexpr char kEachDigitPattern[] = R"(\p{N})";
inline constexpr char kDigitRunPattern[] = R"(\p{N}+)";

}  // namespace nightshift
