#include "client/completion.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "client/console.h"
#include "client/job_text.h"

namespace nightshift {
namespace {

constexpr char kBash[] = R"sh(# bash completion of nightshift: source <(nightshift completion bash)
_nightshift() {
  local current=${COMP_WORDS[COMP_CWORD]} kind line
  [[ $current == "=" ]] && current=
  COMPREPLY=()
  {
    read -r kind
    while IFS= read -r line; do
      COMPREPLY+=("${line%%$'\t'*}")
    done
  } < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
  if [[ $kind == files ]]; then
    compopt -o filenames
    while IFS= read -r line; do
      COMPREPLY+=("$line")
    done < <(compgen -f -- "$current")
  fi
}
complete -F _nightshift nightshift
)sh";

constexpr char kZsh[] = R"sh(#compdef nightshift
# zsh completion of nightshift: source <(nightshift completion zsh)
_nightshift() {
  local -a lines candidates
  local line
  lines=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2> /dev/null)}")
  for line in "${(@)lines[2,-1]}"; do
    candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  (( ${#candidates} )) && _describe -V nightshift candidates
  [[ $lines[1] == files ]] && _files
}
if [[ $funcstack[1] == _nightshift ]]; then
  _nightshift "$@"
else
  compdef _nightshift nightshift
fi
)sh";

constexpr char kFish[] = R"sh(# fish completion of nightshift: nightshift completion fish | source
function __nightshift_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  set -l lines ($words[1] complete -- $words[2..-1] "$current" 2> /dev/null)
  printf '%s\n' $lines[2..-1]
  if test "$lines[1]" = files
    __fish_complete_path "$current"
  end
end
complete --command nightshift --no-files --keep-order --arguments '(__nightshift_complete)'
)sh";

bool IsUpper(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char character) { return std::isupper(character) != 0; });
}

// "low|normal|high" are words to choose from; names in capitals say what kind of thing is meant.
void AddValues(const std::string& value, Completion& completion) {
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(value, '|'))) {
    if (part == "JOB") {
      completion.jobs = true;
    } else if (part == "MODEL") {
      completion.models = true;
    } else if (part == "STATE") {
      for (int state = v1::JOB_STATE_QUEUED; state <= v1::JOB_STATE_EXPIRED; ++state) {
        completion.words.emplace_back(StateText(static_cast<v1::JobState>(state)), "");
      }
    } else if (part == "INPUT" || part == "OUTPUT" || part == "FILE" || part == "FOLDER" ||
               part == "PACK" || part == "PATH") {
      completion.files = true;
    } else if (!IsUpper(part)) {
      completion.words.emplace_back(part, "");
    }
  }
}

const OptionHelp* FindOption(const std::vector<OptionHelp>& options, const std::string& name) {
  for (const OptionHelp& option : options) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) {
      return &option;
    }
  }
  return nullptr;
}

// bash makes words of their own of the colons in unix:PATH and HOST:PORT.
std::vector<std::string> JoinedAtColons(const std::vector<std::string>& words) {
  std::vector<std::string> joined;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ":" && !joined.empty() && i + 2 < words.size()) {
      absl::StrAppend(&joined.back(), ":", words[i + 1]);
      ++i;
    } else {
      joined.push_back(words[i]);
    }
  }
  return joined;
}

// Walks the words before the one that is completed.
class Walk {
 public:
  explicit Walk(const CommandHelp& help) : help_(help), command_(&help) {}

  void Take(const std::string& word) {
    if (awaited_ != nullptr) {
      // bash makes a word of its own of the = in --option=value.
      awaited_ = word == "=" ? awaited_ : nullptr;
    } else if (command_->takes_rest) {
      return;
    } else if (word == "--" && !only_arguments_) {
      only_arguments_ = true;
    } else if (!only_arguments_ && word.size() > 1 && word[0] == '-') {
      const OptionHelp* option = Find(word);
      awaited_ = option != nullptr && !option->value.empty() ? option : nullptr;
    } else if (const CommandHelp* below = command_->Find(word); below != nullptr) {
      command_ = below;
    } else {
      ++num_arguments_;
    }
  }

  Completion At(const std::string& word) const {
    Completion completion;
    completion.word = word == "=" ? "" : word;
    const size_t equals = word.find('=');
    if (awaited_ != nullptr) {
      AddValues(awaited_->value, completion);
    } else if (command_->takes_rest) {
      completion.files = true;
    } else if (!only_arguments_ && absl::StartsWith(word, "--") && equals != std::string::npos) {
      if (const OptionHelp* option = Find(word.substr(0, equals)); option != nullptr) {
        completion.prefix = word.substr(0, equals + 1);
        completion.word = word.substr(equals + 1);
        AddValues(option->value, completion);
      }
    } else if (!only_arguments_ && absl::StartsWith(word, "-") && word != "-") {
      AddOptions(completion);
    } else {
      AddArguments(completion);
    }
    return completion;
  }

  const OptionHelp* Find(const std::string& name) const {
    const OptionHelp* option = FindOption(command_->options, name);
    return option != nullptr ? option : FindOption(help_.options, name);
  }

 private:
  void AddOptions(Completion& completion) const {
    for (const auto* options : {&command_->options, &help_.options}) {
      for (const OptionHelp& option : *options) {
        const bool is_listed = command_ == &help_ && options == &command_->options;
        if (!is_listed && !option.names.empty()) {
          completion.words.emplace_back(option.names.back(), option.text);
        }
      }
    }
  }

  void AddArguments(Completion& completion) const {
    for (const CommandHelp& below : command_->commands) {
      completion.words.emplace_back(below.name, below.text);
    }
    const std::vector<OptionHelp>& arguments = command_->arguments;
    if (num_arguments_ < arguments.size()) {
      AddValues(arguments[num_arguments_].value, completion);
    } else if (!arguments.empty() && arguments.back().repeats) {
      AddValues(arguments.back().value, completion);
    }
  }

  const CommandHelp& help_;
  const CommandHelp* command_;
  const OptionHelp* awaited_ = nullptr;  // whose value comes next
  size_t num_arguments_ = 0;
  bool only_arguments_ = false;  // behind --
};

}  // namespace

Completion CompletionOf(const CommandHelp& help, const std::vector<std::string>& broken_words) {
  const std::vector<std::string> words = JoinedAtColons(broken_words);
  Walk walk(help);
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    walk.Take(words[i]);
  }
  return walk.At(words.empty() ? "" : words.back());
}

std::vector<std::string> GlobalOptionsIn(const CommandHelp& help,
                                         const std::vector<std::string>& broken_words) {
  const std::vector<std::string> words = JoinedAtColons(broken_words);
  std::vector<std::string> options;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const OptionHelp* option = FindOption(help.options, words[i].substr(0, equals));
    if (option == nullptr || option->value.empty()) {
      continue;
    }
    const size_t value = equals == std::string::npos && words[i + 1] == "=" ? i + 2 : i + 1;
    if (equals != std::string::npos) {
      options.push_back(words[i]);
    } else if (value + 1 < words.size()) {
      options.push_back(absl::StrCat(words[i], "=", words[value]));
    }
  }
  return options;
}

std::string CompletionScript(const std::string& shell) {
  if (shell == "bash") {
    return kBash;
  }
  if (shell == "zsh") {
    return kZsh;
  }
  return shell == "fish" ? kFish : "";
}

std::string CompletionText(const Completion& completion) {
  std::string text = completion.files ? "files\n" : "words\n";
  for (const auto& [word, meaning] : completion.words) {
    if (absl::StartsWith(word, completion.word)) {
      absl::StrAppend(&text, completion.prefix, OneLine(word), "\t", OneLine(meaning), "\n");
    }
  }
  return text;
}

}  // namespace nightshift
